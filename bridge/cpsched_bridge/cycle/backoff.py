"""Back off jobs whose starts fail, alone or with their group, but no other jobs.

Two kinds of failed starts cause a backoff:

- The cluster gave a reason that concerns the job, or its user in an account, QOS or partition (`ports.ClusterReason`).
  The group that the reason names backs off.
- The start failed without a known reason. All jobs in the failed job's equivalence class back off. After `max_failures`
  consecutive failures, all jobs in the class are left to the cluster's own scheduler. If there is a more specific
  explanation, only the job itself backs off.

Rules for a backed-off group:

- The wait doubles with each further failed start, up to the maximum of `START_BACKOFF`.
- After the wait, one job in the group is tried, then two, then four. A failed start restarts the wait. After
  `MAX_TRIES` concurrent tries without a failure, the group's backoff ends. The wait also grows if no job could be
  tried.
- If the reason is a limit on running jobs, each end of a job in the group permits another start without a wait.
- Otherwise, a tried job is considered after all other jobs. No other job therefore waits for a start that may fail.
- A job that does not fit the free resources waits for these first. It is planned after all other jobs, and uses no try.
- The backoff of a single job ends when its request changes.

If `MAX_GROUPS_PER_USER` of a user's groups back off and none of their jobs has run since, all of the user's jobs form
one group. At most one start is then tried at a time, regardless of what the user submits. If the failures are benign,
for example because other jobs start first, the jobs do not wait but are placed last.

This mechanism does not depend on the values of the limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import NamedTuple

from cpsched.feasibility import choose_nodes, units_fitting_by_node
from cpsched.formatting import format_count
from cpsched.model import EndedJob, Job, PendingCode, PendingReason, Request
from cpsched_bridge.backoff_groups import BackoffGroupKey, make_equivalence_class_key, make_request_fingerprint
from cpsched_bridge.cycle.reconcile import make_transition_until_request_changes
from cpsched_bridge.cycle.start_outcomes import (
    FailureCause,
    ObservedStartOutcomes,
    StartFailure,
    make_job_backoff_key,
)
from cpsched_bridge.cycle_report import NO_BACKOFF, CycleEvent, JobsInBackoff
from cpsched_bridge.ports import Observation, PendingJob
from cpsched_bridge.store.ledger import LedgerState, LedgerTransition, ManagedJobEntry


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Delays from `initial_s`, multiplied by `factor` per attempt, up to `maximum_s`."""

    initial_s: float
    maximum_s: float
    factor: float = 2.0

    def delay_s(self, attempts: int) -> float:
        """Return the delay in seconds after `attempts` attempts.

        After 0 attempts, this is the initial delay.
        """
        return min(self.maximum_s, self.initial_s * self.factor ** min(attempts, 30))

    def next_delay_s(self, delay_s: float) -> float:
        """Return the delay in seconds that follows `delay_s`."""
        return min(self.maximum_s, delay_s * self.factor)


START_BACKOFF = ExponentialBackoff(2, 120)
"""Delays after failed starts in a group."""
NO_TRIES = ExponentialBackoff(2, 1800)
"""Delays while no tried job in a group runs. The group's backoff ends after the longest delay."""
MAX_TRIES = 64
"""Number of concurrent tries in a group that end its backoff if none of them fails."""
MAX_GROUPS_PER_USER = 4
"""Number of a user's backed-off groups at which all of the user's jobs back off."""

COMMAND_BACKOFF = ExponentialBackoff(1, 60)
"""Delays between repetitions of a command that has had no effect."""
MAX_REPETITIONS = 5
"""Number of times that a command is sent before it is reported and delayed."""
COMMAND_MEMORY_S = 30
"""Seconds for which a command is remembered after it takes effect, because the effect may not last."""
OVERDUE_S = 120
"""Seconds of uninterrupted intents after which a job counts as overdue."""


