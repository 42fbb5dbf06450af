"""Jobs whose starts do not come true are put off, alone or with their like, while all others go on.

Two kinds of starts put jobs off:

- The cluster's own reason lies with the job, or with what its user has in an account, a QOS, a partition
  (`ports.Obstacle`): the whole group that the reason is about is put off.
- A start failed and nobody knows why: the jobs that are like it are (`likes`). After `max_failures` of those in a row
  all of them are left to the cluster's own scheduler. Where something nearer explains it, only the job itself is.

A group that is put off is throttled:

- It waits, twice as long after each further start in vain, up to `LONGEST_WAIT_S`.
- When the wait is over, one of its jobs is tried, then two, then four. A start in vain begins the wait anew; after
  `MOST_TRIED` at a time without one the throttle is forgotten. Where nothing could be tried, the wait grows as well.
- Where the reason is a limit on what runs at once, each job of theirs that ends lets another one start without a wait.
- Where it is not, a job that is tried is decided on only if it fits what is free, and after all others: nobody waits
  for a start that may be in vain.
- The throttle of a single job is forgotten when the job asks for something else.

Where `KINDS_IN_VAIN` groups of one user are put off and none of their jobs has come to run since, all jobs of that user
are throttled as one group. So a user may submit what they like: after that one start of theirs is tried at a time.
Where it is what may happen to anybody, such as jobs of others that go first, their jobs only go last.

That needs no knowledge of the limits themselves. Whoever knows them exactly does not release a job in vain, and then
nothing of this happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cpsched.fit import room_by_node
from cpsched.model import EndedJob, IntArray, Job
from cpsched_bridge.cycle.came_true import FailedStart
from cpsched_bridge.likes import BackoffKey, alike, asked
from cpsched_bridge.ports import NO_WAY_BACK, Observation, Obstacle, PendingJob
from cpsched_bridge.report import Happening
from cpsched_bridge.store.ledger import Entry, State, Transition, move

FIRST_WAIT_S = 2
LONGEST_WAIT_S = 120
MOST_TRIED = 64
"""Jobs of a group that are tried at a time, until the throttle is forgotten."""
LONGEST_UNTRIED_S = 1800
"""A wait so long in which no job of a user came to run ends with their throttle being forgotten."""
KINDS_IN_VAIN = 4
"""Groups of a user that are put off until all of their jobs are."""
FAILED = "StartFailed"
"""The reason of a start in vain for which the cluster has none: no name of Slurm's."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """How far one group is put off."""

    obstacle: Obstacle
    job: Job
    """The job that was started in vain last."""
    alone: bool
    """Whether the group is that job."""
    wait_s: int
    until_s: int
    """Cluster time at which more jobs of the group are tried."""
    tries: int = 0
    """Jobs that may be started before that."""
    next_tries: int = 1
    ran: bool = False
    """Whether jobs of the group have come to run since it is put off."""
    failures: int = 0
    """Readings in a row in which starts failed, and nobody knows why."""
    gentle: bool = False
    """Whether it is what may happen to anybody."""
    used: bool = False
    """Whether a job of theirs has come to run since the last wait was over."""

    @property
    def eased(self) -> bool:
        """Whether the end of a job of theirs lets another one start."""
        return self.obstacle.eased and not self.alone

    def full(self, used: int) -> bool:
        """Whether no more of their jobs may be started, beside so many."""
        return used >= self.tries and not (self.gentle and not self.alone)

    def met(self, start: _Vain, moved: bool, now_s: int) -> Throttle:
        """After starts in vain; the wait grows unless jobs of the group began or ended meanwhile (`moved`)."""
        wait_s = FIRST_WAIT_S if moved else min(2 * self.wait_s, LONGEST_WAIT_S)
        anew = start.throttle(self.alone, wait_s, now_s)
        failures = start.failures if moved else self.failures + start.failures
        return replace(anew, ran=self.ran or moved, failures=failures)

    def passed(self, began: int, ended: int, now_s: int) -> Throttle | None:
        """After a reading without a start in vain, in which jobs of the group began and ended; None: forgotten."""
        tries = max(0, self.tries - began) + (ended if self.eased else 0)
        ran, failures, used = self.ran or began > 0, 0 if began else self.failures, self.used or began > 0
        now = replace(self, tries=tries, ran=ran, failures=failures, used=used)
        if now_s < self.until_s:
            return now
        if self.next_tries > MOST_TRIED or self.wait_s > LONGEST_UNTRIED_S:
            return None
        tries = max(tries, self.next_tries)
        if used or self.eased:
            next_tries = 2 * self.next_tries
            return replace(now, tries=tries, next_tries=next_tries, until_s=now_s + self.wait_s, used=False)
        next_tries = self.next_tries if _whole(self.obstacle.whom) else 2 * self.next_tries
        return replace(now, tries=tries, next_tries=next_tries, wait_s=2 * self.wait_s, until_s=now_s + 2 * self.wait_s)


