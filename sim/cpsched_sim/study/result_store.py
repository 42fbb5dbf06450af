"""Results of a study in a folder: a file for each case, under the digest of all that it depends on.

    cases/DIGEST.json    inputs and result: the same bytes, whoever decided it and whenever
    made/DIGEST.json     what it took, by which versions, on what machine, and the digest of the file above
    jobs/DIGEST.npz      its schedule, where the study asks for it
    study.json           which cases the study has
    results.jsonl        a line for each case: labels, inputs, result, made
    results.parquet      a row for each case (extra `study`)
    report.md, .html     what it all says

Files are written whole or not at all. One study at a time writes into a folder.
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
from cpsched_sim.files import require_writable_folder, write_atomically
from cpsched_sim.study.campaign import Campaign, Case
from cpsched_sim.study.case_execution import ENDED, FAILED, LIMITED, CaseOutcome

CASES, MADE, JOBS, STUDY, LINES = "cases", "made", "jobs", "study.json", "results.jsonl"


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result on disk: what it depends on, what came of it, what it took."""

    inputs: Mapping[str, Any]
    result: Mapping[str, Any]
    made: Mapping[str, Any]

    @classmethod
    def of(cls, inputs: Any, result: Any, made: Any) -> StoredResult:
        """What was read. Raises `ValueError` for what is no result; a later version may say more."""
        if not all(isinstance(each, Mapping) for each in (inputs, result, made)):
            raise ValueError("inputs, result and made must be mappings")
        if result.get("outcome") not in (ENDED, FAILED, LIMITED):
            raise ValueError("a result must have an outcome")
        return cls(inputs, result, made)

    @property
    def ended(self) -> bool:
        """Whether there are figures."""
        return bool(self.result["outcome"] == ENDED)

    @property
    def is_as_kept(self) -> bool:
        """Whether inputs and result are those of which `made` has the digest: nobody changed them since."""
        content = encoded({"inputs": self.inputs, "result": self.result})
        return bool(self.made.get("result_sha256") == hashlib.sha256(content).hexdigest())


class StoredResults(NamedTuple):
    """What a study finds in its folder."""

    done: dict[str, StoredResult]
    """By digest: what is not to be decided again."""
    altered: list[str]
    """The digests of results that are others than they were when they were kept: such as edited by hand."""


@dataclass(frozen=True, slots=True)
class ResultStore:
    """The folder of a study."""

    folder: Path

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other studies out of the folder for the block. Raises `InputError` where one is at work in it."""
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
                    f"{self.folder}: another study is at work in it: wait, or name another --out"
                ) from error
            yield
        finally:
            os.close(lock)

    def keep(self, case: Case, outcome: CaseOutcome) -> None:
        """Write a result down, last what says that it is there. Raises `InputError`."""
        content = encoded({"inputs": dict(case.inputs), "result": outcome.result})
        if outcome.jobs is not None:
            write_atomically(self.folder / JOBS / f"{case.digest}.npz", outcome.jobs)
        self._write(case, {**outcome.made, "result_sha256": hashlib.sha256(content).hexdigest()}, content)

    def keep_line(self, case: Case, line: StoredResult) -> None:
        """Write down a result that a line of another study's results says, as it was kept there. Raises
        `InputError`.
        """
        self._write(case, line.made, encoded({"inputs": line.inputs, "result": line.result}))

    def _write(self, case: Case, made: Mapping[str, Any], content: bytes) -> None:
        write_atomically(self.folder / MADE / f"{case.digest}.json", encoded({**made, "labels": dict(case.labels)}))
        write_atomically(self.path(case.digest), content)

    def path(self, digest: str) -> Path:
        """Where the result of that digest is."""
        return self.folder / CASES / f"{digest}.json"

    def find(self, digest: str) -> StoredResult | None:
        """The result; None where there is none, or none that can be read."""
        try:
            content = json.loads(self.path(digest).read_bytes())
            made = json.loads((self.folder / MADE / f"{digest}.json").read_bytes())
            return StoredResult.of(content["inputs"], content["result"], made)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None

    def before(self, campaign: Campaign, again: bool = False) -> StoredResults:
        """The results of before. What exceeded a lower limit is not done, nor, with `again`, what did not end or
        failed; nor a case without its schedule, where schedules are asked for; nor what was altered."""
        done, altered = dict[str, StoredResult](), []
        for digest in campaign.distinct:
            kept = self.find(digest)
            if kept is None:
                continue
            if not kept.is_as_kept:
                altered.append(digest)
            elif (kept.ended or (not again and not _may_end_now(kept, campaign))) and (
                not campaign.words.jobs or not kept.ended or (self.folder / JOBS / f"{digest}.npz").exists()
            ):
                done[digest] = kept
        return StoredResults(done, altered)

    def others(self, campaign: Campaign) -> int:
        """How many results are of other code, data or settings than those of the study."""
        known = campaign.distinct
        return sum(path.stem not in known for path in (self.folder / CASES).glob("*.json"))

    def costs_s(self) -> list[float]:
        """The wall time of every case of before."""
        found = []
        for path in sorted((self.folder / MADE).glob("*.json")):
            with suppress(OSError, ValueError, LookupError, TypeError):
                found.append(float(json.loads(path.read_bytes())["wall_s"]))
        return found

    def write_study(self, campaign: Campaign) -> None:
        """Say which cases the study has. Raises `InputError`."""
        cases = [{"labels": dict(case.labels), "digest": case.digest} for case in campaign.cases]
        content = {
            "title": campaign.words.title, "folder": str(campaign.folder), "excluded": dict(campaign.excluded),
            "traces": _traces(campaign), "cases": cases,
        }  # fmt: skip
        write_atomically(self.folder / STUDY, encoded(content))

    def changed(self, campaign: Campaign) -> list[str]:
        """Which traces are other ones than in the last run here, a sentence each."""
        try:
            before = json.loads((self.folder / STUDY).read_bytes())["traces"]
            return [
                f"{name}: the trace is another one than in the last run here; its cases are decided anew"
                for name, digest in _traces(campaign).items()
                if before.get(name, digest) != digest
            ]
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return []


def _traces(campaign: Campaign) -> dict[str, Any]:
    return {case.labels["trace"]: case.inputs["trace"].get("sha256") for case in campaign.cases}


def _may_end_now(kept: StoredResult, campaign: Campaign) -> bool:
    """Whether a limit that a case ran into is higher now, or gone."""
    now = campaign.words.limits.model_dump()
    limit: Mapping[str, float] = kept.result.get("limit", {})
    return any(now[name] is None or now[name] > value for name, value in limit.items())


def encoded(content: Any) -> bytes:
    """JSON with sorted keys: the same content, the same bytes."""
    return (json.dumps(content, sort_keys=True, indent=1) + "\n").encode()
