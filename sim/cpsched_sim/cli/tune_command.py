"""`cpsched tune`: find the settings that best meet the site's goal."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cpsched.formatting import format_count
from cpsched_sim.cli.options import ParallelRunOptions, PolicyPath, WorkloadOptions, expand_option_groups
from cpsched_sim.cli.simulator_app import app, reporting
from cpsched_sim.command_conventions import print_message, print_report
from cpsched_sim.plugin_watchdog import watch_plugins


@app.command()
@reporting
@expand_option_groups
def tune(
    *,
    goal: Annotated[
        str | None,
        typer.Option(metavar="GOAL", help="waits, balance (default), large-jobs, or weights of metrics: bsld=2,awf=1."),
    ] = None,
    limits: Annotated[
        str | None,
        typer.Option(metavar="NAME=%,...", help="Upper limits in % of easy's values (awf=103,longest=110), or none."),
    ] = None,
    present: Annotated[
        str, typer.Option(metavar="POLICY", help="Current policy: dispatcher / predictor NAME=VALUE ...")
    ] = "lookahead",
    weeks: Annotated[float, typer.Option(min=0, help="Number of weeks to use from the end of the trace.")] = 8.0,
    window_days: Annotated[float, typer.Option(min=0, help="Length of a window in days.")] = 3.5,
    window_jobs: Annotated[int, typer.Option(min=100, help="Maximum jobs per window; longer windows are cut.")] = 4000,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Number of replays per randomized setting.")] = 3,
    twin: Annotated[bool, typer.Option("--twin", help="Also show the twin of Slurm's own scheduler.")] = False,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of replays to reuse; default: the user's cache."),
    ] = None,
    source: WorkloadOptions,
    policy: PolicyPath = None,
    running: ParallelRunOptions,
) -> None:
    """Find the best setting for a goal in TRACE's last weeks.

    Settings are chosen on half of these weeks and tested on the other half.

    The metrics of a goal and its limits are mean_wait, bsld, af, awf, p2sf and longest.
    """
    from cpsched.errors import require
    from cpsched.goal_presets import Goal
    from cpsched.policy_spec import PolicySpec
    from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES
    from cpsched_sim.experiments.case_store import CaseStore
    from cpsched_sim.file_io import require_writable_folder
    from cpsched_sim.terminal_tables import print_tuning_result, progress_bar
    from cpsched_sim.tuning import tuner
    from cpsched_sim.tuning.tuning_windows import split_last_weeks
    from cpsched_sim.tuning.window_replays import TRIAL_FORMAT, SettingTrialRunner
    from cpsched_sim.workloads.workload_loader import apply_site_policy

    require(weeks > 0, "--weeks", weeks, "must be positive")
    require(window_days > 0, "--window-days", window_days, "must be positive")
    wanted, spec = Goal.parse(goal, limits), PolicySpec.parse(present, SIMULATION_REGISTRIES)
    also_judged = (PolicySpec("slurm"),) if twin else ()
    folder = _default_cache_folder() if keep is None else keep
    if keep is not None:
        require_writable_folder(keep)
    with watch_plugins(running.decide_timeout) as patient:
        spec.build(known=SIMULATION_REGISTRIES)
        workload = source.load(patient.reset)
        workload = apply_site_policy(workload, policy) if policy is not None else workload
        cut, notes = split_last_weeks(workload, weeks, window_days, window_jobs)
    for note in (*workload.notes, *notes):
        print_message("note", note)
    kept = CaseStore(folder, TRIAL_FORMAT, is_cache=True)
    kept.delete_unused()
    question = tuner.TuningRequest(wanted, spec, also_judged, seeds)
    try:
        with progress_bar("tune", "replays", running.quiet) as show:
            found = tuner.tune(question, cut, SettingTrialRunner(running.jobs, kept, running.decide_timeout), show)
    except KeyboardInterrupt:
        print_message("interrupted", "finished replays are stored: repeat the command to resume")
        raise typer.Exit(130) from None
    if kept.found:
        print_message("note", f"{format_count(kept.found, 'replay was', 'replays were')} read from {folder}")
    for each in found.tried:
        if each.error:
            print_message("error", f"{each.changes}: {each.error}")
    print_report(
        found,
        partial(print_tuning_result, f"{workload.name} on {workload.system}"),
        running.as_json,
        partial(tuner.tuning_result_to_json, notes=(*workload.notes, *notes)),
    )
    if any(each.error for each in found.tried):
        raise typer.Exit(1)


def _default_cache_folder() -> Path:
    """Return the default folder for stored replays."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpsched" / "tune"