@dataclass(frozen=True, slots=True)
class _Vain:
    """Starts of one group in vain, in one reading."""

    obstacle: Obstacle
    pending: PendingJob
    """The last one."""
    times: int = 1
    failures: int = 0
    """1 where one of them failed and nobody knows why: several at a time are one sign."""
    gentle: bool = False

    def and_also(self, other: _Vain) -> _Vain:
        failures, gentle = max(self.failures, other.failures), self.gentle and other.gentle
        return _Vain(other.obstacle, other.pending, self.times + other.times, failures, gentle)

    def throttle(self, alone: bool, wait_s: int, now_s: int) -> Throttle:
        """The throttle of a group that was not put off before."""
        job, until_s = self.pending.job, now_s + wait_s
        return Throttle(self.obstacle, job, alone, wait_s, until_s, failures=self.failures, gentle=self.gentle)


@dataclass(slots=True)
class PutOff:
    """The throttled groups, by key. They are not kept over a restart: one start in vain each brings them back."""

    _throttles: dict[BackoffKey, Throttle] = field(default_factory=dict)
    _groups: dict[int, tuple[BackoffKey, ...]] = field(default_factory=dict)
    """The groups of the jobs that were pending in the last reading with a throttle."""
    jobs: frozenset[int] = frozenset()
    """The jobs that `applied` has marked last."""
    _known: dict[int, _KnownJobs] = field(default_factory=dict)
    """The jobs of the last reading with a throttle: most of them are the same in the next one."""

    # ------------------------------------------------------------------------------------------- what has happened

    def note(
        self, seen: Observation, transitions: Sequence[Transition], failed: Iterable[FailedStart] = ()
    ) -> list[Happening]:
        """Take note of a reading and of what it made of starts; what of that is worth telling."""
        vain = _in_vain(seen, transitions, failed)
        if not vain and not self._throttles:
            return []
        began = self._began(transitions)
        told = []
        for group, start in vain.items():
            user = start.pending.job.user
            if self._meet(group, start, began[group], seen) and everything_of(user) not in self._throttles:
                what = f"{group}: {start.obstacle.reason}; {start.times} job(s) held again"
                told.append(Happening("limit_met", what, start.pending.job.id))
        told += self._put_off_users(vain, began, seen)
        self._pass(seen, began, vain.keys())
        return told

    def _meet(self, group: BackoffKey, start: _Vain, began: int, seen: Observation) -> bool:
        """Put a group off, or further off; whether it was not before."""
        known = self._throttles.get(group)
        if known is not None:
            moved = began > 0 or (known.eased and _theirs(known, seen.ended) > 0)
            self._throttles[group] = known.met(start, moved, seen.now_s)
            return False
        self._throttles[group] = start.throttle(_own(start.pending) == group, FIRST_WAIT_S, seen.now_s)
        return True

    def _put_off_users(
        self, vain: Mapping[BackoffKey, _Vain], began: Counter[BackoffKey], seen: Observation
    ) -> list[Happening]:
        """Put off those as a whole of whom too many groups are put off."""
        theirs = [each for group, each in self._throttles.items() if not each.ran and not _whole(group)]
        kinds = Counter(each.job.user for each in theirs)
        harsh = Counter(each.job.user for each in theirs if not each.gentle)
        last = {start.pending.job.user: start for start in vain.values()}
        told = []
        for user, start in last.items():
            group = everything_of(user)
            if kinds[user] < KINDS_IN_VAIN and group not in self._throttles:
                continue
            obstacle = Obstacle(start.obstacle.reason, group, eased=False)
            gentle = harsh[user] < KINDS_IN_VAIN and all(v.gentle for v in vain.values() if v.pending.job.user == user)
            whole = _Vain(obstacle, start.pending, gentle=gentle)
            if self._meet(group, whole, began[group], seen):
                what = f"{group}: {kinds[user]} kinds of them were started in vain, the last one: {obstacle.reason}"
                told.append(Happening("user_put_off", what, start.pending.job.id))
        return told

    def _began(self, transitions: Iterable[Transition]) -> Counter[BackoffKey]:
        """How many jobs of each group came to run."""
        ran = (State.RUNNING, State.ENDED)
        jobs = [t.entry.job_id for t in transitions if t.before is State.STARTING and t.entry.state in ran]
        return Counter(group for job_id in jobs for group in self._groups.get(job_id, ()))

    def _pass(self, seen: Observation, began: Mapping[BackoffKey, int], vain: Iterable[BackoffKey]) -> None:
        """Let time pass for the groups that were not started in vain; forget those of which nothing waits."""
        self._know(seen)
        members: dict[BackoffKey, Job] = {}
        for known in self._known.values():
            members.update((group, known.pending.job) for group in known.groups if group in self._throttles)
        for group, throttle in list(self._throttles.items()):
            now: Throttle | None = throttle
            if group not in members or (throttle.alone and _asks(members[group]) != _asks(throttle.job)):
                now = None
            elif group not in vain:
                now = throttle.passed(began[group], _theirs(throttle, seen.ended), seen.now_s)
            if now is None:
                del self._throttles[group]
            else:
                self._throttles[group] = now

    def _know(self, seen: Observation) -> None:
        """Work out the groups of jobs that are new, or not what they were."""
        before = self._known
        self._known = {}
        for each in seen.pending:
            known = before.get(each.job.id)
            same = known is not None and known.pending is each
            self._known[each.job.id] = known if same and known else _KnownJobs(each, tuple(_groups_of(each)))

    # --------------------------------------------------------------------------------------------- what follows of it

    @property
    def users(self) -> list[str]:
        """Users all of whose jobs are put off."""
        return [each.job.user for group, each in self._throttles.items() if _whole(group)]

    def leave(self, seen: Observation, entries: Mapping[int, Entry], max_failures: int) -> list[Transition]:
        """Held jobs that are to be left to the cluster's own scheduler, since too many starts of their like failed."""
        given_up = {group: each for group, each in self._throttles.items() if each.failures >= max_failures}
        if not given_up:
            return []
        found = []
        for each in seen.pending:
            entry, group = entries.get(each.job.id), alike(each.job)
            held = entry is not None and entry.state is State.HELD and not entry.leave
            if group in given_up and entry is not None and held and not each.no_way_back:
                why = f"{given_up[group].failures} starts in a row of jobs like it failed"
                found.append(move(entry, State.HANDING_BACK, seen.now_s, why, event="left", leave=why))
        return found

    def applied(self, seen: Observation, entries: Mapping[int, Entry]) -> Observation:
        """The reading with the jobs that are put off marked as ineligible, each with the cluster's own reason.

        Those that are tried come last in it, as jobs that have just come and have no priority, unless their throttle is
        eased by ends.
        """
        self._groups, self.jobs = {}, frozenset()
        if not self._throttles:
            self._known.clear()
            return seen
        used: Counter[BackoffKey] = Counter()
        waiting = []
        for each in seen.pending:
            groups = tuple([group for group in self._known[each.job.id].groups if group in self._throttles])
            if not groups:
                continue
            self._groups[each.job.id] = groups
            entry = entries.get(each.job.id)
            if entry is not None and entry.state is State.STARTING:
                used.update(groups)
            elif each.job.ineligible is None:
                waiting.append(each)
        room = _Room(seen)
        off: dict[int, PendingJob] = {}
        tried: dict[int, PendingJob] = {}
        for each in waiting:
            groups = self._groups[each.job.id]
            full = [group for group in groups if self._throttles[group].full(used[group])]
            last = not all(self._throttles[group].eased for group in groups)
            if full or (last and not room.for_job(each.job)):
                why = full[0] if full else groups[0]
                words = f"{self._throttles[why].obstacle.reason} ({why})"
                words += f"; {NO_WAY_BACK}" if each.no_way_back else ""
                off[each.job.id] = self._known[each.job.id].marked(words)
                continue
            used.update(groups)
            if last:
                last_of_all = replace(each.job, submit_s=seen.now_s, priority=0, tier=0)
                tried[each.job.id] = replace(each, job=last_of_all)
        self.jobs = frozenset(off)
        rest = [off.get(each.job.id, each) for each in seen.pending if each.job.id not in tried]
        return replace(seen, pending=(*rest, *tried.values()))


