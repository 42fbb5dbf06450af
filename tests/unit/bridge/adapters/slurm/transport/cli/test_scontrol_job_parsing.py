"""Job numbers with several records in the output: which record is used, and the cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from cpsched_bridge.adapters.slurm.transport.cli import scontrol_job_parsing
from cpsched_bridge.adapters.slurm.transport.cli.job_list_parsing import SqueueRow
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_job_parsing import DuplicateJobRecordResolver
from tests.unit.bridge.adapters.slurm.transport.cli.standin import Job

ROWS = {number: SqueueRow(str(number)) for number in range(10)}


@dataclass
class Scontrol:
    """Prints each job asked for; the forgers print a record of each of their victims too."""

    forgers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    fails: bool = False
    ends_early: bool = False
    asked: list[list[int]] = field(default_factory=list)
    now_s: float = 0.0

    def __call__(self, numbers: list[int]) -> str | None:
        self.asked.append(list(numbers))
        texts = [Job(one).shown("26.05.5") for number in numbers for one in (number, *self.forgers.get(number, ()))]
        return None if self.fails else "".join(texts)[: -1 if self.ends_early else None]

    def suspects(self) -> DuplicateJobRecordResolver:
        return DuplicateJobRecordResolver(self, lambda: self.now_s)


@pytest.mark.parametrize("records", [2, 3, 4])
def test_job_with_several_records_has_none(records: int) -> None:
    printed = Job(6).shown("26.05.5") * records + Job(7).shown("26.05.5")
    shown, twice = scontrol_job_parsing.split_job_records(printed)
    assert (set(shown), twice) == ({7}, {6})


def test_takes_only_requested_jobs_from_answer() -> None:
    """A forger in the group may print a record of a job outside of it, which stands there once."""
    assert set(Scontrol({5: (9,)}).suspects().resolve({5, 6}, ROWS)) == {5, 6}


def test_bisects_jobs_until_forger_is_isolated() -> None:
    scontrol = Scontrol({3: (1, 2, 3, 4)})
    assert set(scontrol.suspects().resolve({1, 2, 3, 4, 77}, ROWS)) == {1, 2, 4}
    assert scontrol.asked == [[1, 2, 3, 4], [1, 2], [3, 4], [3], [4]]


@pytest.mark.parametrize("scontrol", [Scontrol(fails=True), Scontrol(ends_early=True)])
def test_failed_answer_resolves_no_job(scontrol: Scontrol) -> None:
    assert scontrol.suspects().resolve({1}, ROWS) == {}


def test_bounds_groups_and_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scontrol_job_parsing, "JOBS_PER_QUERY", 3)
    monkeypatch.setattr(scontrol_job_parsing, "MAX_QUERIES_PER_READING", 2)
    scontrol = Scontrol()
    assert set(scontrol.suspects().resolve(set(range(7)), ROWS)) == set(range(6))
    assert scontrol.asked == [[0, 1, 2], [3, 4, 5]]


def test_cached_answer_expires_with_age_row_or_suspicion() -> None:
    """Each part of what a kept answer depends on is changed alone."""
    scontrol = Scontrol()
    looking = scontrol.suspects()
    changed = {**ROWS, 1: ROWS[1]._replace(name="b")}
    for now_s, numbers, rows, asked in (
        (0.0, {1, 2}, ROWS, [[1, 2]]),
        (scontrol_job_parsing.CACHE_S - 0.1, {1, 2}, ROWS, []),
        (scontrol_job_parsing.CACHE_S, {1, 2}, ROWS, [[1, 2]]),
        (scontrol_job_parsing.CACHE_S, {1, 2}, changed, [[1]]),
        (scontrol_job_parsing.CACHE_S, {2}, changed, []),
        (scontrol_job_parsing.CACHE_S, {1, 2}, changed, [[1]]),
    ):
        scontrol.now_s, scontrol.asked = now_s, []
        assert set(looking.resolve(numbers, rows)) == numbers
        assert scontrol.asked == asked
