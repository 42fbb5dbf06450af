"""Admission: which jobs may start in one round without exceeding the site's limits.

Dispatchers see neither limits nor the power cap, which is treated as one more limit. They get a queue of which *any*
subset respects the limits. In the site's order, a job is admitted if it and all jobs admitted before it could run
beside the running jobs. So no plan depends on a job that limits keep waiting, and no job waits behind such a job.

This has a cost: if a user's first jobs do not fit the free nodes, later ones that fit are not admitted. So if the
first decision leaves room under a limit, jobs that fit this room and the free nodes are added, and the dispatcher
decides again. The second decision is used if it respects all limits, otherwise the first.
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
"""Reason of a job that would exceed the power cap."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueLimitStatus:
    """The limits of the pending jobs, and their present usage.

    - `standings`: by job id; a job without entry is under no limit.
    - `used`: by counter, the usage of running jobs.
    """

    standings: Mapping[int, JobLimitChecks] = field(default_factory=dict)
    used: Sequence[int] = ()

    def count_as_running(self, coming: Sequence[int]) -> QueueLimitStatus:
        """Return a copy with these pending jobs counted as running."""
        used = list(self.used)
        for job_id in coming:
            if job_id in self.standings:
                count_as_running(self.standings[job_id], used)
        return QueueLimitStatus(self.standings, used)


def count_as_running(standing: JobLimitChecks, used: list[int]) -> None:
    """Count a job as running."""
    for counter, amount in standing.takes:
        used[counter] += amount


def first_exceeded_limit(standing: JobLimitChecks, used: Sequence[int]) -> LimitCheck | None:
    """Return the first limit that one more such job would exceed."""
    for check in standing.checks:
        if used[check.counter] + check.amount > check.limit:
            return check
    return None


@dataclass(frozen=True, slots=True, eq=False)
class AdmissionResult:
    """The admitted positions of a queue, in its order, and why the others are refused, by position."""

    positions: IntArray
    refused: Mapping[int, str]


def admit(
    standings: Sequence[JobLimitChecks | None], used: Sequence[int], order: Sequence[int], whole: bool = True
) -> AdmissionResult:
    """Admit jobs in `order` (positions), each beside those admitted before it; no subset of them exceeds a limit.

    With `whole`, every refusal gets a text. Otherwise only the positions are computed.
    """
    now = list(used)
    admitted: list[int] = []
    refused: dict[int, str] = {}
    full: dict[int, str] = {}
    """By identity of a standing: its refusal also applies to later jobs of the same kind, because sums only grow."""
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

    - `snapshot`: the input of the decision; its queue holds admitted jobs only. Deciding on it again gives the same.
    - `limited`: by job id, the limit that keeps a job out of the queue, with owner and usage.
    """

    snapshot: Snapshot
    decision: Decision
    limited: Mapping[int, str]
    answer: int = 0
    """Index of the decision: 1 if the dispatcher decided a second time."""


def decide_within(snapshot: Snapshot, limits: QueueLimitStatus | None, decide: Decide) -> LimitCompliantDecision:
    """Return a decision of `decide` (a policy's) that starts no more than the limits allow, in the site's order.

    The power cap counts as a limit. `limits` None means that the site sets none.
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
    """Return the limits with the power cap added as a limit on the draw of running jobs."""
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
    """Return the standings of the queue; None for jobs without limits."""
    jobs, known = snapshot.table.jobs, limits.standings
    found = (known.get(jobs[slot].id) for slot in snapshot.queue.tolist())
    return [standing if standing and (standing.takes or standing.barred) else None for standing in found]


def priority_order(snapshot: Snapshot) -> list[int]:
    """Return the positions of the queue by tier, then priority, then arrival, like Slurm."""
    table, queue = snapshot.table, snapshot.queue
    order: list[int] = np.lexsort((-table.priority[queue], -table.tier[queue])).tolist()
    return order


def with_queue_subset(snapshot: Snapshot, positions: IntArray) -> Snapshot:
    """Return the same instant with only these jobs of its queue (ascending positions)."""
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
    """Return whether these starts, one after the other, stay within the limits."""
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
    """Return refused positions with room under their limits and on the nodes after these starts."""
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
