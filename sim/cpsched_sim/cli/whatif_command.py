"""`cpsched whatif run` and `cpsched whatif collect`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cpsched.formatting import format_count
from cpsched_sim.cli.options import ParallelRunOptions, PolicyPath, SystemName, TraceFormatOptions, expand_option_groups
from cpsched_sim.cli.simulator_app import app, reporting
from cpsched_sim.command_conventions import print_message, print_report, run_all_steps_despite_errors
from cpsched_sim.plugin_watchdog import watch_plugins

if TYPE_CHECKING:
    from cpsched_sim.whatif.whatif_cases import WhatIfCase
    from cpsched_sim.whatif.whatif_replay import WhatIfReplayRunner
    from cpsched_sim.whatif.whatif_results import WhatIfRequest
    from cpsched_sim.whatif.whatif_window import WindowPeriodOptions

whatif_app = typer.Typer(help="Replay a site's own workload as Slurm ran it, then with changes.", no_args_is_help=True)
app.add_typer(whatif_app, name="whatif")

HOPELESS_EXIT_CODE = 3
"""Exit code if the twin differs too much from the real schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWindowOptions:
    """The days to replay."""

    days: Annotated[float | None, typer.Option(help="Replay only this many days before the end.")] = None
    from_: Annotated[str | None, typer.Option("--from", metavar="DATE", help="Start, as a day or time.")] = None
    to: Annotated[str | None, typer.Option("--to", metavar="DATE", help="End (exclusive), as a day or time.")] = None

    def to_window_period_options(self) -> WindowPeriodOptions:
        """Return the options as `WindowPeriodOptions`."""
        from cpsched_sim.whatif.whatif_window import WindowPeriodOptions

        return WindowPeriodOptions(self.from_ or "", self.to or "", self.days)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfCaseOptions:
    """The cases to replay."""

    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="CASE",
            help="Case to replay (repeatable): lookahead, advise, 'easy / quantile', or a change: "
            "'add-nodes=20 like=cpu16', 'remove-partition=old into=main', walltimes=0.5, policy=FILE.",
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Case: Slurm's own scheduler with a changed parameter."),
    ] = None
    with_policy: Annotated[
        Path | None, typer.Option("--with-policy", metavar="FILE", help="Case: a different site policy.")
    ] = None
    add_nodes: Annotated[int | None, typer.Option("--add-nodes", min=1, help="Case: more nodes.")] = None
    like: Annotated[str | None, typer.Option(help="Type of the added nodes: a node type, or a node name.")] = None
    remove_partition: Annotated[
        str | None, typer.Option("--remove-partition", help="Case: merge this partition into another.")
    ] = None
    into: Annotated[str | None, typer.Option(help="Partition to merge into; default: the largest.")] = None
    walltimes: Annotated[
        float | None, typer.Option(help="Case: reduce time limits to this fraction, but not below the run time.")
    ] = None

    def build_cases(self) -> list[WhatIfCase]:
        """Return the cases. Raise `InvalidValue`."""
        from cpsched.errors import require
        from cpsched_sim.whatif.whatif_cases import build_whatif_cases

        given = {"add-nodes": self.add_nodes, "like": self.like, "remove-partition": self.remove_partition,
                 "into": self.into, "walltimes": self.walltimes}  # fmt: skip
        changes = {name: str(value) for name, value in given.items() if value is not None}
        for name, needs in (("like", "add-nodes"), ("into", "remove-partition")):
            require(name not in changes or needs in changes, f"--{name}", changes.get(name), f"requires --{needs}")
        policy = str(self.with_policy) if self.with_policy else None
        return build_whatif_cases(self.with_ or (), self.set_ or (), changes, policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfSiteOptions(TraceFormatOptions):
    """The site's accounting data, and facts about the site that they lack."""

    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER",
            help="Output of `sacct -P`, PBS's accounting log (file or folder), another trace with recorded "
            "starts, or a folder written by `whatif collect`.",
        ),
    ]
    system: SystemName = None
    config: Annotated[
        Path | None,
        typer.Option("--slurm-config", metavar="FILE", help="Output of `scontrol show config`: Slurm's parameters."),
    ] = None
    policy: PolicyPath = None
    licenses: Annotated[
        str | None,
        typer.Option("--licenses", metavar="NAME=N,...", help="Total of each license; default: from the folder."),
    ] = None
    earlier: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Earlier folder of `whatif collect`: the report shows changes, and new nodes start unavailable.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRunOptions:
    """What to replay, and where to write the results."""

    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for report and results.")] = Path("whatif")
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Number of replays per randomized dispatcher.")] = 3
    sessions: Annotated[
        bool, typer.Option("--sessions/--no-sessions", help="Also replay with users who react to their waits.")
    ] = True
    resume: Annotated[bool, typer.Option("--resume", help="Reuse finished replays in --out.")] = False
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Replay the cases even if the twin differs too much from the real starts.")
    ] = False


