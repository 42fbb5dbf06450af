"""Admission: which jobs may start in one round without exceeding the site's limits.

Dispatchers see neither limits nor the power cap, which is treated as one more limit. They get a queue of which *any*
subset respects the limits. In the site's order, a job is admitted if it and all jobs admitted before it could run
together with the running jobs. So no plan depends on a job that must wait for limits, and no job waits behind one.

The disadvantage: if a user's first jobs do not fit on the free nodes, later jobs that fit are not admitted. Therefore,
if the first decision leaves room under a limit, jobs that fit this room and the free nodes are added, and the
dispatcher decides again. The second decision is used if it respects all limits, otherwise the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cpsched.feasibility import free_units_by_node, power_draw_w
from cpsched.model import Decision, IntArray, Request, Snapshot, Starts
from cpsched.site.limit_checks import NO_JOB_LIMITS, JobLimitChecks, LimitCheck
from cpsched.wait_reasons import free_after_starts

Decide = Callable[[Snapshot], Decision]
POWER = "PowerCap"
"""Reason for a job that would exceed the power cap."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueLimitStatus:
    """The limits of the pending jobs, and their present usage.

    - `standings`: limits by job id; a job without an entry has no limits.
    - `used`: usage by running jobs, by counter.
    """

    standings: Mapping[int, JobLimitChecks] = field(default_factory=dict)
    used: Sequence[int] = ()

    def count_as_running(self, coming: Sequence[int]) -> QueueLimitStatus:
        """Return a copy in which these pending jobs count as running."""
        used = list(self.used)
        for job_id in coming:
            if job_id in self.standings:
                count_as_running(self.standings[job_id], used)
        return QueueLimitStatus(self.standings, used)


def count_as_running(standing: JobLimitChecks, used: list[int]) -> None:
    """Add a job's usage to the counters `used`."""
    for counter, amount in standing.takes:
        used[counter] += amount


def first_exceeded_limit(standing: JobLimitChecks, used: Sequence[int]) -> LimitCheck | None:
    """Return the first limit that one more job with these limits would exceed; None if there is none."""
    for check in standing.checks:
        if used[check.counter] + check.amount > check.limit:
            return check
    return None


@dataclass(frozen=True, slots=True, eq=False)
class AdmissionResult:
    """The admitted positions of a queue, in its order, and the reasons for refusing the others, by position."""

    positions: IntArray
    refused: Mapping[int, str]


def admit(
    standings: Sequence[JobLimitChecks | None], used: Sequence[int], order: Sequence[int], whole: bool = True
) -> AdmissionResult:
    """Admit jobs in `order` (positions), so that they can run together with those admitted before them.

    No subset of the admitted jobs exceeds a limit.

    If `whole` is true, every refusal has a reason. Otherwise, only the positions are computed.
    """
    now = list(used)
    admitted: list[int] = []
    refused: dict[int, str] = {}
    full: dict[int, str] = {}
    """Refusals by identity of the limits; they also apply to later jobs with these limits, because sums only grow."""
    for position in order:
        standing = standings[position]
        if standing is None:
            admitted.append(position)
            continue
        why = full.get(id(standing))
        if why is None:
            check = None if standing.barred else first_exceeded_limit(standing, now)
            if standing.barred is None and check is None:
                count_as_running(standing, now)
                admitted.append(position)
                continue
            why = standing.barred or (check.describe(now[check.counter]) if whole and check else "limit")
            full[id(standing)] = why
        refused[position] = why
    admitted.sort()
    return AdmissionResult(np.array(admitted, np.int64), refused)


@dataclass(frozen=True, slots=True, eq=False)
class LimitCompliantDecision:
    """A decision within the limits.

    - `snapshot`: the input of the decision, with only admitted jobs in its queue. Deciding again gives the same result.
    - `limited`: the limit that keeps a job out of the queue, with owner and usage, by job id.
    """

    snapshot: Snapshot
    decision: Decision
    limited: Mapping[int, str]
    answer: int = 0
    """Index of the decision that is used: 1 if the dispatcher decided a second time, else 0."""


