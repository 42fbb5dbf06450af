"""The page with the commands."""

from __future__ import annotations

from itertools import groupby

from cpsched_bridge.program.command_help import EXIT_CODES
from docs.scripts.command_tree import Command, commands
from docs.scripts.markdown import code, document, table

INTRODUCTION = """\
With `--json`, stdout contains exactly one JSON value (see [JSON](reference-json.md)). `-h` and `--help` print a
command's help. The environment variable `CPSCHED_CONFIG` may give the path of the settings file instead of
`--config`."""


def page() -> str:
    """Return the page, which has a section for each group of commands in the help."""
    parts = ["Every command ends with one of these exit codes.", _exits(EXIT_CODES), INTRODUCTION]
    for group, members in groupby(sorted(commands(), key=lambda each: each.group), key=lambda each: each.group):
        parts += [f"## {group}", *map(_section, members)]
    return document("Commands", *parts)


def _section(command: Command) -> str:
    rows = [(code(name), meaning) for name, meaning in (*command.arguments, *command.options)]
    parts = [
        f"### `cpsched {command.name}`",
        command.summary,
        *([command.details] if command.details else []),
        f"```text\n{command.usage}\n```",
        f"Example: `{command.example}`",
        table(("argument or option", "meaning"), rows),
        *([_exits(command.exit_codes)] if command.exit_codes[1] != EXIT_CODES[1] else []),
    ]
    return "\n\n".join(parts)


def _exits(codes: dict[int, str]) -> str:
    return table(("exit code", "meaning"), [(str(code), meaning) for code, meaning in codes.items()])
