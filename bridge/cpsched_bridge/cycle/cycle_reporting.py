"""Finish a cycle: record the round and events, write the log, notify listeners.

Each step runs even if another step fails. For example, a full disk does not prevent notifications.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from cpsched_bridge.cycle.cluster_state import list_unscheduled_jobs
from cpsched_bridge.cycle.cycle_recorder import INTERNAL, CycleRecorder, describe_failure, log_traceback
from cpsched_bridge.cycle.loop_clock import LoopClock
from cpsched_bridge.cycle_report import (
    OK_RESULT,
    SETTINGS_EVENT,
    STOPPED_EVENT,
    CycleEvent,
    CycleReport,
    Mode,
    limit_events_per_kind,
)
from cpsched_bridge.effective_config import EffectiveConfig
from cpsched_bridge.store.heartbeat import Heartbeat
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import Ledger

Listener = Callable[[CycleReport], None]

_INFORMATIVE_EVENTS = frozenset({"mode", "started", SETTINGS_EVENT, "transport"})
"""Kinds of events that are not problems."""


@dataclass(slots=True)
class CycleReporter:
    """A component that records cycles and reports them."""

    journal: Journal
    ledger: Ledger
    heartbeat: Heartbeat
    pace: LoopClock
    config: EffectiveConfig
    listeners: Sequence[Listener]
    late: list[CycleEvent] = field(default_factory=list, init=False)
    """Events that occurred after their cycle's report was sent, for the next report."""
    number: int = field(init=False)
    """Number of the last cycle."""

    def __post_init__(self) -> None:
        self.number = max(self.journal.last_round, self.ledger.find_last_transition_round())  # the journal may be new

    def begin_cycle(self) -> CycleRecorder:
        """Return the recorder of the next cycle, including the late events."""
        self.number += 1
        late, self.late = self.late, []
        return CycleRecorder(self.number, self.pace, late)

    def add_startup_events(self) -> None:
        """Report the previous bridge's end and the effective settings in the first cycle."""
        self.late += self._list_previous_bridge_events()
        if self.config.rows:
            self.late.append(CycleEvent(SETTINGS_EVENT, self.config.format_decision_settings()))

    def record_stop(self, problems: Sequence[str], released: int, held: int, mode: Mode) -> None:
        """Record the stop. A failure of the journal or the log does not prevent it."""
        with contextlib.suppress(Exception):
            self.journal.write_stop_event(self.pace.unix_s(), self.number, problems)
        with contextlib.suppress(OSError):
            structlog.get_logger("bridge").info("stopped", released=released, still_held=held, mode=mode)

    def _list_previous_bridge_events(self) -> list[CycleEvent]:
        """Return events about the end of the previous bridge, according to the journal."""
        try:
            sign = self.journal.find_last_activity()
        except Exception as error:
            return [CycleEvent("started", f"the previous bridge's journal cannot be read: {describe_failure(error)}")]
        if sign is None:
            return [CycleEvent("started", "no previous bridge is recorded")]
        ago = f"{max(0.0, self.pace.unix_s() - sign.at_unix_s):.0f} s ago"
        if sign.kind == STOPPED_EVENT:
            return [CycleEvent("started", f"the previous bridge stopped {ago}: {sign.detail}")]
        return [
            CycleEvent(
                "unclean_stop", f"the previous bridge crashed or was killed; its last recorded activity was {ago}"
            ),
            CycleEvent("started", "after an unclean stop"),
        ]

    def record_cycle(self, report: CycleReport, recorder: CycleRecorder) -> CycleReport:
        """Write the round and its events, and update the heartbeat if nothing failed. Return the completed report."""
        with recorder.fail_on_error(), recorder.measure("journal"):
            self._write_cycle_to_journal(report)
        with recorder.fail_on_error():
            self.ledger.file.restore_if_missing()
        unreported_events = [*self.ledger.unreported_events, *self.journal.unreported_events]
        events = limit_events_per_kind([*recorder.bridge_events, *unreported_events])
        recorder.bridge_events = events
        with recorder.fail_on_error():
            self.journal.write_events(report.at_unix_s, report.number, events)
            for file in (self.ledger, self.journal):  # unwritten events are kept
                file.unreported_events[:] = [
                    mishap for mishap in file.unreported_events if mishap not in unreported_events
                ]
        if recorder.result == OK_RESULT:
            with recorder.fail_on_error(OSError):
                self.heartbeat.beat(self.pace.monotonic_s())
        return replace(report, result=recorder.result, seconds=recorder.seconds, bridge_events=recorder.bridge_events)

    def notify_listeners(self, report: CycleReport) -> CycleReport:
        """Send a recorded cycle to the log and the listeners. Return the report, which has failed if a listener fails.

        The next cycle reports the failure.
        """
        self._log_cycle(report)
        for listener in self.listeners:
            try:
                listener(report)
            except Exception as error:
                log_traceback(report.number, error)
                report = replace(report, result=INTERNAL)
                self.late.append(CycleEvent(INTERNAL, f"listener: {describe_failure(error)}"))
        return report

    def _write_cycle_to_journal(self, report: CycleReport) -> None:
        if report.decided.snapshot is not None and report.observation is not None:
            spec = self.config.fallback if report.decided.fallback else self.config.policy
            assert spec is not None, "a fallback that decides has a spec"
            self.journal.write_round(report, spec)
            self.journal.write_unscheduled_jobs(list_unscheduled_jobs(report.observation, report.unscheduled))

    def _log_cycle(self, report: CycleReport) -> None:
        log = structlog.get_logger("bridge")
        with contextlib.suppress(OSError, ValueError):  # standard error is full or closed
            for happening in report.bridge_events:
                say = log.info if happening.kind in _INFORMATIVE_EVENTS else log.warning
                job = None if happening.job_id is None else self.ledger.get_job_name(happening.job_id)
                say(happening.kind, round=report.number, job=job, detail=happening.detail)
            starts, waiting = report.decided.starts, report.decided.waiting
            if starts and report.role.mode == "control":
                log.info("starts", round=report.number, jobs=len(starts), waiting=len(waiting))
