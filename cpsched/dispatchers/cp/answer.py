"""What a dispatcher of this family knows at the end of a call, and how that becomes a decision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cpsched.dispatchers.cp import objective
from cpsched.dispatchers.cp import positions as kernels
from cpsched.dispatchers.cp.positions import Facts, Plan
from cpsched.model import NEVER, NO_STARTS, Decision, Effort, IntArray, Need, Snapshot, Starts
from cpsched.reasons import Phrases, explain

PHRASES = Phrases("jobs that weigh more go first", "comes after those that are", "not considered: ")
"""Why jobs wait that would fit what is free, in the words of this family."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan for the considered jobs, the path to it and what it cost.

    `bound` is a proved lower bound of the weighted delay (see `objective`); `certain` says that no search can help.
    """

    plan: Plan
    path: str
    certain: bool
    bound: float = 0.0
    status: str = ""
    solver_s: float = 0.0
    branches: int = 0


def variables_of(facts: Facts) -> int:
    """Decision variables of the model as the paper counts them: |Q| + sum of rn_i * |R|."""
    return len(facts.jobs) + int(facts.units[facts.jobs].sum()) * int(facts.capacity.shape[1])


def decision(
    snapshot: Snapshot, facts: Facts, answer: Answer, weights: npt.NDArray[np.float64], need: Need
) -> Decision:
    """Start the jobs whose start is now; objective and bound of its effort are sums of slowdowns, see `objective`."""
    beside = objective.constant(snapshot, facts, weights)
    solved = answer.status != ""
    effort = Effort(
        path=answer.path,
        considered=len(facts.jobs),
        variables=variables_of(facts),
        status=answer.status,
        objective=beside + objective.delay(snapshot.now_s, weights, answer.plan.start_s) if solved else None,
        bound=beside + answer.bound if solved else None,
        solver_s=answer.solver_s,
        branches=answer.branches,
    )
    starts = Starts(*kernels.starts_now(facts, answer.plan))
    if need == "starts":
        return Decision(starts, effort)
    plan_s = planned(snapshot, facts.jobs, answer.plan.start_s)
    return Decision(starts, effort, plan_s, explain(snapshot, starts, plan_s, PHRASES))


def nothing_starts(snapshot: Snapshot, path: str, need: Need) -> Decision:
    """No job is considered."""
    if need == "starts":
        return Decision(NO_STARTS, Effort(path))
    plan_s = np.full(len(snapshot.queue), NEVER, np.int64)
    return Decision(NO_STARTS, Effort(path), plan_s, explain(snapshot, NO_STARTS, plan_s, PHRASES))


def planned(snapshot: Snapshot, jobs: IntArray, start_s: IntArray) -> IntArray:
    """Expected starts aligned with the queue; `NEVER` for jobs that were not considered."""
    at = dict(zip(jobs.tolist(), start_s.tolist(), strict=True))
    return np.array([at.get(slot, NEVER) for slot in snapshot.queue.tolist()], dtype=np.int64)
