"""Jobs that the bridge does not decide on: they are left to the cluster's own scheduler, with the reason."""

from __future__ import annotations

from cpsched.errors import escape_controls
from cpsched.model import PendingCode, PendingReason


class NotModelled(Exception):
    """The job is left to the cluster's own scheduler; says why: in general, and with all figures and names."""

    def __init__(self, what: str, full: str = "") -> None:
        super().__init__(full or what)
        self.what = what

    @property
    def reason(self) -> PendingReason:
        """What an adapter says of the job."""
        return PendingReason(PendingCode.UNMODELLED, (escape_controls(self.what), escape_controls(str(self))))


def unreadable(error: object) -> PendingReason:
    """Return the reason of a job with a fact that makes no sense."""
    return PendingReason(PendingCode.UNREADABLE, (escape_controls(str(error)),))


UNREADABLE = (ValueError, TypeError, ArithmeticError)
"""What translating a record raises where a fact in it makes no sense: a limit beyond all time, broken brackets."""
