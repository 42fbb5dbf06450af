"""Send the ledger's intents to the cluster and record the outcomes.

The order of the steps makes a crash harmless: write the intent, send the command, write the outcome. The crash table
in `docs/cycle.md` lists every possible crash point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from typing import TypeVar

from cpsched.model import Job, Placement
from cpsched_bridge.cycle.backoff import MAX_REPETITIONS, CommandRetryTracker
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.reconcile import make_transition_after_failure, make_unpinned_transition
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_bridge.ports import (
    NO_SETTINGS,
    Backend,
    Hold,
    Observation,
    Outcome,
    StartOrder,
    UndoOrder,
)
from cpsched_bridge.store.ledger import (
    Ledger,
    LedgerState,
    LedgerTransition,
    ManagedJobEntry,
    make_caused_transition,
    make_transition,
)

T = TypeVar("T")

TRANSIENT_STATES = frozenset({LedgerState.HOLDING, LedgerState.ROLLING_BACK, LedgerState.RELEASING})
"""States that a job leaves within one or two cycles if the cluster executes the commands."""


@dataclass(slots=True)
class CycleCommandBudget:
    """The number of jobs for which a cycle may still send commands."""

    left: int

    def take(self, wanted: Sequence[T], whose: Callable[[T], str] = lambda _: "") -> list[T]:
        """Return as many items of `wanted` as the budget permits, in order.

        If the budget is too small, choose each user's first item, then each user's second item, and so on. `whose`
        returns an item's user.
        """
        taken = list(wanted) if len(wanted) <= self.left else _take_round_robin(wanted, whose, self.left)
        self.left -= len(taken)
        return taken


def _take_round_robin(wanted: Sequence[T], whose: Callable[[T], str], most: int) -> list[T]:
    turns = Counter[str]()
    ranks: list[tuple[int, int]] = []
    for position, each in enumerate(wanted):
        ranks.append((turns[whose(each)], position))
        turns[whose(each)] += 1
    return [wanted[position] for position in sorted(position for _, position in sorted(ranks)[:most])]


class IntentSelection(Enum):
    """The intents whose commands are sent."""

    ALL = auto()
    PINNED_JOBS = auto()
    """Only those for jobs that may be pinned."""
    BEFORE_STARTS = auto()
    """All that starts may wait for.

    Jobs left to the cluster since the observation are released after the starts, because they might take the nodes of
    the starts. Jobs that the submit plugin delays are held after the starts: Slurm starts none of them soon, and many
    new jobs of one user must not delay the starts of others.
    """


@dataclass(frozen=True, slots=True)
class _UndoCommand:
    """A command that undoes starts, and the transition that follows from its outcome, if any."""

    kind: str
    send: Callable[[Sequence[UndoOrder]], Sequence[Outcome]]
    settle: Callable[[ManagedJobEntry, Outcome, int], LedgerTransition | None]


@dataclass(frozen=True, slots=True)
class LedgerCommandSender:
    """A sender of command batches that records intents and outcomes in the ledger."""

    backend: Backend
    ledger: Ledger
    max_failures: int
    """Number of consecutive failed starts or holds after which a job is left to the cluster."""
    get_observation_age_s: Callable[[], int]
    retries: CommandRetryTracker = field(default_factory=CommandRetryTracker)

    def send_intents(
        self,
        seen: Observation,
        allowance: CycleCommandBudget,
        recorder: CycleRecorder,
        selection: IntentSelection = IntentSelection.ALL,
    ) -> None:
        """Send the intended holds and releases of the observation's pending jobs.

        Failed starts come first because they occupy nodes. Jobs that a user or an administrator held after the bridge
        had pinned them come last. Their pins are removed, and their holds stay. Commands sent earlier in this cycle are
        not repeated.
        """
        ledger, backend, now_s = self.ledger, self.backend, seen.now_s
        jobs = {each.job.id: each.job for each in seen.pending}
        users = {each.job_id: each.user for each in seen.unmanaged} | {id: job.user for id, job in jobs.items()}
        states = LedgerState.ROLLING_BACK, LedgerState.HOLDING, LedgerState.RELEASING
        self._report_overdue_jobs([*ledger.list_entries(*states), *ledger.list_orphaned_pins()], now_s, recorder)
        starts_follow = selection is IntentSelection.BEFORE_STARTS
        delayed = {each.job.id for each in seen.pending if each.awaits_hold} if starts_follow else frozenset[int]()
        sent = {outcome.job_id for _, outcome in recorder.outcomes}
        pins_only = selection is IntentSelection.PINNED_JOBS

        def take_due_entries(kind: str, entries: Sequence[ManagedJobEntry]) -> list[ManagedJobEntry]:
            wanted = [entry for entry in entries if entry.job_id in users and entry.job_id not in sent]
            wanted = [entry for entry in wanted if entry.pinned or not pins_only]
            wanted = [entry for entry in wanted if self.retries.is_due(kind, entry.job_id, now_s)]
            return allowance.take(wanted, lambda entry: users[entry.job_id])

        hold = _UndoCommand("hold", backend.hold, partial(self._process_hold_outcome, jobs))
        to_adopt = [entry for entry in ledger.list_entries(LedgerState.HOLDING) if entry.job_id not in delayed]
        to_hold = take_due_entries(hold.kind, ledger.list_entries(LedgerState.ROLLING_BACK))
        self._send_undo_orders(hold, [*to_hold, *take_due_entries(hold.kind, to_adopt)], seen, recorder)

        release = _UndoCommand("release", backend.release, _process_release_outcome)
        leaving = ledger.list_entries(LedgerState.RELEASING)
        leaving = [entry for entry in leaving if not (starts_follow and entry.since_s == now_s)]
        self._send_undo_orders(release, take_due_entries(release.kind, leaving), seen, recorder)

        unpin = _UndoCommand("unpin", backend.unpin, _process_unpin_outcome)
        self._send_undo_orders(unpin, take_due_entries(unpin.kind, ledger.list_orphaned_pins()), seen, recorder)

    def _report_overdue_jobs(self, intended: Sequence[ManagedJobEntry], now_s: int, recorder: CycleRecorder) -> None:
        for job_id, since_s in self.retries.update_overdue_jobs([entry.job_id for entry in intended], now_s).items():
            entry = self._get_entry(job_id)
            recorder.add_event("intent_overdue", f"{entry.state} for {since_s} s: {entry.why}", job_id)

    def start(
        self, decided: Sequence[StartOrder], seen: Observation, recorder: CycleRecorder
    ) -> list[LedgerTransition]:
        """Start held jobs on their chosen nodes, in the layout that the cluster will use.

        Return the transitions of the jobs whose starts the cluster refused, excluding starts that were not sent.

        Raise the backend's error if no job was changed, in which case all jobs stay held. Also raise it if all jobs may
        have been changed, in which case the next observation shows the effect.
        """
        now_s = seen.now_s
        resolved = self.backend.resolve_layout(decided, self._list_starts_under_way(seen))
        _report_refused_starts([each for each in resolved if isinstance(each, Outcome)], recorder)
        orders = [each for each in resolved if isinstance(each, StartOrder)]
        if not orders:
            return []

        # The ledger gets everything that undoes the starts before they are sent.
        intents = [
            make_transition(
                self._get_entry(order.job_id), LedgerState.STARTING, now_s, "decided", nodes=order.nodes, pinned=True,
                restore=order.settings.restore,
            ) for order in orders
        ]  # fmt: skip
        self.ledger.record(intents, recorder.number)
        ids = [order.job_id for order in orders]
        self.retries.record_sent("start", ids, now_s)
        try:
            outcomes = recorder.send("start", ids, lambda: self.backend.start(orders))
        except (BackendUnavailable, CommandRefused) as error:
            untouched = (
                make_transition(self._get_entry(id), LedgerState.HELD, now_s, str(error), pinned=False) for id in ids
            )
            self.ledger.record(untouched, recorder.number)
            raise
        except BackendTimeout:
            self._record_sent_starts([Outcome(id, "unknown") for id in ids], now_s, recorder)
            raise

        self._record_sent_starts(outcomes, now_s, recorder)
        refused = [outcome for outcome in outcomes if outcome.result == "refused"]
        _report_refused_starts(refused, recorder)
        jobs = {order.job_id: order.job for order in orders}
        transitions = [self._make_refused_start_transition(jobs[each.job_id], each, now_s) for each in refused]
        self.ledger.record(transitions, recorder.number)
        return [each for each in transitions if each.failed]

    def _list_starts_under_way(self, seen: Observation) -> list[StartOrder]:
        """Return the starts that were sent and had not taken effect when the cluster was read."""
        released = ((each.job, self.ledger.get(each.job.id)) for each in seen.pending if each.hold is Hold.NONE)
        return [StartOrder(job, entry.nodes) for job, entry in released if entry is not None and entry.pinned]

    def _record_sent_starts(self, outcomes: Sequence[Outcome], now_s: int, recorder: CycleRecorder) -> None:
        """Record when the cluster answered, because the start timeout counts from then.

        Deciding and sending may take longer than the timeout.
        """
        answered_s, transitions = now_s + self.get_observation_age_s(), list[LedgerTransition]()
        for outcome in outcomes:
            entry = self._get_entry(outcome.job_id)
            late = answered_s != now_s
            if outcome.result == "done" and (late or not self.backend.starts_in_one_change):
                transitions.append(make_caused_transition(entry, LedgerState.STARTING, answered_s, "released"))
            elif outcome.result != "refused" and late:
                transitions.append(make_transition(entry, LedgerState.STARTING, answered_s, entry.why))
        self.ledger.record(transitions, recorder.number)

    def _make_refused_start_transition(self, job: Job, outcome: Outcome, now_s: int) -> LedgerTransition:
        entry, why = self._get_entry(job.id), f"start rejected: {outcome.detail}"
        if not outcome.was_sent:  # does not count as this job's failure
            return make_transition(entry, LedgerState.HELD, now_s, why, pinned=False)
        refused = make_transition(entry, LedgerState.HELD, now_s, why, pinned=False, cause="refused")
        return make_transition_after_failure(entry, job, refused, self.max_failures)

    def _send_undo_orders(
        self, command: _UndoCommand, entries: Sequence[ManagedJobEntry], seen: Observation, recorder: CycleRecorder
    ) -> None:
        if not entries:
            return
        pinned = seen.list_pinned_job_ids()
        orders = [replace(entry.make_undo_order(), pinned=entry.pinned or entry.job_id in pinned) for entry in entries]

        # An error counts for all jobs, because any of the commands may be its cause.
        ids = sent_ids = [entry.job_id for entry in entries]
        try:
            outcomes = recorder.send(command.kind, ids, lambda: command.send(orders))
            sent_ids = [outcome.job_id for outcome in outcomes if outcome.was_sent]
        finally:
            self._record_sent_commands(command.kind, sent_ids, seen.now_s, recorder)

        settled = [command.settle(self._get_entry(outcome.job_id), outcome, seen.now_s) for outcome in outcomes]
        self.ledger.record((t for t in settled if t is not None), recorder.number)

    def _record_sent_commands(self, kind: str, sent_ids: Sequence[int], now_s: int, recorder: CycleRecorder) -> None:
        for job_id in self.retries.record_sent(kind, sent_ids, now_s):
            message = f"{kind} was sent {MAX_REPETITIONS} times without effect and is now retried less often"
            recorder.add_event("no_effect", f"{message}: {self._get_entry(job_id).why}", job_id)

    def _process_hold_outcome(
        self, jobs: Mapping[int, Job], entry: ManagedJobEntry, outcome: Outcome, now_s: int
    ) -> LedgerTransition | None:
        if outcome.result == "done":
            return make_transition(entry, LedgerState.HELD, now_s, "held", pinned=False)
        if not outcome.is_refusal:
            return None
        if outcome.code == "held_by_administrator":  # not a failure: the next observation shows the holder
            return make_caused_transition(entry, entry.state, now_s, outcome.code)
        refused = make_transition(entry, entry.state, now_s, f"hold refused: {outcome.detail}")
        return make_transition_after_failure(entry, jobs[entry.job_id], refused, self.max_failures)

    def _get_entry(self, job_id: int) -> ManagedJobEntry:
        entry = self.ledger.get(job_id)
        if entry is None:
            raise KeyError(f"job {job_id} is not in the ledger")
        return entry


def make_start_orders(starts: Sequence[tuple[Job, Placement]], seen: Observation) -> list[StartOrder]:
    """Return the orders for decided starts, with the settings of the observed jobs."""
    ids, names = {job.id for job, _ in starts}, seen.cluster.node_names
    settings = {each.job.id: each.start_settings for each in seen.pending if each.job.id in ids}
    return [
        StartOrder(job, tuple((names[node], units) for node, units in placement), settings.get(job.id, NO_SETTINGS))
        for job, placement in starts
    ]


def _report_refused_starts(outcomes: Sequence[Outcome], recorder: CycleRecorder) -> None:
    for outcome in outcomes:
        kind = "start_refused" if outcome.was_sent else "start_postponed"
        recorder.add_event(kind, outcome.detail, outcome.job_id)


def _process_release_outcome(entry: ManagedJobEntry, outcome: Outcome, now_s: int) -> LedgerTransition | None:
    if outcome.result != "done":
        return None
    return make_transition(entry, LedgerState.FREE, now_s, "released to the cluster", pinned=False)


def _process_unpin_outcome(entry: ManagedJobEntry, outcome: Outcome, now_s: int) -> LedgerTransition | None:
    return make_unpinned_transition(entry, now_s) if outcome.result == "done" else None
