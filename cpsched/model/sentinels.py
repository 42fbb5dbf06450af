"""Special values in the columns of jobs and decisions, which are compile-time constants in kernels."""

from __future__ import annotations

NEVER = 2**63 - 1
"""Expected start of a job without a planned start, because an integer column cannot hold None."""

DISTINCT = 1
"""Bit of `JobTable.sharing`: each unit needs its own node."""
EXCLUSIVE = 2
"""Bit of `JobTable.sharing`: the job shares its nodes with no other job."""
BSLD_BOUND_S = 10
"""Bound of the bounded slowdown, s: shorter run times count as this value (Feitelson et al. 1997; debs24: k)."""