@dataclass(slots=True)
class _BackoffGroup:
    """The backoff state of one group."""

    failure: StartFailure
    """The last failed start."""
    key: BackoffGroupKey
    since_s: int
    """Cluster time at which the backoff began."""
    until_s: float
    """Cluster time, in seconds, at which more jobs in the group are tried."""
    failures: int
    """Number of consecutive observations with unexplained failed starts."""
    failed_tries: int = 0
    """Number of failed starts since the backoff began or a job last started or ended."""
    wait_s: float = START_BACKOFF.initial_s
    tries: int = 0
    """Number of jobs that may start before `until_s`."""
    next_tries: int = 1
    has_run: bool = False
    """Whether jobs in the group have run since the backoff began."""
    tried: bool = False
    """Whether a job has run since the last wait."""

    @property
    def may_start_after_each_job_end(self) -> bool:
        """Whether each end of a job in the group permits another start."""
        return self.failure.cause is FailureCause.LIMIT and self.key != make_job_backoff_key(self.failure.pending)

    @property
    def is_placed_last(self) -> bool:
        """Whether the group's jobs are placed last instead of waiting."""
        return self.failure.cause is FailureCause.PRECEDENCE and self.key.kind == "user"

    def restart_wait(self, failure: StartFailure, moved: bool, now_s: int) -> None:
        """Restart the wait: reset if jobs started or ended (`moved`), otherwise doubled."""
        self.failure, self.has_run = failure, self.has_run or moved
        self.failed_tries = 0 if moved else self.failed_tries + 1
        self.wait_s = START_BACKOFF.delay_s(self.failed_tries)
        self.failures = (0 if moved else self.failures) + (failure.cause is FailureCause.UNKNOWN)
        self.until_s = now_s + self.wait_s
        self.tries, self.next_tries, self.tried = 0, 1, False

    def advance(self, began: int, ended: int, now_s: int) -> bool:
        """Process starts and ends without failures. Return False if the backoff is over."""
        self.tries = max(0, self.tries - began) + (ended if self.may_start_after_each_job_end else 0)
        if began:
            self.has_run, self.tried, self.failures = True, True, 0
        if now_s < self.until_s:
            return True
        if self.next_tries > MAX_TRIES or self.wait_s >= NO_TRIES.maximum_s:
            return False
        self.tries = max(self.tries, self.next_tries)
        moves = self.tried or self.may_start_after_each_job_end
        if not moves:
            self.wait_s = NO_TRIES.next_delay_s(self.wait_s)
        if moves or self.key.kind != "user":
            self.next_tries *= 2
        self.until_s, self.tried = now_s + self.wait_s, False
        return True

    def count_ended_under_same_limit(self, ended: Iterable[EndedJob]) -> int:
        """Return the number of ended jobs that may have counted toward the same limit."""
        user, account = self.failure.pending.job.user, self.failure.pending.job.account
        return sum(each.job.user == user or (bool(account) and each.job.account == account) for each in ended)


class _GroupedPendingJob(NamedTuple):
    """A pending job with its groups."""

    pending: PendingJob
    keys: tuple[BackoffGroupKey, ...]


