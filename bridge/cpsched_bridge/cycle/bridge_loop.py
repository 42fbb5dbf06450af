"""Run the main loop: observe, learn, reconcile, decide, apply, record, and notify.

The loop uses ports, never adapters. Each cycle makes one observation and produces one `CycleReport`. If the cluster,
the disk, the policy or the bridge itself fails, the cycle fails and the loop continues. Only `SystemExit` and
`KeyboardInterrupt` end the loop, which also releases the held jobs.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from cpsched.jit.compile_progress import CompilationCancelled
from cpsched.model import Job, Placement
from cpsched.policy import Policy
from cpsched_bridge.cycle.backoff import BackoffQueue
from cpsched_bridge.cycle.booster import PriorityBooster, remove_all_boosts
from cpsched_bridge.cycle.bridge_memory import BridgeMemory
from cpsched_bridge.cycle.circuit_breaker import CircuitBreaker
from cpsched_bridge.cycle.cycle_command_sender import CycleCommandSender
from cpsched_bridge.cycle.cycle_failures import describe_failure, fail_cycle_on_error
from cpsched_bridge.cycle.cycle_reporting import CycleReporter, Listener
from cpsched_bridge.cycle.cycle_timing import CycleTiming
from cpsched_bridge.cycle.decision_deadline import can_enforce_deadline
from cpsched_bridge.cycle.leader_election import LeaderElection
from cpsched_bridge.cycle.mode_and_readiness import CurrentBridgeMode, PeriodicReadinessChecks
from cpsched_bridge.cycle.observation_reader import ObservationReader
from cpsched_bridge.cycle.policy_fallback import PolicyWithFallback
from cpsched_bridge.cycle.preemption_executor import PreemptionExecutor
from cpsched_bridge.cycle.real_clock import record_phase_duration
from cpsched_bridge.cycle.release_jobs import are_only_disk_problems, release_all_jobs
from cpsched_bridge.cycle.startup import BridgeStartupSteps
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.effective_config import EffectiveConfig
from cpsched_bridge.errors import BackendError, PolicyFailure
from cpsched_bridge.ports import Backend, LoopClock, Observation
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.bridge_identity import make_lease
from cpsched_bridge.store.heartbeat import Heartbeat, read_heartbeat_file_age_s
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import MANAGED_STATES, Ledger, LedgerState, ManagedJobEntry
from cpsched_bridge.store.lock_and_request_files import PauseFile
from cpsched_bridge.store.state_paths import forget_file, memory_file, take_leadership_file
from cpsched_bridge.telemetry.sd_notify import SystemdNotifier

STOP_TIMEOUT_S = 120.0
"""Time limit in seconds for each part of a stop, equal to the systemd unit's `TimeoutStopSec`."""


@dataclass(frozen=True, slots=True, eq=False)
class BridgeComponents:
    """The components of a bridge. `listeners` receive each cycle's report."""

    backend: Backend
    policy: Policy
    config: EffectiveConfig
    """The effective configuration, including the specifications of `policy` and `fallback`, for the journal."""
    ledger: Ledger
    journal: Journal
    pause: PauseFile
    pace: LoopClock
    settings: Settings
    listeners: Sequence[Listener] = ()
    fallback: Policy | None = None
    """The policy that decides if `policy` hangs or fails."""
    systemd: SystemdNotifier = field(default_factory=SystemdNotifier)
    startup: BridgeStartupSteps = field(default_factory=BridgeStartupSteps)
    """Steps to finish before the first decision."""


