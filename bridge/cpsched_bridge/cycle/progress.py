"""What became of starts, as the ledger's transitions tell it: latencies, events to tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cpsched_bridge.report import CycleReport
from cpsched_bridge.store.ledger import State, Transition

_TOLD = {State.ROLLING_BACK: "start_failed", State.GONE: "job_gone"}
"""Transitions that are events, by the state they lead to."""


@dataclass(slots=True)
class CycleProgress:
    """Follows jobs from the decision to start them until they are seen running, or not."""

    _decided_at_s: dict[int, float] = field(default_factory=dict)
    """Monotonic time of the decision, by job id."""

    def decided(self, job_ids: Iterable[int], now_s: float) -> None:
        """Take note of jobs that are about to be started, at a monotonic time."""
        self._decided_at_s.update((id, now_s) for id in job_ids)

    def note(self, transitions: Sequence[Transition], now_s: float, report: CycleReport) -> None:
        """Take note of transitions seen at a monotonic time, and tell in the report what is worth telling."""
        for transition in transitions:
            if transition.before is State.STARTING:
                self._note_start(transition, now_s, report)
        for transition in transitions:
            self._decided_at_s.pop(transition.entry.job_id, None)  # also where the start was refused at once
            _tell(transition, report)

    def _note_start(self, transition: Transition, now_s: float, report: CycleReport) -> None:
        entry = transition.entry
        ran = entry.state in (State.RUNNING, State.ENDED)
        decided_at_s = self._decided_at_s.pop(entry.job_id, None)
        if ran and decided_at_s is not None:
            report.latencies_s.append(now_s - decided_at_s)
        if entry.state is State.RUNNING and transition.event != "as_decided":
            report.tell("started_elsewhere", entry.why, entry.job_id)


def _tell(transition: Transition, report: CycleReport) -> None:
    entry = transition.entry
    newly_left = transition.event == "left" and transition.before is not State.HANDING_BACK
    put_off = transition.obstacle is not None and entry.state is State.ROLLING_BACK  # told once for all of their like
    if transition.event == "kept_on":
        report.tell("not_left", entry.why, entry.job_id)
    if (entry.state in _TOLD and not put_off) or newly_left:
        report.tell(_TOLD.get(entry.state, "left_to_cluster"), entry.why, entry.job_id)
