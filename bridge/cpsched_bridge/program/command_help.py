"""Add an example and the exit codes to each command's help.

The documentation's pages are generated from the help.
"""

from __future__ import annotations

import typer

HELP_GROUPS = {
    "Simulate": "demo simulate compare gantt accuracy dispatchers predictors metrics workload system",
    "Study": "whatif study benchmark tune record-slurm-estimates",
    "Bridge": "bridge status queue why estimate-start backfill-windows events unmanaged journal",
    "Administer": "doctor config pause resume forget take-leadership release-all deploy-files warm-up",
}
"""Groups in the help, with the commands in each group."""

EXIT_CODES = {
    0: "success",
    1: "a check, a replay, a plug-in or the bridge failed",
    2: "invalid arguments, settings or files, or output that cannot be written",
    3: "whatif run: Slurm's twin differs too much from the real starts",
    130: "interrupted by Ctrl-C",
}
"""Meanings of the exit codes of `cpsched`."""

EXAMPLES = {
    "demo": "cpsched demo --seconds 10",
    "simulate": "cpsched simulate KTH-SP2.swf.gz --dispatcher easy --predictor last-two",
    "compare": "cpsched compare day.csv.gz -d slurm,easy,lookahead --from 2026-10-01 --to +7d --out results",
    "gantt": "cpsched gantt results/easy-walltime/schedule.csv.gz --out easy.svg",
    "accuracy": "cpsched accuracy day.csv.gz --predictor walltime,last-two,profile",
    "accuracy start-times": "cpsched accuracy start-times day.csv.gz --dispatcher lookahead",
    "dispatchers": "cpsched dispatchers --json",
    "predictors": "cpsched predictors",
    "metrics": "cpsched metrics",
    "workload eurora": "cpsched workload eurora --days 1 --load 3 --seed 1 --out day.csv.gz",
    "workload lublin": "cpsched workload lublin --jobs 2000 --processors 128 --seed 1 --out lublin.swf.gz",
    "system from-slurm": "cpsched system from-slurm --name our-cluster --out our-cluster.yaml",
    "whatif run": "cpsched whatif run site --with lookahead --with 'add-nodes=20 like=cpu16' --out report",
    "whatif collect": "cpsched whatif collect --days 30 --out site --anonymous",
    "study run": "cpsched study run study.yaml --out results --processes 8",
    "study verify": "cpsched study verify results --sample 2",
    "study example": "cpsched study example > study.yaml",
    "benchmark": "cpsched benchmark --out mine --dispatcher my.module:Mine --quick",
    "record-slurm-estimates": "cpsched record-slurm-estimates --out estimates.csv.gz --for 7-00",
    "tune": "cpsched tune jobs.txt --system our-cluster.yaml --goal waits",
    "bridge": "cpsched bridge --config /etc/cpsched/bridge.yaml",
    "status": "cpsched status --json",
    "queue": "cpsched queue --start",
    "why": "cpsched why 1234",
    "estimate-start": "cpsched estimate-start --time 2:00:00 --nodes 4 --cores 16",
    "backfill-windows": "cpsched backfill-windows --partition main",
    "events": "cpsched events --last 20 --kind start_failed",
    "unmanaged": "cpsched unmanaged --json",
    "journal list": "cpsched journal list --starts --last 5",
    "journal show": "cpsched journal show 315",
    "journal replay": "cpsched journal replay --all",
    "doctor": "cpsched doctor --config /etc/cpsched/bridge.yaml",
    "config": "cpsched config --json",
    "forget": "cpsched forget user alice",
    "pause": "cpsched pause --reason 'maintenance of the switches'",
    "resume": "cpsched resume",
    "take-leadership": "cpsched take-leadership",
    "release-all": "cpsched release-all --if-stale 600",
    "deploy-files": "cpsched deploy-files cpsched-files --runbooks https://docs.example.org/cpsched",
    "warm-up": "cpsched warm-up",
}
"""One example for each command."""

FAILURE_MEANINGS = {
    "simulate": "a plug-in failed or made no progress",
    "compare": "a combination failed",
    "accuracy": "a plug-in failed or made no progress",
    "study run": "cases failed or did not end",
    "study verify": "results differ",
    "benchmark": "cases failed or did not end",
    "tune": "a replay failed",
    "bridge": "the bridge could not start, or could not release its jobs",
    "status": "the journal or the ledger cannot be read",
    "journal replay": "a repeated decision differs, or the journal cannot be read",
    "queue": "the bridge does not respond",
    "estimate-start": "the bridge does not respond",
    "backfill-windows": "the bridge does not respond",
    "doctor": "a check that control mode requires fails",
    "release-all": "jobs could not be released",
    "warm-up": "kernels could not be compiled or stored",
}
"""Meanings of exit code 1 that are more specific than in `EXIT_CODES`, by command."""


def find_exit_codes(command: str) -> dict[int, str]:
    """Return a command's exit codes with their meanings."""
    found = {code: meaning for code, meaning in EXIT_CODES.items() if code != 3 or command == "whatif run"}
    return found | ({1: FAILURE_MEANINGS[command]} if command in FAILURE_MEANINGS else {})


def format_help_epilog(command: str) -> str:
    """Return the text at the end of a command's help."""
    return f"Example:\n{EXAMPLES[command]}\n\n{_format_exit_codes(find_exit_codes(command))}"


def _format_exit_codes(codes: dict[int, str]) -> str:
    return "\n".join(["Exit codes:", *(f"{code:<4} {meaning}" for code, meaning in codes.items())])


ROOT_EPILOG = _format_exit_codes(EXIT_CODES)


def add_command_help(app: typer.Typer) -> None:
    """Assign the commands to help groups, and append the example and exit codes."""
    panel_of = {name: panel for panel, names in HELP_GROUPS.items() for name in names.split()}
    commands = [("", each) for each in app.registered_commands]
    for group in app.registered_groups:
        group.rich_help_panel = panel_of[str(group.name)]
        assert group.typer_instance is not None
        commands += [(f"{group.name} ", each) for each in group.typer_instance.registered_commands]
    for above, command in commands:
        name = above + str(command.name or getattr(command.callback, "__name__", ""))
        command.rich_help_panel = None if above else panel_of[name.split()[0]]
        command.epilog = format_help_epilog(name)
