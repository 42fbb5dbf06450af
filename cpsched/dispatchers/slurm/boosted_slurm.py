"""Define the dispatcher `advised`: Slurm's own passes in the order of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.dispatchers.lookahead.objectives import ObjectiveName
from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher
from cpsched.errors import InvalidValue, require
from cpsched.goal_presets import DEFAULT_GOAL
from cpsched.model import NEVER, Decision, EndedJob, IntArray, JobTable, Need, Snapshot
from cpsched.registration import FileParameter, Registration

UNPLANNED_RANK = NEVER
"""Rank of jobs that arrived after the last plan. They follow ranked jobs of equal priority, in order of arrival."""


class PriorityBoostTable:
    """Priority points from the last plan, and ranks among equal priorities, by slot."""

    def __init__(self) -> None:
        self._jobs: object = None
        """The jobs to which the slots refer."""
        self._slots = self._points = self._rank = np.zeros(0, np.int64)
        self._by_id: dict[int, tuple[int, int]] = {}
        """Points and rank by job id, if the slots refer to another table."""

    def assign_boosts(self, table: JobTable, order: IntArray, tier: IntArray, priority: IntArray) -> None:
        """Set the fewest points that order the jobs in each tier as in `order` (slots).

        No job gets negative points. A job that must precede a job with a higher priority gets the difference.
        """
        self._jobs, self._slots = table.jobs, order
        self._points, self._rank = np.zeros(len(table.jobs), np.int64), np.full(len(table.jobs), UNPLANNED_RANK)
        self._rank[order] = np.arange(len(order))
        for each in np.unique(tier).tolist():
            mine, own = order[tier == each], priority[tier == each]
            self._points[mine] = np.maximum.accumulate(own[::-1])[::-1] - own

    def boosted_order(self, snapshot: Snapshot) -> IntArray:
        """Return queue positions, int64[Q], by tier, priority with points, and rank."""
        table, queue = snapshot.table, snapshot.queue
        self._index_job_table(table)
        total = table.priority[queue] + self._points[queue]
        return np.lexsort((self._rank[queue], -total, -table.tier[queue])).astype(np.int64)

    def to_json(self) -> dict[str, list[int]]:
        """Return [points, rank] by job id (a string), as input for `restore_json`."""
        if self._jobs is not None:
            jobs: Any = self._jobs
            named = zip(self._slots.tolist(), self._points[self._slots].tolist(), strict=True)
            self._by_id = {jobs[slot].id: (points, rank) for rank, (slot, points) in enumerate(named)}
        return {str(id): list(row) for id, row in self._by_id.items()}

    def restore_json(self, saved: Mapping[str, Any]) -> None:
        """Restore a state from `to_json`."""
        self._jobs, self._by_id = None, {int(id): (int(row[0]), int(row[1])) for id, row in saved.items()}

    def _index_job_table(self, table: JobTable) -> None:
        """Map the columns to the slots in `table`."""
        more = len(table.jobs) - len(self._rank)
        if table.jobs is self._jobs and more <= 0:
            return
        if table.jobs is self._jobs:
            self._points = np.append(self._points, np.zeros(more, np.int64))
            self._rank = np.append(self._rank, np.full(more, UNPLANNED_RANK))
            return
        self.to_json()
        known = [self._by_id.get(job.id, (0, UNPLANNED_RANK)) for job in table.jobs]
        columns = np.array(known, np.int64).reshape(len(known), 2)
        self._jobs, self._points, self._rank = table.jobs, columns[:, 0].copy(), columns[:, 1].copy()
        ranked = np.flatnonzero(self._rank != UNPLANNED_RANK)
        self._slots = ranked[np.argsort(self._rank[ranked])]


class PlanAdvisedSlurmDispatcher(Dispatcher):
    """A dispatcher that starts jobs as Slurm does, in the order of an adviser's plan.

    The adviser plans the queue every `every_s` seconds if an event has occurred, or on every call if `every_s` is 0.
    Within a tier, jobs are then ordered by planned start. Jobs without a planned start come last. Until the next plan,
    a new job is placed by its priority. Each ranked job gets only as many points as its position requires.

    The adviser may be any dispatcher that plans starts. The default is `lookahead` with `objective`, `effort`, `work`,
    `site_weight` and `seed`. The other settings are the same as for `slurm`.
    """

    every_round = True

    def __init__(
        self,
        adviser: Dispatcher | None = None,
        every_s: int = 60,
        objective: ObjectiveName = DEFAULT_GOAL,
        effort: int | None = None,
        work: int = 1500,
        site_weight: float = 0.0,
        seed: int = 0,
        scheduler_parameters: str = "",
        config: Annotated[str | None, FileParameter("config_file", text=True)] = None,
        reserved: Literal["whole-nodes", "parts"] = "whole-nodes",
    ) -> None:
        require(every_s >= 0, "every_s", every_s, "must not be negative")
        self.twin = SlurmTwinDispatcher(scheduler_parameters, config, reserved)
        if adviser is None:
            adviser = LookaheadDispatcher(objective, effort, work, site_weight=site_weight, seed=seed)
        self.adviser, self._every_s = adviser, every_s
        self.learns = self.adviser.learns
        self._points = PriorityBoostTable()
        self._seen: tuple[int, ...] = ()
        """`queue_fingerprint` of the last snapshot, updated with the starts of its decision."""
        self._due_s = self._advised_s = -NEVER
        """Times of the next plan (`NEVER` without an event) and of the last pass request by a plan, in seconds."""

    @override
    def learn(self, ended: EndedJob) -> None:
        self.adviser.learn(ended)

    @override
    def took(self, seconds: float) -> None:
        self.adviser.took(seconds)

    @override
    def memory(self) -> dict[str, Any]:
        clock = [self._due_s, self._advised_s]
        twin, adviser = self.twin.memory(), self.adviser.memory()
        return {
            "points": self._points.to_json(), "seen": list(self._seen), "clock": clock, "twin": twin, "adviser": adviser
        }  # fmt: skip

    @override
    def recall(self, memory: Mapping[str, Any]) -> None:
        self._points.restore_json(memory["points"])
        self._seen = tuple(memory["seen"])
        self._due_s, self._advised_s = memory["clock"]
        self.twin.recall(memory["twin"])
        if memory["adviser"] is not None:
            self.adviser.recall(memory["adviser"])

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        if not len(snapshot.queue):
            return self.twin.decide(snapshot, need)
        self._schedule_planning(snapshot.now_s, queue_fingerprint(snapshot))
        if self._due_s <= snapshot.now_s:
            self._update_points_from_adviser(snapshot)
        order, now_s = self._points.boosted_order(snapshot), snapshot.now_s
        decision = self.twin.decide_in_order(snapshot, need, order, self._advised_s == now_s)
        waiting, started = len(snapshot.queue) - len(decision.starts), len(decision.starts)
        if started:
            self._due_s = min(self._due_s, self._next_planning_s(now_s))
        self._seen = (waiting, self._seen[1], self._seen[2] + started)
        again_s = min(decision.again_s or NEVER, self._due_s if waiting and self._every_s else NEVER)
        whole = (decision.plan_s, decision.waits)
        return Decision(decision.starts, decision.effort, *whole, None if again_s == NEVER else again_s)

    def _schedule_planning(self, now_s: int, seen: tuple[int, ...]) -> None:
        """After an event, schedule a plan for the next multiple of `every_s`, or for now."""
        if seen != self._seen:
            self._due_s = min(self._due_s, self._next_planning_s(now_s - 1))
        self._seen = seen

    def _next_planning_s(self, now_s: int) -> int:
        """Return the first second after `now_s` at which the adviser may plan."""
        return (now_s // self._every_s + 1) * self._every_s if self._every_s else now_s + 1

    def _update_points_from_adviser(self, snapshot: Snapshot) -> None:
        """Set points from the adviser's plan. If the order has changed, request a pass."""
        before = self._points.boosted_order(snapshot)
        plan_s = self.adviser.decide(snapshot, "plan").plan_s
        if plan_s is None:
            raise InvalidValue("adviser", type(self.adviser).__name__, "must return planned starts")
        table, queue = snapshot.table, snapshot.queue
        order = queue[np.lexsort((before.argsort(), plan_s))]
        self._points.assign_boosts(table, order, table.tier[order], table.priority[order])
        if not np.array_equal(before, self._points.boosted_order(snapshot)):
            self._advised_s = snapshot.now_s
        self._due_s = NEVER if self._every_s else -NEVER


def queue_fingerprint(snapshot: Snapshot) -> tuple[int, ...]:
    """Return values that change when a job arrives, starts or ends."""
    return len(snapshot.queue), int(snapshot.table.submit_s[snapshot.queue[-1]]), len(snapshot.running)


REGISTRATIONS = (
    Registration(
        "advised",
        "Slurm's own scheduler starts the jobs in the order of lookahead's plan, by default updated every minute.",
        "docs/lookahead.md",
        PlanAdvisedSlurmDispatcher,
    ),
)
