"""Backs off: jobs whose starts fail wait, alone or with their group, while all others go on.

Two kinds of failed starts back jobs off:

- The cluster's own reason lies with the job, or with what its user has in an account, a QOS, a partition
  (`ports.ClusterReason`): the whole group that the reason is about is backed off.
- A start failed without a known reason: the jobs that are alike are (`likes`). After `max_failures` of those in a row
  all of them are left to the cluster's own scheduler. Where something nearer explains it, only the job itself is.

A group that is backed off waits:

- The wait doubles with each further failed start, up to the maximum of `STARTS`.
- When the wait is over, one of its jobs is tried, then two, then four. A failed start begins the wait again; after
  `MOST_TRIED` at a time without one the group is forgotten. Where no job could be tried, the wait grows as well.
- Where the reason is a limit on what runs at once, each job of theirs that ends lets another one start without a wait.
- Where it is not, a job that is tried is decided on only if it fits what is free, and after all others: no job waits
  for a start that may fail.
- A single job is forgotten when it asks for something else.

Where `KINDS_IN_VAIN` groups of one user are backed off and none of their jobs has come to run since, all jobs of that
user are one group. So a user may submit what they like: after that one start of theirs is tried at a time. Where the
failures are benign, such as jobs of others that go first, their jobs only go last.

This needs no knowledge of the limits themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np

from cpsched.feasibility import free_units_by_node
from cpsched.model import EndedJob, Job, PendingCode, PendingReason, Request
from cpsched_bridge.cycle.start_outcomes import FailedStart, StartOutcomes, own_key
from cpsched_bridge.cycle_report import Event
from cpsched_bridge.equivalence import BackoffKey, equivalence_key, request_fingerprint
from cpsched_bridge.ports import Observation, PendingJob
from cpsched_bridge.store.ledger import Entry, State, Transition, move


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow from `initial_s` by `factor` with each attempt, up to `maximum_s`."""

    initial_s: float
    maximum_s: float
    factor: float = 2.0

    def delay_s(self, attempts: int) -> float:
        """Return the delay after this many attempts; after none it is the initial one."""
        return min(self.maximum_s, self.initial_s * self.factor ** min(attempts, 30))

    def after_s(self, delay_s: float) -> float:
        """Return the delay that follows on another one."""
        return min(self.maximum_s, delay_s * self.factor)


STARTS = Backoff(2, 120)
"""Waits after failed starts of a group."""
UNTRIED = Backoff(2, 1800)
"""Waits in which no job of a group came to run. After the longest of them the group is forgotten."""
MOST_TRIED = 64
"""Jobs of a group that are tried at a time, until it is forgotten."""
KINDS_IN_VAIN = 4
"""Groups of a user that are backed off until all of their jobs are."""

COMMANDS = Backoff(1, 60)
"""Waits between commands that are repeated without effect."""
IN_VAIN = 5
"""How often the same command is sent in a row for the same job before that is reported, and its waits begin."""
REMEMBERED_S = 30
"""How long a command is remembered after it seemed to have taken effect: it may not last."""
STUCK_S = 120
"""A job for which commands have been intended for longer than this without a break is stuck."""