class Bridge:
    """A bridge process. `run` calls `cycle` until the clock stops, then calls `stop`."""

    def __init__(self, parts: BridgeComponents) -> None:
        backend, ledger, pace, settings = parts.backend, parts.ledger, parts.pace, parts.settings
        asked = take_leadership_file(settings).consume_request
        election = LeaderElection(backend, make_lease(settings.state_dir), settings.lease.duration_s, asked)
        breaker, heartbeat = CircuitBreaker(settings.circuit_breaker.failing_users), Heartbeat(settings.heartbeat_path)
        self.parts = parts
        self.timing = CycleTiming(settings.cycle, pace, parts.systemd, _read_heartbeat_age_s(settings))
        self.mode = CurrentBridgeMode(
            settings.mode, parts.pause, election, breaker, parts.systemd, self._no_hold_reason
        )
        self._reader = ObservationReader(backend, ledger)
        self._policies = PolicyWithFallback.from_policies(parts.policy, parts.fallback, pace, settings)
        self._backoff = BackoffQueue()
        files = forget_file(settings), memory_file(settings)
        self._memory = BridgeMemory(ledger, self._backoff, breaker, *files)
        self._sender = CycleCommandSender(backend, ledger, election, settings, self.timing)
        self._adviser = PriorityBooster.from_settings(backend, settings)
        self._chooser = PreemptionExecutor.from_settings(backend, settings)
        self._checking = PeriodicReadinessChecks(
            backend, settings.cycle.checks_every_s, pace.monotonic_s(), settings.mode
        )
        self._reporter = CycleReporter(parts.journal, ledger, heartbeat, pace, parts.config, parts.listeners)

    def run(self) -> list[str]:
        """Start up, and run cycles until the clock stops. Return the problems of `stop`.

        Raise `InvalidSetting` if the first observation shows that a setting does not match the cluster.

        If the start-up takes longer than held jobs may wait, it continues during the cycles, which make no decisions
        until it ends.
        """
        log = structlog.get_logger("bridge")
        if not can_enforce_deadline():
            log.warning("no_decision_deadline", detail="cycle.decide_timeout_s has no effect outside the main thread")
        self._reporter.add_startup_events()
        try:
            going_on = self.parts.startup.wait(self.parts.pace, self._run_startup_tasks)
            if going_on:
                self.parts.systemd.notify("READY=1", f"STATUS={self.parts.settings.mode}")
            while going_on:
                self.cycle()
                going_on = self.timing.wait()
        except CompilationCancelled:
            return self.stop()
        except BaseException:
            for problem in self.stop():
                log.error("still_held", detail=problem)
            raise
        return self.stop()

    def cycle(self) -> CycleReport:
        """Run one cycle and return its report, which includes failures.

        Only an `InvalidSetting` from the first observation is raised.
        """
        # 1. Begin: remaining start-up, mode, time.
        waits_for = self.parts.startup.poll_pending_step() or ""
        if waits_for:
            self.parts.startup.record_decision_wait(waits_for, self._now_s)
        report = self._reporter.new_report(self.mode.choose_mode(), waits_for)
        self.timing.begin(report)
        # 2. Read, reconcile, decide, apply.
        with fail_cycle_on_error(report):
            self._run_steps(report)
            self._checking.run_if_due(self._now_s, report)
        # 3. Pause after too many failures.
        with fail_cycle_on_error(report, OSError):
            self.mode.pause_if_breaker_tripped(report, self._now_s)
        # 4. Record the round and its events.
        self.timing.update_interval_by_load(report)
        report.overdue = self._sender.overdue_job_count
        self._reporter.record_cycle(report)
        # 5. Notify the start-up's listeners, the log and the cycle's listeners.
        with fail_cycle_on_error(report):
            self.parts.startup.report_step(report.waits_for)
        self._reporter.notify_listeners(report)
        self.timing.end(report)
        return report

    def _run_steps(self, report: CycleReport) -> None:
        pace = self.parts.pace
        # 1. Read the cluster, and determine which bridge is in control.
        if self._chooser is not None:
            self._chooser.set_backend_preemption_options()
        try:
            seen, past = self._reader.read_for_cycle(
                report, self.mode, pace, self.parts.settings.policy.power.to_power_cap()
            )
            report.mode = self.mode.choose_mode()
        finally:
            self.mode.report_mode_change(report)
        # 2. Learn from ended jobs, and record started jobs.
        self._policies.learner.record_reading(seen, past, report)
        if self._adviser is not None:
            self._adviser.report_early_starts(report)
        if self._chooser is not None:
            seen = self._chooser.close_and_select_preemptions(seen, self.parts.ledger.by_id, report)
        # 3. Forget what operators ask to forget, reconcile the ledger with the observation, and back off jobs whose
        # starts fail.
        with record_phase_duration(report, "reconcile", pace):
            self._memory.apply_forget_requests(seen, report)
            self._reconcile(seen, report)
            self._memory.write(seen, report, self._now_s)
            report.observation, report.backoff = seen, self._backoff.select_jobs(seen, self.parts.ledger.by_id)
        # 4. Remove the pins of failed starts.
        entries = self._sender.remove_pins_of_failed_starts(seen, report)
        # 5. Decide, and verify the decision.
        if not report.waits_for:
            self._decide(seen, entries, report)
        # 6. Apply: preemptions, holds and releases, starts, boosts.
        with record_phase_duration(report, "apply", pace):
            self._sender.apply(seen, report, self._stop_victims_and_list_starts(seen, report))
            if self._adviser is not None:
                self._adviser.apply(
                    report, self.mode.leader_election.is_lease_observation_stale(self._now_s), self._now_s
                )

    def _stop_victims_and_list_starts(self, seen: Observation, report: CycleReport) -> list[tuple[Job, Placement]]:
        """Stop the chosen victims, and return the starts for which victims made room.

        A failure must not affect the cycle's other commands.
        """
        if self._chooser is None or self.mode.leader_election.is_lease_observation_stale(self._now_s):
            return []
        self._chooser.keep_offers_of_held_jobs(self.parts.ledger.by_id, self._backoff.is_backed_off)
        try:
            self._chooser.stop_victims(seen, seen.now_s + self._sender.get_observation_age_s(), report)
        except (BackendError, sqlite3.Error) as error:
            report.add_event("preemption_failed", describe_failure(error))
        return self._chooser.list_preemptor_starts()

    def _reconcile(self, seen: Observation, report: CycleReport) -> None:
        """Update the ledger, and back off jobs. In shadow mode, do nothing."""
        if report.mode == "shadow":
            return
        starts = self._sender.reconcile(seen, report)
        self.mode.breaker.record_reading(seen, starts, self._now_s)
        report.bridge_events += self._backoff.record_start_outcomes(seen, starts)
        if report.mode == "control":
            max_failures = self.parts.settings.start.max_failures
            self._sender.record_transitions(
                self._backoff.find_jobs_to_unmanage(seen, self.parts.ledger.by_id, max_failures), report
            )

    def _decide(self, seen: Observation, entries: Mapping[int, ManagedJobEntry], report: CycleReport) -> None:
        """Train the policy and request a decision. Failures do not affect held jobs."""
        try:
            self._policies.decide(seen, entries, report)
        except PolicyFailure as failure:
            self.mode.breaker.record_decision(False)
            report.record_failure(failure.kind, str(failure))
        else:
            if report.decision is not None:
                self.mode.breaker.record_decision(True)
                if self._adviser is not None:
                    self._adviser.remember_plan(report)
        self.parts.startup.record_decision_wait(report.waits_for, self._now_s)

    def stop(self) -> list[str]:
        """Release the held jobs unless `on_stop` is `keep`. Return one line per problem."""
        backend, ledger, settings, election = (
            self.parts.backend,
            self.parts.ledger,
            self.parts.settings,
            self.mode.leader_election,
        )
        self._notify_systemd_stopping()
        problems, released = [], -ledger.count_jobs_by_state()[LedgerState.FREE]
        if settings.mode != "shadow" and settings.on_stop != "keep":
            with contextlib.suppress(CompilationCancelled):  # raised by a simulated cluster in this process
                problems = release_all_jobs(
                    backend,
                    ledger,
                    "the bridge stops",
                    self._is_other_bridge_in_control,
                    on_keep_alive=self._notify_systemd_stopping,
                )
            unwritten = are_only_disk_problems(problems)
            if self._adviser is not None:
                problems += remove_all_boosts(self._adviser.backend, self._adviser.book)
            with contextlib.suppress(BackendError):  # the lease expires later
                (election.write_jobs_released_notice if unwritten else election.release_lease)()
        if self._adviser is not None:
            self._adviser.book.close()
        if self._chooser is not None:
            self._chooser.close(drop=settings.on_stop != "keep")
        counts = ledger.count_jobs_by_state()
        released, held = (
            released + counts[LedgerState.FREE],
            sum(counts[state] for state in MANAGED_STATES - {LedgerState.STARTING}),
        )
        self._reporter.record_stop(problems, released, held, settings.mode)
        return problems

    def _notify_systemd_stopping(self) -> None:
        """Notify systemd that the bridge stops within `STOP_TIMEOUT_S` more seconds."""
        self.parts.systemd.notify("STOPPING=1", "WATCHDOG=1", f"EXTEND_TIMEOUT_USEC={int(1e6 * STOP_TIMEOUT_S)}")

    def _is_other_bridge_in_control(self, seen: Observation) -> bool:
        """Return whether another bridge is in control, according to a new observation."""
        return self.mode.leader_election.find_other_leader(seen.lease, self._now_s) is not None

    def _run_startup_tasks(self) -> None:
        """Update the heartbeat, and remove old pins. The first cycle reports the events."""
        with contextlib.suppress(OSError):
            self._reporter.heartbeat.beat(self._now_s)
        if self.parts.settings.mode == "shadow":
            return
        report = CycleReport(self._reporter.number, self.mode.choose_mode(), self.parts.pace.unix_s())
        try:
            self._sender.remove_orphaned_pins(self._reader, report)
        except (BackendError, sqlite3.Error) as error:
            structlog.get_logger("bridge").warning("old_pins", detail=f"not removed yet: {describe_failure(error)}")
        self._reporter.late += report.bridge_events

    def _no_hold_reason(self) -> str | None:
        """Return why the unpaused bridge must not hold or boost jobs, or None."""
        return self._reporter.heartbeat.missing_beat_reason(self._now_s) or self.parts.startup.overdue_decision_reason(
            self._now_s
        )

    @property
    def _now_s(self) -> float:
        return self.parts.pace.monotonic_s()


def _read_heartbeat_age_s(settings: Settings) -> float | None:
    """Return the last heartbeat's age in seconds, or None if it cannot be read."""
    try:
        return read_heartbeat_file_age_s(settings.heartbeat_path)
    except OSError:
        return None
