"""The commands of the program `cpsched`, read from the command line itself. Needs Typer alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from cpsched_bridge.program.cli import app

EXAMPLES = {
    "simulate": "cpsched simulate jobs.swf --dispatcher easy --out results",
    "compare": "cpsched compare jobs.swf --dispatcher easy,lookahead --predictor walltime,last-two",
    "accuracy": "cpsched accuracy jobs.swf",
    "accuracy start-times": "cpsched accuracy start-times jobs.swf --max-jobs 1000",
    "dispatchers": "cpsched dispatchers",
    "predictors": "cpsched predictors",
    "metrics": "cpsched metrics",
    "demo": "cpsched demo --seconds 20",
    "gantt": "cpsched gantt results/schedule.csv.gz --out schedule.svg",
    "workload eurora": "cpsched workload eurora --days 2 --out jobs.csv.gz",
    "workload lublin": "cpsched workload lublin --jobs 1000 --out jobs.swf",
    "system from-slurm": "cpsched system from-slurm --name mycluster --out mycluster.yaml",
    "study": "cpsched study study.yaml --out results",
    "benchmark": "cpsched benchmark --quick --out results",
    "whatif": "cpsched whatif jobs.txt --system mycluster.yaml --out results",
    "tune": "cpsched tune jobs.txt --system mycluster.yaml --goal balance",
    "bridge": "cpsched bridge --config /etc/cpsched/bridge.yaml",
    "status": "cpsched status --json",
    "why": "cpsched why 4711",
    "estimate-start": "cpsched estimate-start --nodes 4 --time 2:00:00",
    "backfill-windows": "cpsched backfill-windows --partition batch",
    "events": "cpsched events --kind start_failed",
    "unmanaged": "cpsched unmanaged",
    "journal list": "cpsched journal list --last 5",
    "journal show": "cpsched journal show 120",
    "journal replay": "cpsched journal replay --all",
    "doctor": "cpsched doctor",
    "config": "cpsched config",
    "pause": "cpsched pause --reason maintenance",
    "resume": "cpsched resume",
    "take-leadership": "cpsched take-leadership",
    "release-all": "cpsched release-all --if-stale 120",
    "deploy-files": "cpsched deploy-files ./deploy",
    "warm-up": "cpsched warm-up",
}
"""An example of each command."""
METAVARS = {"<str>": "TEXT", "<path>": "PATH", "<float>": "NUMBER", "<float range>": "NUMBER", "<int>": "INTEGER",
            "<int range>": "INTEGER", "<list[str]>": "TEXT"}  # fmt: skip
"""Placeholders of Typer -> those of the pages."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its help texts."""

    name: str
    group: str
    usage: str
    summary: str
    details: str
    arguments: tuple[tuple[str, str], ...]
    """Name and meaning of each."""
    options: tuple[tuple[str, str], ...]

    @property
    def example(self) -> str:
        """An example of the command."""
        return EXAMPLES[self.name]


def commands() -> Iterator[Command]:
    """Return every command that the help shows, in its order."""
    program = typer.main.get_command(app)
    yield from _below(program, (), "")


def _below(group: Any, path: tuple[str, ...], panel: str) -> Iterator[Command]:
    for name, each in group.commands.items():
        if each.hidden:
            continue
        if hasattr(each, "commands"):
            yield from _below(each, (*path, name), each.rich_help_panel)
        else:
            yield _command(each, " ".join((*path, name)), panel or each.rich_help_panel)


def _command(command: Any, name: str, group: str) -> Command:
    context = command.make_context(f"cpsched {name}", [], resilient_parsing=True)
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
    """Return a help text without the escapes that keep Rich from reading it as markup."""
    return text.replace(":[none][/none]", ":").replace("\\[", "[")
