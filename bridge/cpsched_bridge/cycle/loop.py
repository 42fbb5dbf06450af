"""The loop beside a cluster: observe, learn, reconcile, decide, apply, journal, and tell whoever listens.

The loop knows ports, never adapters. One cycle takes one reading and ends in one `CycleReport`, whatever happens:
a cluster, a disk, a policy or a part of the bridge itself that fails makes a failed cycle, and the loop goes on. Only
`SystemExit` and `KeyboardInterrupt` end the loop, and they too hand the held jobs back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from cpsched.compile.progress import CompilingStopped
from cpsched.model import EndedJob
from cpsched.policy import Policy
from cpsched_bridge.cycle.adviser import Adviser, take_all_back
from cpsched_bridge.cycle.away import Away, away_since
from cpsched_bridge.cycle.beginning import Beginning, BeginningPatience, waited
from cpsched_bridge.cycle.came_true import came_true
from cpsched_bridge.cycle.checking import Checking
from cpsched_bridge.cycle.claims import Claims
from cpsched_bridge.cycle.deadline import can_interrupt
from cpsched_bridge.cycle.deciding import Decider, require_resources
from cpsched_bridge.cycle.failures import failing
from cpsched_bridge.cycle.fallback import Deciders
from cpsched_bridge.cycle.gaps import Gaps
from cpsched_bridge.cycle.guard import FailureWatch
from cpsched_bridge.cycle.hand_back import hand_all_back, nothing_but_unwritten
from cpsched_bridge.cycle.learning import Teaching
from cpsched_bridge.cycle.left_pins import LeftPins
from cpsched_bridge.cycle.mode import ModeSwitch
from cpsched_bridge.cycle.pace import timed
from cpsched_bridge.cycle.progress import CycleProgress
from cpsched_bridge.cycle.put_off import PutOff
from cpsched_bridge.cycle.reading import ObservationReader
from cpsched_bridge.cycle.reconcile import handed_back_before, reconcile
from cpsched_bridge.cycle.rest import Rest
from cpsched_bridge.cycle.retries import Retries
from cpsched_bridge.cycle.sending import OUTDATED, Sending
from cpsched_bridge.cycle.stuck import Stuck
from cpsched_bridge.cycle.telling import CycleTelling, Listener
from cpsched_bridge.errors import BackendError, PolicyFailed
from cpsched_bridge.in_force import InForce
from cpsched_bridge.ports import Advisable, Backend, Observation, Pace
from cpsched_bridge.report import LATE_INTERVALS, OK, CycleReport, Happening
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.advice_book import AdviceBook
from cpsched_bridge.store.heartbeat import Heartbeat, age_s
from cpsched_bridge.store.identity import claim_of
from cpsched_bridge.store.instance import PauseFile
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import KEPT, Entry, Ledger, State
from cpsched_bridge.store.places import advice_path, take_over_file
from cpsched_bridge.watch.systemd import Systemd

FORGET_EVERY = 1000
"""Rounds between two clean-ups of the ledger."""
STOP_S = 120.0
"""How long one part of a stop may take; `TimeoutStopSec` of the unit is the same."""
SLURMS_PACE_S = 60.0
"""Between two passes of Slurm's main loop by default: so much earlier or later is no other decision."""


