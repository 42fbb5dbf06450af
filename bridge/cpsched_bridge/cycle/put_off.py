"""Jobs that the cluster's own limits keep from running are put off, alone or with their like, while all others go on.

A start may end with a reason that lies with the job, its user, account, QOS or partition (`ports.Obstacle`). Then the
whole group that the reason is about is throttled:

- It waits, twice as long after each further obstacle, up to `LONGEST_WAIT_S`.
- When the wait is over, one of its jobs is tried, then two, then four. An obstacle begins the wait anew; after
  `MOST_TRIED` at a time without one the throttle is forgotten.
- Each job of theirs that ends lets another one start at once, without a wait.
- The throttle of a single job is forgotten when the job asks for something else.

That needs no knowledge of the limits themselves. Whoever knows them exactly does not release a job in vain, and then
nothing of this happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cpsched.model import EndedJob, Job
from cpsched_bridge.ports import Observation, Obstacle, PendingJob
from cpsched_bridge.report import Happening
from cpsched_bridge.store.ledger import Entry, State, Transition

FIRST_WAIT_S = 2
LONGEST_WAIT_S = 120
MOST_TRIED = 64
"""Jobs of a group that are tried at a time, until the throttle is forgotten."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """How far one group is put off."""

    obstacle: Obstacle
    job: Job
    """The job that met the obstacle last."""
    alone: bool
    """Whether the group is that job."""
    wait_s: int
    until_s: int
    """Cluster time at which more jobs of the group are tried."""
    tries: int = 0
    """Jobs that may be started before that."""
    next_tries: int = 1

    def met(self, obstacle: Obstacle, job: Job, moved: bool, now_s: int) -> Throttle:
        """After one more obstacle; the wait grows unless jobs of the group began or ended meanwhile (`moved`)."""
        wait_s = FIRST_WAIT_S if moved else min(2 * self.wait_s, LONGEST_WAIT_S)
        return Throttle(obstacle, job, self.alone, wait_s, now_s + wait_s)

    def passed(self, began: int, ended: int, now_s: int) -> Throttle | None:
        """After a reading without an obstacle, in which jobs of the group began and ended; None: forgotten."""
        tries = max(0, self.tries - began) + (0 if self.alone else ended)
        if now_s < self.until_s:
            return replace(self, tries=tries)
        if self.next_tries > MOST_TRIED:
            return None
        return replace(
            self, tries=max(tries, self.next_tries), next_tries=2 * self.next_tries, until_s=now_s + self.wait_s
        )


@dataclass(slots=True)
class PutOff:
    """The throttled groups, by name. They are not kept over a restart: one obstacle each brings them back."""

    _throttles: dict[str, Throttle] = field(default_factory=dict)
    _groups: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The groups of the jobs that were pending in the last reading with a throttle."""

    def note(self, seen: Observation, transitions: Sequence[Transition]) -> list[Happening]:
        """Take note of a reading and of what it made of starts; what of that is worth telling."""
        pending = {each.job.id: each for each in seen.pending}
        met = _met(transitions, pending)
        if not met and not self._throttles:
            return []
        began = self._began(transitions)
        told = []
        for group, (obstacle, job, count) in met.items():
            known = self._throttles.get(group)
            if known is None:
                alone = pending[job.id].groups[:1] == (group,)
                known = Throttle(obstacle, job, alone, FIRST_WAIT_S, seen.now_s + FIRST_WAIT_S)
                told.append(Happening("limit_met", f"{group}: {obstacle.reason}; {count} job(s) held again", job.id))
            else:
                moved = began[group] > 0 or _theirs(known, seen.ended) > 0
                known = known.met(obstacle, job, moved, seen.now_s)
            self._throttles[group] = known
        self._pass(seen, began, met.keys())
        return told

    def _began(self, transitions: Iterable[Transition]) -> Counter[str]:
        """How many jobs of each group came to run."""
        ran = (State.RUNNING, State.ENDED)
        jobs = [t.entry.job_id for t in transitions if t.before is State.STARTING and t.entry.state in ran]
        return Counter(group for job_id in jobs for group in self._groups.get(job_id, ()))

    def _pass(self, seen: Observation, began: Counter[str], met: Iterable[str]) -> None:
        """Let time pass for the groups that met no obstacle; forget those of which nothing waits."""
        members: dict[str, Job] = {group: each.job for each in seen.pending for group in each.groups}
        for group, throttle in list(self._throttles.items()):
            now: Throttle | None = throttle
            if group not in members or (throttle.alone and _asks(members[group]) != _asks(throttle.job)):
                now = None
            elif group not in met:
                now = throttle.passed(began[group], _theirs(throttle, seen.ended), seen.now_s)
            if now is None:
                del self._throttles[group]
            else:
                self._throttles[group] = now

    def applied(self, seen: Observation, entries: Mapping[int, Entry]) -> Observation:
        """The reading with the jobs that are put off marked as ineligible, each with the cluster's own reason."""
        self._groups = {}
        if not self._throttles:
            return seen
        used: Counter[str] = Counter()
        held = []
        for each in seen.pending:
            groups = self._groups[each.job.id] = tuple(group for group in each.groups if group in self._throttles)
            entry = entries.get(each.job.id)
            if groups and entry is not None and entry.state is State.STARTING:
                used.update(groups)
            elif groups and each.job.ineligible is None:
                held.append(each.job.id)
        marked: dict[int, str] = {}
        for job_id in held:
            full = [group for group in self._groups[job_id] if used[group] >= self._throttles[group].tries]
            if full:
                marked[job_id] = f"{self._throttles[full[0]].obstacle.reason} ({full[0]})"
            else:
                used.update(self._groups[job_id])
        return replace(seen, pending=tuple(_marked(each, marked.get(each.job.id)) for each in seen.pending))


def _met(transitions: Iterable[Transition], pending: Mapping[int, PendingJob]) -> dict[str, tuple[Obstacle, Job, int]]:
    """By group: the obstacle, the last job that met it, and how many did."""
    met: dict[str, tuple[Obstacle, Job, int]] = {}
    for transition in transitions:
        found = pending.get(transition.entry.job_id)
        if transition.obstacle is not None and found is not None:
            whom = transition.obstacle.whom
            met[whom] = (transition.obstacle, found.job, (met[whom][2] if whom in met else 0) + 1)
    return met


def _theirs(throttle: Throttle, ended: Iterable[EndedJob]) -> int:
    """How many jobs ended that may have counted towards the same limit."""
    user, account = throttle.job.user, throttle.job.account
    return sum(each.job.user == user or (bool(account) and each.job.account == account) for each in ended)


def _asks(job: Job) -> tuple[object, ...]:
    return (job.request, job.walltime_s, job.queue, job.account)


def _marked(pending: PendingJob, reason: str | None) -> PendingJob:
    return pending if reason is None else replace(pending, job=replace(pending.job, ineligible=reason))
