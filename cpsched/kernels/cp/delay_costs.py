"""Compute the cost of a plan's delays."""

from __future__ import annotations

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.handles import FixedColumn
from cpsched.kernels.cp.cp_state import TotalDelayObjective


@subroutine
def cost_of(objective: TotalDelayObjective, j: int, start_s: int) -> float:
    """Return the cost of the delay of job `j` if it starts at `start_s`."""
    return float(objective.weight[j] * max(0, start_s - objective.since_s[j]))


@kernel
def delay(objective: TotalDelayObjective, start_s: FixedColumn) -> float:
    """Return the cost of a plan's delays: its objective without the constant. `start_s` is int64[J]."""
    total = 0.0
    for j in range(len(start_s)):
        total += cost_of(objective, j, start_s[j])
    return total
