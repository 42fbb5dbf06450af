"""Send the ledger's intents to the cluster and record the outcomes.

The order of the steps makes a crash harmless: write the intent, send the command, write the outcome. The crash table
in `docs/cycle.md` lists every possible crash point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cpsched.model import Cluster, Job, Placement
from cpsched_bridge.cycle.backoff import MAX_REPETITIONS, CommandRetryTracker
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.reconcile import ReconcileOptions, make_transition_after_failure, make_unpinned_transition
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_bridge.ports import Backend, DeferredStart, Observation, Outcome, StartCommand
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


class LedgerCommandSender:
    """A sender of command batches that records intents and outcomes in the ledger."""

    def __init__(
        self,
        backend: Backend,
        ledger: Ledger,
        options: ReconcileOptions,
        retries: CommandRetryTracker,
        get_observation_age_s: Callable[[], int],
    ) -> None:
        self._backend = backend
        self._ledger = ledger
        self._retries = retries
        self._get_observation_age_s = get_observation_age_s
        self.options = options

    def send_intents(
        self,
        seen: Observation,
        allowance: CycleCommandBudget,
        recorder: CycleRecorder,
        pins_only: bool = False,
        starts_follow: bool = False,
    ) -> None:
        """Send the intended holds and releases of the observation's pending jobs.

        Failed starts come first because they occupy nodes. Jobs that a user or an administrator held after the bridge
        had pinned them come last. Their pins are removed, and their holds stay. Commands sent earlier in this cycle are
        not repeated. With `pins_only`, send commands only for jobs that may be pinned.

        With `starts_follow`, do not yet release jobs left to the cluster since this observation, because they might
        take the nodes of the starts. Do not yet hold jobs that the submit plugin delays either: Slurm starts none of
        them soon, and many new jobs of one user must not delay the starts of others.
        """
        jobs = {each.job.id: each.job for each in seen.pending}
        users = {each.job_id: each.user for each in seen.left} | {id: job.user for id, job in jobs.items()}
        now_s = seen.now_s
        undone, holds, backs = LedgerState.ROLLING_BACK, LedgerState.HOLDING, LedgerState.RELEASING
        intended = [*self._ledger.list_entries(undone, holds, backs), *self._ledger.list_orphaned_pins()]
        for job_id, since_s in self._retries.update_overdue_jobs([entry.job_id for entry in intended], now_s).items():
            entry = self._get_entry(job_id)
            recorder.add_event("intent_overdue", f"{entry.state} for {since_s} s: {entry.why}", job_id)
        sent = {outcome.job_id for _, outcome in recorder.outcomes}
        postponed = {each.job.id for each in seen.pending if each.awaits_hold} if starts_follow else frozenset[int]()

        def take_due_entries(kind: str, entries: Sequence[ManagedJobEntry]) -> list[ManagedJobEntry]:
            wanted = [entry for entry in entries if entry.job_id in users]
            wanted = [entry for entry in wanted if entry.job_id not in sent and (entry.pinned or not pins_only)]
            wanted = [entry for entry in wanted if self._retries.is_due(kind, entry.job_id, now_s)]
            return allowance.take(wanted, lambda entry: users[entry.job_id])

        ledger, backend = self._ledger, self._backend
        to_hold = [
            *take_due_entries("hold", ledger.list_entries(undone)),
            *take_due_entries("hold", [each for each in ledger.list_entries(holds) if each.job_id not in postponed]),
        ]
        self._send_commands("hold", backend.hold, to_hold, partial(self._process_hold_outcome, jobs), now_s, recorder)
        leaving = [entry for entry in ledger.list_entries(backs) if not (starts_follow and entry.since_s == now_s)]
        to_release = take_due_entries("release", leaving)
        self._send_commands("release", backend.release, to_release, self._process_release_outcome, now_s, recorder)
        self._send_commands(
            "unpin",
            backend.unpin,
            take_due_entries("unpin", ledger.list_orphaned_pins()),
            self._process_unpin_outcome,
            now_s,
            recorder,
        )

    def start(
        self, chosen: Sequence[tuple[Job, Placement]], cluster: Cluster, now_s: int, recorder: CycleRecorder
    ) -> list[int]:
        """Start held jobs on their chosen nodes, in the layout that the cluster will use.

        Return the ids of the jobs whose starts the cluster refused, excluding starts that were not sent.

        Raise the backend's error if no job was changed, in which case all jobs stay held. Also raise it if all jobs may
        have been changed, in which case the next observation shows the effect.
        """
        names = cluster.node_names
        decided = [StartCommand(job, tuple((names[n], units) for n, units in placement)) for job, placement in chosen]
        settled = self._backend.resolve_layout(decided)
        for each in settled:
            if isinstance(each, DeferredStart):
                recorder.add_event("start_postponed", each.why, each.job_id)
        orders = [each for each in settled if isinstance(each, StartCommand)]
        if not orders:
            return []
        entries = {order.job.id: self._get_entry(order.job.id) for order in orders}
        self._ledger.record(
            (
                make_transition(
                    entries[o.job.id],
                    LedgerState.STARTING,
                    now_s,
                    "decided",
                    nodes=o.nodes,
                    pinned=True,
                    restore=o.restore,
                )
                for o in orders
            ),
            recorder.number,
        )
        ids = [order.job.id for order in orders]
        self._retries.record_sent("start", ids, now_s)
        try:
            outcomes = recorder.send("start", ids, lambda: self._backend.start(orders))
        except (BackendUnavailable, CommandRefused) as error:
            untouched = (
                make_transition(self._get_entry(id), LedgerState.HELD, now_s, str(error), pinned=False) for id in ids
            )
            self._ledger.record(untouched, recorder.number)
            raise
        except BackendTimeout:
            self._record_sent_starts([Outcome(id, "unknown") for id in ids], now_s, recorder)
            raise
        self._record_sent_starts(outcomes, now_s, recorder)
        refused = [outcome for outcome in outcomes if outcome.result == "refused"]
        for outcome in refused:
            kind = "start_postponed" if outcome.code == "not_sent" else "start_refused"
            recorder.add_event(kind, outcome.detail, outcome.job_id)
        jobs = {order.job.id: order.job for order in orders}
        self._ledger.record(
            (self._make_refused_start_transition(jobs[o.job_id], o, now_s) for o in refused), recorder.number
        )
        return [outcome.job_id for outcome in refused if outcome.code != "not_sent"]

    def _record_sent_starts(self, outcomes: Sequence[Outcome], now_s: int, recorder: CycleRecorder) -> None:
        """Record when the cluster answered, because the start timeout counts from then.

        Deciding and sending may take longer than the timeout.
        """
        answered_s, transitions = now_s + self._get_observation_age_s(), list[LedgerTransition]()
        for outcome in outcomes:
            entry = self._get_entry(outcome.job_id)
            if outcome.result == "done" and not self._backend.starts_in_one_change:
                transitions.append(make_caused_transition(entry, LedgerState.STARTING, answered_s, "released"))
            elif outcome.result != "refused" and answered_s != now_s:
                transitions.append(make_transition(entry, LedgerState.STARTING, answered_s, entry.why))
        self._ledger.record(transitions, recorder.number)

    def _make_refused_start_transition(self, job: Job, outcome: Outcome, now_s: int) -> LedgerTransition:
        why = f"start rejected: {outcome.detail}"
        if outcome.code == "not_sent":  # does not count as this job's failure
            return make_transition(self._get_entry(outcome.job_id), LedgerState.HELD, now_s, why, pinned=False)
        return make_transition_after_failure(
            self._get_entry(job.id), job, LedgerState.HELD, now_s, why, self.options, pinned=False
        )

    def _send_commands(
        self,
        kind: str,
        command: Callable[[Sequence[int]], Sequence[Outcome]],
        entries: Sequence[ManagedJobEntry],
        settle: Callable[[ManagedJobEntry, Outcome, int], LedgerTransition | None],
        now_s: int,
        recorder: CycleRecorder,
    ) -> None:
        if not entries:
            return
        ids = [entry.job_id for entry in entries]
        for job_id in self._retries.record_sent(kind, ids, now_s):
            why = self._get_entry(job_id).why
            recorder.add_event(
                "no_effect",
                f"{kind} was sent {MAX_REPETITIONS} times without effect and is now retried less often: {why}",
                job_id,
            )
        outcomes = recorder.send(kind, ids, lambda: command(ids))
        settled = [settle(self._get_entry(outcome.job_id), outcome, now_s) for outcome in outcomes]
        self._ledger.record((t for t in settled if t is not None), recorder.number)

    def _process_hold_outcome(
        self, jobs: Mapping[int, Job], entry: ManagedJobEntry, outcome: Outcome, now_s: int
    ) -> LedgerTransition | None:
        if outcome.result == "done":
            return make_transition(entry, LedgerState.HELD, now_s, "held", pinned=False)
        if outcome.result == "refused":
            if outcome.code == "held_by_administrator":  # not a failure: the next observation shows the holder
                return make_caused_transition(entry, entry.state, now_s, outcome.code)
            why, job = f"hold refused: {outcome.detail}", jobs[entry.job_id]
            return make_transition_after_failure(entry, job, entry.state, now_s, why, self.options)
        return None

    def _process_release_outcome(self, entry: ManagedJobEntry, outcome: Outcome, now_s: int) -> LedgerTransition | None:
        if outcome.result != "done":
            return None
        return make_transition(entry, LedgerState.FREE, now_s, "released to the cluster", pinned=False)

    def _process_unpin_outcome(self, entry: ManagedJobEntry, outcome: Outcome, now_s: int) -> LedgerTransition | None:
        return make_unpinned_transition(entry, now_s) if outcome.result == "done" else None

    def _get_entry(self, job_id: int) -> ManagedJobEntry:
        entry = self._ledger.get(job_id)
        if entry is None:
            raise KeyError(f"job {job_id} is not in the ledger")
        return entry