@dataclass(slots=True)
class Bridge:
    """Everything one bridge works with. `listeners` get each cycle's report."""

    backend: Backend
    policy: Policy
    in_force: InForce
    """What `policy` and `fallback` were built of; told by the journal."""
    ledger: Ledger
    journal: Journal
    pause: PauseFile
    pace: Pace
    settings: Settings
    listeners: Sequence[Listener] = ()
    fallback: Policy | None = None
    """Decides where `policy` hangs or fails."""
    systemd: Systemd = field(default_factory=Systemd)
    beginning: Beginning = field(default_factory=Beginning)
    """What is to be done before the first decision."""
    _round: int = field(init=False)
    _watch: FailureWatch = field(init=False)
    _mode: ModeSwitch = field(init=False)
    claims: Claims = field(init=False)
    rest: Rest = field(init=False)
    _reader: ObservationReader = field(init=False)
    _left_pins: LeftPins = field(init=False)
    _learner: Teaching = field(init=False)
    _deciders: Deciders = field(init=False)
    _progress: CycleProgress = field(init=False)
    _gaps: Gaps = field(init=False)
    _checking: Checking = field(init=False)
    _adviser: Adviser | None = field(init=False)
    """None where the cluster's scheduler cannot be advised."""
    _put_off: PutOff = field(default_factory=PutOff)
    _retries: Retries = field(default_factory=Retries)
    _planned: dict[int, int] = field(default_factory=dict)
    """In mode advise, the starts by the last plan."""
    _heart: Heartbeat = field(init=False)
    _away: Away = field(init=False)
    _patience: BeginningPatience = field(default_factory=BeginningPatience)
    _has_read: bool = False
    """Whether the cluster has been read, and the settings go with what was read."""
    _word_heard: bool = False
    """Whether a word of the bridge before has been looked for."""
    _speaks: str = ""
    """What was last told of by what the cluster is asked."""
    _sending: Sending = field(init=False)
    _telling: CycleTelling = field(init=False)

    def __post_init__(self) -> None:
        self._round = max(self.journal.last_round, self.ledger.last_round())  # the journal may have been set aside
        self._watch = FailureWatch(self.settings.guard.failing_users)
        self._heart = Heartbeat(self.settings.heartbeat_path)
        self._away = self._made_away()
        mine, asked = claim_of(self.settings.state_dir), take_over_file(self.settings).taken
        self.claims = Claims(self.backend, mine, self.settings.guard.claim_gone_s, asked)
        self._mode = ModeSwitch(self.settings.mode, self.pause, self._trouble, self.claims.why_not)
        self.rest = Rest(self.settings.cycle, self.pace, self.systemd)
        self._reader = ObservationReader(self.backend, self.ledger)
        self._left_pins = LeftPins(
            self.backend,
            self.ledger,
            self._reader,
            self._retries,
            self._beside_another,
            self.settings.cycle.interval_s,
        )
        limit_s, cap = self.settings.cycle.decide_timeout_s, self.settings.policy.power.cap()
        self._learner = Teaching(self.policy, limit_s)
        self._deciders = Deciders(
            Decider(self.policy, limit_s, self.pace, cap),
            self._learner,
            None if self.fallback is None else Decider(self.fallback, limit_s, self.pace, cap),
            self.pace,
            self.settings.cycle.interval_s,
        )
        self._progress = CycleProgress()
        self._gaps = Gaps(LATE_INTERVALS * self.settings.cycle.interval_s)
        self._checking = Checking(self.backend, self.settings.cycle.checks_every_s, self.pace.monotonic_s())
        self._checking.mode = self.settings.mode
        self._adviser = self._made_adviser()
        self._sending = Sending(
            self.backend, self.ledger, self.claims, self._retries, self._progress, self.pace, self.settings, self._away
        )
        self._telling = CycleTelling(self.journal, self.ledger, self._heart, Stuck(), self.pace)

    def _made_away(self) -> Away:
        """By the heartbeat of the bridge before; one that may not be looked at cannot be written either."""
        try:
            return away_since(self.pace.monotonic_s(), age_s(self.settings.heartbeat_path))
        except OSError:
            return away_since(self.pace.monotonic_s(), None)

    def _made_adviser(self) -> Adviser | None:
        """In shadow mode nobody is advised, and nothing is taken back."""
        if self.settings.mode == "shadow" or not isinstance(self.backend, Advisable):
            return None
        book = AdviceBook(advice_path(self.settings), self.settings.durable)
        keep_s = int(self.settings.journal.keep_jobs_days * 86400)
        return Adviser(self.backend, book, self.settings.advise, keep_s)

    # ------------------------------------------------------------------------------------------------- the loop

    def run(self) -> list[str]:
        """Begin, then cycle until the pace ends. Returns what kept held jobs from being handed back, a line each.

        Raises `WrongSetting` where the first reading shows that a setting does not go with the cluster.

        A beginning that takes longer than held jobs may wait goes on beside the cycles, which decide nothing meanwhile.
        """
        log = structlog.get_logger("bridge")
        if not can_interrupt():
            log.warning("no_decision_deadline", detail="not in the main thread: decide_timeout_s has no effect")
        self._telling.late += self._telling.former()
        if self.in_force.rows:
            self._telling.late.append(Happening("in_force", self.in_force.in_words()))
        try:
            going_on = waited(self.beginning, self.pace, self._meanwhile)
            if going_on:
                self.systemd.notify("READY=1", f"STATUS={self.settings.mode}")
            while going_on:
                began_s = self.pace.monotonic_s()
                self.cycle()
                due_s = began_s + self.rest.pause_s
                self._gaps.plan(due_s)
                going_on = self.rest.wait_until(due_s)
        except CompilingStopped:
            return self.stop()
        except BaseException:
            for problem in self.stop():
                log.error("still_held", detail=problem)
            raise
        return self.stop()

    def stop(self) -> list[str]:
        """Hand the held jobs back, unless they are to be kept. Returns what was in the way, a line each."""
        self._stops()
        problems, released = [], -self.ledger.counts()[State.FREE]
        if self.settings.mode != "shadow" and self.settings.on_stop != "keep":
            why, beside = "the bridge stops", self._beside_another
            with contextlib.suppress(CompilingStopped):  # of a simulated cluster, which ends with this process
                problems = hand_all_back(self.backend, self.ledger, why, beside, goes_on=self._stops)
            unwritten = nothing_but_unwritten(problems)
            if self._adviser is not None:
                problems += take_all_back(self._adviser.backend, self._adviser.book)
            with contextlib.suppress(BackendError):  # it will be taken for gone a little later
                (self.claims.leave_word if unwritten else self.claims.let_go)()
        if self._adviser is not None:
            self._adviser.book.close()
        with contextlib.suppress(Exception):  # a journal that takes nothing more keeps no bridge from stopping
            self.journal.write_stop(self.pace.unix_s(), self._round, problems)
        counts = self.ledger.counts()
        released, held = released + counts[State.FREE], sum(counts[state] for state in KEPT - {State.STARTING})
        with contextlib.suppress(OSError):  # a log that takes no line keeps no bridge from stopping
            structlog.get_logger("bridge").info("stopped", released=released, still_held=held, mode=self.settings.mode)
        return problems

    def _stops(self) -> None:
        """Report to systemd that the bridge stops, and is not stuck: the more jobs it holds, the longer that takes."""
        self.systemd.notify("STOPPING=1", "WATCHDOG=1", f"EXTEND_TIMEOUT_USEC={int(1e6 * STOP_S)}")

    def _beside_another(self, seen: Observation) -> bool:
        """Whether another bridge is in control by this reading: it may have taken over since the last cycle."""
        return self.claims.rival_of(seen.claim, self.pace.monotonic_s()) is not None

    def cycle(self) -> CycleReport:
        """One cycle. What goes wrong in it is in the report; only a `WrongSetting` of the first reading is raised."""
        self._round += 1
        doing = self.beginning.waits_for() or ""
        if doing:
            self._patience.note(doing, self.pace.monotonic_s())
        report = CycleReport(
            self._round, self._mode.present(), self.pace.unix_s(), waits_for=doing, happenings=self._telling.taken()
        )
        self.rest.begin()
        self._gaps.note(self.pace.monotonic_s(), report)
        with failing(report):
            self._work(report)
            self._checking.note(self.pace.monotonic_s(), report)
        with failing(report, OSError):
            self._stand_down_if_needed(report)
        self.rest.note_load(report)
        self._telling.write_down(report, self.in_force)
        with failing(report):
            self.beginning.tell(report.waits_for)
        self._telling.tell(report, self.listeners)
        self.rest.note(report.result == OK)
        if report.result == OK:
            self._away.good(self.pace.monotonic_s())
        return report

    # ----------------------------------------------------------------------------------------- the work of a cycle

    def _work(self, report: CycleReport) -> None:
        try:
            seen, past = self._read(report)
        finally:
            self._note_mode(report)
        report.past = self._learner.note(past)
        report.ended = self._learner.note(seen.ended)
        report.started = self._learner.begun(seen, report.ended)
        self._note_otherwise(report)
        with timed(report, "reconcile", self.pace):
            self._reconcile(seen, report)
            seen = report.observation = self._put_off.applied(seen, self.ledger.by_id)
            report.put_off = self._put_off.jobs
        entries = self._sending.take_off_pins(seen, report)
        self._decide(seen, entries, report)
        with timed(report, "apply", self.pace):
            self._sending.apply(seen, report)
            self._advise(report)

    def _note_otherwise(self, report: CycleReport) -> None:
        """In mode advise, tell where the cluster has started a job long before its place in the plan came."""
        planned, self._planned = self._planned, {}
        if report.mode != "advise":
            return
        spare_s = self.settings.advise.every_s + SLURMS_PACE_S
        for job, start_s in report.started:
            early_s = planned.get(job.id, start_s) - start_s
            if early_s > spare_s:
                words = f"the cluster's scheduler started it {early_s:,} s before the plan would have"
                report.tell("started_otherwise", words, job.id)

    def _read(self, report: CycleReport) -> tuple[Observation, Sequence[EndedJob]]:
        """Read the cluster, and see by the claim there whether this bridge or another one is in control of it."""
        with timed(report, "observe", self.pace):
            seen, past = self._reader.read()
            if not self._has_read:
                require_resources(self.settings.policy.power.cap(), seen.cluster)
            self._has_read = True
            report.observation = seen
            if self.backend.speaks != self._speaks:
                self._speaks = self.backend.speaks
                report.tell("transport", self._speaks)
            for note in seen.notes:
                report.tell("site_policy", note)
            self._believe_word(seen, report)
            self.claims.look(seen.claim, self._mode.wanted, self.pace.monotonic_s(), report)
        report.mode = self._mode.present()
        return seen, past

    def _believe_word(self, seen: Observation, report: CycleReport) -> None:
        """Bring the ledger up to the word of a former process that had nowhere to write, before that is overwritten."""
        if self.settings.mode != "shadow" and not self._word_heard and self.claims.word_of(seen.claim):
            old = [*self.ledger.entries(*KEPT), *self.ledger.left_pinned()]
            self.ledger.record((handed_back_before(entry, seen.now_s) for entry in old), report.number)
            report.tell("handed_back", f"{len(old)} jobs, by the bridge before, which could not write it down")
        self._word_heard = True

    def _reconcile(self, seen: Observation, report: CycleReport) -> None:
        """Bring the ledger up to what was seen; shadow mode has nothing in its ledger."""
        if report.mode == "shadow":
            return
        transitions = reconcile(self.ledger.by_id, self.ledger.open_ids(), seen, self._sending.conduct(report))
        self.ledger.record(transitions, report.number)
        if report.number % FORGET_EVERY == 0:
            self.ledger.forget(seen.now_s - int(self.settings.journal.keep_jobs_days * 86400))
        now_s = self.pace.monotonic_s()
        self._progress.note(transitions, now_s, report)
        starts = came_true(transitions, self._sending.refused, seen)
        self._sending.refused = []
        self._watch.saw(seen)
        self._watch.started(now_s, starts)
        report.happenings += self._put_off.note(seen, transitions, starts.failed)
        if report.mode == "control":
            given_up = self._put_off.leave(seen, self.ledger.by_id, self.settings.start.max_failures)
            self.ledger.record(given_up, report.number)
            self._progress.note(given_up, now_s, report)

    def _decide(self, seen: Observation, entries: Mapping[int, Entry], report: CycleReport) -> None:
        """Teach and ask the policy; what it does wrong must not take the held jobs along."""
        if report.waits_for:
            return
        try:
            self._deciders.decide(seen, entries, report)
        except PolicyFailed as failure:
            self._watch.decided(False)
            report.fail(failure.kind, str(failure))
        else:
            if report.decision is not None:
                self._watch.decided(True)
                if report.mode == "advise" and report.snapshot is not None:
                    self._planned = report.decision.plan_by_job(report.snapshot)
        self._patience.note(report.waits_for, self.pace.monotonic_s())

    def _advise(self, report: CycleReport) -> None:
        """In mode advise, tell the cluster the order of the plan; in other modes, take back what was told."""
        adviser = self._adviser
        if adviser is None:
            return
        report.happenings += adviser.book.mishaps
        adviser.book.mishaps = []
        if report.mode != "advise":
            try:
                adviser.take_back(report, self.pace.monotonic_s())
            except BackendError as error:  # numbers that stay longer are no reason to stop the rest
                report.tell("points_left", f"points are still on up to {adviser.left()} jobs: {error}")
        elif self.claims.outdated(self.pace.monotonic_s()):
            report.fail("outdated", OUTDATED)
        else:
            adviser.work(report, self.pace.monotonic_s())

    # ------------------------------------------------------------------------------------------------ mode and doubt

    def _note_mode(self, report: CycleReport) -> None:
        report.paused = (self._mode.reason() or "") if report.mode == "paused" else ""
        if not self._mode.changed(report.mode):
            return
        if report.mode in ("advise", "control"):
            self._watch.reset()
        report.tell("mode", " ".join([report.mode, self._mode.reason() or ""]).strip())
        self.systemd.notify(f"STATUS={report.mode}")

    def _stand_down_if_needed(self, report: CycleReport) -> None:
        now_s = self.pace.monotonic_s()
        verdict, report.failing_users = self._watch.verdict(now_s), len(self._watch.failing(now_s))
        if verdict is not None and report.mode in ("advise", "control"):
            report.tell("stood_down", verdict)
            self._mode.stand_down(f"stood down: {verdict}; `cpsched resume` to work again")
        else:
            self._mode.write()

    def _trouble(self) -> str | None:
        """Why the bridge must not hold or advise jobs now, although nobody has paused it."""
        now_s = self.pace.monotonic_s()
        return self._heart.trouble(now_s) or self._patience.trouble(now_s)

    def _beat(self) -> None:
        """A sign of life before the first cycle; that it cannot be given is told by that cycle."""
        with contextlib.suppress(OSError):
            self._heart.beat(self.pace.monotonic_s())

    def _meanwhile(self) -> None:
        """What is done before the first cycle: signs of life, and no pin waits for a compiler."""
        self._beat()
        if self.settings.mode != "shadow":
            report = CycleReport(self._round, self._mode.present(), self.pace.unix_s())
            most = self.settings.cycle.max_commands
            self._left_pins.look(self.pace.monotonic_s(), self._sending.conduct(report), most, report)
            self._telling.late += report.happenings