@dataclass(slots=True)
class _Group:
    """How far one group is backed off."""

    start: FailedStart
    """The last one that failed."""
    key: BackoffKey
    until_s: float
    """Cluster time at which more jobs of the group are tried."""
    failures: int
    """Readings in a row in which starts failed without a known reason."""
    wait_s: float = STARTS.initial_s
    tries: int = 0
    """Jobs that may start before that."""
    next_tries: int = 1
    has_run: bool = False
    """Whether jobs of the group have come to run since it is backed off."""
    tried: bool = False
    """Whether one has since the last wait."""

    @property
    def is_limit(self) -> bool:
        """Whether the end of a job of theirs lets another one start."""
        return self.start.is_limit and self.key != own_key(self.start.pending)

    @property
    def only_last(self) -> bool:
        """Whether its jobs need not wait, but go after all others."""
        return self.start.benign and self.key.kind == "user"

    def fail(self, start: FailedStart, moved: bool, now_s: int) -> None:
        """Begin the wait again; it grows unless jobs of the group began or ended meanwhile (`moved`)."""
        self.start, self.has_run = start, self.has_run or moved
        self.wait_s = STARTS.initial_s if moved else STARTS.after_s(self.wait_s)
        self.failures = (0 if moved else self.failures) + (not start.explained)
        self.until_s = now_s + self.wait_s
        self.tries, self.next_tries, self.tried = 0, 1, False

    def advance(self, began: int, ended: int, now_s: int) -> bool:
        """Let a reading pass without a failed start, in which jobs began and ended. Return False to forget it."""
        self.tries = max(0, self.tries - began) + (ended if self.is_limit else 0)
        if began:
            self.has_run, self.tried, self.failures = True, True, 0
        if now_s < self.until_s:
            return True
        if self.next_tries > MOST_TRIED or self.wait_s >= UNTRIED.maximum_s:
            return False
        self.tries = max(self.tries, self.next_tries)
        moves = self.tried or self.is_limit
        if not moves:
            self.wait_s = UNTRIED.after_s(self.wait_s)
        if moves or self.key.kind != "user":
            self.next_tries *= 2
        self.until_s, self.tried = now_s + self.wait_s, False
        return True

    def count_of(self, ended: Iterable[EndedJob]) -> int:
        """Return how many jobs ended that may have counted towards the same limit."""
        user, account = self.start.pending.job.user, self.start.pending.job.account
        return sum(each.job.user == user or (bool(account) and each.job.account == account) for each in ended)


@dataclass(slots=True)
class _Waiting:
    """A pending job with its groups, and as it was marked last."""

    pending: PendingJob
    keys: tuple[BackoffKey, ...]
    marked: PendingJob | None = None

    def mark(self, reason: PendingReason) -> PendingJob:
        """Return the job as one that is ineligible for this reason, the same object each time."""
        if self.marked is None or self.marked.job.ineligible != reason:
            self.marked = replace(self.pending, job=replace(self.pending.job, ineligible=reason))
        return self.marked


