"""Compare combinations of dispatcher and predictor on one trace."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.metrics import METRICS, ScheduleData, find_metric
from cpsched_sim.comparison import ComparisonRow
from cpsched_sim.errors import SimulationError
from cpsched_sim.experiments.case_store import code_identity
from cpsched_sim.experiments.task_runner import Fractions, LocalProcessExecutor, TaskFailure, Tell, run_tasks
from cpsched_sim.plugin_watchdog import STALL_TIMEOUT_S
from cpsched_sim.result_files import read_finished_summaries, require_same_inputs
from cpsched_sim.simulation import (
    SCHEDULE_FILE,
    ReplaySpec,
    replay_inputs,
    replay_workload,
    summarize_or_save_schedule,
    write_replay_results,
)
from cpsched_sim.traces.trace_dialect import DEFAULT_DIALECT, TraceDialect
from cpsched_sim.workloads.arrival_date_range import ALL_DATES, ArrivalDateRange
from cpsched_sim.workloads.workload_loader import Workload, apply_site_policy, load


@dataclass(frozen=True, slots=True)
class SharedComparisonInputs:
    """The inputs that all combinations share, as plain values for other processes.

    `metrics` are shown in addition to the table's default metrics. With `measures`, each row includes the columns from
    which metrics are computed.
    """

    trace: Path
    system: str | None = None
    max_jobs: int | None = None
    lenient: bool = False
    out: Path | None = None
    format: str | None = None
    metrics: tuple[str, ...] = ()
    measures: bool = False
    policy: Path | None = None
    """The site's policy file."""
    dialect: TraceDialect = DEFAULT_DIALECT
    limit_s: float = STALL_TIMEOUT_S
    """Time limit in seconds for a plug-in without progress; 0 means no limit."""
    between: ArrivalDateRange = ALL_DATES
    """The part of the trace to replay."""


def compare_in_processes(
    shared: SharedComparisonInputs,
    chosen: Sequence[ReplaySpec],
    processes: int,
    progress: Fractions | None = None,
    done: dict[int, ComparisonRow] | None = None,
) -> list[ComparisonRow]:
    """Replay all combinations in parallel and return their rows in order.

    Any exception, including Ctrl-C, stops the run.

    `done` contains rows by index in `chosen`, which are not replayed. Each finished row is added to it immediately, so
    that the caller has the row even after an interruption.
    """
    rows: dict[int, ComparisonRow] = {} if done is None else done
    tasks = {index: (shared, setup) for index, setup in enumerate(chosen) if index not in rows}

    def on_combination_result(index: int, row: ComparisonRow | TaskFailure) -> None:
        spec = chosen[index].policy
        failed = ComparisonRow(spec.dispatcher, spec.predictor, error=str(row))
        rows[index] = failed if isinstance(row, TaskFailure) else row

    run_tasks(
        replay_combination,
        tasks,
        LocalProcessExecutor(processes, shared.limit_s),
        on_combination_result,
        progress,
        len(rows),
    )
    return [rows[index] for index in sorted(rows)]


def replay_combination(task: tuple[SharedComparisonInputs, ReplaySpec], tell: Tell) -> ComparisonRow:
    """Replay a combination. Write its results to its own folder, and return its row."""
    shared, setup = task
    workload = load(
        shared.trace, shared.system, lenient=shared.lenient, max_jobs=shared.max_jobs, progress=lambda jobs: tell(),
        format=shared.format, dialect=shared.dialect, between=shared.between,
    )  # fmt: skip
    workload = apply_site_policy(workload, shared.policy) if shared.policy is not None else workload
    more = tuple(map(find_metric, shared.metrics))
    simulation = replay_workload(workload, setup, tell, more=more)
    folder = _result_folder(shared.out, setup) if shared.out is not None else None
    summary, unsaved = summarize_or_save_schedule(simulation, folder), ""
    try:
        if folder is not None:
            write_replay_results(simulation, folder, summary, code_identity(setup.policy))
    except SimulationError as error:
        unsaved = str(error)
    measures = replace(simulation.measures, jobs=()) if shared.measures else None
    policy = setup.policy
    return ComparisonRow(policy.dispatcher, policy.predictor, summary, unsaved, measures, simulation.hints)


def load_finished_rows(
    shared: SharedComparisonInputs, chosen: Sequence[ReplaySpec], workload: Workload
) -> tuple[dict[int, ComparisonRow], list[ComparisonRow]]:
    """Return the finished rows in `shared.out` that are in `chosen`, and the others.

    The first are by index in `chosen`.

    Raise `InputError` if a row was computed with other inputs (`replay_inputs`), code or metrics.
    """
    assert shared.out is not None
    asked = {
        _result_folder(shared.out, setup).name: {**replay_inputs(setup, workload), **code_identity(setup.policy)}
        for setup in chosen
    }
    require_same_inputs(shared.out, asked, [find_metric(name).name for name in shared.metrics])
    places = {name: index for index, name in enumerate(asked)}
    found: dict[int, ComparisonRow] = {}
    others: list[ComparisonRow] = []
    for name, written in read_finished_summaries(shared.out).items():
        row = _load_finished_row(shared, written, shared.out / name)
        if row is not None and name in places:
            found[places[name]] = row
        elif row is not None:
            others.append(row)
    return found, others


def _load_finished_row(
    shared: SharedComparisonInputs, written: Mapping[str, Any], folder: Path
) -> ComparisonRow | None:
    """Return the row of a combination, or None if a part is missing or damaged."""
    try:
        schedule = _read_stored_schedule(folder / SCHEDULE_FILE) if shared.measures else None
    except (OSError, ValueError, LookupError, TypeError, EOFError, zlib.error):
        return None
    if not {each.name for each in METRICS} <= written.keys() or not (folder / SCHEDULE_FILE).exists():
        return None
    summary = {name: value for name, value in written.items() if name not in ("version", "date", "setup")}
    setup = written["setup"]
    return ComparisonRow(
        setup["dispatcher"], setup["predictor"], summary, measures=schedule, hints=tuple(setup.get("hints", ()))
    )


def _read_stored_schedule(path: Path) -> ScheduleData:
    """Return a schedule's stored columns for plots, which ignore the last column."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["start_s"]]
    submit_s, start_s, end_s, units = (
        np.array([int(row[name]) for row in rows], np.int64) for name in ("submit_s", "start_s", "end_s", "units")
    )
    return ScheduleData(submit_s, start_s, end_s, units)


def _result_folder(out: Path, setup: ReplaySpec) -> Path:
    """Return the folder for the results of a combination."""
    name = f"{setup.policy.dispatcher}-{setup.policy.predictor}".replace("/", "_")
    earlier = out / name
    return earlier if earlier.is_dir() else out / name.replace(":", ".")  # some file systems do not allow colons
