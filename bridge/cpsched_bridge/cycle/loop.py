"""The loop beside a cluster: observe, reconcile, decide, verify, apply, journal, and tell whoever listens.

The loop knows ports, never adapters. One cycle takes one reading and ends in one `CycleReport`, whatever happens.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import structlog

from cpsched.fit import verify
from cpsched.model import EndedJob
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.cycle.commands import Commands
from cpsched_bridge.cycle.guard import Allowance, FailureWatch
from cpsched_bridge.cycle.hand_back import give_all_back
from cpsched_bridge.cycle.reconcile import Rules, reconcile
from cpsched_bridge.cycle.snapshots import asides_of, scene_of
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_bridge.ports import Backend, Observation, Pace
from cpsched_bridge.report import OK, CycleReport, Mode, Phase
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.instance import PauseFile
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import KEPT, Ledger, State, Transition
from cpsched_bridge.store.replay import memory_of, replayable
from cpsched_bridge.watch.systemd import Systemd

Listener = Callable[[CycleReport], None]

_REST_S = 5.0
"""Longest wait without a sign of life to systemd."""

_RESULTS: tuple[tuple[type[BackendError], str], ...] = (
    (BackendTimeout, "backend_timeout"),
    (BackendUnavailable, "backend_unavailable"),
    (CommandRefused, "command_refused"),
)

_TOLD = {State.ROLLING_BACK: "start_failed", State.GONE: "job_gone"}
"""Transitions that are events, by the state they lead to."""

_FORGET_EVERY = 1000
"""Rounds between two clean-ups of the ledger."""


@dataclass(slots=True)
class Bridge:
    """Everything one bridge works with. `listeners` get each cycle's report."""

    backend: Backend
    policy: Policy
    policy_record: PolicySpec
    ledger: Ledger
    journal: Journal
    pause: PauseFile
    pace: Pace
    settings: Settings
    listeners: Sequence[Listener] = ()
    systemd: Systemd = field(default_factory=Systemd)
    _log: structlog.stdlib.BoundLogger = field(init=False)
    _watch: FailureWatch = field(init=False)
    _round: int = field(init=False)
    _failed_cycles: int = 0
    _mode: Mode | None = None
    _primed: bool = False
    _learned: dict[tuple[int, int], None] = field(default_factory=dict)
    _running: frozenset[int] | None = None
    _decided_at_s: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._log = structlog.get_logger("bridge")
        self._watch = FailureWatch(self.settings.guard)
        self._round = self.journal.last_round

    def run(self) -> list[str]:
        """Cycle until the pace ends; what kept held jobs from being given back at the end, a line each."""
        self.systemd.notify("READY=1", f"STATUS={self.settings.mode}")
        while True:
            began_s = self.pace.monotonic_s()
            self.cycle()
            if not self._rest(self._pause_s() - (self.pace.monotonic_s() - began_s)):
                return self._stop()

    def cycle(self) -> CycleReport:
        """One cycle. What the cluster or the disk does wrong is in the report; nothing is raised for it."""
        self._round += 1
        report = CycleReport(self._round, self._present_mode(), self.pace.unix_s())
        self._note_mode(report)
        try:
            self._work(report)
        except BackendError as error:
            report.result = next((name for kind, name in _RESULTS if isinstance(error, kind)), "backend_error")
            report.tell(report.result, str(error))
        except sqlite3.Error as error:
            report.result = "storage_error"
            report.tell(report.result, str(error))
        self._stand_down_if_needed(report)
        self._finish(report)
        return report

    def _work(self, report: CycleReport) -> None:
        with self._timed(report, "observe"):
            seen = report.observation = self._observe()
        self._learn(seen, report)
        with self._timed(report, "reconcile"):
            self._reconcile(seen, report)
        self._decide(seen, report)
        with self._timed(report, "apply"):
            self._apply(seen, report)

    def _observe(self) -> Observation:
        """A reading; the first one also tells which jobs of the ledger ended while no bridge was there to see it."""
        past: tuple[EndedJob, ...] = ()
        if not self._primed:
            past = tuple(self.backend.history())
        seen = self.backend.observe(self.ledger.pinned())
        if not self._primed:
            self._primed = True
            for ended in past:
                self._learn_once(ended)
            missed = tuple(ended for ended in past if ended.job.id in self.ledger.open_ids())
            seen = replace(seen, ended=(*missed, *seen.ended))
        return seen

    def _learn_once(self, ended: EndedJob) -> bool:
        """Teach the policy; False if it knew."""
        if (ended.job.id, ended.end_s) in self._learned:
            return False
        self._learned[ended.job.id, ended.end_s] = None
        self.policy.learn(ended)
        return True

    def _learn(self, seen: Observation, report: CycleReport) -> None:
        """Teach the policy each ended job once, and take note of jobs that are first seen running or ended."""
        report.ended = [ended for ended in seen.ended if self._learn_once(ended)]
        while len(self._learned) > 100_000:
            del self._learned[next(iter(self._learned))]
        before = self._running
        if before is not None:
            report.started = [(r.job, r.start_s) for r in seen.running if r.job.id not in before]
            report.started += [(e.job, e.start_s) for e in report.ended if e.job.id not in before]
        self._running = frozenset(r.job.id for r in seen.running)

    def _reconcile(self, seen: Observation, report: CycleReport) -> None:
        if report.mode == "shadow":
            return
        transitions = reconcile(self.ledger.by_id, self.ledger.open_ids(), seen, self._rules(report.mode))
        self.ledger.record(transitions, report.number)
        if report.number % _FORGET_EVERY == 0:
            self.ledger.forget(seen.now_s - int(self.settings.journal.keep_jobs_days * 86400))
        self._note_starts(transitions, report)
        for t in transitions:
            newly_left = t.entry.leave and t.entry.leave in t.entry.why
            if t.entry.state in _TOLD or newly_left:
                report.tell(_TOLD.get(t.entry.state, "left_to_cluster"), t.entry.why, t.entry.job_id)

    def _note_starts(self, transitions: Sequence[Transition], report: CycleReport) -> None:
        now_s = self.pace.monotonic_s()
        for t in transitions:
            if t.before is not State.STARTING:
                continue
            ran = t.entry.state in (State.RUNNING, State.ENDED)
            decided_at_s = self._decided_at_s.pop(t.entry.job_id, None)
            if ran and decided_at_s is not None:
                report.latencies_s.append(now_s - decided_at_s)
            if t.entry.state is not State.GONE:
                self._watch.started(now_s, [ran])
            if ran and t.entry.why != "started where decided" and t.entry.state is State.RUNNING:
                report.tell("started_elsewhere", t.entry.why, t.entry.job_id)

    def _decide(self, seen: Observation, report: CycleReport) -> None:
        """A decision and its verification; what a dispatcher does wrong must not take the held jobs along."""
        with self._timed(report, "decide"):
            try:
                scene = scene_of(seen, self.ledger.by_id, report.mode == "control")
                report.snapshot = self.policy.estimated(scene)
                decision = self.policy.decide(report.snapshot, "plan")
            except Exception as error:
                self._log.exception("decision failed", round=report.number)
                self._bad_decision(report, "decision_failed", f"{type(error).__name__}: {error}")
                return
        report.decision = decision
        report.waiting = list(report.snapshot.queued_jobs())
        with self._timed(report, "verify"):
            report.violations = verify(decision, report.snapshot)
        if report.violations:
            more = f"; and {len(report.violations) - 3} more" if len(report.violations) > 3 else ""
            self._bad_decision(report, "rule_broken", "; ".join(map(str, report.violations[:3])) + more)
            return
        self._watch.decided(True)
        report.starts = decision.starts_by_job(report.snapshot)

    def _bad_decision(self, report: CycleReport, kind: str, detail: str) -> None:
        self._watch.decided(False)
        report.result = kind
        report.tell(kind, detail)

    def _apply(self, seen: Observation, report: CycleReport) -> None:
        """Send what the ledger intends, then the starts, within one cycle's allowance; nothing in shadow mode."""
        if report.mode == "shadow":
            return
        commands = Commands(self.backend, self.ledger, self._rules(report.mode))
        allowance = Allowance(self.settings.cycle.max_commands)
        pending = frozenset([*(p.job.id for p in seen.pending), *(left.job_id for left in seen.left)])
        commands.send_intents(pending, allowance, seen.now_s, report)
        if report.mode == "control" and report.starts:
            jobs = {job.id: job for job in report.waiting}
            chosen = allowance.take([(jobs[id], placement) for id, placement in report.starts.items()])
            now_s = self.pace.monotonic_s()
            self._decided_at_s.update((job.id, now_s) for job, _ in chosen)
            commands.start(chosen, seen.cluster, seen.now_s, report)

    def _finish(self, report: CycleReport) -> None:
        """Write the round down, beat, and tell the listeners."""
        counts = self.ledger.counts()
        report.starting = counts[State.STARTING]
        report.kept = sum(counts[state] for state in KEPT)
        try:
            with self._timed(report, "journal"):
                self._write(report)
        except sqlite3.Error as error:
            report.result = "storage_error"
            report.tell(report.result, f"journal: {error}")
        self._failed_cycles = 0 if report.result == OK else self._failed_cycles + 1
        if report.result == OK:
            self.settings.heartbeat_path.touch()
        self._say(report)
        for listener in self.listeners:
            listener(report)

    def _write(self, report: CycleReport) -> None:
        if report.snapshot is not None and report.decision is not None and report.observation is not None:
            dispatcher = self.policy.dispatcher
            self.journal.write_round(
                report.number,
                report.snapshot,
                report.decision,
                self.policy_record,
                memory_of(dispatcher),
                replayable(dispatcher),
                report.mode,
                report.at_unix_s,
                report.outcomes,
                report.seconds,
            )
            waiting = frozenset(job.id for job in report.waiting)
            self.journal.write_asides(asides_of(report.observation, waiting, self.ledger.by_id))
        self.journal.write_events(report.at_unix_s, report.number, report.happenings)

    def _say(self, report: CycleReport) -> None:
        for happening in report.happenings:
            say = self._log.info if happening.kind == "mode" else self._log.warning
            say(happening.kind, round=report.number, job=happening.job_id, detail=happening.detail)
        if report.starts and report.mode == "control":
            self._log.info("starts", round=report.number, jobs=len(report.starts), waiting=len(report.waiting))

    def _present_mode(self) -> Mode:
        if self.settings.mode == "shadow":
            return "shadow"
        return "control" if self.pause.reason() is None else "paused"

    def _note_mode(self, report: CycleReport) -> None:
        if report.mode == self._mode:
            return
        if report.mode == "control":
            self._watch.reset()
        report.tell("mode", " ".join([report.mode, self.pause.reason() or ""]).strip())
        self.systemd.notify(f"STATUS={report.mode}")
        self._mode = report.mode

    def _stand_down_if_needed(self, report: CycleReport) -> None:
        verdict = self._watch.verdict(self.pace.monotonic_s())
        if verdict is not None and report.mode == "control":
            self.pause.pause(f"stood down: {verdict}; `cpsched resume` to work again")
            report.tell("stood_down", verdict)

    def _rules(self, mode: Mode) -> Rules:
        start = self.settings.start
        return Rules(mode == "control", start.adopt, start.timeout_s, start.max_failures)

    def _pause_s(self) -> float:
        """The interval after a good cycle; twice as long with each failed one, up to the bound."""
        cycle = self.settings.cycle
        if not self._failed_cycles:
            return cycle.interval_s
        return min(max(cycle.max_backoff_s, cycle.interval_s), cycle.interval_s * 2.0 ** min(self._failed_cycles, 30))

    def _rest(self, seconds: float) -> bool:
        """Wait, with signs of life to systemd; False if the loop is to end."""
        while True:
            self.systemd.notify("WATCHDOG=1")
            slice_s = max(0.0, min(seconds, _REST_S))
            if not self.pace.wait(slice_s):
                return False
            seconds -= slice_s
            if seconds <= 0:
                return True

    def _stop(self) -> list[str]:
        self.systemd.notify("STOPPING=1")
        if self.settings.mode == "shadow" or self.settings.on_stop == "keep":
            return []
        return give_all_back(self.backend, self.ledger, "the bridge stops")

    @contextmanager
    def _timed(self, report: CycleReport, phase: Phase) -> Iterator[None]:
        began_s = self.pace.monotonic_s()
        try:
            yield
        finally:
            report.seconds[phase] = self.pace.monotonic_s() - began_s