@dataclass(slots=True)
class BackoffQueue:
    """The groups that are backed off, by key. They are lost at a restart: one failed start each brings them back."""

    jobs: frozenset[int] = frozenset()
    """The jobs that `applied` has marked last."""
    _groups: dict[BackoffKey, _Group] = field(default_factory=dict)
    _waiting: dict[int, _Waiting] = field(default_factory=dict)
    """The jobs of the last reading with a group: most of them are the same in the next one."""

    def note(self, seen: Observation, starts: StartOutcomes) -> list[Event]:
        """Record what a reading made of starts. Return the events of that."""
        if not starts.failed and not self._groups:
            return []
        began = Counter(key for id in starts.began if id in self._waiting for key in self._waiting[id].keys)
        failed: dict[BackoffKey, list[FailedStart]] = {}
        for start in starts.failed:
            failed.setdefault(start.key, []).append(start)
        events = []
        for key, several in failed.items():
            start, user = _joined(several), several[-1].pending.job.user
            if self._fail(key, start, began[key], seen) and _all_of(user) not in self._groups:
                what = f"{key}: {start.reason}; {len(several)} job(s) held again"
                events.append(Event("limit_met", what, start.pending.job.id))
        users: dict[str, list[FailedStart]] = {}
        for start in starts.failed:
            users.setdefault(start.pending.job.user, []).append(start)
        for user, several in users.items():
            events += self._fail_user(user, several, began, seen)
        self._advance(seen, began, {*failed, *map(_all_of, users)})
        return events

    def _fail(self, key: BackoffKey, start: FailedStart, began: int, seen: Observation) -> bool:
        """Back a group off, or further off. Return whether it was not before."""
        known = self._groups.get(key)
        if known is not None:
            known.fail(start, began > 0 or (known.is_limit and known.count_of(seen.ended) > 0), seen.now_s)
            return False
        self._groups[key] = _Group(start, key, seen.now_s + STARTS.initial_s, int(not start.explained))
        return True

    def _fail_user(
        self, user: str, failed: Sequence[FailedStart], began: Counter[BackoffKey], seen: Observation
    ) -> list[Event]:
        """Back off all jobs of a user of whom too many groups are."""
        key = _all_of(user)
        theirs = [
            each for each in self._groups.values()
            if each.start.pending.job.user == user and each.key != key and not each.has_run
        ]  # fmt: skip
        if len(theirs) < KINDS_IN_VAIN and key not in self._groups:
            return []
        harsh = sum(not each.start.benign for each in theirs)
        benign = harsh < KINDS_IN_VAIN and all(each.benign for each in failed)
        last = replace(failed[-1], is_limit=False, explained=True, benign=benign)
        if not self._fail(key, last, began[key], seen):
            return []
        what = f"{key}: {len(theirs)} kinds of them were started in vain, the last one: {last.reason}"
        return [Event("user_put_off", what, last.pending.job.id)]

    def _advance(self, seen: Observation, began: Mapping[BackoffKey, int], failed: Collection[BackoffKey]) -> None:
        """Let time pass for the groups without a failed start. Forget those of which nothing waits."""
        before, self._waiting = self._waiting, {}
        members: dict[BackoffKey, Job] = {}
        for each in seen.pending:
            known = before.get(each.job.id)
            if known is None or known.pending is not each:
                keys = dict.fromkeys((own_key(each), *each.groups, equivalence_key(each.job), _all_of(each.job.user)))
                known = _Waiting(each, tuple(keys))
            self._waiting[each.job.id] = known
            members.update((key, each.job) for key in known.keys if key in self._groups)
        for key, group in list(self._groups.items()):
            own = key == own_key(group.start.pending)
            gone = key not in members or (own and _asks(members[key]) != _asks(group.start.pending.job))
            if gone or not (key in failed or group.advance(began.get(key, 0), group.count_of(seen.ended), seen.now_s)):
                del self._groups[key]

    def leave(self, seen: Observation, entries: Mapping[int, Entry], max_failures: int) -> list[Transition]:
        """Return held jobs that go to the cluster's own scheduler, since too many starts of jobs like them failed."""
        given_up = {key: each.failures for key, each in self._groups.items() if each.failures >= max_failures}
        found = []
        for each in seen.pending if given_up else ():
            entry, failures = entries.get(each.job.id), given_up.get(equivalence_key(each.job))
            if failures is None or entry is None or each.release_is_pointless:
                continue
            if entry.state is State.HELD and not entry.leave:
                why = f"{failures} starts in a row of jobs like it failed"
                found.append(move(entry, State.HANDING_BACK, seen.now_s, why, event="left", leave=why))
        return found

    def applied(self, seen: Observation, entries: Mapping[int, Entry]) -> Observation:
        """Return the reading with the jobs that are backed off marked as ineligible, with the cluster's own reason.

        Those that are tried come last in it, as jobs that have just come and have no priority, unless a limit backs
        them off.
        """
        self.jobs = frozenset()
        if not self._groups:
            self._waiting.clear()
            return seen
        used: Counter[BackoffKey] = Counter()
        waiting: list[tuple[_Waiting, list[BackoffKey]]] = []
        for known in self._waiting.values():
            keys = [key for key in known.keys if key in self._groups]
            entry = entries.get(known.pending.job.id) if keys else None
            if entry is not None and entry.state is State.STARTING:
                used.update(keys)
            elif keys and known.pending.job.ineligible is None:
                waiting.append((known, keys))
        fits = cache(partial(_fits, seen))
        off: dict[int, PendingJob] = {}
        tried: dict[int, PendingJob] = {}
        for known, keys in waiting:
            pending, job = known.pending, known.pending.job
            groups = [self._groups[key] for key in keys]
            full = [each for each in groups if used[each.key] >= each.tries and not each.only_last]
            last = not full and not all(each.is_limit for each in groups)
            if full or (last and not fits(job.request)):
                why = (full or groups)[0]
                code = PendingCode.BACKED_OFF_HERE if pending.release_is_pointless else PendingCode.BACKED_OFF
                off[job.id] = known.mark(PendingReason(code, (why.start.reason, str(why.key))))
                continue
            used.update(keys)
            if last:
                tried[job.id] = replace(pending, job=replace(job, submit_s=seen.now_s, priority=0, tier=0))
        self.jobs = frozenset(off)
        rest = [off.get(each.job.id, each) for each in seen.pending if each.job.id not in tried]
        return replace(seen, pending=(*rest, *tried.values()))


