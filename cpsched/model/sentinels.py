"""The numbers that mean something in the columns of jobs and decisions; kernels have them compiled in."""

from __future__ import annotations

NEVER = 2**63 - 1
"""Expected start of a job whose start the dispatcher does not know (integer seconds cannot be None in a column)."""

DISTINCT = 1
"""Bit of `JobTable.sharing`: each unit on a node of its own."""
EXCLUSIVE = 2
"""Bit of `JobTable.sharing`: nodes used are used by this job alone."""
BSLD_BOUND_S = 10
"""The bound of the bounded slowdown: run times below count as this much (Feitelson et al. 1997; debs24: k)."""
