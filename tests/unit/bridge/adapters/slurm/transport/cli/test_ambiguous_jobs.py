"""Numbers of which several records stood in an answer: what is believed of them, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from cpsched_bridge.adapters.slurm.transport.cli import ambiguous_jobs, scontrol_job
from cpsched_bridge.adapters.slurm.transport.cli.ambiguous_jobs import AmbiguousJobResolver
from cpsched_bridge.adapters.slurm.transport.cli.squeue import Row
from tests.unit.bridge.adapters.slurm.transport.cli.standin import Job

ROWS: Mapping[int, Row] = {number: {"JobID": str(number)} for number in range(10)}


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

    def suspects(self) -> AmbiguousJobResolver:
        return AmbiguousJobResolver(self, lambda: self.now_s)


@pytest.mark.parametrize("records", [2, 3, 4])
def test_a_number_with_several_records_has_none(records: int) -> None:
    printed = Job(6).shown("26.05.5") * records + Job(7).shown("26.05.5")
    shown, twice = scontrol_job.split_records(printed)
    assert (set(shown), twice) == ({7}, {6})


def test_only_jobs_asked_for_are_taken_from_an_answer() -> None:
    """A forger in the group may print a record of a job outside of it, which stands there once."""
    found = Scontrol({5: (9,)}).suspects().resolve({5, 6}, ROWS)
    assert set(found) == {5, 6}


def test_halves_are_asked_for_until_the_forger_is_alone() -> None:
    scontrol = Scontrol({3: (1, 2, 3, 4)})
    assert set(scontrol.suspects().resolve({1, 2, 3, 4, 77}, ROWS)) == {1, 2, 4}
    assert scontrol.asked == [[1, 2, 3, 4], [1, 2], [3, 4], [3], [4]]


@pytest.mark.parametrize("scontrol", [Scontrol(fails=True), Scontrol(ends_early=True)])
def test_an_answer_that_fails_tells_nothing(scontrol: Scontrol) -> None:
    assert scontrol.suspects().resolve({1}, ROWS) == {}


def test_groups_and_questions_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ambiguous_jobs, "GROUP", 3)
    monkeypatch.setattr(ambiguous_jobs, "QUESTIONS", 2)
    scontrol = Scontrol()
    assert set(scontrol.suspects().resolve(set(range(7)), ROWS)) == set(range(6))
    assert scontrol.asked == [[0, 1, 2], [3, 4, 5]]


def test_a_kept_answer_ends_with_age_row_and_suspicion() -> None:
    """Each part of what a kept answer depends on is changed alone."""
    scontrol = Scontrol()
    looking = scontrol.suspects()
    changed = {**ROWS, 1: {"JobID": "1", "Name": "b"}}
    for now_s, numbers, rows, asked in (
        (0.0, {1, 2}, ROWS, [[1, 2]]),
        (ambiguous_jobs.KEPT_S - 0.1, {1, 2}, ROWS, []),
        (ambiguous_jobs.KEPT_S, {1, 2}, ROWS, [[1, 2]]),
        (ambiguous_jobs.KEPT_S, {1, 2}, changed, [[1]]),
        (ambiguous_jobs.KEPT_S, {2}, changed, []),
        (ambiguous_jobs.KEPT_S, {1, 2}, changed, [[1]]),
    ):
        scontrol.now_s, scontrol.asked = now_s, []
        assert set(looking.resolve(numbers, rows)) == numbers
        assert scontrol.asked == asked
