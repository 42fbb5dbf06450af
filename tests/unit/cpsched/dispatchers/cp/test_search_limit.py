"""The budget of a search, and the reserve that lets a call end within its limit."""

from __future__ import annotations

import pytest

from cpsched.dispatchers.cp.search_control import RemainingSearchBudget
from cpsched.dispatchers.cp.search_limit import RestartSearchLimits
from cpsched.errors import InvalidValue


class Clock:
    """A solver that has searched for this time and number of branches."""

    def __init__(self) -> None:
        self.ms = self.branches = 0

    def WallTime(self) -> int:  # noqa: N802
        return self.ms

    def Branches(self) -> int:  # noqa: N802
        return self.branches


def test_last_search_ends_in_time_for_model_teardown() -> None:
    solver, limit = Clock(), RestartSearchLimits(10.0, 100.0, 2)
    budget, whole = RemainingSearchBudget(solver, limit, 0, 3000), RemainingSearchBudget(solver, limit, 0, 0)
    solver.ms = 6999
    assert (budget(), whole()) == (False, False)
    solver.ms = 7000
    assert (budget(), whole()) == (True, False)


def test_search_gets_its_share_of_remaining_time() -> None:
    solver = Clock()
    solver.ms = 500
    budget = RemainingSearchBudget(solver, RestartSearchLimits(10.0, 1.0, 2), 1, 0)
    solver.ms = 2499
    assert not budget()
    solver.ms = 2500
    assert budget()


def test_verification_may_exceed_first_search_time() -> None:
    solver, limit = Clock(), RestartSearchLimits(10.0, 0.01, 2)
    short, verifying = RemainingSearchBudget(solver, limit, 0, 200), RemainingSearchBudget(solver, limit, 0, 200, 200)
    solver.ms = 199
    assert (short(), verifying()) == (True, False)
    solver.ms = 200
    assert verifying()


def test_limit_must_cover_build_and_teardown_of_model() -> None:
    limit = RestartSearchLimits(10.0, 1.0, 2, model_s=16.0)
    assert limit.is_model_within_limit(5.0)
    assert not limit.is_model_within_limit(5.1)
    assert RestartSearchLimits(10.0, 1.0, 2, effort=100, model_s=16.0).is_model_within_limit(16.0)
    assert not RestartSearchLimits(100.0, 1.0, 2, model_s=16.0).is_model_within_limit(16.1)


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
def test_rejects_invalid_limits(changes: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        RestartSearchLimits(**{"total_s": 1.0, "first_s": 1.0, "restarts": 1, **changes})  # type: ignore[arg-type]


def test_accepts_smallest_limits() -> None:
    least = RestartSearchLimits(0.001, 0.0001, 1, effort=1, model_s=0.0)
    assert (
        least.total_budget,
        least.first_budget,
        least.is_model_within_limit(0.0),
        least.is_model_within_limit(0.001),
    ) == (
        1,
        1,
        True,
        False,
    )
    assert (
        RestartSearchLimits(1.0, 1.0, 1).model_s,
        RestartSearchLimits(1.0, 1.0, 1).control,
        RestartSearchLimits(1.0, 1.0, 1).effort,
    ) == (
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
def test_computes_total_and_first_budget(
    total_s: float, first_s: float, effort: int | None, total: int, first: int
) -> None:
    limit = RestartSearchLimits(total_s, first_s, 1, effort)
    assert (limit.total_budget, limit.first_budget) == (total, first)


def test_does_not_build_model_that_exceeds_limit() -> None:
    assert RestartSearchLimits(2.0, 1.0, 1, model_s=1.0).is_model_within_limit(1.0)
    assert not RestartSearchLimits(1.9, 1.0, 1, model_s=1.0).is_model_within_limit(1.0)
    assert not RestartSearchLimits(9.0, 1.0, 1, model_s=1.0, effort=5).is_model_within_limit(1.1)
