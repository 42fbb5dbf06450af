"""The page of commands."""

from __future__ import annotations

from itertools import groupby

from docs.scripts.command_tree import Command, commands
from docs.scripts.markdown import code, document, table

INTRODUCTION = """\
Every command ends with one of these exit codes; the section of a command adds what is special to it.

| exit code | meaning |
| --- | --- |
| 0 | success |
| 1 | a check, a replay or a job action failed |
| 2 | an argument, a file or the cluster's answer is not usable; stderr has one line `error: ...` |
| 130 | interrupted by Ctrl-C |

With `--json` stdout holds exactly one JSON value, see [JSON](reference-json.md). `-h` and `--help` print the help of a
command. The environment variable `CPSCHED_CONFIG` may name the settings file in place of `--config`."""


def page() -> str:
    """Return the page: a section for each group of the help, with its commands."""
    parts = [INTRODUCTION]
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
    ]
    return "\n\n".join(parts)
