"""Run a sample of a study's cases again, and report results that differ.

- Every result must be named by the digest of its inputs and match the digest stored with it.
- The results of the cases that run again must be equal byte for byte.
- A case whose code or trace has changed cannot run again and is reported.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cpsched_sim.errors import InputError
from cpsched_sim.experiments.case_store import Case, CaseRunner, CaseStore, compute_result_key
from cpsched_sim.experiments.task_runner import TaskExecutor, TaskFailure
from cpsched_sim.study.case_execution import ENDED, StudyCaseOutcome
from cpsched_sim.study.result_store import RESULTS_FILE, STORED_FORMAT, StoredCaseResult, StudyResultStore, encode_json
from cpsched_sim.study.study_cases import StudyCases
from cpsched_sim.study.study_runner import run_case_within_limits


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
