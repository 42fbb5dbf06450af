"""Compute the cost of a plan's delays."""

from __future__ import annotations

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.shared_structs import FixedColumn
from cpsched.kernels.cp.cp_state import WeightedDelayObjective


@subroutine
def job_delay_cost(objective: WeightedDelayObjective, j: int, start_s: int) -> float:
    """Return the cost of the delay of job `j` if it starts at `start_s`."""
    return float(objective.weight[j] * max(0, start_s - objective.since_s[j]))


@kernel
def plan_delay_cost(objective: WeightedDelayObjective, start_s: FixedColumn) -> float:
    """Return the cost of a plan's delays: its objective without the constant."""
    total = 0.0
    for j in range(len(start_s)):
        total += job_delay_cost(objective, j, start_s[j])
    return total
