"""Run the cases in a study that have no result yet."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from cpsched_sim.errors import SimulationError
from cpsched_sim.experiments.case_store import Case, CaseRunner
from cpsched_sim.experiments.dask_executor import make_task_executor
from cpsched_sim.experiments.task_runner import Fractions, TaskExecutor, TaskFailure, Tell
from cpsched_sim.file_io import file_sha256
from cpsched_sim.study.case_execution import (
    CHANGED_FILE_RULE,
    StudyCaseOutcome,
    bound_memory,
    execute_case,
    failed_result,
    limit_exceeded_result,
)
from cpsched_sim.study.result_store import EarlierCaseResults, StoredCaseResult, StudyResultStore
from cpsched_sim.study.study_cases import StudyCases, build_study_cases, read_study
from cpsched_sim.study.study_output import write_study_outputs
from cpsched_sim.study.study_results import StudyResults
from cpsched_sim.study.study_schema import CaseLimitSchema


def run_case_within_limits(task: Mapping[str, Any], tell: Tell) -> StudyCaseOutcome:
    """Run a case within its memory limit. Check that its input files did not change."""
    bound_memory(task["memory_mib"])
    outcome = execute_case(task, tell)
    path = next((path for path, digest in task["read"].items() if _file_digest(path) != digest), None)
    return outcome if path is None else StudyCaseOutcome(failed_result(f"{path}: {CHANGED_FILE_RULE}"), outcome.made)


def _file_digest(path: str) -> str:
    try:
        return file_sha256(Path(path))
    except SimulationError:
        return "gone"


def run_missing_cases(
    campaign: StudyCases,
    store: StudyResultStore,
    engine: TaskExecutor,
    progress: Fractions | None = None,
    before: EarlierCaseResults | None = None,
) -> StudyResults:
    """Run each case that has no result, and store its result immediately.

    The caller must hold the folder's lock (`lock_exclusively`). `before` contains the earlier results; the default are
    all that `load_earlier_results` finds.

    Raise `InputError` if a result cannot be written. Earlier results remain for the next call.
    """
    done = (before if before is not None else store.load_earlier_results(campaign)).done
    distinct, limits = campaign.distinct_cases, campaign.words.limits

    def to_stored_result(case: Case, returned: StudyCaseOutcome | TaskFailure) -> StoredCaseResult:
        outcome = _outcome_of_failure(returned, limits) if isinstance(returned, TaskFailure) else returned
        if outcome.jobs is not None:
            store.schedules.store(case.key, outcome.jobs)
        return StoredCaseResult.from_outcome(distinct[case.key], outcome)

    cases = [Case(digest, {**case.task, "memory_mib": limits.memory_mib}) for digest, case in distinct.items()]
    results = {at: done[digest] for at, digest in enumerate(distinct) if digest in done}
    found = CaseRunner(run_case_within_limits, engine, store.cases, to_stored_result).run(cases, progress, results)
    return StudyResults(campaign, dict(zip(distinct, found, strict=True)), store.folder)


def _outcome_of_failure(failure: TaskFailure, limits: CaseLimitSchema) -> StudyCaseOutcome:
    made = {"wall_s": failure.wall_s or 0.0, "cpu_s": failure.cpu_s, "share": failure.share}
    if failure.kind == "late":
        return StudyCaseOutcome(limit_exceeded_result(minutes=limits.minutes), made)
    memory_mib = limits.memory_mib if failure.kind == "died" else None
    limit = f" (limit: {memory_mib:,} MiB)" if memory_mib is not None else ""
    return StudyCaseOutcome(failed_result(f"{failure}{limit}"), made)


def run_study(
    study: str | PathLike[str] | Mapping[str, Any],
    out: str | PathLike[str],
    *,
    processes: int = 2,
    on: str | None = None,
    again: bool = False,
) -> StudyResults:
    """Run a study and store its results in the folder `out`.

    Cases that already have a result do not run again.

    `study` is the path of a study file, or a mapping with the same keys. `on` is an executor (see
    `make_task_executor`); the default is `processes` processes on this machine. The result's `to_frame()` has one row
    per case. Raise `InvalidFile` with file, line and field, or `InputError`.
    """
    campaign = build_study_cases(study) if isinstance(study, Mapping) else read_study(study)
    store = StudyResultStore(Path(out))
    engine = make_task_executor(on, processes, limit_s=campaign.limit_s)
    with store.lock_exclusively():
        store.write_case_list(campaign)
        results = run_missing_cases(campaign, store, engine, before=store.load_earlier_results(campaign, again))
        write_study_outputs(results)
    return results
