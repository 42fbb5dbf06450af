"""Which jobs may start in one round, so that no round starts more than the site's limits allow.

A dispatcher knows nothing of limits, nor of the cluster's cap of power, which is one more limit. It is given a queue of
which *any* choice keeps them: in the site's order, each job is admitted if it and all that were admitted before it
could run beside what runs. So what a dispatcher plans never counts on a job that its limits would keep waiting, and
nobody waits behind such a job.

One thing is lost by that: a user whose first jobs do not fit the free nodes would get none of the later ones started
that do. So where the first decision leaves room under a limit, jobs that could use this room and the free nodes are
added, and the dispatcher decides a second time. Where the second answer keeps all limits, it counts; else the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cpsched.feasibility import free_units_by_node, power_draw_w
from cpsched.model import Decision, IntArray, Request, Snapshot, Starts
from cpsched.site.limit_checks import NO_JOB_LIMITS, JobLimits, LimitCheck
from cpsched.wait_reasons import free_after

Decide = Callable[[Snapshot], Decision]
POWER = "PowerCap"
"""Why a job waits that draws more than is left of the cluster's cap of power."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueLimits:
    """How the waiting jobs stand to the limits, and how full these are.

    - `standings`: by job id; a job that is not named is under no limit.
    - `used`: by counter, what running jobs take of it.
    """

    standings: Mapping[int, JobLimits] = field(default_factory=dict)
    used: Sequence[int] = ()

    def beside(self, coming: Sequence[int]) -> QueueLimits:
        """The same with these waiting jobs counted as running."""
        used = list(self.used)
        for job_id in coming:
            if job_id in self.standings:
                count_as_running(self.standings[job_id], used)
        return QueueLimits(self.standings, used)


def count_as_running(standing: JobLimits, used: list[int]) -> None:
    """Count a job as running."""
    for counter, amount in standing.takes:
        used[counter] += amount


def first_exceeded_limit(standing: JobLimits, used: Sequence[int]) -> LimitCheck | None:
    """The first limit that one more such job would exceed."""
    for check in standing.checks:
        if used[check.counter] + check.amount > check.limit:
            return check
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """The positions of a queue that are admitted, in order of the queue, and why the others are not, by position."""

    positions: IntArray
    refused: Mapping[int, str]


def admit(
    standings: Sequence[JobLimits | None], used: Sequence[int], order: Sequence[int], whole: bool = True
) -> Admission:
    """Admit jobs in `order` (positions), each beside those admitted before it; no choice of them exceeds a limit.

    With `whole` every refusal is put into words, else only the positions are found.
    """
    now = list(used)
    admitted: list[int] = []
    refused: dict[int, str] = {}
    full: dict[int, str] = {}
    """By identity of a standing: what one job met, the next of the same kind meets too, since sums only grow."""
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
            why = standing.barred or (check.says(now[check.counter]) if whole and check else "limit")
            full[id(standing)] = why
        refused[position] = why
    admitted.sort()
    return Admission(np.array(admitted, np.int64), refused)


@dataclass(frozen=True, slots=True, eq=False)
class LimitedDecision:
    """A decision within the limits.

    - `snapshot`: what was decided on: the queue holds admitted jobs only. Deciding on it again gives the same.
    - `limited`: by job id, which limit keeps a job out of the queue: whose, and how full.
    """

    snapshot: Snapshot
    decision: Decision
    limited: Mapping[int, str]
    answer: int = 0
    """Which of the dispatcher's answers this is: it may have been asked twice."""