def decide_within(snapshot: Snapshot, limits: QueueLimitStatus | None, decide: Decide) -> LimitCompliantDecision:
    """Return a decision of `decide` (of a policy) whose starts respect the limits, in the site's order.

    The power cap counts as a limit. `limits=None` means that the site sets no limits.
    """
    if limits is None and snapshot.cluster.power is None:
        return LimitCompliantDecision(snapshot, decide(snapshot), {})
    limits = with_power_limit(snapshot, limits or QueueLimitStatus())
    standings = job_limits_of(snapshot, limits)
    if not any(standings):
        return LimitCompliantDecision(snapshot, decide(snapshot), {})
    order = priority_order(snapshot)
    first = admit(standings, limits.used, order)
    narrow = with_queue_subset(snapshot, first.positions)
    decision = decide(narrow)
    limited = _by_job(snapshot, first)
    extra = _extras(snapshot, narrow, decision, standings, limits.used, order, first)
    if not extra:
        return LimitCompliantDecision(narrow, decision, limited)
    wider = with_queue_subset(snapshot, np.sort(np.append(first.positions, extra)))
    second = decide(wider)
    if not respects_limits(wider, second.starts, limits):
        return LimitCompliantDecision(narrow, decision, limited)
    chosen = set(extra)
    still = {position: why for position, why in first.refused.items() if position not in chosen}
    return LimitCompliantDecision(wider, second, _by_job(snapshot, AdmissionResult(first.positions, still)), 1)


def with_power_limit(snapshot: Snapshot, limits: QueueLimitStatus) -> QueueLimitStatus:
    """Return the limits, with the power cap added as a limit on the power draw of running jobs."""
    power, table = snapshot.cluster.power, snapshot.table
    if power is None:
        return limits
    counter, standings = len(limits.used), dict(limits.standings)
    made: dict[tuple[int, int], JobLimitChecks] = {}
    for job in (table.jobs[slot] for slot in snapshot.queue.tolist()):
        watts = power.draw_w(job.request, snapshot.cluster.resources)
        before = limits.standings.get(job.id, NO_JOB_LIMITS)
        key = (id(before), watts)
        if watts and key not in made:
            check = LimitCheck(counter, watts, power.cap_w, POWER, "the cluster", "W")
            made[key] = replace(before, takes=(*before.takes, (counter, watts)), checks=(*before.checks, check))
        if watts:
            standings[job.id] = made[key]
    return QueueLimitStatus(standings, (*limits.used, power_draw_w(snapshot)))


def job_limits_of(snapshot: Snapshot, limits: QueueLimitStatus) -> list[JobLimitChecks | None]:
    """Return the limits of each queued job; None for jobs without limits."""
    jobs, known = snapshot.table.jobs, limits.standings
    found = (known.get(jobs[slot].id) for slot in snapshot.queue.tolist())
    return [standing if standing and (standing.takes or standing.barred) else None for standing in found]


def priority_order(snapshot: Snapshot) -> list[int]:
    """Return the positions of the queue, sorted by tier, then priority, then arrival, like Slurm."""
    table, queue = snapshot.table, snapshot.queue
    order: list[int] = np.lexsort((-table.priority[queue], -table.tier[queue])).tolist()
    return order


def with_queue_subset(snapshot: Snapshot, positions: IntArray) -> Snapshot:
    """Return the same instant with only the queued jobs at `positions` (ascending)."""
    if len(positions) == len(snapshot.queue):
        return snapshot
    return Snapshot(
        snapshot.now_s,
        snapshot.cluster,
        snapshot.free,
        snapshot.table,
        snapshot.queue[positions],
        snapshot.running,
        True,
    )


def respects_limits(snapshot: Snapshot, starts: Starts, limits: QueueLimitStatus) -> bool:
    """Return whether all of `starts`, one after the other, respect the limits."""
    used = list(limits.used)
    for slot in starts.slots.tolist():
        standing = limits.standings.get(snapshot.table.jobs[slot].id)
        if standing is None:
            continue
        if standing.barred or first_exceeded_limit(standing, used):
            return False
        count_as_running(standing, used)
    return True


def _extras(
    snapshot: Snapshot,
    narrow: Snapshot,
    decision: Decision,
    standings: Sequence[JobLimitChecks | None],
    used: Sequence[int],
    order: Sequence[int],
    first: AdmissionResult,
) -> list[int]:
    """Return refused positions that fit under their limits and on the free nodes after the decision's starts."""
    if len(decision.starts) == len(narrow.queue):
        return []
    now, started = list(used), set(decision.starts.slots.tolist())
    by_slot = dict(zip(snapshot.queue.tolist(), standings, strict=True))
    for slot in started:
        if (standing := by_slot[slot]) is not None:
            count_as_running(standing, now)
    waiting = [at for at in order if at in first.refused]
    possible = admit(standings, now, waiting, whole=False).positions.tolist()
    if not possible:
        return []
    free, fits = free_after_starts(narrow, decision.starts), dict[Request, bool]()
    found = []
    for at in possible:
        request = snapshot.table.jobs[int(snapshot.queue[at])].request
        if request not in fits:
            fits[request] = int(free_units_by_node(request, snapshot.cluster, free).sum()) >= request.units
        if fits[request]:
            found.append(at)
    return found


def _by_job(snapshot: Snapshot, admission: AdmissionResult) -> dict[int, str]:
    jobs, queue = snapshot.table.jobs, snapshot.queue
    return {jobs[int(queue[at])].id: why for at, why in admission.refused.items()}
