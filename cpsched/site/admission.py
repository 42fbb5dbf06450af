"""Select the jobs that may start in one round without exceeding site limits.

Dispatchers see neither limits nor the power cap, which counts as a limit. They receive a queue of which *any* subset
respects the limits. Jobs are admitted in the site's order if they can run together with the running jobs and with all
jobs admitted before them. Therefore, no plan depends on a job that must wait for a limit, and no job waits behind it.

This rule has a disadvantage: if a user's first jobs do not fit on the free nodes, later jobs that fit are not admitted.
Therefore, refused jobs are added if they fit within the limits and on the free nodes after the first decision. Then the
dispatcher decides again. The second decision is used if it respects all limits; otherwise, the first decision is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cpsched.feasibility import choose_nodes, power_draw_w, units_fitting_by_node
from cpsched.model import Decision, IntArray, Request, Snapshot, Starts
from cpsched.site.limit_checks import NO_JOB_LIMITS, ApplicableJobLimits, UsageLimitCheck
from cpsched.wait_reasons import free_after_starts

Decide = Callable[[Snapshot], Decision]
POWER_CAP_REASON = "PowerCap"
"""Reason for a job that would exceed the power cap."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingJobLimitsAndUsage:
    """The limits that apply to pending jobs, and the usage that counts towards them.

    - `standings`: limits by job id. A job without an entry has no limits.
    - `used`: usage by running jobs, one entry per counter.
    """

    standings: Mapping[int, ApplicableJobLimits] = field(default_factory=dict)
    used: Sequence[int] = ()

    def add_job_usage(self, coming: Sequence[int]) -> PendingJobLimitsAndUsage:
        """Return a copy that counts the given pending jobs as running."""
        used = list(self.used)
        for job_id in coming:
            if job_id in self.standings:
                add_job_usage(self.standings[job_id], used)
        return PendingJobLimitsAndUsage(self.standings, used)


def add_job_usage(standing: ApplicableJobLimits, used: list[int]) -> None:
    """Add a job's usage to the counters `used`."""
    for counter, amount in standing.takes:
        used[counter] += amount


def first_exceeded_limit(standing: ApplicableJobLimits, used: Sequence[int]) -> UsageLimitCheck | None:
    """Return the first limit that the start of a job would exceed, or None."""
    for check in standing.checks:
        if used[check.counter] + check.amount > check.limit:
            return check
    return None


@dataclass(frozen=True, slots=True, eq=False)
class AdmittedQueue:
    """The admitted queue positions, ascending, and the refusal reasons by position."""

    positions: IntArray
    refused: Mapping[int, str]


def admit_jobs(
    standings: Sequence[ApplicableJobLimits | None], used: Sequence[int], order: Sequence[int], whole: bool = True
) -> AdmittedQueue:
    """Admit the jobs that can run together with all jobs admitted before them.

    `order` contains queue positions. No subset of the admitted jobs exceeds a limit. If `whole` is false, the reasons
    do not describe exceeded limits.
    """
    now = list(used)
    admitted: list[int] = []
    refused: dict[int, str] = {}
    full: dict[int, str] = {}
    """Reasons by `id` of the limits. They also apply to later jobs with the same limits, because usage only grows."""
    for position in order:
        standing = standings[position]
        if standing is None:
            admitted.append(position)
            continue
        why = full.get(id(standing))
        if why is None:
            check = None if standing.barred else first_exceeded_limit(standing, now)
            if standing.barred is None and check is None:
                add_job_usage(standing, now)
                admitted.append(position)
                continue
            why = standing.barred or (check.describe(now[check.counter]) if whole and check else "limit")
            full[id(standing)] = why
        refused[position] = why
    admitted.sort()
    return AdmittedQueue(np.array(admitted, np.int64), refused)


@dataclass(frozen=True, slots=True, eq=False)
class LimitCompliantDecision:
    """A decision that respects the limits.

    - `snapshot`: the input of the decision, with only admitted jobs in its queue. Deciding again gives the same result.
    - `limited`: by job id, the limit that keeps the job out of the queue, with the limit's owner and usage.
    """

    snapshot: Snapshot
    decision: Decision
    limited: Mapping[int, str]
    memory: object = None
    """The dispatcher's state just before the decision, as returned by `read_memory`."""


