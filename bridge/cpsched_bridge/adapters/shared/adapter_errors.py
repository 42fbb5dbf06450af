"""Define the error for a job that the bridge cannot model, and translate failures of programs into errors."""

from __future__ import annotations

from cpsched.errors import escape_controls
from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, ProgramMissing
from cpsched_sim.program_runner import ProgramFailure, ProgramResult


class JobNotModelled(Exception):
    """An error for a job that is not modelled, with a general and a detailed reason."""

    def __init__(self, what: str, full: str = "") -> None:
        super().__init__(full or what)
        self.what = what

    @property
    def reason(self) -> PendingReason:
        """The job's pending reason."""
        return PendingReason(PendingCode.UNMODELLED, (escape_controls(self.what), escape_controls(str(self))))


def make_unreadable_reason(error: object) -> PendingReason:
    """Return the pending reason for a job with an unreadable field."""
    return PendingReason(PendingCode.UNREADABLE, (escape_controls(str(error)),))


UNREADABLE_FIELD_ERRORS = (ValueError, TypeError, ArithmeticError)
"""Exceptions that the translation of an unreadable field may raise, for example for a limit out of range."""


_ERRORS: dict[ProgramFailure, type[BackendError]] = {
    ProgramFailure.NOT_FOUND: ProgramMissing,
    ProgramFailure.CANNOT_RUN: ProgramMissing,
    ProgramFailure.TIMED_OUT: BackendTimeout,
    ProgramFailure.OUTPUT_TOO_LONG: BackendUnavailable,
}


def make_failure_error(result: ProgramResult) -> BackendError | None:
    """Return the error of a program that did not exit by itself, otherwise None."""
    return _ERRORS[result.failure](f"{result.command}: {result.complaint}") if result.failure is not None else None
