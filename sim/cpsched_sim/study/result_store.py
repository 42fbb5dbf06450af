"""Store the results of a study in a folder: one file per case, named by the digest of all its inputs.

    cases/DIGEST.json    inputs and result: the same bytes in every run
    made/DIGEST.json     time, versions and machine of the run, and the digest of the file above
    jobs/DIGEST.npz      the schedule, if the study stores schedules
    study.json           the cases of the study
    results.jsonl        one line per case: labels, inputs, result, made
    results.parquet      one row per case (extra `study`)
    report.md, .html     the report

Files are written atomically. At most one study writes into a folder at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cpsched_sim.errors import InputError
from cpsched_sim.file_io import require_writable_folder, write_atomically
from cpsched_sim.study.campaign import StudyCampaign, StudyCase
from cpsched_sim.study.case_execution import ENDED, FAILED, LIMITED, StudyCaseOutcome

CASES, MADE, JOBS, STUDY, LINES = "cases", "made", "jobs", "study.json", "results.jsonl"


@dataclass(frozen=True, slots=True)
class StoredCaseResult:
    """A stored result: its inputs, the result, and the description of the run that made it."""

    inputs: Mapping[str, Any]
    result: Mapping[str, Any]
    made: Mapping[str, Any]

    @classmethod
    def of(cls, inputs: Any, result: Any, made: Any) -> StoredCaseResult:
        """Check a result that was read, and return it.

        Raise `ValueError` if it is invalid; unknown keys are allowed.
        """
        if not all(isinstance(each, Mapping) for each in (inputs, result, made)):
            raise ValueError("inputs, result and made must be mappings")
        if result.get("outcome") not in (ENDED, FAILED, LIMITED):
            raise ValueError("a result must have an outcome")
        return cls(inputs, result, made)

    @property
    def has_figures(self) -> bool:
        """Return whether the case has metric values."""
        return bool(self.result["outcome"] == ENDED)

    @property
    def is_intact(self) -> bool:
        """Return whether inputs and result match the digest in `made`, that is, have not been changed."""
        content = encode_json({"inputs": self.inputs, "result": self.result})
        return bool(self.made.get("result_sha256") == hashlib.sha256(content).hexdigest())


class FoundCaseResults(NamedTuple):
    """The results found in the folder of a study."""

    done: dict[str, StoredCaseResult]
    """Results that do not need a new run, by digest."""
    altered: list[str]
    """Digests of results that have changed since they were stored, for example because they were edited."""


@dataclass(frozen=True, slots=True)
class StudyResultStore:
    """The folder of a study."""

    folder: Path

    @contextmanager
    def lock_exclusively(self) -> Iterator[None]:
        """Lock the folder within the `with` block. Raise `InputError` if another study holds the lock."""
        require_writable_folder(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be written: {error.strerror or error}") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise InputError(
                    f"{self.folder}: another study is writing there: wait, or choose another --out"
                ) from error
            yield
        finally:
            os.close(lock)

    def keep(self, case: StudyCase, outcome: StudyCaseOutcome) -> None:
        """Store a result; the file that marks the result as complete is written last. Raise `InputError`."""
        content = encode_json({"inputs": dict(case.inputs), "result": outcome.result})
        if outcome.jobs is not None:
            write_atomically(self.folder / JOBS / f"{case.digest}.npz", outcome.jobs)
        self._write(case, {**outcome.made, "result_sha256": hashlib.sha256(content).hexdigest()}, content)

    def keep_line(self, case: StudyCase, line: StoredCaseResult) -> None:
        """Store a result from a line of another study's results, unchanged. Raise `InputError`."""
        self._write(case, line.made, encode_json({"inputs": line.inputs, "result": line.result}))

    def _write(self, case: StudyCase, made: Mapping[str, Any], content: bytes) -> None:
        write_atomically(self.folder / MADE / f"{case.digest}.json", encode_json({**made, "labels": dict(case.labels)}))
        write_atomically(self.path(case.digest), content)

    def path(self, digest: str) -> Path:
        """Return the path of the result with this digest."""
        return self.folder / CASES / f"{digest}.json"

    def find(self, digest: str) -> StoredCaseResult | None:
        """Return the result with this digest, or None if it is missing or unreadable."""
        try:
            content = json.loads(self.path(digest).read_bytes())
            made = json.loads((self.folder / MADE / f"{digest}.json").read_bytes())
            return StoredCaseResult.of(content["inputs"], content["result"], made)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None

    def load_earlier_results(self, campaign: StudyCampaign, again: bool = False) -> FoundCaseResults:
        """Return the results that do not need a new run.

        A case runs again if it exceeded a limit that has since been raised, if its schedule is requested but missing,
        or if
        its result has been altered. With `again`, cases that failed or did not end also run again.
        """
        done, altered = dict[str, StoredCaseResult](), []
        for digest in campaign.distinct:
            kept = self.find(digest)
            if kept is None:
                continue
            if not kept.is_intact:
                altered.append(digest)
            elif (kept.has_figures or (not again and not _may_end_now(kept, campaign))) and (
                not campaign.words.jobs or not kept.has_figures or (self.folder / JOBS / f"{digest}.npz").exists()
            ):
                done[digest] = kept
        return FoundCaseResults(done, altered)

    def count_foreign_results(self, campaign: StudyCampaign) -> int:
        """Return the number of results made with code, data or settings other than the study's."""
        known = campaign.distinct
        return sum(path.stem not in known for path in (self.folder / CASES).glob("*.json"))

    def earlier_wall_times_s(self) -> list[float]:
        """Return the wall-clock times in seconds of all stored cases."""
        found = []
        for path in sorted((self.folder / MADE).glob("*.json")):
            with suppress(OSError, ValueError, LookupError, TypeError):
                found.append(float(json.loads(path.read_bytes())["wall_s"]))
        return found

    def write_study(self, campaign: StudyCampaign) -> None:
        """Write the list of the study's cases. Raise `InputError`."""
        cases = [{"labels": dict(case.labels), "digest": case.digest} for case in campaign.cases]
        content = {
            "title": campaign.words.title, "folder": str(campaign.folder), "excluded": dict(campaign.excluded),
            "traces": _traces(campaign), "cases": cases,
        }  # fmt: skip
        write_atomically(self.folder / STUDY, encode_json(content))

    def list_changed_traces(self, campaign: StudyCampaign) -> list[str]:
        """Return a sentence for each trace that has changed since the last run in this folder."""
        try:
            before = json.loads((self.folder / STUDY).read_bytes())["traces"]
            return [
                f"{name}: the trace changed since the last run in this folder; its cases run again"
                for name, digest in _traces(campaign).items()
                if before.get(name, digest) != digest
            ]
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return []


def _traces(campaign: StudyCampaign) -> dict[str, Any]:
    return {case.labels["trace"]: case.inputs["trace"].get("sha256") for case in campaign.cases}


def _may_end_now(kept: StoredCaseResult, campaign: StudyCampaign) -> bool:
    """Return whether the limit that a case exceeded has been raised or removed."""
    now = campaign.words.limits.model_dump()
    limit: Mapping[str, float] = kept.result.get("limit", {})
    return any(now[name] is None or now[name] > value for name, value in limit.items())


def encode_json(content: Any) -> bytes:
    """Encode `content` as JSON with sorted keys, so that equal content gives equal bytes."""
    return (json.dumps(content, sort_keys=True, indent=1) + "\n").encode()
