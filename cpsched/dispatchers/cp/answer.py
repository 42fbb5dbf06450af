"""What a dispatcher of this family knows at the end of a call, and how that becomes a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cpsched.dispatchers.cp import objective
from cpsched.dispatchers.cp import positions as kernels
from cpsched.dispatchers.cp.positions import Facts, Plan
from cpsched.model import NEVER, NO_STARTS, Decision, Effort, IntArray, Need, Snapshot, Starts, Wait


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
    return Decision(starts, effort, plan_s, waits(snapshot, plan_s, starts.slots))


def nothing_starts(snapshot: Snapshot, path: str, need: Need) -> Decision:
    """No job is considered."""
    if need == "starts":
        return Decision(NO_STARTS, Effort(path))
    plan_s = np.full(len(snapshot.queue), NEVER, np.int64)
    return Decision(NO_STARTS, Effort(path), plan_s, waits(snapshot, plan_s, NO_STARTS.slots))


def planned(snapshot: Snapshot, jobs: IntArray, start_s: IntArray) -> IntArray:
    """Expected starts aligned with the queue; `NEVER` for jobs that were not considered."""
    at = dict(zip(jobs.tolist(), start_s.tolist(), strict=True))
    return np.array([at.get(slot, NEVER) for slot in snapshot.queue.tolist()], dtype=np.int64)


def waits(snapshot: Snapshot, plan_s: IntArray, starting: IntArray) -> Mapping[int, Wait]:
    """By job id why a job of the queue does not start now; considered ones stand behind those that do."""
    jobs, now_s = snapshot.table.jobs, snapshot.now_s
    behind = tuple(jobs[slot].id for slot in starting.tolist())
    found: dict[int, Wait] = {}
    for slot, start_s in zip(snapshot.queue.tolist(), plan_s.tolist(), strict=True):
        if start_s == NEVER:
            found[jobs[slot].id] = Wait("not considered: does not fit what is free, or comes after those that do")
        elif start_s > now_s:
            found[jobs[slot].id] = Wait(f"planned in {start_s - now_s} s, after jobs that weigh more", behind)
    return found
