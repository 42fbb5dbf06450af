"""Jobs that the bridge does not decide on: they are left to the cluster's own scheduler, with the reason."""

from __future__ import annotations


class NotModelled(Exception):
    """The job is left to the cluster's own scheduler; says why."""


UNREADABLE = (ValueError, TypeError, ArithmeticError)
"""What translating a record raises where a fact in it makes no sense: a limit beyond all time, broken brackets."""
