"""Preemption in a replay: pending jobs that start by stopping running jobs.

The victims are those that Slurm would select; `cpsched.site.preemption_plans` names the sources. A preemptor starts in
the second in which its victims stop. With grace times, all its victims run until the longest of them has passed, and no
other job may use the preemptor's nodes. Reservations for jobs that do not preempt are not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cpsched.feasibility import FreeAmounts, amounts_by_node
from cpsched.model import NEVER, Decision, IntArray, Placement, RunningJob, Snapshot, Starts
from cpsched.model.cluster import BoolArray
from cpsched.site.admission import (
    PendingJobLimitsAndUsage,
    add_job_usage,
    first_exceeded_limit,
    pending_job_limits,
    queue_positions_by_priority,
    with_power_limit,
)
from cpsched.site.preemption import VictimOrder
from cpsched.site.preemption_plans import PreemptionSearch, count_occupied_nodes
from cpsched.site.victims import PreemptibleJob, lost_work_s, stop_price_node_s
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from cpsched_sim.site.policy_file import SitePolicyFile

INEFFECTIVE_AFTER_S = 60
"""A preemption had no effect if its preemptor has not started after this time."""


@dataclass(frozen=True, slots=True)
class PreemptedRun:
    """A run that a preemption ended. If `requeued`, its job waits again."""

    slot: int
    start_s: int
    end_s: int
    placement: Placement
    requeued: bool
    lost_node_s: float
    """Node-seconds since the start or last checkpoint (see `count_occupied_pool_or_nodes`)."""
    kept_s: int = 0
    """Seconds from the start to the last checkpoint. The next run of a requeued job is shorter by this time."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """The start of job `slot` at `at_s`, and the runs that ended for it, if any.

    `placement` is empty if the job does not start after all.
    """

    slot: int
    at_s: int
    placement: Placement
    victims: tuple[PreemptedRun, ...]


def summarize_preemptions(preemptions: Sequence[Preemption], submit_s: IntArray, start_s: IntArray) -> dict[str, float]:
    """Return the values of `preemption` in the JSON output.

    `submit_s` and `start_s` are by slot.
    """
    victims = [run for each in preemptions for run in each.victims]
    again = {(run.slot, run.start_s) for run in victims}
    in_vain = sum(
        (each.slot, each.at_s) not in again and start_s[each.slot] > each.at_s + INEFFECTIVE_AFTER_S
        for each in preemptions
    )
    waits = [each.at_s - int(submit_s[each.slot]) for each in preemptions]
    return {
        "preemptions": len(preemptions),
        "victims": len(victims),
        "lost_node_h": sum(run.lost_node_s for run in victims) / 3600,
        "in_vain": int(in_vain),
        "mean_wait_s_of_preemptors": sum(waits) / len(waits) if waits else 0.0,
    }


@dataclass(frozen=True, slots=True)
class OpenPreemption:
    """A job that starts on `placement` at `start_s`, when the grace times of its victims have passed."""

    slot: int
    start_s: int
    placement: Placement
    victims: tuple[tuple[int, int], ...]
    """Slots and starts of the victims."""


class SimulatedPreemption:
    """Preemption on a simulated cluster with a loaded trace.

    Jobs marked in `exempt` are never stopped.
    """

    def __init__(self, policy_file: SitePolicyFile, state: SimulatedCluster, exempt: BoolArray | None = None) -> None:
        rules, entry = policy_file.policy.preemption, policy_file.file.preemption
        assert rules is not None
        assert entry is not None
        self.state, self.entry, self.rules = state, entry, rules
        names = [rules.class_of(job) for job in state.jobs]
        classes = sorted(set(names))
        number = {name: at for at, name in enumerate(classes)}
        self.class_of = np.array([number[name] for name in names], np.int64)
        self.may = np.array([[rules.may_preempt(one, other) for other in classes] for one in classes], np.bool_)
        self.requeues = [rules.mode_of(name) == "requeue" for name in classes]
        self.rank = [rules.ranks.get(name, 0) for name in classes]
        self.grace_s = [rules.grace_s.get(name, 0) for name in classes]
        self.open: list[OpenPreemption] = []
        self.order = rules.victim_order or VictimOrder()
        known: dict[tuple[str, str], int] = {}
        self.exempt_s = np.zeros(len(names), np.int64)
        for slot, job in enumerate(state.jobs):
            key = (job.qos, job.queue)
            if key not in known:
                known[key] = policy_file.policy.preempt_exempt_s(job.qos, job.queue)
            self.exempt_s[slot] = known[key]
        if exempt is not None:
            self.exempt_s[exempt] = NEVER

    def plan(self, snapshot: Snapshot, limits: PendingJobLimitsAndUsage) -> list[Preemption]:
        """Return the preemptions that occur now, in Slurm's order of the preemptors.

        A job that fits on free nodes, or that a limit blocks, does not preempt. If another job preempts, a preemptor
        that fits on free nodes starts too, without victims, because Slurm tries it before the jobs that it may preempt.
        Victims with a grace time are preempted when it has passed (see `finish_grace_times`).
        """
        preemptors = self._find_preemptors(snapshot)
        candidates = self._find_victim_candidates(snapshot)
        if not preemptors or not len(candidates):
            return []

        search = self._begin_search(snapshot, with_power_limit(snapshot, limits), candidates)
        slot_of = {snapshot.table.jobs[slot].id: slot for slot in candidates.tolist()}
        planned = list[Preemption]()
        for slot in preemptors:
            plan = search.plan_start(snapshot.table.jobs[slot], self.entry.victims == "least-work")
            if plan is None:
                continue
            if grace_s := max((each.grace_s for each in plan.victims), default=0):
                ends = tuple((slot_of[each.job.id], each.start_s) for each in plan.stopped)
                self.open.append(OpenPreemption(slot, snapshot.now_s + grace_s, plan.placement, ends))
                continue
            runs = tuple(self._make_preempted_run(snapshot, slot_of[each.job.id]) for each in plan.stopped)
            planned.append(Preemption(slot, snapshot.now_s, plan.placement, runs))
        return planned if any(each.victims for each in planned) else []

    def find_next_preemption_chance_s(self, snapshot: Snapshot) -> int | None:
        """Return when a grace time ends or a queued job may next preempt a running job, or None."""
        starts_s = [each.start_s for each in self.open if each.start_s > snapshot.now_s]
        classes = np.unique(self.class_of[snapshot.queue])
        running = snapshot.running
        in_danger: BoolArray = np.any(self.may[classes], axis=0)
        may_end = in_danger[self.class_of[running]] & (self.exempt_s[running] < NEVER)
        from_s = snapshot.table.start_s[running[may_end]] + np.maximum(self.exempt_s[running[may_end]], 1)
        later_s = from_s[from_s > snapshot.now_s]
        return min([*starts_s, *later_s.tolist()], default=None)

    def finish_grace_times(self, snapshot: Snapshot, limits: PendingJobLimitsAndUsage) -> list[Preemption]:
        """Return the preemptions whose grace times have passed, or whose victims have all ended by themselves.

        If a preemptor has left the queue, or if the site's limits now block it, its placement is empty.
        """
        ending = [each for each in self.open if each.start_s > snapshot.now_s and self._running_victims(snapshot, each)]
        due = [each for each in self.open if each not in ending]
        if not due:
            return []
        self.open = ending
        limits = with_power_limit(snapshot, limits)
        standings, used = pending_job_limits(snapshot, limits), list(limits.used)
        positions, found = {slot: at for at, slot in enumerate(snapshot.queue.tolist())}, list[Preemption]()
        for each in due:
            may_start, standing = each.slot in positions, None
            if may_start and (standing := standings[positions[each.slot]]) is not None:
                may_start = not standing.barred and not first_exceeded_limit(standing, used)
            if may_start and standing is not None:
                add_job_usage(standing, used)
            runs = tuple(self._make_preempted_run(snapshot, victim) for victim in self._running_victims(snapshot, each))
            found.append(Preemption(each.slot, snapshot.now_s, each.placement if may_start else (), runs))
        return found

    def drop_reserved_starts(self, decision: Decision, snapshot: Snapshot) -> Decision:
        """Return a decision without the starts of open preemptors, and without those that would delay one."""
        if not self.open or not len(decision.starts):
            return decision
        slots, kept = {each.slot for each in self.open}, dict[int, Placement]()
        trial = self._begin_search(snapshot, PendingJobLimitsAndUsage(), np.array([], np.int64)).amounts
        for slot, placement in decision.starts.placements().items():
            request = snapshot.table.jobs[slot].request
            used = amounts_by_node(request, placement, snapshot.cluster.capacity)
            if slot not in slots and all((trial.free[node] >= amounts).all() for node, amounts in used.items()):
                trial.take(request, placement)
                kept[slot] = placement
        return replace(decision, starts=Starts.of(kept))

    def _begin_search(
        self, snapshot: Snapshot, limits: PendingJobLimitsAndUsage, candidates: IntArray
    ) -> PreemptionSearch:
        """Return a search that has reserved the amounts of the open preemptions."""
        amounts = FreeAmounts(snapshot.cluster, snapshot.free)
        list_candidates = partial(self._make_preemptible_jobs, snapshot, candidates.tolist())
        search = PreemptionSearch(amounts, limits, self.rules, self.order, list_candidates)
        for each in self.open:
            victims = self._make_preemptible_jobs(snapshot, self._running_victims(snapshot, each))
            search.continue_preemption(snapshot.table.jobs[each.slot], each.placement, victims)
        return search

    def _running_victims(self, snapshot: Snapshot, preemption: OpenPreemption) -> list[int]:
        """Return the slots of the victims that still run."""
        running = set(snapshot.running.tolist())
        return [
            slot for slot, start_s in preemption.victims
            if slot in running and int(snapshot.table.start_s[slot]) == start_s
        ]  # fmt: skip

    def _find_preemptors(self, snapshot: Snapshot) -> list[int]:
        """Return the slots of the queued jobs that may preempt, in Slurm's order.

        Omit open preemptors.
        """
        preempts: BoolArray = np.any(self.may, axis=1)
        able = preempts[self.class_of[snapshot.queue]] & ~np.isin(snapshot.queue, [each.slot for each in self.open])
        order = queue_positions_by_priority(snapshot) if able.any() else []
        return [int(snapshot.queue[at]) for at in order if able[at]]

    def _find_victim_candidates(self, snapshot: Snapshot) -> IntArray:
        """Return the running jobs that are neither exempt nor victims of an open preemption, in order of submission.

        Slurm's list of jobs has the same order.

        A job that started in this second is exempt.
        """
        ending = [slot for each in self.open for slot in self._running_victims(snapshot, each)]
        running, start_s = np.setdiff1d(snapshot.running, np.array(ending, np.int64)), snapshot.table.start_s
        least_s = np.maximum(self.exempt_s[running], 1)
        found: IntArray = running[snapshot.now_s - start_s[running] >= least_s]
        return found

    def _make_preemptible_jobs(self, snapshot: Snapshot, slots: Sequence[int]) -> list[PreemptibleJob]:
        table, now_s, made = snapshot.table, snapshot.now_s, list[PreemptibleJob]()
        for slot in slots:
            running = RunningJob(table.jobs[slot], int(table.start_s[slot]), snapshot.placement_of(slot))
            kind = self.class_of[slot]
            checkpoint_s = self._last_checkpoint_s(slot, running.start_s, now_s)
            nodes = count_occupied_pool_or_nodes(snapshot, slot)
            price = stop_price_node_s(nodes, running.start_s, now_s, checkpoint_s, self.grace_s[kind])
            name = self.rules.class_of(running.job)
            made.append(PreemptibleJob(running, price, self.grace_s[kind], self.rank[kind], name))
        return made

    def _make_preempted_run(self, snapshot: Snapshot, slot: int) -> PreemptedRun:
        start_s, now_s = int(snapshot.table.start_s[slot]), snapshot.now_s
        lost_s = lost_work_s(start_s, now_s, self._last_checkpoint_s(slot, start_s, now_s))
        return PreemptedRun(
            slot, start_s, now_s, snapshot.placement_of(slot), self.requeues[self.class_of[slot]],
            count_occupied_pool_or_nodes(snapshot, slot) * lost_s, now_s - start_s - lost_s,
        )  # fmt: skip

    def _last_checkpoint_s(self, slot: int, start_s: int, now_s: int) -> int | None:
        """Return the time of the last checkpoint of a job, or None if it has none.

        A cancelled job loses all its work.
        """
        every_s = self.entry.checkpoint_every
        if not every_s or not self.requeues[self.class_of[slot]]:
            return None
        return start_s + (now_s - start_s) // every_s * every_s


def count_occupied_pool_or_nodes(snapshot: Snapshot, slot: int) -> float:
    """Return how many nodes a running job occupies (see `count_occupied_nodes`).

    On a cluster with a single node, which represents a pool, each processor counts as a node.
    """
    cluster, request = snapshot.cluster, snapshot.table.jobs[slot].request
    nodes = count_occupied_nodes(request, snapshot.placement_of(slot), cluster)
    return nodes * int(cluster.capacity[0, 0]) if cluster.size == 1 and not request.exclusive else nodes
