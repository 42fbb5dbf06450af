"""Record a cycle while it runs: events, outcomes of commands, durations and named failures.

Each step adds to the record, so that a failed cycle also reports what happened before its failure.
"""

from __future__ import annotations

import contextlib
import sqlite3
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from cpsched.errors import MAX_PLUGIN_MESSAGE_CHARS, PolicyError, exception_message
from cpsched_bridge.cycle.loop_clock import LoopClock
from cpsched_bridge.cycle_report import OK_RESULT, CycleEvent, Phase
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused, InvalidSetting
from cpsched_bridge.ports import Outcome, Result

INTERNAL = "internal_error"
"""Name of an unexpected exception, which indicates a bug in the bridge, an adapter or a listener."""

STORAGE = "storage_error"

_MAX_TRACEBACK_CHARS = 10_000
_MAX_TRACEBACK_CALLS = 30
"""Maximum number of calls shown in a logged traceback."""

_FAILURE_NAMES: tuple[tuple[type[Exception], str], ...] = (
    (BackendTimeout, "backend_timeout"),
    (BackendUnavailable, "backend_unavailable"),
    (CommandRefused, "command_refused"),
    (BackendError, "backend_error"),
    (sqlite3.Error, STORAGE),
)


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


def get_failure_kind(error: Exception) -> str:
    """Return the snake-case name of a failure."""
    return next((name for kind, name in _FAILURE_NAMES if isinstance(error, kind)), INTERNAL)


def describe_failure(error: BaseException) -> str:
    """Return an exception's type and message, with limited length. Never raise.

    The type of a `PolicyError` is omitted because its message names the part of the policy and the original exception.
    """
    text = exception_message(error)
    named = text if isinstance(error, PolicyError) else f"{type(error).__name__}: {text}"
    return named[:MAX_PLUGIN_MESSAGE_CHARS]


def format_traceback(error: BaseException) -> str:
    """Return the innermost calls of an exception's traceback, with limited length."""
    return "".join(traceback.format_exception(error, limit=-_MAX_TRACEBACK_CALLS))[:_MAX_TRACEBACK_CHARS]


def log_traceback(number: int, error: Exception) -> None:
    """Log the traceback of an unexpected exception in a cycle, if the log can be written."""
    with contextlib.suppress(OSError, ValueError):
        structlog.get_logger("bridge").error(INTERNAL, round=number, exception=format_traceback(error))