@dataclass(slots=True)
class BackoffQueue:
    """The backed-off groups by key.

    Groups are not stored. After a restart, one failed start in a group restores it.
    """

    _groups: dict[BackoffGroupKey, _BackoffGroup] = field(default_factory=dict)
    _waiting: dict[int, _GroupedPendingJob] = field(default_factory=dict)
    """The last observation's pending jobs with their group keys, cached because most jobs do not change."""

    def record_start_outcomes(self, seen: Observation, starts: ObservedStartOutcomes) -> list[CycleEvent]:
        """Record the outcomes of starts, update the groups, and return events to report."""
        if not starts.failed and not self._groups:
            return []
        began = Counter(key for id in starts.began if id in self._waiting for key in self._waiting[id].keys)
        failed: dict[BackoffGroupKey, list[StartFailure]] = {}
        for failure in starts.failed:
            failed.setdefault(failure.group, []).append(failure)
        events = []
        for key, several in failed.items():
            failure = replace(several[-1], cause=_merge_causes([each.cause for each in several]))
            is_new = self._back_off_group(key, failure, began[key], seen)
            if is_new and _make_user_backoff_key(failure.pending.job.user) not in self._groups:
                what = f"{key}: {failure.reason}; {format_count(len(several), 'job')} held again"
                events.append(CycleEvent("limit_reached", what, failure.pending.job.id))
        users: dict[str, list[StartFailure]] = {}
        for failure in starts.failed:
            users.setdefault(failure.pending.job.user, []).append(failure)
        for user, several in users.items():
            events += self._back_off_user(user, several, began, seen)
        self._advance_groups(seen, began, {*failed, *map(_make_user_backoff_key, users)})
        return events

    def _back_off_group(self, key: BackoffGroupKey, failure: StartFailure, began: int, seen: Observation) -> bool:
        """Back off a group or extend its backoff. Return whether the backoff is new."""
        known = self._groups.get(key)
        if known is not None:
            known.restart_wait(
                failure,
                began > 0
                or (known.may_start_after_each_job_end and known.count_ended_under_same_limit(seen.ended) > 0),
                seen.now_s,
            )
            return False
        until_s = seen.now_s + START_BACKOFF.initial_s
        self._groups[key] = _BackoffGroup(failure, key, seen.now_s, until_s, int(failure.cause is FailureCause.UNKNOWN))
        return True

    def _back_off_user(
        self, user: str, failed: Sequence[StartFailure], began: Counter[BackoffGroupKey], seen: Observation
    ) -> list[CycleEvent]:
        """Back off a user with too many backed-off groups. Return the events to report."""
        key = _make_user_backoff_key(user)
        theirs = [
            each for each in self._groups.values()
            if each.failure.pending.job.user == user and each.key != key and not each.has_run
        ]  # fmt: skip
        if len(theirs) < MAX_GROUPS_PER_USER and key not in self._groups:
            return []
        harsh = sum(each.failure.cause is not FailureCause.PRECEDENCE for each in theirs)
        benign = harsh < MAX_GROUPS_PER_USER and all(each.cause is FailureCause.PRECEDENCE for each in failed)
        last = replace(failed[-1], cause=FailureCause.PRECEDENCE if benign else FailureCause.CLUSTER)
        if not self._back_off_group(key, last, began[key], seen):
            return []
        what = f"{key}: starts in {len(theirs)} groups of these jobs failed; last reason: {last.reason}"
        return [CycleEvent("user_backoff", what, last.pending.job.id)]

    def _advance_groups(
        self, seen: Observation, began: Mapping[BackoffGroupKey, int], failed: Collection[BackoffGroupKey]
    ) -> None:
        """Advance groups without failed starts, and remove groups whose backoff is over."""
        before, self._waiting = self._waiting, {}
        members: dict[BackoffGroupKey, Job] = {}
        for each in seen.pending:
            known = before.get(each.job.id)
            if known is None or known.pending is not each:
                keys = dict.fromkeys(
                    (
                        make_job_backoff_key(each),
                        *each.groups,
                        make_equivalence_class_key(each.job),
                        _make_user_backoff_key(each.job.user),
                    )
                )
                known = _GroupedPendingJob(each, tuple(keys))
            self._waiting[each.job.id] = known
            members.update((key, each.job) for key in known.keys if key in self._groups)
        for key, group in list(self._groups.items()):
            own = key == make_job_backoff_key(group.failure.pending)
            gone = key not in members or (
                own
                and _get_request_and_account_key(members[key])
                != _get_request_and_account_key(group.failure.pending.job)
            )
            if gone or not (
                key in failed
                or group.advance(began.get(key, 0), group.count_ended_under_same_limit(seen.ended), seen.now_s)
            ):
                del self._groups[key]

    def forget(self, job_ids: Collection[int], user: str = "") -> int:
        """End the backoffs of these jobs' groups and of the user's groups. Return their number."""
        keys = {key for id in job_ids if id in self._waiting for key in self._waiting[id].keys}
        ended = [key for key, each in self._groups.items() if key in keys or each.failure.pending.job.user == user]
        for key in ended:
            del self._groups[key]
        return len(ended)

    def list_groups(self) -> list[tuple[str, str, int]]:
        """Return each backed-off group, the reason, and the cluster time at which its backoff began."""
        return [(str(key), each.failure.reason, each.since_s) for key, each in self._groups.items()]

    def is_backed_off(self, job_id: int) -> bool:
        """Return whether a pending job must wait for its next try, even if it is ineligible for another reason."""
        known = self._waiting.get(job_id)
        groups = [self._groups[key] for key in known.keys if key in self._groups] if known is not None else []
        return any(not each.tries and not each.is_placed_last for each in groups)

    def find_jobs_to_unmanage(
        self, seen: Observation, entries: Mapping[int, ManagedJobEntry], max_failures: int
    ) -> list[LedgerTransition]:
        """Return transitions that give held jobs back to the cluster if the starts of their class fail."""
        given_up = {key: each.failures for key, each in self._groups.items() if each.failures >= max_failures}
        found = []
        for each in seen.pending if given_up else ():
            entry, failures = entries.get(each.job.id), given_up.get(make_equivalence_class_key(each.job))
            if failures is None or entry is None or each.release_is_pointless:
                continue
            if entry.state is LedgerState.HELD and not entry.unmanaged_reason:
                why, state = f"{failures} consecutive starts in its equivalence class failed", LedgerState.RELEASING
                found.append(make_transition_until_request_changes(entry, each.job, state, seen.now_s, why))
        return found

    def select_jobs(self, seen: Observation, entries: Mapping[int, ManagedJobEntry]) -> JobsInBackoff:
        """Return which pending jobs wait for their next try, and which are placed last.

        Jobs that may be tried are placed last, except those that back off because of a limit. Jobs that do not fit the
        free resources are placed last as well: they cannot start now, and wait for resources first.
        """
        if not self._groups:
            self._waiting.clear()
            return NO_BACKOFF
        used: Counter[BackoffGroupKey] = Counter()
        waiting: list[tuple[PendingJob, list[_BackoffGroup]]] = []
        for known in self._waiting.values():
            groups = [self._groups[key] for key in known.keys if key in self._groups]
            entry = entries.get(known.pending.job.id) if groups else None
            if entry is not None and entry.state is LedgerState.STARTING:
                used.update(group.key for group in groups)
            elif groups and known.pending.job.ineligible is None:
                waiting.append((known.pending, groups))

        fits = cache(partial(_fits_free_resources, seen))
        reasons, last = dict[int, PendingReason](), set[int]()
        for pending, groups in waiting:
            full = [each for each in groups if used[each.key] >= each.tries and not each.is_placed_last]
            is_last = bool(full) or not all(each.may_start_after_each_job_end for each in groups)
            if is_last and not fits(pending.job.request):
                last.add(pending.job.id)
                continue
            if full:
                code = PendingCode.BACKED_OFF_HERE if pending.release_is_pointless else PendingCode.BACKED_OFF
                reasons[pending.job.id] = PendingReason(code, (full[0].failure.reason, str(full[0].key)))
                continue
            used.update(group.key for group in groups)
            if is_last:
                last.add(pending.job.id)
        return JobsInBackoff(reasons, frozenset(last))


