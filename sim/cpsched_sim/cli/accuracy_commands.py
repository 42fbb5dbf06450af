"""`cpsched accuracy`: the accuracy of predictions and start forecasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cpsched.formatting import format_difference, format_difference_range, format_duration
from cpsched_sim.cli.options import (
    Dispatcher,
    OutDir,
    PolicySettingOptions,
    Predictor,
    Predictors,
    RunAndOutputOptions,
    TracePartOptions,
    expand_option_groups,
    parse_names,
)
from cpsched_sim.cli.simulator_app import app, print_json, reporting
from cpsched_sim.command_conventions import print_message, print_report, run_all_steps_despite_errors
from cpsched_sim.errors import InputError
from cpsched_sim.plugin_watchdog import watch_plugins


@app.command()
@reporting
@expand_option_groups
def accuracy(
    *,
    predictors: Predictors = ["walltime,last-two,profile"],  # noqa: B006
    part: TracePartOptions,
    out: OutDir = None,
    running: RunAndOutputOptions,
    intervals: Annotated[
        bool,
        typer.Option("--intervals", help="Show the coverage of 80 % run-time intervals; --out writes calibration.csv."),
    ] = False,
) -> None:
    """Measure the errors of predictors on TRACE.

    --out writes accuracy.csv and ecdf.csv.
    """
    from cpsched_sim.file_io import sha256_of_all
    from cpsched_sim.input.text_line_reader import dated_files
    from cpsched_sim.predictor_accuracy import (
        PredictorAccuracy,
        RunTimeIntervalCoverage,
        evaluate_predictors,
        run_time_interval_coverage,
        write_accuracy_ecdf,
        write_accuracy_table,
    )
    from cpsched_sim.result_files import require_new_files
    from cpsched_sim.terminal_tables import ACCURACY_COLUMNS, CALIBRATION_COLUMNS, print_metric_table
    from cpsched_sim.workloads.workload_loader import open_trace, read_jobs

    chosen, dialect, between = parse_names("--predictor", predictors), part.to_dialect(), part.to_date_range()
    if out is not None:
        require_new_files(
            *(out / name for name in (("calibration.csv",) if intervals else ("accuracy.csv", "ecdf.csv")))
        )
    with watch_plugins(running.decide_timeout) as patient:
        if part.system is None:
            reader = open_trace(part.trace, part.lenient, part.format, dialect)
            jobs = read_jobs(reader, part.max_jobs, patient.reset, between)
        else:
            jobs = part.load(patient.reset).jobs
        if intervals:
            coverage = run_time_interval_coverage(jobs, patient.reset)
            rows = {name: asdict(row) for name, row in coverage.items()}
        else:
            found = evaluate_predictors(jobs, chosen, patient.reset)
            rows = {name: asdict(row.accuracy) for name, row in found.items()}
    made_of = {
        "trace": part.trace.name, "trace_sha256": sha256_of_all(dated_files(part.trace)), "system": part.system,
        "predictors": chosen, "max_jobs": part.max_jobs, "from": part.from_, "to": part.to, "lenient": part.lenient,
        "format": part.format, "columns": part.columns, "zone": part.zone, "arrival": part.arrival,
    }  # fmt: skip

    def print_text(rows: Mapping[str, Mapping[str, Any]]) -> None:
        if intervals:
            title = f"{part.trace.name}: run times, 80 % intervals"
            print_metric_table(title, "jobs of", rows, CALIBRATION_COLUMNS)
        else:
            print_metric_table(part.trace.name, "predictor", rows, ACCURACY_COLUMNS)

    steps: list[Callable[[], object]] = [partial(print_report, rows, print_text, running.as_json)]
    if out is not None and intervals:
        steps.append(
            partial(write_accuracy_table, out / "calibration.csv", "kind", rows, RunTimeIntervalCoverage, made_of)
        )
    elif out is not None:
        steps.append(partial(write_accuracy_table, out / "accuracy.csv", "predictor", rows, PredictorAccuracy, made_of))
        steps.append(partial(write_accuracy_ecdf, found, out / "ecdf.csv", made_of))
    run_all_steps_despite_errors(*steps)


@app.command("accuracy start-times")
@reporting
@expand_option_groups
def accuracy_start_times(
    *,
    dispatcher: Dispatcher = "slurm",
    predictor: Predictor = "walltime",
    options: PolicySettingOptions,
    part: TracePartOptions,
    from_job: Annotated[
        int, typer.Option(min=0, metavar="N", help="First job to replay, counted from 0 in order of arrival.")
    ] = 0,
    jobs: Annotated[
        int | None, typer.Option(min=2, metavar="M", help="Maximum number of jobs to replay from there.")
    ] = None,
    slurm_estimates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also compare with these estimates, from `cpsched record-slurm-estimates`."),
    ] = None,
    running: RunAndOutputOptions,
) -> None:
    """Measure start forecasts for the second half of TRACE's jobs.

    The forecast model learns from all earlier jobs.
    """
    from cpsched_sim import comparison
    from cpsched_sim.start_time_accuracy import (
        StartForecastAccuracy,
        accuracy_by_horizon,
        compare_forecasts_with_slurm,
        replay_start_forecasts,
    )
    from cpsched_sim.terminal_tables import SLURM_ESTIMATE_COLUMNS, START_TIME_COLUMNS, print_metric_table
    from cpsched_sim.workloads.workload_loader import open_trace, read_workload

    settings = options.parse_policy_settings()
    with watch_plugins(running.decide_timeout) as patient:
        ((setup, _),) = comparison.make_policy_combinations(
            parse_names("--dispatcher", [dispatcher]), [predictor], settings
        )
        reader = open_trace(part.trace, part.lenient, part.format, part.to_dialect())
        workload = read_workload(reader, part.system, part.max_jobs, patient.reset, part.to_date_range())
        workload = workload.job_range(from_job, jobs)
        for note in workload.notes:
            print_message("note", note)
        cases, beside = replay_start_forecasts(workload, setup.build(workload.jobs), patient.reset), None
        if slurm_estimates is not None:
            policy = setup.build(workload.jobs)
            beside = compare_forecasts_with_slurm(workload, policy, slurm_estimates, reader.squeue_ids, patient.reset)
    if not cases and not running.as_json:
        raise InputError(f"{workload.name}: no job in the second half waited, so there is no forecast to measure")
    overall, horizons = StartForecastAccuracy.of(cases), accuracy_by_horizon(cases)
    first = StartForecastAccuracy.of([each for each in cases if each.told.first])
    if running.as_json:
        rows = [{"from_s": from_s, "to_s": to_s, **asdict(row)} for from_s, to_s, row in horizons]
        more = {} if beside is None else {"slurm_estimates": beside}
        accuracies = {"overall": asdict(overall), "first": asdict(first)}
        print_json({"jobs": len(workload.jobs), **accuracies, "horizons": rows, **more})
        return
    names = ["later" if to_s is None else f"up to {format_duration(to_s)}" for _, to_s, _ in horizons]
    table = dict(zip(("first", *names, "all"), [first, *(row for _, _, row in horizons), overall], strict=True))
    title = f"{workload.name} on {workload.system}, {dispatcher}: forecast starts"
    print_metric_table(
        title, "median forecast", {name: row.columns() for name, row in table.items()}, START_TIME_COLUMNS
    )
    if beside is not None:
        compared = {"squeue --start": beside["slurm"], "median forecast": beside["forecast"]}
        print_metric_table(
            f"{beside['cases']:,} forecasts compared with squeue --start", "", compared, SLURM_ESTIMATE_COLUMNS
        )
        difference = format_difference(beside["pinball_difference_s"], "s")
        interval = format_difference_range(beside["pinball_difference_interval_s"], "s")
        typer.echo(f"Difference in pinball loss: {difference} (95 % interval over {beside['days']} days: {interval}).")
        typer.echo(f"Not compared: {beside['without_estimate']:,} forecasts for which squeue --start showed N/A.")