def _fits(seen: Observation, request: Request) -> bool:
    """Return whether a request fits what is free."""
    room = free_units_by_node(request, seen.cluster, seen.free)
    return int((np.minimum(room, 1) if request.distinct else room).sum()) >= request.units


def _joined(several: Sequence[FailedStart]) -> FailedStart:
    """Several failed starts of one group in one reading are one sign: the last one stands for them."""
    explained, benign = all(each.explained for each in several), all(each.benign for each in several)
    return replace(several[-1], explained=explained, benign=benign)


def _all_of(user: str) -> BackoffKey:
    """Return the key of all jobs of a user."""
    return BackoffKey("user", (user,))


def _asks(job: Job) -> tuple[str, str]:
    return request_fingerprint(job), job.account


@dataclass(slots=True)
class _Sent:
    kind: str
    times: int
    next_s: float


@dataclass(slots=True)
class CommandRetries:
    """The last command of each job for which one is intended, and how often it was sent in a row.

    The ledger's intents are sent again until the cluster shows that they took effect. One that never does is reported
    once, then sent ever more rarely. A command of another kind begins the count again.
    """

    _sent: dict[int, _Sent] = field(default_factory=dict)
    _since_s: dict[int, int] = field(default_factory=dict)
    """Since when a command has been intended for each job. Each attempt is a new beginning in the ledger."""
    stuck: set[int] = field(default_factory=set)
    """Jobs for which commands have been intended for more than `STUCK_S` seconds."""

    def due(self, kind: str, job_id: int, now_s: int) -> bool:
        """Return whether a command may be sent now (cluster time)."""
        last = self._sent.get(job_id)
        return last is None or last.kind != kind or now_s >= last.next_s

    def note(self, kind: str, job_ids: Iterable[int], now_s: int) -> list[int]:
        """Record commands that are being sent. Return the jobs for which this is the first time too many."""
        in_vain = []
        for job_id in job_ids:
            last = self._sent.get(job_id)
            times = last.times + 1 if last is not None and last.kind == kind else 1
            delay_s = 0 if times < IN_VAIN else COMMANDS.delay_s(times - IN_VAIN)
            self._sent[job_id] = _Sent(kind, times, now_s + delay_s)
            if times == IN_VAIN:
                in_vain.append(job_id)
        return in_vain

    def intend(self, job_ids: Collection[int], now_s: int) -> dict[int, int]:
        """Record the jobs for which a command is intended now; the others are forgotten after a while.

        Return those that are stuck from now on, and for how long a command has been intended for each.
        """
        self._since_s = {id: self._since_s.get(id, now_s) for id in job_ids}
        before, self.stuck = self.stuck, {id for id, since_s in self._since_s.items() if now_s - since_s > STUCK_S}
        for id, last in list(self._sent.items()):
            if id not in self._since_s and now_s >= last.next_s + REMEMBERED_S:
                del self._sent[id]
        return {id: now_s - self._since_s[id] for id in sorted(self.stuck - before)}
