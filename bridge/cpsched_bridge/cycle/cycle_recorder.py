"""Record a cycle while it runs: events, outcomes of commands, durations and failures.

Each step adds to the record, so that a failed cycle also reports what happened before its failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from cpsched_bridge.cycle.cycle_failures import INTERNAL, STORAGE, describe_failure, get_failure_kind, log_traceback
from cpsched_bridge.cycle_report import OK_RESULT, CycleEvent, Phase
from cpsched_bridge.errors import BackendError, BackendTimeout, InvalidSetting
from cpsched_bridge.ports import LoopClock, Outcome, Result


@dataclass(slots=True)
class CycleRecorder:
    """The record of one cycle. Steps add to it; `CycleReport` documents the fields."""

    number: int
    clock: LoopClock
    bridge_events: list[CycleEvent] = field(default_factory=list)
    at_unix_s: float = field(init=False)
    result: str = field(default=OK_RESULT, init=False)
    seconds: dict[Phase, float] = field(default_factory=dict, init=False)
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list, init=False)
    latencies_s: list[float] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.at_unix_s = self.clock.unix_s()

    def add_event(self, kind: str, detail: str, job_id: int | None = None) -> None:
        """Record an event."""
        self.bridge_events.append(CycleEvent(kind, detail, job_id))

    def record_failure(self, kind: str, detail: str) -> None:
        """Mark the cycle as failed by `kind`, and record the event."""
        self.result = kind
        self.add_event(kind, detail)

    @contextmanager
    def measure(self, phase: Phase) -> Iterator[None]:
        """Record the duration of a phase, even if the phase fails."""
        began_s = self.clock.monotonic_s()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + self.clock.monotonic_s() - began_s

    @contextmanager
    def fail_on_error(self, *storage: type[Exception]) -> Iterator[None]:
        """Turn an exception in this block into a failure of the cycle.

        Exceptions of `storage` types are failures of the disk. An `InvalidSetting` is re-raised because it must end the
        bridge.
        """
        try:
            yield
        except InvalidSetting:
            raise
        except Exception as error:
            kind = STORAGE if isinstance(error, storage) else get_failure_kind(error)
            if kind == INTERNAL:
                log_traceback(self.number, error)
            self.record_failure(kind, describe_failure(error) if kind == INTERNAL else str(error))

    def send(self, kind: str, job_ids: Sequence[int], command: Callable[[], Sequence[Outcome]]) -> Sequence[Outcome]:
        """Send a batch of commands, and record the outcomes. Record a `BackendError` for each job, and re-raise it."""
        try:
            outcomes = command()
        except BackendError as error:
            result: Result = "unknown" if isinstance(error, BackendTimeout) else "refused"
            self.outcomes += [(kind, Outcome(id, result, str(error))) for id in job_ids]
            raise
        self.outcomes += [(kind, outcome) for outcome in outcomes]
        return outcomes
