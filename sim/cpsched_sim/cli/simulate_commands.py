"""`cpsched simulate` and `cpsched compare`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cpsched.formatting import format_count
from cpsched_sim.cli.options import (
    Dispatcher,
    Dispatchers,
    OutDir,
    ParallelRunOptions,
    Predictor,
    Predictors,
    ReplayOptions,
    RunAndOutputOptions,
    TracePartOptions,
    expand_option_groups,
    parse_names,
)
from cpsched_sim.cli.simulator_app import app, reporting
from cpsched_sim.command_conventions import print_message, print_report, run_all_steps_despite_errors
from cpsched_sim.plugin_watchdog import watch_plugins

if TYPE_CHECKING:
    from cpsched_sim.comparison import ComparisonRow
    from cpsched_sim.simulation import Simulation


@app.command()
@reporting
@expand_option_groups
def simulate(
    *,
    dispatcher: Dispatcher = "easy",
    predictor: Predictor = "walltime",
    options: ReplayOptions,
    part: TracePartOptions,
    out: OutDir = None,
    running: RunAndOutputOptions,
) -> None:
    """Replay TRACE and print the metrics of its schedule."""
    from cpsched import metrics
    from cpsched.policy_spec import PolicySpec
    from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES
    from cpsched_sim.result_files import SUMMARY_FILE, require_new_files
    from cpsched_sim.simulation import (
        SCHEDULE_FILE,
        ReplaySpec,
        replay_workload,
        summarize_or_save_schedule,
        write_replay_results,
    )
    from cpsched_sim.site.policy_file import load_site_policy_file
    from cpsched_sim.terminal_tables import print_simulation, progress_bar
    from cpsched_sim.workloads.workload_loader import apply_site_policy

    settings = options.parse_policy_settings()
    with (
        watch_plugins(running.decide_timeout) as patient,
        progress_bar(f"{dispatcher} / {predictor}", quiet=running.quiet) as show,
    ):
        spec = PolicySpec.of(dispatcher, predictor, settings, SIMULATION_REGISTRIES)
        setup, more = (
            ReplaySpec(spec, options.parse_scheduling_overhead()),
            tuple(map(metrics.find_metric, options.metric or ())),
        )
        setup.build()
        site = load_site_policy_file(options.policy) if options.policy is not None else None
        if out is not None:
            require_new_files(out / SCHEDULE_FILE, out / SUMMARY_FILE)
        workload = part.load(patient.resetting_callback(lambda jobs: show(jobs, None)))
        workload = apply_site_policy(workload, site) if site is not None else workload
        simulation = replay_workload(workload, setup, patient.resetting_callback(show), more=more)
        summary = summarize_or_save_schedule(simulation, out)
    _print_warnings(simulation)
    steps: list[Callable[[], object]] = [
        partial(print_report, summary, partial(print_simulation, simulation), running.as_json)
    ]
    if out is not None:
        steps.append(partial(write_replay_results, simulation, out, summary))
    run_all_steps_despite_errors(*steps)


def _print_warnings(simulation: Simulation) -> None:
    """Print warnings about the results on stderr."""
    for note in simulation.workload.notes:
        print_message("note", note)
    if simulation.never_started_count:
        refused = next(iter(simulation.schedule.refused.values()))
        print_message("warning", f"{format_count(simulation.never_started_count, 'job')} never started: {refused}")
    for hint in simulation.hints:
        print_message("hint", hint)
    if why := simulation.mismatch_warning():
        print_message("warning", why)


@app.command()
@reporting
@expand_option_groups
def compare(
    *,
    dispatchers: Dispatchers,
    predictors: Predictors = ["walltime"],  # noqa: B006
    baseline: Annotated[
        str | None,
        typer.Option(help="Baseline (100 %): dispatcher, dispatcher/predictor or 'as recorded'; default: the first."),
    ] = None,
    options: ReplayOptions,
    part: TracePartOptions,
    out: OutDir = None,
    plots: Annotated[
        bool, typer.Option("--plots", help="Also draw bars.png and ecdf.png in --out and, with --policy, shares.png.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Reuse finished results in --out and replay the rest.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print only the table of compare.csv on stdout.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print only a Markdown table on stdout.")] = False,
    running: ParallelRunOptions,
) -> None:
    """Replay TRACE with every dispatcher and predictor.

    --out writes compare.csv and all schedules.
    """
    from cpsched import metrics
    from cpsched.errors import require
    from cpsched_sim import comparison
    from cpsched_sim.experiments.parallel_comparison import (
        SharedComparisonInputs,
        compare_in_processes,
        load_finished_rows,
    )
    from cpsched_sim.file_io import format_csv, require_writable_folder, write_csv
    from cpsched_sim.recorded_schedule import recorded_schedule_of
    from cpsched_sim.report import charts
    from cpsched_sim.result_files import check_comparison_is_new
    from cpsched_sim.site.fairness import site_policy_metrics
    from cpsched_sim.site.policy_file import load_site_policy_file
    from cpsched_sim.terminal_tables import print_comparison, progress_bar
    from cpsched_sim.workloads.workload_loader import apply_site_policy

    if out is not None and resume:  # plots of the earlier rows would not match the longer table
        plots = plots or any((out / name).exists() for name in charts.PLOT_FILES)
    if plots:
        require(out is not None, "--plots", plots, "requires --out DIR")
        charts.require_matplotlib()
    require(not resume or out is not None, "--resume", resume, "requires --out DIR")
    formats = {"--json": running.as_json, "--csv": as_csv, "--markdown": as_markdown}
    require(
        sum(formats.values()) <= 1,
        ", ".join(formats),
        [*filter(formats.get, formats)],
        "cannot be combined: set only one of them",
    )
    settings = options.parse_policy_settings()
    names = tuple(options.metric or ())
    with watch_plugins(running.decide_timeout) as patient:
        more = tuple(map(metrics.find_metric, names))
        chosen = comparison.make_policy_combinations(
            parse_names("--dispatcher", dispatchers), parse_names("--predictor", predictors), settings,
            options.parse_scheduling_overhead(),
        )  # fmt: skip
        comparison.require_known_baseline(chosen, baseline)
        site = load_site_policy_file(options.policy) if options.policy is not None else None
        if out is not None:
            require_writable_folder(out)
        if out is not None and not resume:
            check_comparison_is_new(out, ("compare.csv", *charts.PLOT_FILES))
        workload = part.load(patient.reset)
    if site is not None:
        workload = apply_site_policy(workload, site)
        more = (*more, *site_policy_metrics(site))
    really = recorded_schedule_of(workload)
    recorded = comparison.recorded_schedule_rows(really, baseline, more)
    for note in workload.notes:
        print_message("note", note)
    shared = SharedComparisonInputs(
        part.trace, part.system, part.max_jobs, part.lenient, out, part.format, names, plots, options.policy,
        part.to_dialect(), running.decide_timeout, part.to_date_range(),
    )  # fmt: skip
    setups = [setup for setup, _ in chosen]
    done, others = load_finished_rows(shared, setups, workload) if resume else ({}, [])
    if resume:
        more_said = f"; {format_count(len(others), 'other result is kept', 'other results are kept')}" if others else ""
        print_message(
            "note",
            f"{len(done)} of {format_count(len(setups), 'combination was', 'combinations were')} already finished{more_said}",  # noqa: E501
        )
    interrupted = False
    try:
        with progress_bar("compare", "combinations", running.quiet) as show:
            compare_in_processes(shared, setups, running.jobs, show, done)
    except KeyboardInterrupt:
        interrupted = True
    rows = [*(done[index] for index in sorted(done)), *others]
    if interrupted:
        goes_on = "; use --resume to continue" if out is not None else ""
        print_message(
            "interrupted",
            f"{len(done)} of {format_count(len(setups), 'combination is', 'combinations are')} finished{goes_on}",
        )
        if not rows:
            raise typer.Exit(130)
    rows += recorded
    baselines = comparison.map_rows_to_baselines(rows, baseline)
    title = f"{workload.name} on {workload.system}"

    def print_text(rows: list[ComparisonRow]) -> None:
        if as_csv:
            typer.echo(format_csv(comparison.comparison_table_rows(rows, baselines, more)), nl=False)
        elif as_markdown:
            typer.echo(comparison.Comparison(title, tuple(rows), baseline, more).to_markdown())
        else:
            print_comparison(title, rows, baselines, more)

    to_json = partial(comparison.comparison_to_json, baselines=baselines, more=more)
    steps: list[Callable[[], object]] = [partial(print_report, rows, print_text, running.as_json, to_json)]
    if out is not None:
        steps.append(partial(write_csv, out / "compare.csv", comparison.comparison_table_rows(rows, baselines, more)))
    if out is not None and plots and not interrupted:
        steps.append(partial(charts.write_comparison_plots, rows, out, more, title))
    for warning in comparison.comparison_warnings(really, rows):
        print_message("warning", warning)
    for row in rows:
        if row.error:
            print_message("error", f"{row.name}: {row.error}")
        for hint in row.hints:
            print_message("hint", f"{row.name}: {hint}")
    run_all_steps_despite_errors(*steps)
    if interrupted:
        raise typer.Exit(130)
    if failed := [row for row in rows if row.error]:
        raise typer.Exit(1 if any(row.summary is None for row in failed) else 2)
