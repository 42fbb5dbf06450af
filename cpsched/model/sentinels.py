"""Define special values in columns, which are compile-time constants in kernels."""

from __future__ import annotations

NEVER = 2**63 - 1
"""Expected start of a job without a planned start, because an integer column cannot hold None."""

DISTINCT = 1
"""Bit in `JobTable.sharing`: each unit needs its own node."""
EXCLUSIVE = 2
"""Bit in `JobTable.sharing`: the job shares its nodes with no other job."""
BSLD_BOUND_S = 10
"""Minimum run time in seconds in the bounded slowdown (Feitelson et al. 1997; debs24: k)."""
