"""Compare combinations of dispatcher and predictor on one trace."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from cpsched.metrics import METRICS, ScheduleData, find_metric
from cpsched.policy_spec import PolicySpec
from cpsched_sim.comparison import ComparisonRow
from cpsched_sim.errors import SimulationError
from cpsched_sim.experiments.case_store import Case, CaseRunner, CaseStore, ResultFormat, code_identity
from cpsched_sim.experiments.task_runner import Fractions, LocalProcessExecutor, TaskFailure, Tell
from cpsched_sim.plugin_watchdog import STALL_TIMEOUT_S
from cpsched_sim.result_files import SUMMARY_FILE, require_same_inputs
from cpsched_sim.simulation import (
    SCHEDULE_FILE,
    ReplaySpec,
    replay_inputs,
    replay_workload,
    summarize_or_save_schedule,
    write_replay_results,
)
from cpsched_sim.traces.trace_record import DEFAULT_DIALECT, TraceDialect
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
    cases = [Case(_combination_key(setup.policy), (shared, setup)) for setup in chosen]
    engine = LocalProcessExecutor(processes, shared.limit_s)
    runner = CaseRunner(replay_combination, engine, _combination_store(shared), _to_row)
    return runner.run(cases, progress, {} if done is None else done)


def _combination_key(policy: PolicySpec) -> str:
    """Return the name of a combination's folder. All folders of a comparison have the same inputs."""
    return f"{policy.dispatcher}-{policy.predictor}".replace("/", "_").replace(":", ".")  # no colons on some disks


def _combination_store(shared: SharedComparisonInputs) -> CaseStore:
    """Return the store of the finished combinations, whose files the replays' own processes write."""
    return CaseStore(shared.out, ResultFormat(f"/{SUMMARY_FILE}", None, partial(_decode_row, shared)))


def _to_row(case: Case, returned: ComparisonRow | TaskFailure) -> ComparisonRow:
    if not isinstance(returned, TaskFailure):
        return returned
    policy = case.task[1].policy
    return ComparisonRow(policy.dispatcher, policy.predictor, error=str(returned))


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
    folder = shared.out / _combination_key(setup.policy) if shared.out is not None else None
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
    inputs = {
        _combination_key(setup.policy): {**replay_inputs(setup, workload), **code_identity(setup.policy)}
        for setup in chosen
    }
    require_same_inputs(shared.out, inputs, [find_metric(name).name for name in shared.metrics])
    store = _combination_store(shared)
    rows = {key: row for key in store.stored_keys() if (row := store.find(key)) is not None}
    found = {index: rows.pop(key) for index, key in enumerate(inputs) if key in rows}
    return found, list(rows.values())


def _decode_row(shared: SharedComparisonInputs, content: bytes) -> ComparisonRow:
    """Return the row of a finished combination. Raise an exception if a part is missing or damaged."""
    written = json.loads(content)
    setup = written.pop("setup")
    if not {metric.name for metric in METRICS} <= written.keys():
        raise ValueError("metrics are missing")

    assert shared.out is not None
    schedule = shared.out / _combination_key(PolicySpec(setup["dispatcher"], setup["predictor"])) / SCHEDULE_FILE
    if not schedule.exists():
        raise ValueError(f"{schedule}: is missing")
    return ComparisonRow(
        setup["dispatcher"],
        setup["predictor"],
        {name: value for name, value in written.items() if name not in ("version", "date")},
        measures=_read_stored_schedule(schedule) if shared.measures else None,
        hints=tuple(setup.get("hints", ())),
    )


def _read_stored_schedule(path: Path) -> ScheduleData:
    """Return a schedule's stored columns for plots, which ignore the last column."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["start_s"]]
    submit_s, start_s, end_s, units = (
        np.array([int(row[name]) for row in rows], np.int64) for name in ("submit_s", "start_s", "end_s", "units")
    )
    return ScheduleData(submit_s, start_s, end_s, units)
