"""Send a cycle's commands within one budget: the ledger's intents, then starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.model import Job, Placement
from cpsched_bridge.cycle.cluster_state import Observed
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.cycle_timing import CycleTiming
from cpsched_bridge.cycle.intent_sender import (
    TRANSIENT_STATES,
    CycleCommandBudget,
    IntentSelection,
    LedgerCommandSender,
    make_start_orders,
)
from cpsched_bridge.cycle.leader_election import LeaderElection
from cpsched_bridge.cycle.observation_reader import ObservationReader
from cpsched_bridge.cycle.reconcile import ReconcileOptions, reconcile
from cpsched_bridge.cycle.release_jobs import reopen_queues
from cpsched_bridge.cycle.start_outcomes import ObservedStartOutcomes, StartOutcomeTracker
from cpsched_bridge.cycle_report import BridgeRole, Decided
from cpsched_bridge.ports import Backend, Observation
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.ledger import Ledger, LedgerTransition, ManagedJobEntry

PRUNE_EVERY_CYCLES = 1000
"""Number of cycles between clean-ups of the ledger."""
OUTDATED_OBSERVATION = "the lease has expired, so another bridge may have taken over; no commands are sent"


@dataclass(slots=True)
class CycleCommandSender:
    """A sender of the commands that follow from an observation, except in shadow mode."""

    backend: Backend
    ledger: Ledger
    leader_election: LeaderElection
    settings: Settings
    timing: CycleTiming
    _starts: StartOutcomeTracker = field(default_factory=StartOutcomeTracker, init=False)
    _commands: LedgerCommandSender = field(init=False)
    _observed_s: float = field(default=0.0, init=False)
    """Monotonic time of the last observation."""
    _next_pin_check_s: float = field(default=float("-inf"), init=False)
    """Monotonic time of the next search for pins left by an earlier run."""

    def __post_init__(self) -> None:
        max_failures = self.settings.start.max_failures
        self._commands = LedgerCommandSender(self.backend, self.ledger, max_failures, self.get_observation_age_s)

    def _make_reconcile_options(self, role: BridgeRole) -> ReconcileOptions:
        """Return the options for reconciling the ledger in this cycle."""
        start = self.settings.start
        return ReconcileOptions(
            controlling=role.mode == "control",
            adopt=start.adopt,
            start_timeout_s=start.timeout_s,
            max_failures=start.max_failures,
            other_in_control=role.other_leader is not None,
            releases_apart=not self.backend.starts_in_one_change,
            after_dead_man=self.timing.may_dead_man_have_released_jobs,
        )

    def reconcile(self, seen: Observation, role: BridgeRole, recorder: CycleRecorder) -> ObservedStartOutcomes:
        """Update the ledger to match a new observation. Return the outcomes of starts."""
        self._observed_s = self._now_s
        transitions = reconcile(
            self.ledger.by_id, self.ledger.list_open_job_ids(), seen, self._make_reconcile_options(role)
        )
        self.record_transitions(transitions, recorder)
        if recorder.number % PRUNE_EVERY_CYCLES == 0:
            self.ledger.prune(seen.now_s - int(self.settings.journal.keep_jobs_days * 86400))
        return self._starts.classify_outcomes(transitions, seen)

    @property
    def overdue_job_count(self) -> int:
        """Number of jobs for which repeated commands have had no effect for too long."""
        return len(self._commands.retries.overdue)

    def record_transitions(self, transitions: Sequence[LedgerTransition], recorder: CycleRecorder) -> None:
        """Write transitions to the ledger and report them."""
        self.ledger.record(transitions, recorder.number)
        self._starts.report_transitions(transitions, self._now_s, recorder)

    def remove_orphaned_pins(self, reader: ObservationReader, role: BridgeRole, recorder: CycleRecorder) -> None:
        """Remove pins left by an earlier run, once per interval during start-up.

        A start-up may take a minute. Meanwhile, the cluster would cancel a pinned pending job if its node were removed
        from the configuration. The first cycle does all other work.
        """
        now_s = self._now_s
        if now_s < self._next_pin_check_s or not self.ledger.list_pinned_job_ids():
            return
        self._next_pin_check_s = now_s + self.settings.cycle.interval_s
        seen = reader.read_first()
        if self.leader_election.find_other_leader(seen.lease, now_s) is None:
            found = reconcile(
                self.ledger.by_id, self.ledger.list_open_job_ids(), seen, self._make_reconcile_options(role)
            )
            undone = [each for each in found if each.entry.pinned and each.entry.state in TRANSIENT_STATES]
            self.ledger.record(undone, recorder.number)
            allowance = CycleCommandBudget(self.settings.cycle.max_commands)
            self._commands.send_intents(seen, allowance, recorder, IntentSelection.PINNED_JOBS)

    def remove_pins_of_failed_starts(
        self, seen: Observation, role: BridgeRole, recorder: CycleRecorder
    ) -> Mapping[int, ManagedJobEntry]:
        """Remove pins from jobs whose start failed or that were requeued or held after it.

        Pins are removed before the decision, which may take a long time, because a pinned pending job is lost if its
        node leaves the cluster. Return the ledger's entries from before the removal. The bridge therefore schedules a
        job again only after an observation shows it without a pin.
        """
        entries = self.ledger.by_id
        unsettled = [*self.ledger.list_entries(*TRANSIENT_STATES), *self.ledger.list_orphaned_pins()]
        if role.mode != "shadow" and any(entry.pinned for entry in unsettled):
            entries = dict(entries)
            with recorder.measure("apply"):
                allowance = CycleCommandBudget(self.settings.cycle.max_commands // 2)
                self._send_intents(seen, allowance, recorder, IntentSelection.PINNED_JOBS)
        return entries

    def apply(
        self,
        observed: Observed,
        decided: Decided,
        preemptors: Sequence[tuple[Job, Placement]],
        recorder: CycleRecorder,
    ) -> None:
        """Send the ledger's intents and then the starts, within the budget of one cycle.

        `preemptors` are started before the decision's jobs, on the nodes that their victims have left.

        Jobs left to the cluster since this observation are released after the starts. If the starts fail, the next
        cycle releases these jobs before its own starts.
        """
        seen, role = observed.observation, observed.role
        if role.mode == "shadow":
            return
        self._open_queues_without_leader(role, recorder)
        most = self.settings.cycle.max_commands
        starts = decided.starts if role.mode == "control" else {}
        kept_for_starts = min(len(starts) + len(preemptors), most // 2)
        allowance = CycleCommandBudget(most - len(recorder.outcomes) - kept_for_starts)
        starts_follow = bool(starts or preemptors)
        selection = IntentSelection.BEFORE_STARTS if starts_follow else IntentSelection.ALL
        if not self._send_intents(seen, allowance, recorder, selection) or not starts_follow:
            return
        if self._is_outdated(recorder):  # the commands may have taken long
            return
        allowance.left += kept_for_starts
        jobs = {job.id: job for job in decided.waiting}
        wanted = [*preemptors, *((jobs[id], placement) for id, placement in starts.items())]
        chosen = allowance.take(wanted, lambda start: start[0].user)
        self._starts.record_decided_starts((job.id for job, _ in chosen), self._now_s)
        self._starts.refused = self._commands.start(make_start_orders(chosen, seen), seen, recorder)
        if not self.leader_election.is_lease_expired(self._now_s):
            self._commands.send_intents(seen, allowance, recorder)

    def _open_queues_without_leader(self, role: BridgeRole, recorder: CycleRecorder) -> None:
        """Open all queues to the cluster's own scheduler while no bridge is in control."""
        if role.mode != "control" and role.other_leader is None:
            for problem in reopen_queues(self.backend):
                recorder.add_event("still_held", problem)

    def _send_intents(
        self, seen: Observation, allowance: CycleCommandBudget, recorder: CycleRecorder, selection: IntentSelection
    ) -> bool:
        """Send the ledger's intents, or return False if the observation is too old."""
        if self._is_outdated(recorder):
            return False
        self._commands.send_intents(seen, allowance, recorder, selection)
        return True

    def _is_outdated(self, recorder: CycleRecorder) -> bool:
        """Return whether another bridge may have taken over since the observation, and report it."""
        is_outdated = self.leader_election.is_lease_expired(self._now_s)
        if is_outdated:
            recorder.record_failure("outdated", OUTDATED_OBSERVATION)
        return is_outdated

    def get_observation_age_s(self) -> int:
        """Return how many whole seconds ago the cluster was last read."""
        return int(self._now_s - self._observed_s)

    @property
    def _now_s(self) -> float:
        return self.timing.pace.monotonic_s()
