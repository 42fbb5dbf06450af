"""`cpsched accuracy` and `cpsched accuracy start-times`: the accuracy of predictions and forecasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from cpsched_sim.cli.options import (
    CommandRunOptions,
    Dispatchers,
    OutDir,
    PolicySettingOptions,
    Predictor,
    Predictors,
    TracePartOptions,
    grouped,
    parse_names,
)
from cpsched_sim.cli.simulator_app import app, echo_json, reporting
from cpsched_sim.cli_shell import print_message, run_all_steps
from cpsched_sim.watchdog import watched

"""By horizon and name."""


@app.command()
@reporting
@grouped
def accuracy(
    *,
    predictors: Predictors = ["walltime,last-two,profile"],  # noqa: B006
    part: TracePartOptions,
    out: OutDir = None,
    running: CommandRunOptions,
    intervals: Annotated[
        bool,
        typer.Option("--intervals", help="Show the coverage of 80 % run-time intervals; calibration.csv."),
    ] = False,
) -> None:
    """Measure predictors on TRACE: errors, under- and over-estimates. --out writes accuracy.csv and ecdf.csv."""
    from cpsched_sim.file_io import sha256_of_all
    from cpsched_sim.input.dated_files import dated_files
    from cpsched_sim.predictor_accuracy import (
        PredictorAccuracy,
        RunTimeCoverage,
        calibration,
        study_predictors,
        write_ecdf,
        write_figures,
    )
    from cpsched_sim.result_files import check_new
    from cpsched_sim.terminal_tables import ACCURACY, CALIBRATION, print_figures
    from cpsched_sim.workloads.load import load_jobs

    chosen, dialect, between = parse_names("--predictor", predictors), part.to_dialect(), part.to_date_range()
    if out is not None:
        check_new(*(out / name for name in (("calibration.csv",) if intervals else ("accuracy.csv", "ecdf.csv"))))
    with watched(running.decide_timeout) as patient:
        if part.system is None:
            jobs = load_jobs(part.trace, part.lenient, part.max_jobs, part.format, dialect, patient.reset, between)
        else:
            jobs = part.load(patient.reset).jobs
        if intervals:
            told = calibration(jobs, patient.reset)
            rows = {name: asdict(row) for name, row in told.items()}
        else:
            found = study_predictors(jobs, chosen, patient.reset)
            rows = {name: asdict(row.accuracy) for name, row in found.items()}
    made_of = {
        "trace": part.trace.name, "trace_sha256": sha256_of_all(dated_files(part.trace)), "system": part.system,
        "predictors": chosen, "max_jobs": part.max_jobs, "from": part.from_, "to": part.to, "lenient": part.lenient,
        "format": part.format, "columns": part.columns, "zone": part.zone, "arrival": part.arrival,
    }  # fmt: skip
    steps: list[Callable[[], object]] = [partial(echo_json, rows)]
    if not running.as_json and intervals:
        title = f"{part.trace.name}: run times, 80 % intervals"
        steps = [partial(print_figures, title, ("jobs of",), rows, CALIBRATION)]
    elif not running.as_json:
        steps = [partial(print_figures, part.trace.name, ("predictor",), rows, ACCURACY)]
    if out is not None and intervals:
        steps.append(partial(write_figures, out / "calibration.csv", ("kind",), rows, RunTimeCoverage, made_of))
    elif out is not None:
        steps.append(partial(write_figures, out / "accuracy.csv", ("predictor",), rows, PredictorAccuracy, made_of))
        steps.append(partial(write_ecdf, found, out / "ecdf.csv", made_of))
    run_all_steps(*steps)


@app.command("accuracy start-times")
@reporting
@grouped
def accuracy_start_times(
    *,
    dispatchers: Dispatchers = ["lookahead,list-reg"],  # noqa: B006
    predictor: Predictor = "walltime",
    options: PolicySettingOptions,
    part: TracePartOptions,
    out: OutDir = None,
    running: CommandRunOptions,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Show the coverage of 80 % intervals; intervals.csv.")
    ] = False,
) -> None:
    """Measure forecast starts of jobs of TRACE, by forecast horizon. --out writes promises.csv."""
    from cpsched_sim import comparison
    from cpsched_sim import interval_accuracy as of_intervals
    from cpsched_sim import start_time_accuracy as of_starts
    from cpsched_sim.predictor_accuracy import write_figures
    from cpsched_sim.result_files import check_new
    from cpsched_sim.simulation import replay_identity
    from cpsched_sim.terminal_tables import INTERVALS, PROMISES, print_figures

    file = "intervals.csv" if intervals else "promises.csv"
    told: Callable[..., Any] = of_intervals.replay_intervals if intervals else of_starts.first_forecasts
    figures: Callable[[Any], Any] = (
        of_intervals.coverage_by_horizon if intervals else of_starts.FirstStartForecasts.errors_by_horizon
    )
    search, settings, found = options.search_settings(), options.settings(), []
    with watched(running.decide_timeout) as patient:
        chosen = comparison.make_combinations(parse_names("--dispatcher", dispatchers), [predictor], settings, search)
        if out is not None:
            check_new(out / file)
        workload = part.load(patient.reset)
        for note in workload.notes:
            print_message("note", note)
        for setup, _ in chosen:
            policy = setup.build(workload.jobs)
            found.append((setup.policy.dispatcher, told(workload, policy, patient.reset)))
    kind = of_intervals.IntervalCoverage if intervals else of_starts.StartTimeErrors
    rows = {name: {horizon: asdict(row) for horizon, row in figures(each).items()} for name, each in found}
    title = "80 % intervals" if intervals else "real start minus first forecast"
    title = f"{workload.name} on {workload.system}, {predictor}: {title}"
    labels, columns = ("dispatcher", "expected" if intervals else "promised"), INTERVALS if intervals else PROMISES
    show = partial(echo_json, rows) if running.as_json else partial(print_figures, title, labels, rows, columns)
    made_of = {"combinations": [replay_identity(setup, workload) for setup, _ in chosen]}
    write = [partial(write_figures, out / file, ("dispatcher", "horizon"), rows, kind, made_of)] if out else []
    run_all_steps(show, *write)