def decide_within(snapshot: Snapshot, limits: QueueLimits | None, decide: Decide) -> LimitedDecision:
    """The decision of `decide` (a policy's) that starts no more than the limits allow, counted in the site's order.

    So does the cluster's cap of power, where there is one. `limits` None: the site sets none.
    """
    if limits is None and snapshot.cluster.power is None:
        return LimitedDecision(snapshot, decide(snapshot), {})
    limits = with_power_limit(snapshot, limits or QueueLimits())
    standings = job_limits_of(snapshot, limits)
    if not any(standings):
        return LimitedDecision(snapshot, decide(snapshot), {})
    order = priority_order(snapshot)
    first = admit(standings, limits.used, order)
    narrow = with_queue_subset(snapshot, first.positions)
    decision = decide(narrow)
    limited = _by_job(snapshot, first)
    extra = _extras(snapshot, narrow, decision, standings, limits.used, order, first)
    if not extra:
        return LimitedDecision(narrow, decision, limited)
    wider = with_queue_subset(snapshot, np.sort(np.append(first.positions, extra)))
    second = decide(wider)
    if not respects_limits(wider, second.starts, limits):
        return LimitedDecision(narrow, decision, limited)
    chosen = set(extra)
    still = {position: why for position, why in first.refused.items() if position not in chosen}
    return LimitedDecision(wider, second, _by_job(snapshot, Admission(first.positions, still)), 1)


def with_power_limit(snapshot: Snapshot, limits: QueueLimits) -> QueueLimits:
    """The same, with the cluster's cap of power as a limit on one more sum: what running jobs draw."""
    power, table = snapshot.cluster.power, snapshot.table
    if power is None:
        return limits
    counter, standings = len(limits.used), dict(limits.standings)
    made: dict[tuple[int, int], JobLimits] = {}
    for job in (table.jobs[slot] for slot in snapshot.queue.tolist()):
        watts = power.draw_w(job.request, snapshot.cluster.resources)
        before = limits.standings.get(job.id, NO_JOB_LIMITS)
        key = (id(before), watts)
        if watts and key not in made:
            check = LimitCheck(counter, watts, power.cap_w, POWER, "the cluster", "W")
            made[key] = replace(before, takes=(*before.takes, (counter, watts)), checks=(*before.checks, check))
        if watts:
            standings[job.id] = made[key]
    return QueueLimits(standings, (*limits.used, power_draw_w(snapshot)))


def job_limits_of(snapshot: Snapshot, limits: QueueLimits) -> list[JobLimits | None]:
    """The standings of the queue; None where no limit is about a job."""
    jobs, known = snapshot.table.jobs, limits.standings
    found = (known.get(jobs[slot].id) for slot in snapshot.queue.tolist())
    return [standing if standing and (standing.takes or standing.barred) else None for standing in found]


def priority_order(snapshot: Snapshot) -> list[int]:
    """The positions of the queue by tier, then priority, then arrival: as Slurm sorts."""
    table, queue = snapshot.table, snapshot.queue
    order: list[int] = np.lexsort((-table.priority[queue], -table.tier[queue])).tolist()
    return order


def with_queue_subset(snapshot: Snapshot, positions: IntArray) -> Snapshot:
    """The same instant with only these jobs of its queue (ascending positions)."""
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


def respects_limits(snapshot: Snapshot, starts: Starts, limits: QueueLimits) -> bool:
    """Whether these starts, one after the other, stay within the limits."""
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
    standings: Sequence[JobLimits | None],
    used: Sequence[int],
    order: Sequence[int],
    first: Admission,
) -> list[int]:
    """Positions not admitted at first that have room under their limits and on the nodes after these starts."""
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
    free, fits = free_after(narrow, decision.starts), dict[Request, bool]()
    found = []
    for at in possible:
        request = snapshot.table.jobs[int(snapshot.queue[at])].request
        if request not in fits:
            fits[request] = int(free_units_by_node(request, snapshot.cluster, free).sum()) >= request.units
        if fits[request]:
            found.append(at)
    return found


def _by_job(snapshot: Snapshot, admission: Admission) -> dict[int, str]:
    jobs, queue = snapshot.table.jobs, snapshot.queue
    return {jobs[int(queue[at])].id: why for at, why in admission.refused.items()}
