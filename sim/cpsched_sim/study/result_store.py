"""The folder that contains a study's results, with one file per case.

    cases/DIGEST.json    inputs, result, and how it was made; DIGEST is of the inputs
    jobs/DIGEST.npz      the schedule, if the study stores schedules
    study.json           the cases of the study
    results.jsonl        one line per case: labels, inputs, result, made
    results.parquet      one row per case (extra `study`)
    report.md, .html     the report

Files are written atomically. Only one study at a time writes to a folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cpsched_sim.errors import InputError
from cpsched_sim.experiments.case_store import CaseStore, ResultFormat
from cpsched_sim.file_io import require_writable_folder, write_atomically
from cpsched_sim.study.case_execution import ENDED, FAILED, TIME_LIMITED, StudyCaseOutcome
from cpsched_sim.study.study_cases import StudyCase, StudyCases

STUDY_FILE, RESULTS_FILE = "study.json", "results.jsonl"


@dataclass(frozen=True, slots=True)
class StoredCaseResult:
    """A stored result with its inputs and a description of the run that produced it."""

    inputs: Mapping[str, Any]
    result: Mapping[str, Any]
    made: Mapping[str, Any]
    """Time, versions and machine of the run, the case's labels, and the digest of inputs and result."""

    @classmethod
    def of(cls, inputs: Any, result: Any, made: Any) -> StoredCaseResult:
        """Validate the parts of a stored result, and return it.

        Raise `ValueError` for an invalid result. Unknown keys are allowed.
        """
        if not all(isinstance(each, Mapping) for each in (inputs, result, made)):
            raise ValueError("inputs, result and made must be mappings")
        if result.get("outcome") not in (ENDED, FAILED, TIME_LIMITED):
            raise ValueError(f"outcome={result.get('outcome')!r}: must be one of {ENDED}, {FAILED}, {TIME_LIMITED}")
        return cls(inputs, result, made)

    @classmethod
    def from_outcome(cls, case: StudyCase, outcome: StudyCaseOutcome) -> StoredCaseResult:
        """Return the outcome of a case as it is stored."""
        inputs = dict(case.inputs)
        made = {**outcome.made, "labels": dict(case.labels), "result_sha256": _content_digest(inputs, outcome.result)}
        return cls(inputs, outcome.result, made)

    @property
    def has_metric_values(self) -> bool:
        """Return whether the case has metric values."""
        return bool(self.result["outcome"] == ENDED)

    @property
    def is_intact(self) -> bool:
        """Return whether the inputs and the result match the digest in `made`."""
        return bool(self.made.get("result_sha256") == _content_digest(self.inputs, self.result))


def _content_digest(inputs: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    return hashlib.sha256(encode_json({"inputs": inputs, "result": result})).hexdigest()


def encode_json(content: Any) -> bytes:
    """Encode `content` as JSON with sorted keys. Equal content gives equal bytes."""
    return (json.dumps(content, sort_keys=True, indent=1) + "\n").encode()


STORED_FORMAT = ResultFormat(
    ".json",
    lambda stored: encode_json(asdict(stored)),
    lambda content: StoredCaseResult.of(**json.loads(content)),
)


class EarlierCaseResults(NamedTuple):
    """The results found in a study's folder."""

    done: dict[str, StoredCaseResult]
    """Results by digest whose cases do not need to run again."""
    altered: list[str]
    """Digests of results that have been changed since they were stored, for example in an editor."""


class StudyResultStore:
    """The folder that contains a study's results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases = CaseStore(folder / "cases", STORED_FORMAT)
        self.schedules = CaseStore(folder / "jobs", ResultFormat(".npz", bytes, bytes))

    @contextmanager
    def lock_exclusively(self) -> Iterator[None]:
        """Lock the folder within the `with` block.

        Raise `InputError` if another study holds the lock.
        """
        require_writable_folder(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be written to: {error.strerror or error}") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise InputError(
                    f"{self.folder}: another study is writing to this folder; wait, or choose another folder with --out"
                ) from error
            yield
        finally:
            os.close(lock)

    def load_earlier_results(self, campaign: StudyCases, again: bool = False) -> EarlierCaseResults:
        """Return the results whose cases do not need to run again.

        A case runs again if its result has been altered, if its schedule is requested but missing, or if it exceeded a
        limit that has since been raised or removed. With `again`, cases that failed or did not end also run again.
        """
        done, altered = dict[str, StoredCaseResult](), []
        for digest in campaign.distinct_cases:
            stored = self.cases.find(digest)
            if stored is None:
                continue
            if not stored.is_intact:
                altered.append(digest)
            elif stored.has_metric_values:
                if not campaign.words.jobs or self.schedules.path(digest).exists():
                    done[digest] = stored
            elif not again and not _is_limit_raised(stored, campaign):
                done[digest] = stored
        return EarlierCaseResults(done, altered)

    def count_foreign_results(self, campaign: StudyCases) -> int:
        """Count the stored results whose code, data or settings differ from the study's."""
        known = campaign.distinct_cases
        return sum(digest not in known for digest in self.cases.stored_keys())

    def earlier_wall_times_s(self) -> list[float]:
        """Return the wall-clock times in seconds of all stored cases."""
        stored = filter(None, map(self.cases.find, self.cases.stored_keys()))
        return [float(each.made["wall_s"]) for each in stored if isinstance(each.made.get("wall_s"), int | float)]

    def write_case_list(self, campaign: StudyCases) -> None:
        """Write the list of the study's cases. Raise `InputError`."""
        cases = [{"labels": dict(case.labels), "digest": case.digest} for case in campaign.cases]
        content = {
            "title": campaign.words.title, "folder": str(campaign.folder), "excluded": dict(campaign.excluded),
            "traces": _trace_digests(campaign), "cases": cases,
        }  # fmt: skip
        write_atomically(self.folder / STUDY_FILE, encode_json(content))

    def list_changed_traces(self, campaign: StudyCases) -> list[str]:
        """Return a sentence for each trace that has changed since the last run here."""
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            before = json.loads((self.folder / STUDY_FILE).read_bytes())["traces"]
            return [
                f"{name}: the trace has changed since the last run in this folder, so its cases run again"
                for name, digest in _trace_digests(campaign).items()
                if before.get(name, digest) != digest
            ]
        return []


def _trace_digests(campaign: StudyCases) -> dict[str, Any]:
    return {case.labels["trace"]: case.inputs["trace"].get("sha256") for case in campaign.cases}


def _is_limit_raised(stored: StoredCaseResult, campaign: StudyCases) -> bool:
    """Return whether the limit that a case exceeded has been raised or removed."""
    now = campaign.words.limits.model_dump()
    limit: Mapping[str, float] = stored.result.get("limit", {})
    return any(now[name] is None or now[name] > value for name, value in limit.items())
