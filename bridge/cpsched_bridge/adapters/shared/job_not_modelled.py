"""Define the error for a job that the bridge cannot model."""

from __future__ import annotations

from cpsched.errors import escape_controls
from cpsched.model import PendingCode, PendingReason


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
