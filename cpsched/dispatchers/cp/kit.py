"""One dispatcher of constraint programming for a whole family: what makes its members differ are its parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.cp import certain as shortcuts
from cpsched.dispatchers.cp import sizes, window
from cpsched.dispatchers.cp.answer import Answer, allocated, alone, effort_of, nothing_starts, placed
from cpsched.dispatchers.cp.limit import Control, Limit
from cpsched.dispatchers.cp.objective import (
    OBJECTIVES,
    ObjectiveName,
    PriorityName,
    heeding_the_site,
    in_priority_order,
)
from cpsched.dispatchers.cp.power import Cap, Power
from cpsched.dispatchers.cp.window import Jobs, Problem, Running
from cpsched.dispatchers.expected_waits import ExpectedWaits
from cpsched.errors import require
from cpsched.fit import room_by_node
from cpsched.kernels.cp.considered import possible, startable
from cpsched.kernels.cp.state import Facts, Objective, Plan, moment_of
from cpsched.listing import FromFile, Listing
from cpsched.model import Decision, Effort, EndedJob, IntArray, Need, Snapshot
from cpsched.planning import Allocation as NodeChoice

Allocation = Literal["positions", "nodes", "best-fit", "first-fit"]
"""Where units go: positions in the model (PCP'20), optional intervals in the model (PCP'19), or nodes chosen after the
model, which knows pools alone (HCP)."""

_MODEL: dict[str, str] = {"positions": "positions", "nodes": "nodes"}
_COUNT = {"positions": sizes.with_positions, "nodes": sizes.with_intervals, "pool": sizes.with_pools}
_BY_EXPECTED_WAIT = ("late", "weighted-wait", "urgency")


class ConstraintDispatcher(Dispatcher):
    """Plans the jobs of a round in one constraint model for the least cost, and starts those whose time is now.

    What the members of the family differ in:

    - `jobs`: which jobs the model is made of (`all`, `first`, `startable`), at most `considered` of them (cp19's m)
      except for `all`.
    - `control`: what follows a search without a plan (`doubles`), or without a better one (`stops`).
    - `running`: how long a running job goes on (`remaining`, `at-least-1s`).
    - `objective`: the cost of a plan.
    - `priority`: who goes first in search and allocation; `none` leaves the search to the solver, which is shown no
      plan then.
    - `allocation`: where units go.

    - `site_weight`: how much the site's priority counts in the objective: 0 not at all, 1 as much as the objective's
      own weights, see `cpsched.site.weighing`.
    - `equal_jobs`: whether jobs of the same request, estimate and cost start in order of priority in the solver's model
      (`in-order`), which leaves it fewer plans to search.

    What bounds a call, and what it may save:

    - `limit_s` is the most that a call may take, in seconds; then it ends with the best plan there is. Path `late`:
      there is none, and nothing starts. Where no job runs that could change that, the first that fits starts alone.
    - `first_limit_s` is what the first search gets, or as much as building the model and verifying the plan took, where
      that is more. A search after one that brought nothing gets twice `first_limit_s`. The papers give the first search
      1 s, because their first plan came out of it.
    - `restarts` in a row that bring nothing end the call. (cp19 calls these three delta_max, delta and k.)
    - `effort` takes the place of the seconds: a number of branches of the solver. Then no clock is read, and the same
      snapshot and the same `seed` give the same decision.
    - `model_s`: no model is built that is expected to take longer to build and propagate, which nothing interrupts. The
      plan at hand decides then (path `dive`).
    - `certain`: with `no` the solver is asked always, also where no search can change the decision. That is what the
      papers measured.
    - `power_cap_w` is the most that all running jobs may draw, in watts; `watts` says what a job draws for each amount
      of a resource that it asks for: `cores=8,gpus=120`. One more pool, so that it needs an allocation after pools.
    - `waits_s`, the expected waits by queue in seconds, are learned as jobs end unless given; programs read them from
      a JSON file, `ewt_file`.
    """

    def __init__(
        self,
        jobs: Jobs = "startable",
        control: Control = "stops",
        running: Running = "at-least-1s",
        objective: ObjectiveName = "slowdown",
        priority: PriorityName = "slowdown",
        allocation: Allocation = "positions",
        site_weight: float = 0.0,
        equal_jobs: Literal["any-order", "in-order"] = "in-order",
        certain: Literal["yes", "no"] = "yes",
        limit_s: float = 16.0,
        first_limit_s: float = 0.01,
        effort: int | None = None,
        considered: int = 100,
        restarts: int = 2,
        model_s: float = 0.25,
        seed: int = 0,
        power_cap_w: int | None = None,
        watts: str = "",
        waits_s: Annotated[Mapping[str, float] | None, FromFile("ewt_file")] = None,
    ) -> None:
        require(site_weight >= 0, "site_weight", site_weight, "must not be negative")
        require(considered > 0, "considered", considered, "must be positive")
        searched_by = (priority != "none", allocation != "positions" or running == "at-least-1s")
        require(searched_by[0] or allocation == "nodes", "priority", priority, "needs the allocation nodes")
        require(searched_by[1], "running", running, "cannot be with the allocation positions")
        self._jobs: Jobs = jobs
        self._running: Running = running
        self._make, self._priority = OBJECTIVES[objective], priority
        self._allocation: Allocation = allocation
        self._model = _MODEL.get(allocation, "pool")
        self._in_order = equal_jobs == "in-order"
        self._certain, self._site_weight = certain == "yes", site_weight
        self._considered, self._seed = considered, seed
        self._cap = Cap.of(power_cap_w, watts)
        require(
            self._cap is None or self._model == "pool", "power_cap_w", power_cap_w, "needs an allocation after pools"
        )
        self._limit = Limit(limit_s, first_limit_s, restarts, effort, model_s, control)
        self.expected_waits = ExpectedWaits(waits_s)
        self.learns = self.expected_waits.learns and not {objective, priority}.isdisjoint(_BY_EXPECTED_WAIT)

    def learn(self, ended: EndedJob) -> None:
        """See `Dispatcher.learn`."""
        self.expected_waits.learn(ended)

    def memory(self) -> dict[str, list[int]] | None:
        """What was learned, to be written down beside a decision."""
        return self.expected_waits.memory() if self.learns else None

    def recall(self, memory: Mapping[str, Sequence[int]]) -> None:
        """Know what `memory` says, and nothing else."""
        self.expected_waits.recall(memory)

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """See `Dispatcher.decide`."""
        facts = window.facts_of(snapshot, self._running)
        slots, rest = self._chosen(facts, self._drawn(snapshot))
        able = slots if self._jobs == "startable" else startable(facts, slots, 1)
        if len(slots) == 0 or (len(able) == 0 and self._certain):
            path = "nothing-fits" if len(snapshot.queue) else "empty-queue"
            return nothing_starts(snapshot, Effort(path), need)
        slots = in_priority_order(self._priority, snapshot, slots, self.expected_waits)
        problem = Problem(
            facts.considering(slots),
            self._objective(snapshot, slots),
            rest,
            bool((facts.end_s[facts.running] <= facts.now_s).any()),
            self._power(snapshot, facts, np.concatenate((slots, rest))),
            self._in_order,
        )
        return self._decision(snapshot, problem, self._answer(problem), need)

    def _objective(self, snapshot: Snapshot, slots: IntArray) -> Objective:
        objective = self._make(snapshot, slots, self.expected_waits)
        return heeding_the_site(objective, snapshot, slots, self._site_weight) if self._site_weight else objective

    def _drawn(self, snapshot: Snapshot) -> IntArray:
        """The queue without jobs that draw more than the cap, or than is left of it where only jobs that fit count."""
        if self._cap is None:
            return snapshot.queue
        most = self._cap.left_w(snapshot) if self._jobs == "startable" else self._cap.cap_w
        return snapshot.queue[self._cap.draws(snapshot, snapshot.queue) <= most]

    def _power(self, snapshot: Snapshot, facts: Facts, slots: IntArray) -> Power | None:
        if self._cap is None:
            return None
        draws = self._cap.draws
        return Power(self._cap.cap_w, draws(snapshot, slots), draws(snapshot, facts.running))

    def _chosen(self, facts: Facts, queue: IntArray) -> tuple[IntArray, IntArray]:
        """The slots to plan, in arrival order, and those that are in the model but not searched."""
        nobody = queue[:0]
        if self._jobs == "startable":
            return startable(facts, queue, self._considered), nobody
        queue = possible(facts, queue, moment_of(facts.machine.capacity))
        if self._jobs == "first":
            return queue[: self._considered], queue[self._considered :]
        return queue, nobody

    def _answer(self, problem: Problem) -> Answer:
        """The certain answer where there is one; else what the solver says."""
        if shortcuts.impossible(problem):
            return Answer(None, "infeasible", True, status="infeasible")
        answer = self._at_hand(problem)
        if answer.certain and self._certain and not problem.overdue:
            return answer
        from cpsched.dispatchers.cp.engine import improve  # the solver is imported when it is first needed

        shown = self._priority != "none" and answer.plan is not None and problem.holds(answer.plan.start_s)
        return improve(problem, answer, self._model, self._limit, self._seed, shown)

    def _at_hand(self, problem: Problem) -> Answer:
        """A plan without a solver, and whether it is certain."""
        facts, objective = problem.facts, problem.objective
        if self._model == "pool":
            return shortcuts.pooled(problem)
        if problem.overdue:
            return Answer(window.first_leaf(facts), "", certain=False)
        if self._certain:
            return shortcuts.all_start(facts) or shortcuts.bound_met(facts, objective, self._seed)
        return Answer(window.first_leaf(facts), "", certain=False)

    def _decision(self, snapshot: Snapshot, problem: Problem, answer: Answer, need: Need) -> Decision:
        facts = problem.facts
        if answer.plan is None:
            return self._without_a_plan(snapshot, facts, answer, need)
        effort = effort_of(facts, answer, problem.objective, _COUNT[self._model](facts))
        if self._model == "pool":
            fit: NodeChoice = "first-fit" if self._allocation == "first-fit" else "best-fit"
            return allocated(snapshot, facts, answer.plan, effort, need, fit)
        if problem.overdue:
            return placed(snapshot, facts, *without_overdue(snapshot, facts, answer.plan, effort), need)
        return placed(snapshot, facts, answer.plan, effort, need)

    def _without_a_plan(self, snapshot: Snapshot, facts: Facts, answer: Answer, need: Need) -> Decision:
        """Nothing starts, and the next round tries again; see `alone`."""
        effort = Effort(answer.path, len(facts.jobs), _COUNT[self._model](facts), answer.status)
        effort = dataclasses.replace(effort, solver_s=answer.solver_s, branches=answer.branches)
        return alone(snapshot, facts, effort, need)


def without_overdue(snapshot: Snapshot, facts: Facts, plan: Plan, effort: Effort) -> tuple[Plan, Effort]:
    """`plan` without the starts that take what a running job still holds, although it should have ended."""
    free, unplaced = snapshot.free.copy(), 0
    for j, slot in enumerate(facts.jobs.tolist()):
        if plan.start_s[j] != facts.now_s:
            continue
        job, first = snapshot.table.jobs[slot], int(plan.first[j])
        part = slice(first, first + int(plan.parts[j]))
        nodes, room = plan.node[part], room_by_node(job.request, snapshot.cluster, free)
        taken = np.bincount(nodes, plan.units[part], len(free)).astype(np.int64)
        if (taken > room).any():
            plan.start_s[j] = facts.now_s + 1
            unplaced += 1
            continue
        np.subtract.at(free, nodes, plan.dy[part])
    return plan, dataclasses.replace(effort, unplaced=unplaced)


def recipe(
    name: str,
    summary: str,
    source: str,
    jobs: Jobs,
    control: Control,
    running: Running,
    objective: ObjectiveName,
    priority: PriorityName,
    allocation: Allocation,
    **limits: object,
) -> Listing:
    """A member of the family for the catalogue: a row of the papers' table."""
    parts = {
        "jobs": jobs,
        "control": control,
        "running": running,
        "objective": objective,
        "priority": priority,
        "allocation": allocation,
    }
    return Listing(name, summary, source, ConstraintDispatcher, parts | limits)
