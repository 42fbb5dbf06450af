"""The commands of the program `cpsched`, read from its Typer application. This module requires only Typer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from cpsched_bridge.program.cli import app
from cpsched_bridge.program.command_help import EXAMPLES, find_exit_codes

METAVARS = {"<str>": "TEXT", "<path>": "PATH", "<float>": "NUMBER", "<float range>": "NUMBER", "<int>": "INTEGER",
            "<int range>": "INTEGER", "<list[str]>": "TEXT"}  # fmt: skip
"""The placeholders on the pages, by Typer's placeholder."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its help texts."""

    name: str
    group: str
    usage: str
    summary: str
    details: str
    arguments: tuple[tuple[str, str], ...]
    """The name and meaning of each argument."""
    options: tuple[tuple[str, str], ...]

    @property
    def example(self) -> str:
        """An example of its use."""
        return EXAMPLES[self.name]

    @property
    def exit_codes(self) -> dict[int, str]:
        """The command's exit codes with their meanings."""
        return find_exit_codes(self.name)


def commands() -> Iterator[Command]:
    """Yield every command that the help shows, in the same order."""
    program = typer.main.get_command(app)
    yield from _below(program, (), "", program.make_context("cpsched", [], resilient_parsing=True))


def _below(group: Any, path: tuple[str, ...], panel: str, above: Any) -> Iterator[Command]:
    for name, each in group.commands.items():
        if each.hidden:
            continue
        if hasattr(each, "commands"):
            yield from _below(each, (*path, name), each.rich_help_panel, above)
        else:
            yield _command(each, " ".join((*path, name)), panel or each.rich_help_panel, above)


def _command(command: Any, name: str, group: str, above: Any) -> Command:
    context = command.make_context(f"cpsched {name}", [], parent=above, resilient_parsing=True)
    summary, _, details = _plain(command.help).partition("\n\n")
    kinds: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            word, _, kind = record[0].partition(" <")
            term = f"{word} {METAVARS.get(f'<{kind}', f'<{kind}')}" if kind else word
            kinds[parameter.param_type_name].append((term, _plain(record[1])))
    usage = f"cpsched {name} {' '.join(command.collect_usage_pieces(context))}"
    return Command(name, group, usage, summary, details, tuple(kinds["argument"]), tuple(kinds["option"]))


def _plain(text: str) -> str:
    """Return a help text without the escapes that prevent Rich from parsing it as markup."""
    return text.replace(":[none][/none]", ":").replace("\\[", "[")
