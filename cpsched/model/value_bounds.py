"""Define special values in columns, and bounds on times and amounts, so that 64 bits suffice in kernels.

No sum or product in the kernels overflows within these bounds. The constructors of `cpsched.model` check them.
"""

from __future__ import annotations

from cpsched.errors import require

NEVER = 2**63 - 1
"""Expected start of a job without a planned start, because an integer column cannot hold None."""

DISTINCT = 1
"""Bit in `JobTable.sharing`: each unit needs its own node."""
EXCLUSIVE = 2
"""Bit in `JobTable.sharing`: the job shares its nodes with no other job."""
BSLD_BOUND_S = 10
"""Minimum run time in seconds in the bounded slowdown (Feitelson et al. 1997; debs24: k)."""

TIME_BOUND_S = 1 << 53
"""Bound on durations and on times before or after the epoch, in seconds."""
AMOUNT_BOUND = 1 << 40
"""Bound on a resource's amount on one node or in one unit of a job: 2^60 bytes for memory in MiB."""
TOTAL_AMOUNT_BOUND = 1 << 60
"""Bound on a resource's total amount on all nodes or in all units of a job."""


def require_time(field: str, second: int) -> None:
    """Raise `InvalidValue` unless a time is within the bounds."""
    require(-TIME_BOUND_S < second < TIME_BOUND_S, field, second, "must be within 2^53 seconds of 0")


def require_duration(field: str, seconds: int) -> None:
    """Raise `InvalidValue` unless a duration is positive and within the bound."""
    require(seconds > 0, field, seconds, "must be positive")
    require(seconds < TIME_BOUND_S, field, seconds, "must be below 2^53 seconds")


def require_amount(field: str, amount: int) -> None:
    """Raise `InvalidValue` unless an amount per node or unit is within the bounds."""
    require(amount >= 0, field, amount, "must not be negative")
    require(amount < AMOUNT_BOUND, field, amount, "must be below 2^40")


def require_total_amount(field: str, total: int) -> None:
    """Raise `InvalidValue` unless a total amount is within the bound."""
    require(total < TOTAL_AMOUNT_BOUND, field, total, "must be below 2^60 in total")
