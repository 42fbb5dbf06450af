"""What a search may spend, and what is kept back so that a call ends when its limit does."""

from __future__ import annotations

import pytest

from cpsched.dispatchers.cp.search_control import RemainingSearchBudget
from cpsched.dispatchers.cp.search_limit import SearchLimit
from cpsched.errors import InvalidValue


class Clock:
    """A solver that has searched for this time and number of branches."""

    def __init__(self) -> None:
        self.ms = self.branches = 0

    def WallTime(self) -> int:  # noqa: N802
        return self.ms

    def Branches(self) -> int:  # noqa: N802
        return self.branches


def test_the_last_search_ends_before_the_limit_by_what_taking_the_model_down_takes() -> None:
    solver, limit = Clock(), SearchLimit(10.0, 100.0, 2)
    budget, whole = RemainingSearchBudget(solver, limit, 0, 3000), RemainingSearchBudget(solver, limit, 0, 0)
    solver.ms = 6999
    assert (budget(), whole()) == (False, False)
    solver.ms = 7000
    assert (budget(), whole()) == (True, False)


def test_a_search_gets_its_share_of_what_is_left() -> None:
    solver = Clock()
    solver.ms = 500
    budget = RemainingSearchBudget(solver, SearchLimit(10.0, 1.0, 2), 1, 0)
    solver.ms = 2499
    assert not budget()
    solver.ms = 2500
    assert budget()


def test_verifying_a_large_model_may_take_longer_than_the_first_search() -> None:
    solver, limit = Clock(), SearchLimit(10.0, 0.01, 2)
    short, verifying = RemainingSearchBudget(solver, limit, 0, 200), RemainingSearchBudget(solver, limit, 0, 200, 200)
    solver.ms = 199
    assert (short(), verifying()) == (True, False)
    solver.ms = 200
    assert verifying()


def test_a_limit_covers_a_model_that_can_be_built_and_taken_down_within_it() -> None:
    limit = SearchLimit(10.0, 1.0, 2, model_s=16.0)
    assert limit.is_within_limit(5.0)
    assert not limit.is_within_limit(5.1)
    assert SearchLimit(10.0, 1.0, 2, effort=100, model_s=16.0).is_within_limit(16.0)
    assert not SearchLimit(100.0, 1.0, 2, model_s=16.0).is_within_limit(16.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_s": 0.0}, "limit_s=0.0: must be positive"),
        ({"total_s": -1.0}, "limit_s=-1.0: must be positive"),
        ({"first_s": 0.0}, "first_limit_s=0.0: must be positive"),
        ({"restarts": 0}, "restarts=0: must be positive"),
        ({"model_s": -0.1}, "model_s=-0.1: must not be negative"),
        ({"effort": 0}, "effort=0: must be positive"),
    ],
)
def test_limits_that_make_no_sense_are_named(changes: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        SearchLimit(**{"total_s": 1.0, "first_s": 1.0, "restarts": 1, **changes})  # type: ignore[arg-type]


def test_the_least_limits_are_limits() -> None:
    least = SearchLimit(0.001, 0.0001, 1, effort=1, model_s=0.0)
    assert (least.total_budget, least.first_budget, least.is_within_limit(0.0), least.is_within_limit(0.001)) == (
        1,
        1,
        True,
        False,
    )
    assert (SearchLimit(1.0, 1.0, 1).model_s, SearchLimit(1.0, 1.0, 1).control, SearchLimit(1.0, 1.0, 1).effort) == (
        0.1,
        "stops",
        None,
    )


@pytest.mark.parametrize(
    ("total_s", "first_s", "effort", "total", "first"),
    [
        (16.0, 0.01, None, 16_000, 10),
        (0.5, 2.0, None, 500, 2000),
        (1.0, 0.0001, None, 1000, 1),
        (16.0, 0.01, 800, 800, 100),
        (16.0, 0.01, 15, 15, 1),
        (16.0, 0.01, 16, 16, 2),
        (16.0, 0.01, 7, 7, 1),
    ],
)
def test_all_there_is_and_the_share_of_the_first_search(
    total_s: float, first_s: float, effort: int | None, total: int, first: int
) -> None:
    limit = SearchLimit(total_s, first_s, 1, effort)
    assert (limit.total_budget, limit.first_budget) == (total, first)


def test_a_model_is_not_built_in_a_limit_that_it_would_outlast() -> None:
    assert SearchLimit(2.0, 1.0, 1, model_s=1.0).is_within_limit(1.0)
    assert not SearchLimit(1.9, 1.0, 1, model_s=1.0).is_within_limit(1.0)
    assert not SearchLimit(9.0, 1.0, 1, model_s=1.0, effort=5).is_within_limit(1.1)