def decide_respecting_limits(
    snapshot: Snapshot,
    limits: PendingJobLimitsAndUsage | None,
    decide: Decide,
    read_memory: Callable[[], object] = lambda: None,
) -> LimitCompliantDecision:
    """Return a decision by `decide` whose starts respect the site's limits.

    The power cap counts as a limit. `limits=None` means that the site sets no limits. `read_memory` returns the
    dispatcher's state, which may change in each of up to two decisions.
    """

    def decide_on(queue: Snapshot, limited: Mapping[int, str]) -> LimitCompliantDecision:
        memory = read_memory()
        return LimitCompliantDecision(queue, decide(queue), limited, memory)

    if limits is None and snapshot.cluster.power is None:
        return decide_on(snapshot, {})
    limits = with_power_limit(snapshot, limits or PendingJobLimitsAndUsage())
    standings = pending_job_limits(snapshot, limits)
    if not any(standings):
        return decide_on(snapshot, {})

    order = queue_positions_by_priority(snapshot)
    admitted = admit_jobs(standings, limits.used, order)
    narrow = with_queue_subset(snapshot, admitted.positions)
    first = decide_on(narrow, _refusals_by_job(snapshot, admitted))
    refused = [position for position in order if position in admitted.refused]
    extra = _find_fitting_refused(snapshot, first, standings, limits.used, refused)
    if not extra:
        return first

    wider = with_queue_subset(snapshot, np.sort(np.append(admitted.positions, extra)))
    still_refused = {position: why for position, why in admitted.refused.items() if position not in set(extra)}
    second = decide_on(wider, _refusals_by_job(snapshot, AdmittedQueue(admitted.positions, still_refused)))
    return second if respects_limits(wider, second.decision.starts, limits) else first


def with_power_limit(snapshot: Snapshot, limits: PendingJobLimitsAndUsage) -> PendingJobLimitsAndUsage:
    """Return the limits with the power cap added as a limit on jobs' power draw."""
    power, table = snapshot.cluster.power, snapshot.table
    if power is None:
        return limits
    counter, standings = len(limits.used), dict(limits.standings)
    made: dict[tuple[int, int], ApplicableJobLimits] = {}
    for job in (table.jobs[slot] for slot in snapshot.queue.tolist()):
        watts = power.draw_w(job.request, snapshot.cluster.resources)
        before = limits.standings.get(job.id, NO_JOB_LIMITS)
        key = (id(before), watts)
        if watts and key not in made:
            check = UsageLimitCheck(counter, watts, power.cap_w, POWER_CAP_REASON, "the cluster", "W")
            made[key] = replace(before, takes=(*before.takes, (counter, watts)), checks=(*before.checks, check))
        if watts:
            standings[job.id] = made[key]
    return PendingJobLimitsAndUsage(standings, (*limits.used, power_draw_w(snapshot)))


def pending_job_limits(snapshot: Snapshot, limits: PendingJobLimitsAndUsage) -> list[ApplicableJobLimits | None]:
    """Return the limits of each queued job, or None for a job without limits."""
    jobs, known = snapshot.table.jobs, limits.standings
    found = (known.get(jobs[slot].id) for slot in snapshot.queue.tolist())
    return [standing if standing and (standing.takes or standing.barred) else None for standing in found]


def queue_positions_by_priority(snapshot: Snapshot) -> list[int]:
    """Return queue positions sorted by tier, priority and arrival, as in Slurm."""
    table, queue = snapshot.table, snapshot.queue
    order: list[int] = np.lexsort((-table.priority[queue], -table.tier[queue])).tolist()
    return order


def with_queue_subset(snapshot: Snapshot, positions: IntArray) -> Snapshot:
    """Return the snapshot with only the queued jobs at `positions` (ascending)."""
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


def respects_limits(snapshot: Snapshot, starts: Starts, limits: PendingJobLimitsAndUsage) -> bool:
    """Return whether `starts`, applied one after another, respect the limits."""
    used = list(limits.used)
    for slot in starts.slots.tolist():
        standing = limits.standings.get(snapshot.table.jobs[slot].id)
        if standing is None:
            continue
        if standing.barred or first_exceeded_limit(standing, used):
            return False
        add_job_usage(standing, used)
    return True


def _find_fitting_refused(
    snapshot: Snapshot,
    first: LimitCompliantDecision,
    standings: Sequence[ApplicableJobLimits | None],
    used: Sequence[int],
    refused: Sequence[int],
) -> list[int]:
    """Return the `refused` positions that fit limits and free nodes after the first decision."""
    narrow, decision = first.snapshot, first.decision
    if len(decision.starts) == len(narrow.queue):
        return []
    now, started = list(used), set(decision.starts.slots.tolist())
    by_slot = dict(zip(snapshot.queue.tolist(), standings, strict=True))
    for slot in started:
        if (standing := by_slot[slot]) is not None:
            add_job_usage(standing, now)
    possible = admit_jobs(standings, now, refused, whole=False).positions.tolist()
    if not possible:
        return []
    free, fits = free_after_starts(narrow, decision.starts), dict[Request, bool]()
    found = []
    for at in possible:
        request = snapshot.table.jobs[int(snapshot.queue[at])].request
        if request not in fits:
            room = units_fitting_by_node(request, snapshot.cluster, free)
            fits[request] = bool(choose_nodes(room, request.units, snapshot.cluster, request.node_set))
        if fits[request]:
            found.append(at)
    return found


def _refusals_by_job(snapshot: Snapshot, admission: AdmittedQueue) -> dict[int, str]:
    jobs, queue = snapshot.table.jobs, snapshot.queue
    return {jobs[int(queue[at])].id: why for at, why in admission.refused.items()}
