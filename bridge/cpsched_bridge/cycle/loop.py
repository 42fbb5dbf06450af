"""The loop beside a cluster: observe, learn, reconcile, decide, apply, journal, and tell whoever listens.

The loop knows ports, never adapters. One cycle takes one reading and ends in one `CycleReport`, whatever happens:
a cluster, a disk, a policy or a part of the bridge itself that fails makes a failed cycle, and the loop goes on. Only
`SystemExit` and `KeyboardInterrupt` end the loop, and they too give the held jobs back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.cycle.commands import Commands
from cpsched_bridge.cycle.deadline import can_interrupt
from cpsched_bridge.cycle.deciding import Decider
from cpsched_bridge.cycle.failures import INTERNAL, STORAGE, described, kind_of, traceback_of
from cpsched_bridge.cycle.guard import Allowance, FailureWatch
from cpsched_bridge.cycle.hand_back import give_all_back
from cpsched_bridge.cycle.learning import Learner
from cpsched_bridge.cycle.mode import ModeSwitch
from cpsched_bridge.cycle.pace import timed
from cpsched_bridge.cycle.progress import Progress
from cpsched_bridge.cycle.reading import Reader
from cpsched_bridge.cycle.reconcile import Conduct, reconcile
from cpsched_bridge.cycle.rest import Rest
from cpsched_bridge.cycle.snapshots import asides_of
from cpsched_bridge.errors import PolicyFailed
from cpsched_bridge.ports import Backend, Observation, Pace
from cpsched_bridge.report import OK, CycleReport, Happening
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.instance import PauseFile
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import KEPT, Ledger, State
from cpsched_bridge.watch.systemd import Systemd

Listener = Callable[[CycleReport], None]

_FORGET_EVERY = 1000
"""Rounds between two clean-ups of the ledger."""


@dataclass(slots=True)
class Bridge:
    """Everything one bridge works with. `listeners` get each cycle's report."""

    backend: Backend
    policy: Policy
    policy_spec: PolicySpec
    ledger: Ledger
    journal: Journal
    pause: PauseFile
    pace: Pace
    settings: Settings
    listeners: Sequence[Listener] = ()
    systemd: Systemd = field(default_factory=Systemd)
    _round: int = field(init=False)
    _log: structlog.stdlib.BoundLogger = field(init=False)
    _watch: FailureWatch = field(init=False)
    _mode: ModeSwitch = field(init=False)
    _rest: Rest = field(init=False)
    _reader: Reader = field(init=False)
    _learner: Learner = field(init=False)
    _decider: Decider = field(init=False)
    _progress: Progress = field(init=False)
    _late: list[Happening] = field(default_factory=list)
    """What happened when the report of its cycle had been told already: part of the next one."""

    def __post_init__(self) -> None:
        self._round = self.journal.last_round
        self._log = structlog.get_logger("bridge")
        self._watch = FailureWatch(self.settings.guard)
        self._mode = ModeSwitch(self.settings.mode, self.pause)
        self._rest = Rest(self.settings.cycle, self.pace, self.systemd)
        self._reader = Reader(self.backend, self.ledger)
        limit_s = self.settings.cycle.decide_timeout_s
        self._learner = Learner(self.policy, limit_s)
        self._decider = Decider(self.policy, limit_s, self.pace)
        self._progress = Progress(self._watch)

    # ------------------------------------------------------------------------------------------------- the loop

    def run(self) -> list[str]:
        """Cycle until the pace ends. Returns what kept held jobs from being given back, a line each."""
        self.systemd.notify("READY=1", f"STATUS={self.settings.mode}")
        if not can_interrupt():
            self._log.warning("no_decision_deadline", detail="not in the main thread: decide_timeout_s has no effect")
        try:
            while True:
                began_s = self.pace.monotonic_s()
                self.cycle()
                if not self._rest.wait_since(began_s):
                    break
        except BaseException:
            for problem in self.stop():
                self._log.error("still_held", detail=problem)
            raise
        return self.stop()

    def stop(self) -> list[str]:
        """Give the held jobs back, unless they are to be kept. Returns what was in the way, a line each."""
        self.systemd.notify("STOPPING=1")
        if self.settings.mode == "shadow" or self.settings.on_stop == "keep":
            return []
        return give_all_back(self.backend, self.ledger, "the bridge stops")

    def cycle(self) -> CycleReport:
        """One cycle. What goes wrong in it is in the report; nothing is raised for it."""
        self._round += 1
        report = CycleReport(self._round, self._mode.present(), self.pace.unix_s(), happenings=self._late)
        self._late = []
        with self._failing(report):
            self._note_mode(report)
            self._work(report)
        with self._failing(report, OSError):
            self._stand_down_if_needed(report)
        self._finish(report)
        self._rest.note(report.result == OK)
        return report

    @contextmanager
    def _failing(self, report: CycleReport, *storage: type[Exception]) -> Iterator[None]:
        """An exception in here fails the cycle and goes no further; those of type `storage` mean the disk."""
        try:
            yield
        except Exception as error:
            kind = STORAGE if isinstance(error, storage) else kind_of(error)
            if kind == INTERNAL:
                self._log_traceback(report, error)
            report.fail(kind, described(error) if kind == INTERNAL else str(error))

    # ----------------------------------------------------------------------------------------- the work of a cycle

    def _work(self, report: CycleReport) -> None:
        with timed(report, "observe", self.pace):
            seen, past = self._reader.read()
            report.observation = seen
        self._learner.note(past)
        report.ended = self._learner.note(seen.ended)
        report.started = self._learner.begun(seen, report.ended)
        with timed(report, "reconcile", self.pace):
            self._reconcile(seen, report)
        self._decide(seen, report)
        with timed(report, "apply", self.pace):
            self._apply(seen, report)

    def _reconcile(self, seen: Observation, report: CycleReport) -> None:
        """Bring the ledger up to what was seen; shadow mode has nothing in its ledger."""
        if report.mode == "shadow":
            return
        transitions = reconcile(self.ledger.by_id, self.ledger.open_ids(), seen, self._conduct(report))
        self.ledger.record(transitions, report.number)
        if report.number % _FORGET_EVERY == 0:
            self.ledger.forget(seen.now_s - int(self.settings.journal.keep_jobs_days * 86400))
        self._progress.note(transitions, self.pace.monotonic_s(), report)

    def _decide(self, seen: Observation, report: CycleReport) -> None:
        """Teach and ask the policy; what it does wrong must not take the held jobs along."""
        try:
            self._learner.teach()
            self._decider.decide(seen, self.ledger.by_id, report)
        except PolicyFailed as failure:
            self._watch.decided(False)
            report.fail(failure.kind, str(failure))
        else:
            self._watch.decided(True)

    def _apply(self, seen: Observation, report: CycleReport) -> None:
        """Send what the ledger intends, then the starts, within one cycle's allowance; nothing in shadow mode."""
        if report.mode == "shadow":
            return
        commands = Commands(self.backend, self.ledger, self._conduct(report))
        allowance = Allowance(self.settings.cycle.max_commands)
        pending = frozenset([*(p.job.id for p in seen.pending), *(left.job_id for left in seen.left)])
        commands.send_intents(pending, allowance, seen.now_s, report)
        if report.mode == "control" and report.starts:
            jobs = {job.id: job for job in report.waiting}
            chosen = allowance.take([(jobs[id], placement) for id, placement in report.starts.items()])
            self._progress.decided((job.id for job, _ in chosen), self.pace.monotonic_s())
            commands.start(chosen, seen.cluster, seen.now_s, report)

    def _conduct(self, report: CycleReport) -> Conduct:
        start = self.settings.start
        return Conduct(report.mode == "control", start.adopt, start.timeout_s, start.max_failures)

    # ------------------------------------------------------------------------------------------------ mode and doubt

    def _note_mode(self, report: CycleReport) -> None:
        if not self._mode.changed(report.mode):
            return
        if report.mode == "control":
            self._watch.reset()
        report.tell("mode", " ".join([report.mode, self._mode.reason() or ""]).strip())
        self.systemd.notify(f"STATUS={report.mode}")

    def _stand_down_if_needed(self, report: CycleReport) -> None:
        verdict = self._watch.verdict(self.pace.monotonic_s())
        if verdict is not None and report.mode == "control":
            report.tell("stood_down", verdict)
            self._mode.stand_down(f"stood down: {verdict}; `cpsched resume` to work again")
        else:
            self._mode.write()

    # ------------------------------------------------------------------------------------------ the end of a cycle

    def _finish(self, report: CycleReport) -> None:
        """Write the round down, beat, and tell the listeners; each of these whatever became of the others."""
        with self._failing(report), timed(report, "journal", self.pace):
            counts = self.ledger.counts()
            report.starting = counts[State.STARTING]
            report.kept = sum(counts[state] for state in KEPT)
            self._write(report)
        with self._failing(report):
            self.journal.write_events(report.at_unix_s, report.number, report.happenings)
        if report.result == OK:
            with self._failing(report, OSError):
                self.settings.heartbeat_path.touch()
        self._say(report)
        for listener in self.listeners:
            self._listen(listener, report)

    def _write(self, report: CycleReport) -> None:
        if report.snapshot is not None and report.observation is not None:
            self.journal.write_round(report, self.policy_spec)
            waiting = frozenset(job.id for job in report.waiting)
            self.journal.write_asides(asides_of(report.observation, waiting, self.ledger.by_id))

    def _listen(self, listener: Listener, report: CycleReport) -> None:
        """Tell one listener. Its failure fails the cycle, and is told with the next one: this one is told already."""
        try:
            listener(report)
        except Exception as error:
            self._log_traceback(report, error)
            report.result = INTERNAL
            self._late.append(Happening(INTERNAL, f"listener: {described(error)}"))

    def _say(self, report: CycleReport) -> None:
        with contextlib.suppress(OSError, ValueError):  # standard error is full or closed: journal and metrics tell
            for happening in report.happenings:
                say = self._log.info if happening.kind == "mode" else self._log.warning
                say(happening.kind, round=report.number, job=happening.job_id, detail=happening.detail)
            if report.starts and report.mode == "control":
                self._log.info("starts", round=report.number, jobs=len(report.starts), waiting=len(report.waiting))

    def _log_traceback(self, report: CycleReport, error: Exception) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._log.error(INTERNAL, round=report.number, exception=traceback_of(error))