def _fits_free_resources(seen: Observation, request: Request) -> bool:
    """Return whether the cluster's free resources satisfy a request."""
    room = units_fitting_by_node(request, seen.cluster, seen.free)
    return bool(choose_nodes(room, request.units, seen.cluster, request.node_set))


def _merge_causes(causes: Sequence[FailureCause]) -> FailureCause:
    """Return the cause of a group's failures: the last one, but an unknown cause comes first and precedence last."""
    if FailureCause.UNKNOWN in causes:
        return FailureCause.UNKNOWN
    return next((cause for cause in reversed(causes) if cause is not FailureCause.PRECEDENCE), causes[-1])


def _make_user_backoff_key(user: str) -> BackoffGroupKey:
    """Return the backoff key that covers all of a user's jobs."""
    return BackoffGroupKey("user", (user,))


def _get_request_and_account_key(job: Job) -> tuple[str, str]:
    return make_request_fingerprint(job), job.account


@dataclass(slots=True)
class _SentCommand:
    kind: str
    times: int
    at_s: int
    next_s: float


@dataclass(slots=True)
class CommandRetryTracker:
    """The last command sent for each job, with the number of repetitions.

    The bridge sends the ledger's intents until the cluster shows their effect. A command without effect is reported
    once and then repeated with increasing delays. A different command restarts the count.
    """

    _sent: dict[int, _SentCommand] = field(default_factory=dict)
    _since_s: dict[int, int] = field(default_factory=dict)
    """Cluster time at which each job's uninterrupted intents began. The ledger shows only the last attempt."""
    overdue: set[int] = field(default_factory=set)
    """Ids of jobs that have had intents for more than `OVERDUE_S` seconds."""

    def is_due(self, kind: str, job_id: int, now_s: int) -> bool:
        """Return whether a command may be sent at cluster time `now_s`, which may have stepped back."""
        last = self._sent.get(job_id)
        return last is None or last.kind != kind or not last.at_s <= now_s < last.next_s

    def record_sent(self, kind: str, job_ids: Iterable[int], now_s: int) -> list[int]:
        """Record commands that are being sent. Return the ids of jobs to report."""
        without_effect = []
        for job_id in job_ids:
            last = self._sent.get(job_id)
            times = last.times + 1 if last is not None and last.kind == kind else 1
            delay_s = 0 if times < MAX_REPETITIONS else COMMAND_BACKOFF.delay_s(times - MAX_REPETITIONS)
            self._sent[job_id] = _SentCommand(kind, times, now_s, now_s + delay_s)
            if times == MAX_REPETITIONS:
                without_effect.append(job_id)
        return without_effect

    def update_overdue_jobs(self, job_ids: Collection[int], now_s: int) -> dict[int, int]:
        """Record the jobs with current intents, and return the newly overdue jobs.

        The values are the durations of the intents in seconds. Other jobs are forgotten after `COMMAND_MEMORY_S` s.
        """
        self._since_s = {id: self._since_s.get(id, now_s) for id in job_ids}
        overdue = {id for id, since_s in self._since_s.items() if now_s - since_s > OVERDUE_S}
        newly_overdue = sorted(overdue - self.overdue)
        self.overdue = overdue

        for id, last in list(self._sent.items()):
            if id not in self._since_s and now_s >= last.next_s + COMMAND_MEMORY_S:
                del self._sent[id]
        return {id: now_s - self._since_s[id] for id in newly_overdue}