@whatif_app.command("run")
@reporting
@expand_option_groups
def whatif_run(
    *,
    site: WhatIfSiteOptions,
    choice: WhatIfCaseOptions,
    period: ReplayWindowOptions,
    run: WhatIfRunOptions,
    running: ParallelRunOptions,
) -> None:
    """Replay a site's own workload as Slurm ran it, then with changes.

    Write a report with confidence intervals.
    """
    from cpsched_sim.replay_hints import list_scheduler_parameter_hints
    from cpsched_sim.simulation import ReplaySpec
    from cpsched_sim.site.policy_file import load_site_policy_file
    from cpsched_sim.whatif import whatif_io
    from cpsched_sim.whatif.license_limits import parse_license_totals
    from cpsched_sim.whatif.slurm_collection_folder import SlurmCollectionFolder
    from cpsched_sim.whatif.whatif_cases import (
        TWIN_DISPATCHER,
        WhatIfCase,
        add_site_priority_settings,
        with_slurm_config_file,
    )
    from cpsched_sim.whatif.whatif_replay import WhatIfReplayRunner
    from cpsched_sim.whatif.whatif_results import WhatIfRequest

    folder, config = SlurmCollectionFolder.find(site.source), site.config
    if folder is not None:
        config = config or folder.slurm_config_path
    cases = [with_slurm_config_file(case, config) for case in choice.build_cases()]
    twin = with_slurm_config_file(WhatIfCase.parse(TWIN_DISPATCHER), config)
    totals = parse_license_totals(site.licenses) if site.licenses is not None else {}
    whatif_io.require_new_whatif_folder(run.out, run.resume)

    with watch_plugins(running.decide_timeout):
        policies = [ReplaySpec(case.spec).build() for case in (twin, *cases)]  # reports invalid cases before a replay
        site_policy = folder.policy() if folder is not None and site.policy is None else None
        if site.policy is not None:
            site_policy = load_site_policy_file(site.policy)
        inputs = whatif_io.WhatIfInputs(
            source=site.source,
            system=site.system,
            period=period.to_window_period_options(),
            lenient=site.lenient,
            format=site.format,
            dialect=site.to_dialect(),
            site=site_policy,
            earlier=site.earlier,
            license_totals=totals,
        )
        window, digests = whatif_io.read_whatif_window(inputs)
    if window.site is not None:
        cases = [add_site_priority_settings(case) for case in cases]

    hints = dict.fromkeys(hint for each in policies for hint in list_scheduler_parameter_hints(each))
    window = replace(window, notes=(*window.notes, *hints))
    for note in whatif_io.list_window_warnings(window):
        print_message("note", note)
    for hint in filter(None, (case.added_nodes_hint(window) for case in cases)):
        print_message("hint", hint)
    if window.guessed:
        kept = whatif_io.write_guessed_system(window, run.out)
        print_message("note", f"the system was guessed from {window.guessed}: correct {kept} and pass it with --system")

    replays = WhatIfReplayRunner(window, run.out, digests, running.jobs, running.decide_timeout)
    _run_and_report(replays, WhatIfRequest(twin, cases, run.seeds, run.sessions, run.anyway), running)


def _run_and_report(replays: WhatIfReplayRunner, plan: WhatIfRequest, running: ParallelRunOptions) -> None:
    """Run the replays, then print and write the findings."""
    from cpsched_sim.terminal_tables import progress_bar
    from cpsched_sim.whatif import whatif_io
    from cpsched_sim.whatif.schedule_comparison import HOPELESS_GRADE
    from cpsched_sim.whatif.whatif_report import terminal_summary
    from cpsched_sim.whatif.whatif_results import replay_and_compute_findings

    try:
        with progress_bar("what if", "replays", running.quiet) as show:
            found = replay_and_compute_findings(replays, plan, show)
    except KeyboardInterrupt:
        print_message("interrupted", f"finished replays are in {replays.out}; use --resume to continue")
        raise typer.Exit(130) from None

    found["digests"] = dict(replays.digests)
    run_all_steps_despite_errors(
        partial(print_report, found, lambda findings: typer.echo(terminal_summary(findings)), running.as_json),
        partial(whatif_io.write_whatif_report, found, replays.out),
    )
    if not running.as_json:
        print_message("note", f"the report is in {replays.out / whatif_io.HTML_REPORT}")
    if found["fidelity"]["verdict"]["grade"] == HOPELESS_GRADE:
        print_message("error", f"the twin's fidelity is hopeless: {found['fidelity']['verdict']['why']}")
        raise typer.Exit(HOPELESS_EXIT_CODE)


@whatif_app.command("collect")
@reporting
def whatif_collect(
    days: Annotated[float, typer.Option(help="Number of days to collect, ending now.")] = 30.0,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the collected data.")] = Path("whatif"),
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Replace user and job names with numbers.")] = False,
) -> None:
    """Collect the last days' data from this host's Slurm as input for `whatif run`."""
    from cpsched_sim.whatif.slurm_collection import collect_from_slurm

    found = collect_from_slurm(days, out, anonymous)
    for name, why in found.lacking.items():
        print_message("note", f"without {name}: {why}")
    for note in found.notes:
        print_message("note", f"not in the replay: {note}")
    for name, lines in found.lines.items():
        typer.echo(f"{out / name}: {format_count(lines, 'line')}")
    print_message("note", f"next: cpsched whatif run {out} --with lookahead --with advise --out report")
