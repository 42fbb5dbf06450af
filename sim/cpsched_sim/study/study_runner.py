"""Run the cases in a study that have no result yet, or a sample of its cases again to verify the results.

- Every result must be named by the digest of its inputs and match the digest stored with it.
- The results of the cases that run again must be equal byte for byte.
- A case whose code or trace has changed cannot run again and is reported.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from cpsched_sim.errors import InputError, SimulationError
from cpsched_sim.experiments.case_store import Case, CaseRunner, CaseStore, compute_result_key
from cpsched_sim.experiments.dask_executor import make_task_executor
from cpsched_sim.experiments.task_runner import Fractions, TaskExecutor, TaskFailure, Tell
from cpsched_sim.file_io import file_sha256
from cpsched_sim.study.case_execution import (
    CHANGED_FILE_RULE,
    ENDED,
    StudyCaseOutcome,
    bound_memory,
    execute_case,
    failed_result,
    limit_exceeded_result,
)
from cpsched_sim.study.result_store import (
    RESULTS_FILE,
    STORED_FORMAT,
    EarlierCaseResults,
    StoredCaseResult,
    StudyResultStore,
    encode_json,
)
from cpsched_sim.study.study_cases import StudyCases, build_study_cases, read_study
from cpsched_sim.study.study_report import StudyResults, write_study_outputs
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


@dataclass(slots=True)
class ReproductionResult:
    """The result of a verification. `differs` has one sentence per incorrect result."""

    decided: int = 0
    same: int = 0
    read: int = 0
    differs: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    """Labels of the cases that cannot run again, because their code or trace has changed."""
    by_clock: int = 0
    """Number of cases in the sample that are not reproducible, because they have a time limit."""


def verify_study_results(
    campaign: StudyCases, source: Path, engine: TaskExecutor, sample: int = 5, seed: int = 0
) -> ReproductionResult:
    """Check the results in `source`, and run a sample of their cases again.

    `source` is a folder or a JSON Lines file.

    Raise `InputError` if there are no results.
    """
    found, kept = ReproductionResult(), dict[str, StoredCaseResult]()
    for where, digest, each in read_study_results(source):
        if each is None or compute_result_key(each.inputs) != digest or not each.is_intact:
            found.differs.append(f"{where}: is damaged, or has changed since it was stored")
        else:
            kept[digest] = each
    if not kept and not found.differs:
        raise InputError(f"{source}: contains no results")
    found.read, distinct = len(kept), campaign.distinct_cases
    ended = sorted(digest for digest, each in kept.items() if each.result["outcome"] == ENDED)
    found.other = [_case_label(kept[digest].made.get("labels", {})) for digest in ended if digest not in distinct]
    known = [digest for digest in ended if digest in distinct]
    chosen = random.Random(seed).sample(known, min(sample, len(known)))
    found.by_clock = sum(distinct[digest].by_clock for digest in chosen)
    repeated = [digest for digest in chosen if not distinct[digest].by_clock]

    memory_mib = campaign.words.limits.memory_mib
    cases = [Case(digest, {**distinct[digest].task, "memory_mib": memory_mib}) for digest in repeated]
    runner = CaseRunner(run_case_within_limits, engine, CaseStore(None, STORED_FORMAT))
    for digest, outcome in zip(repeated, runner.run(cases), strict=True):
        found.decided += 1
        before = kept[digest].result
        if isinstance(outcome, StudyCaseOutcome) and encode_json(before) == encode_json(outcome.result):
            found.same += 1
            continue
        why = str(outcome) if isinstance(outcome, TaskFailure) else _first_difference(before, outcome.result)
        found.differs.append(f"{_case_label(distinct[digest].labels)}: run again: {why}")
    return found


def read_study_results(source: Path) -> Iterator[tuple[str, str, StoredCaseResult | None]]:
    """Yield the location, digest and content of each result. Raise `InputError`.

    `source` is a folder or a JSON Lines file. The content of a damaged result is None.
    """
    if source.is_dir():
        cases = StudyResultStore(source).cases
        for digest in cases.stored_keys():
            yield str(cases.path(digest)), digest, cases.find(digest)
    lines = source / RESULTS_FILE if source.is_dir() else source
    if source.is_dir() and not lines.exists():
        return
    try:
        texts = lines.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{lines}: {error}") from error
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
            made = {**line["made"], "labels": line["labels"]}
            yield f"{lines}:{number}", str(line["digest"]), StoredCaseResult.of(line["inputs"], line["result"], made)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise InputError(f"{lines}:{number}: is not a result: {error}") from error


def _first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe the first value that differs between two results."""
    one, other = ({**result, **(result.get("figures") or {})} for result in (before, now))
    for name in sorted({*one, *other} - {"figures"}):
        if one.get(name) != other.get(name):
            return f"{name} is {one.get(name)!r}, should be {other.get(name)!r}"
    return "differs"


def _case_label(labels: Mapping[str, Any]) -> str:
    return f"{labels.get('trace', '?')}, {labels.get('policy', '?')}, seed {labels.get('seed', '?')}"
