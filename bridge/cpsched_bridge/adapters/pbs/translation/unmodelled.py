"""What only PBS can place: jobs that ask for it are left to PBS, with the reason."""

from __future__ import annotations


class NotModelled(Exception):
    """The job is left to PBS; says why."""


UNREADABLE = (ValueError, TypeError, ArithmeticError)
"""What translating a record raises where a fact in it makes no sense."""
