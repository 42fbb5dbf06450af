"""What a search may spend, and what is kept back so that a call ends when its limit does."""

from __future__ import annotations

from cpsched.dispatchers.cp.engine import Budget
from cpsched.dispatchers.cp.limit import Limit


class Clock:
    """A solver that has been at work for so many milliseconds, over so many branches."""

    def __init__(self) -> None:
        self.ms = self.branches = 0

    def WallTime(self) -> int:  # noqa: N802
        return self.ms

    def Branches(self) -> int:  # noqa: N802
        return self.branches


def test_the_last_search_ends_before_the_limit_by_what_taking_the_model_down_takes() -> None:
    solver, limit = Clock(), Limit(10.0, 100.0, 2)
    budget, whole = Budget(solver, limit, 0, 3000), Budget(solver, limit, 0, 0)
    solver.ms = 6999
    assert (budget(), whole()) == (False, False)
    solver.ms = 7000
    assert (budget(), whole()) == (True, False)


def test_a_search_gets_its_share_of_what_is_left() -> None:
    solver = Clock()
    solver.ms = 500
    budget = Budget(solver, Limit(10.0, 1.0, 2), 1, 0)
    solver.ms = 2499
    assert not budget()
    solver.ms = 2500
    assert budget()


def test_verifying_a_large_model_may_take_longer_than_the_first_search() -> None:
    solver, limit = Clock(), Limit(10.0, 0.01, 2)
    short, verifying = Budget(solver, limit, 0, 200), Budget(solver, limit, 0, 200, 200)
    solver.ms = 199
    assert (short(), verifying()) == (True, False)
    solver.ms = 200
    assert verifying()


def test_a_limit_covers_a_model_that_can_be_built_and_taken_down_within_it() -> None:
    limit = Limit(10.0, 1.0, 2, model_s=16.0)
    assert limit.covers(5.0)
    assert not limit.covers(5.1)
    assert Limit(10.0, 1.0, 2, effort=100, model_s=16.0).covers(16.0)
    assert not Limit(100.0, 1.0, 2, model_s=16.0).covers(16.1)