@dataclass(slots=True)
class _KnownJobs:
    """A pending job with its groups, and as it was marked last."""

    pending: PendingJob
    groups: tuple[BackoffKey, ...]
    _marked: PendingJob | None = None

    def marked(self, reason: str) -> PendingJob:
        """The job as one that is ineligible for this reason."""
        if self._marked is None or self._marked.job.ineligible != reason:
            self._marked = replace(self.pending, job=replace(self.pending.job, ineligible=reason))
        return self._marked


@dataclass(slots=True)
class _Room:
    """What fits what is free; asked once for each request."""

    seen: Observation
    _known: dict[object, bool] = field(default_factory=dict)

    def for_job(self, job: Job) -> bool:
        if job.request not in self._known:
            free: IntArray = self.seen.free
            room = room_by_node(job.request, self.seen.cluster, free)
            units = int((np.minimum(room, 1) if job.request.distinct else room).sum())
            self._known[job.request] = units >= job.request.units
        return self._known[job.request]


def everything_of(user: str) -> BackoffKey:
    """The group of all jobs of a user."""
    return BackoffKey("user", (user,))


def _whole(group: BackoffKey) -> bool:
    return group.kind == "user"


def _own(pending: PendingJob) -> BackoffKey:
    """The group that is the job alone."""
    return pending.groups[0] if pending.groups else BackoffKey("job", (str(pending.job.id),))


