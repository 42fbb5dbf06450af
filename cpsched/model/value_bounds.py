"""Bounds on times and amounts. Within them, no sum or product in the kernels overflows 64 bits.

The constructors of `cpsched.model` check them.
"""

from __future__ import annotations

from cpsched.errors import require

MOST_S = 1 << 53
"""Bound on times (before or after the epoch) and durations, in seconds."""
MOST_AMOUNT = 1 << 40
"""Bound on the amount of a resource on one node or in one unit of a job. Example: memory in MiB, up to 2^60 bytes."""
MOST_IN_ALL = 1 << 60
"""Bound on the amount of a resource on all nodes, or in all units of a job."""


def require_time(field: str, second: int) -> None:
    """Raise `InvalidValue` unless a time is within the bounds."""
    require(-MOST_S < second < MOST_S, field, second, "must be within 2^53 seconds of 0")


def require_duration(field: str, seconds: int) -> None:
    """Raise `InvalidValue` unless a duration is positive and within the bound."""
    require(seconds > 0, field, seconds, "must be positive")
    require(seconds < MOST_S, field, seconds, "must be below 2^53 seconds")


def require_amount(field: str, amount: int) -> None:
    """Raise `InvalidValue` unless an amount on one node or in one unit is within the bounds."""
    require(amount >= 0, field, amount, "must not be negative")
    require(amount < MOST_AMOUNT, field, amount, "must be below 2^40")


def require_total(field: str, total: int) -> None:
    """Raise `InvalidValue` unless an amount on all nodes or in all units of a job is within the bound."""
    require(total < MOST_IN_ALL, field, total, "must be below 2^60 in total")
