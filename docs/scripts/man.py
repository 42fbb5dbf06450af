"""Generate manual pages from the commands' help: `python -m docs.scripts.man DIRECTORY`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from cpsched_bridge.program.command_help import EXIT_CODES
from docs.scripts.command_tree import Command, commands


def pages() -> Iterator[tuple[str, str]]:
    """Yield the file name and content of the manual page for the program and for each command."""
    found = list(commands())
    items = [(page_name(each), each.summary) for each in found]
    parts = ("COMMANDS", items), ("EXIT STATUS", _shown(EXIT_CODES))
    yield "cpsched.1", _page("cpsched", "schedule an HPC cluster", "cpsched COMMAND [ARGS]...", *parts)
    for each in found:
        yield f"{page_name(each)}.1", _page_of(each)


def page_name(command: Command) -> str:
    """Return the name of a command's manual page."""
    return f"cpsched-{command.name.replace(' ', '-')}"


def write(directory: Path) -> list[Path]:
    """Write all pages. Return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    return [path for name, text in pages() if (path := directory / name).write_text(text, encoding="utf-8")]


def _shown(codes: dict[int, str]) -> list[tuple[str, str]]:
    return [(str(code), meaning) for code, meaning in codes.items()]


def _page_of(command: Command) -> str:
    exits = _shown(command.exit_codes)
    parts = ("ARGUMENTS", command.arguments), ("OPTIONS", command.options), ("EXIT STATUS", exits)
    details = "\n\n".join(filter(None, (command.summary, command.details)))
    return _page(page_name(command), command.summary, command.usage, *parts, text=details, example=command.example)


def _page(name: str, summary: str, usage: str, *lists: tuple[str, object], text: str = "", example: str = "") -> str:
    lines = [f'.TH "{name.upper()}" 1 "" "cpsched" "User Commands"', ".SH NAME", _text(f"{name} - {summary}")]
    lines += [".SH SYNOPSIS", _text(usage)]
    if text:
        lines += [".SH DESCRIPTION", _text(text)]
    for title, items in lists:
        lines += [f".SH {title}"] if items else []
        for term, meaning in items:  # type: ignore[attr-defined]
            lines += [".TP", f".B {_text(term)}", _text(meaning)]
    if example:
        lines += [".SH EXAMPLE", ".nf", _text(example), ".fi"]
    return "\n".join([*lines, ".SH SEE ALSO", "cpsched(1)"]) + "\n"


def _text(text: str) -> str:
    """Escape a text so that roff prints it unchanged."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line or ".PP" for line in escaped.splitlines())


if __name__ == "__main__":
    print(f"{len(write(Path(sys.argv[1])))} pages in {sys.argv[1]}")