def _groups_of(pending: PendingJob) -> Iterator[BackoffKey]:
    """Every group of a job, each once."""
    job = pending.job
    yield from dict.fromkeys((_own(pending), *pending.groups, alike(job), everything_of(job.user)))


def _in_vain(
    seen: Observation, transitions: Iterable[Transition], failed: Iterable[FailedStart]
) -> dict[BackoffKey, _Vain]:
    """By group, the starts in vain."""
    pending = {each.job.id: each for each in seen.pending}
    found: dict[BackoffKey, _Vain] = {}

    def add(group: BackoffKey, start: _Vain) -> None:
        found[group] = found[group].and_also(start) if group in found else start

    for transition in transitions:
        job = pending.get(transition.entry.job_id)
        if transition.obstacle is not None and job is not None:
            add(transition.obstacle.whom, _Vain(transition.obstacle, job))
    for start in failed:
        group = _own(start.pending) if start.alone else alike(start.pending.job)
        obstacle = Obstacle(FAILED, group, eased=False)
        add(group, _Vain(obstacle, start.pending, failures=int(not start.alone), gentle=start.ordinary))
    return found


def _theirs(throttle: Throttle, ended: Iterable[EndedJob]) -> int:
    """How many jobs ended that may have counted towards the same limit."""
    user, account = throttle.job.user, throttle.job.account
    return sum(each.job.user == user or (bool(account) and each.job.account == account) for each in ended)


def _asks(job: Job) -> tuple[str, str]:
    return asked(job), job.account
