"""Run the main loop: observe, learn, reconcile, decide, apply, record, and notify.

The loop uses ports, never adapters. Each cycle makes one observation and produces one `CycleReport`. Its steps return
values (`cluster_state.py`) and add events to one `CycleRecorder`. If the cluster, the disk, the policy or the bridge
itself fails, the cycle fails and the loop continues. Only `SystemExit` and `KeyboardInterrupt` end the loop, which also
releases the held jobs.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import structlog

from cpsched.jit.compile_progress import CompilationCancelled
from cpsched.model import Job, Placement
from cpsched.policy import Policy
from cpsched_bridge.cycle.backoff import BackoffQueue
from cpsched_bridge.cycle.booster import PriorityBooster, remove_all_boosts
from cpsched_bridge.cycle.bridge_memory import BridgeMemory
from cpsched_bridge.cycle.circuit_breaker import CircuitBreaker
from cpsched_bridge.cycle.cluster_state import ClusterReading, Observed, SelectedPreemptions, explain_unscheduled_jobs
from cpsched_bridge.cycle.cycle_command_sender import OUTDATED_OBSERVATION, CycleCommandSender
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder, describe_failure
from cpsched_bridge.cycle.cycle_reporting import CycleReporter, Listener
from cpsched_bridge.cycle.cycle_timing import CycleTiming
from cpsched_bridge.cycle.leader_election import LeaderElection, PeerLink
from cpsched_bridge.cycle.loop_clock import LoopClock
from cpsched_bridge.cycle.mode_and_readiness import CurrentBridgeMode, PeriodicReadinessChecks
from cpsched_bridge.cycle.observation_reader import ObservationReader, TypicalJobs
from cpsched_bridge.cycle.policy_fallback import PolicyWithFallback
from cpsched_bridge.cycle.preemption_executor import PreemptionExecutor
from cpsched_bridge.cycle.release_jobs import are_only_disk_problems, release_all_jobs
from cpsched_bridge.cycle.startup import BridgeStartupSteps
from cpsched_bridge.cycle.verified_decision import DecisionFailure, can_enforce_deadline
from cpsched_bridge.cycle_report import NO_BACKOFF, BridgeRole, CycleReport, Decided, JobChanges, PriorityBoostReport
from cpsched_bridge.effective_config import EffectiveConfig
from cpsched_bridge.errors import BackendError
from cpsched_bridge.ports import Backend, Observation
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.bridge_identity import make_lease
from cpsched_bridge.store.heartbeat import Heartbeat, read_heartbeat_file_age_s
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import MANAGED_STATES, Ledger, LedgerState
from cpsched_bridge.store.lock_and_request_files import (
    ForgetFile,
    LeadershipFile,
    MemoryFile,
    PauseFile,
    TakeLeadershipFile,
)
from cpsched_bridge.telemetry.loop_health import SystemdNotifier

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
    link: PeerLink = field(default_factory=PeerLink)
    """The link to the other bridge of the cluster."""


class Bridge:
    """A bridge process. `run` calls `cycle` until the clock stops, then calls `stop`."""

    def __init__(self, parts: BridgeComponents) -> None:
        backend, ledger, pace, settings = parts.backend, parts.ledger, parts.pace, parts.settings
        asked = TakeLeadershipFile(settings.state_dir).consume_request
        self._leadership = LeadershipFile(settings.state_dir)
        last_status = self._leadership.read()
        last_epoch = 0 if last_status is None else last_status.epoch
        lease = make_lease(settings.state_dir, pace.unix_s(), last_epoch)
        election = LeaderElection(backend, lease, settings.lease.duration_s, asked, parts.link, pace.unix_s)
        breaker, heartbeat = CircuitBreaker(settings.circuit_breaker.failing_users), Heartbeat(settings.heartbeat_path)
        self.parts = parts
        self.timing = CycleTiming(settings.cycle, pace, parts.systemd, _read_heartbeat_age_s(settings))
        self.mode = CurrentBridgeMode(
            settings.mode, parts.pause, election, breaker, parts.systemd, self._no_hold_reason
        )
        self._reader = ObservationReader(backend, ledger, settings.policy.power.to_power_cap())
        self._policies = PolicyWithFallback.from_policies(parts.policy, parts.fallback, pace, settings)
        self._typical = TypicalJobs(settings.policy.least_stranded_gpus)
        self._backoff = BackoffQueue()
        files = ForgetFile(settings.state_dir), MemoryFile(settings.state_dir)
        self._memory = BridgeMemory(ledger, self._backoff, breaker, *files)
        self._sender = CycleCommandSender(backend, ledger, election, settings, self.timing)
        self._booster = PriorityBooster.from_settings(backend, settings, ledger.file)
        self._preemptions = PreemptionExecutor.from_settings(backend, settings, ledger.file, parts.journal)
        self._checking = PeriodicReadinessChecks(
            backend, settings.cycle.checks_every_s, pace.monotonic_s(), settings.mode
        )
        listeners = (self._report_startup_step, *parts.listeners)
        self._reporter = CycleReporter(parts.journal, ledger, heartbeat, pace, parts.config, listeners)

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

        Only an `InvalidSetting` from the first observation is raised. If a step fails, the report contains what the
        steps before it returned.
        """
        # Begin: continue the start-up, number the cycle, and report a late start.
        waits_for = self.parts.startup.poll_pending_step() or ""
        if waits_for:
            self.parts.startup.record_decision_wait(waits_for, self._now_s)
        recorder = self._reporter.begin_cycle()
        role = BridgeRole(self.mode.choose_mode())
        self.timing.begin(recorder)
        observation, changes, backoff = None, JobChanges(), NO_BACKOFF
        decided, boosts, checks = Decided(waits_for=waits_for), None, None

        with recorder.fail_on_error():
            # 1. Read the cluster, renew the lease, and determine the mode.
            if self._preemptions is not None:
                self._preemptions.set_backend_preemption_options()
            try:
                with recorder.measure("observe"):
                    reading = self._reader.read(recorder)
                    observation = reading.observation
                    role = self._renew_lease(observation, role, recorder)
            finally:
                role = replace(role, paused=self.mode.report_mode_change(role.mode, recorder))
            # 2. Learn which jobs ended and started, select preemptions, and add the typical requests. The observation
            #    is then complete.
            changes = self._policies.learner.record_reading(reading)
            if self._booster is not None:
                self._booster.report_early_starts(role.mode, changes.started, recorder)
            observation = reading.to_observation(self._select_preemptions(reading, role, recorder))
            observation = self._typical.add_to_observation(observation, (*changes.past, *changes.ended))
            # 3. Forget what operators ask to forget, reconcile the ledger with the observation, and back off jobs whose
            #    starts fail.
            with recorder.measure("reconcile"):
                self._memory.apply_forget_requests(observation, recorder)
                self._reconcile(observation, role, recorder)
                self._memory.write(observation, recorder, self._now_s)
                backoff = self._backoff.select_jobs(observation, self.parts.ledger.by_id)
            # 4. Remove the pins of failed starts.
            entries = self._sender.remove_pins_of_failed_starts(observation, role, recorder)
            # 5. Decide, and verify the decision.
            observed = Observed(observation, role, backoff, entries)
            if not waits_for:
                decided = self._decide(observed, recorder)
            # 6. Apply: preemptions, holds and releases, starts, boosts. Then check control mode's requirements.
            with recorder.measure("apply"):
                starts = self._stop_victims_and_list_starts(observation, recorder)
                self._sender.apply(observed, decided, starts, recorder)
                boosts = self._apply_boosts(observed, decided, recorder)
            checks = self._checking.run_if_due(self._now_s, recorder)

        # 7. Pause after too many failures, and adapt the interval to the cluster's load.
        with recorder.fail_on_error(OSError):
            self.mode.pause_if_breaker_tripped(role.mode, self._now_s, recorder)
        if observation is not None:
            self.timing.update_interval_by_load(observation.busy, recorder)
        # 8. Record the round and its events.
        counts = self.parts.ledger.count_jobs_by_state()
        report = CycleReport(
            number=recorder.number,
            role=role,
            at_unix_s=recorder.at_unix_s,
            result=recorder.result,
            seconds=dict(recorder.seconds),
            outcomes=list(recorder.outcomes),
            bridge_events=list(recorder.bridge_events),
            latencies_s=list(recorder.latencies_s),
            observation=observation,
            changes=changes,
            backoff=backoff,
            decided=decided,
            unscheduled=explain_unscheduled_jobs(observation, decided, self.parts.ledger.by_id, backoff),
            boosts=boosts,
            checks=checks,
            failing_users=len(self.mode.breaker.list_failing_users(self._now_s)),
            starting=counts[LedgerState.STARTING],
            held=sum(counts[state] for state in MANAGED_STATES),
            overdue=self._sender.overdue_job_count,
            gap_s=self.timing.gap_s,
            pause_s=self.timing.cycle_interval_s,
            slowed=self.timing.is_slowed,
        )
        report = self._reporter.record_cycle(report, recorder)
        # 9. Report the cycle to the log and the listeners.
        report = self._reporter.notify_listeners(report)
        self.timing.end(report.result)
        return report

    def _renew_lease(self, observation: Observation, role: BridgeRole, recorder: CycleRecorder) -> BridgeRole:
        """Acquire or renew the lease, and return the role that follows from it."""
        election = self.mode.leader_election
        if role.mode != "shadow":
            self._reader.apply_jobs_released_notice(observation, election, recorder)
        wanted = self.mode.wants_leadership
        other_leader = election.observe_and_renew_lease(observation.lease, wanted, self._now_s, recorder)
        self._leadership.write(election.describe(self._now_s, self.parts.pace.unix_s()))
        mode = self.mode.choose_mode()
        if mode != "shadow" and not wanted:  # a pause that has ended since has released the lease
            mode = "paused"
        return BridgeRole(mode, other_leader)

    def _select_preemptions(
        self, reading: ClusterReading, role: BridgeRole, recorder: CycleRecorder
    ) -> SelectedPreemptions:
        if self._preemptions is None:
            return SelectedPreemptions()
        return self._preemptions.close_and_select_preemptions(reading, role, self.parts.ledger.by_id, recorder)

    def _reconcile(self, observation: Observation, role: BridgeRole, recorder: CycleRecorder) -> None:
        """Update the ledger, and back off jobs. In shadow mode, do nothing."""
        if role.mode == "shadow":
            return
        starts = self._sender.reconcile(observation, role, recorder)
        self.mode.breaker.record_reading(observation, starts, self._now_s)
        recorder.bridge_events += self._backoff.record_start_outcomes(observation, starts)
        if role.mode == "control":
            max_failures = self.parts.settings.start.max_failures
            self._sender.record_transitions(
                self._backoff.find_jobs_to_unmanage(observation, self.parts.ledger.by_id, max_failures), recorder
            )

    def _decide(self, observed: Observed, recorder: CycleRecorder) -> Decided:
        """Train the policy and request a decision. Failures do not affect held jobs."""
        try:
            decided = self._policies.decide(observed, recorder)
        except DecisionFailure as failure:
            self.mode.breaker.record_decision(False)
            recorder.record_failure(failure.kind, str(failure))
            decided = failure.attempt
        else:
            if decided.decision is not None:
                self.mode.breaker.record_decision(True)
            if self._booster is not None:
                self._booster.remember_plan(observed.role.mode, decided)
        self.parts.startup.record_decision_wait(decided.waits_for, self._now_s)
        return decided

    def _stop_victims_and_list_starts(
        self, observation: Observation, recorder: CycleRecorder
    ) -> list[tuple[Job, Placement]]:
        """Stop the chosen victims, and return the starts for which victims made room.

        A failure must not affect the cycle's other commands.
        """
        if self._preemptions is None or self._is_observation_outdated():
            return []
        self._preemptions.keep_offers_of_held_jobs(self.parts.ledger.by_id, self._backoff.is_backed_off)
        now_s = observation.now_s + self._sender.get_observation_age_s()
        try:
            self._preemptions.stop_victims(observation, now_s, recorder)
        except (BackendError, sqlite3.Error) as error:
            recorder.add_event("preemption_failed", describe_failure(error))
        return self._preemptions.list_preemptor_starts()

    def _apply_boosts(
        self, observed: Observed, decided: Decided, recorder: CycleRecorder
    ) -> PriorityBoostReport | None:
        if self._booster is None:
            return None
        if observed.role.mode == "advise" and self._is_observation_outdated():
            recorder.record_failure("outdated", OUTDATED_OBSERVATION)
            return None
        return self._booster.apply(observed, decided, self._now_s, recorder)

    def _is_observation_outdated(self) -> bool:
        """Return whether another bridge may have taken over."""
        return self.mode.leader_election.is_lease_expired(self._now_s)

    def stop(self) -> list[str]:
        """Release the held jobs unless `on_stop` is `keep`. Return one line per problem."""
        backend, ledger, settings = self.parts.backend, self.parts.ledger, self.parts.settings
        election = self.mode.leader_election
        self._notify_systemd_stopping()
        released_before = ledger.count_jobs_by_state()[LedgerState.FREE]
        problems = list[str]()
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
            if self._booster is not None:
                problems += remove_all_boosts(self._booster.backend, self._booster.book)
            if unwritten or not problems:  # otherwise, the lease expires later
                with contextlib.suppress(BackendError):
                    election.release_lease(have_jobs_been_released=unwritten)
        if self._preemptions is not None and settings.on_stop != "keep":
            self._preemptions.drop_open_preemptions()
        counts = ledger.count_jobs_by_state()
        released = counts[LedgerState.FREE] - released_before
        held = sum(counts[state] for state in MANAGED_STATES - {LedgerState.STARTING})
        self._reporter.record_stop(problems, released, held, settings.mode)
        return problems

    def keep_link(self, now_s: float) -> None:
        """Exchange messages with the other bridge, in another thread, once a second. `now_s` is monotonic."""
        self.mode.leader_election.keep_link(now_s)

    def _notify_systemd_stopping(self) -> None:
        """Notify systemd that the bridge stops within `STOP_TIMEOUT_S` more seconds."""
        self.parts.systemd.notify("STOPPING=1", "WATCHDOG=1", f"EXTEND_TIMEOUT_USEC={int(1e6 * STOP_TIMEOUT_S)}")

    def _is_other_bridge_in_control(self, seen: Observation) -> bool:
        """Return whether another bridge is in control, or takes over at once, according to a new observation."""
        election = self.mode.leader_election
        return election.find_other_leader(seen.lease, self._now_s) is not None or election.has_standby(self._now_s)

    def _run_startup_tasks(self) -> None:
        """Update the heartbeat, and remove old pins. The first cycle reports the events."""
        with contextlib.suppress(OSError):
            self._reporter.heartbeat.beat(self._now_s)
        if self.parts.settings.mode == "shadow":
            return
        recorder = CycleRecorder(self._reporter.number, self.parts.pace)
        try:
            self._sender.remove_orphaned_pins(self._reader, BridgeRole(self.mode.choose_mode()), recorder)
        except (BackendError, sqlite3.Error) as error:
            structlog.get_logger("bridge").warning("old_pins", detail=f"not removed yet: {describe_failure(error)}")
        self._reporter.late += recorder.bridge_events

    def _report_startup_step(self, report: CycleReport) -> None:
        self.parts.startup.report_step(report.decided.waits_for)

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
