"""The compiled replay loop, which includes the list schedulers' kernel.

Rounds and starts are the same as in the Python loop.
"""

from __future__ import annotations

from collections.abc import Callable

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.shared_structs import FixedColumn, SharedStruct
from cpsched.kernels.node_list_scheduling import plan_on_nodes
from cpsched.kernels.pool_list_scheduling import plan_on_pool
from cpsched.kernels.scheduling_state import ListSchedulerParameters
from cpsched.model import NEVER
from cpsched.planning import ARRIVAL_ORDER, ListSchedulerSpec
from cpsched_sim.cluster.event_kernels import (
    FAULTY,
    NOTHING_LEFT,
    PAUSE_WHERE_NEEDED,
    SimulatedClusterState,
    advance_to_next_round,
    start_jobs,
)
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster

MORE_ROUNDS = -1
"""Return value of the loop if more rounds remain."""

ROUNDS_PER_CALL = 20_000
"""Number of decided rounds between two checks for progress and interrupts."""


class DecisionPathCounts(SharedStruct):
    """Number of decided rounds by decision path."""

    none: int
    some: int
    every: int


@subroutine
def start_jobs_of_round(state: SimulatedClusterState, paths: DecisionPathCounts, count: int) -> int:
    """Count a round, and start its first `count` planned jobs.

    Return -1, or the position of a start that breaks a rule.
    """
    if count == 0:
        paths.none += 1
        return -1
    if count == state.site.queued:
        paths.every += 1
    else:
        paths.some += 1
    draft = state.site.draft
    state.fault = start_jobs(state, draft.slots[:count], draft.offsets[: count + 1], draft.nodes, draft.units)
    return state.fault


@kernel
def run_rounds_on_pool(
    state: SimulatedClusterState, method: ListSchedulerParameters, paths: DecisionPathCounts, given: FixedColumn
) -> int:
    """Run up to `ROUNDS_PER_CALL` decided rounds on a counted pool."""
    for _ in range(ROUNDS_PER_CALL):
        if advance_to_next_round(state, PAUSE_WHERE_NEEDED, NEVER - 1) == NOTHING_LEFT:
            return NOTHING_LEFT
        if start_jobs_of_round(state, paths, plan_on_pool(state.site, method, given)) >= 0:
            return FAULTY
    return MORE_ROUNDS


@kernel
def run_rounds_on_nodes(
    state: SimulatedClusterState, method: ListSchedulerParameters, paths: DecisionPathCounts, given: FixedColumn
) -> int:
    """Run up to `ROUNDS_PER_CALL` decided rounds on nodes."""
    for _ in range(ROUNDS_PER_CALL):
        if advance_to_next_round(state, PAUSE_WHERE_NEEDED, NEVER - 1) == NOTHING_LEFT:
            return NOTHING_LEFT
        if start_jobs_of_round(state, paths, plan_on_nodes(state.site, method, given)) >= 0:
            return FAULTY
    return MORE_ROUNDS


def run_all_rounds_compiled(
    cluster: SimulatedCluster,
    scheme: ListSchedulerSpec,
    paths: dict[str, int],
    violations: list[str],
    tell: Callable[[], None],
) -> None:
    """Run until no events remain. Update `paths` and `violations`."""
    method, counts = scheme.kernel_parameters(False), DecisionPathCounts(0, 0, 0)
    rounds = run_rounds_on_pool if cluster.cluster.counted else run_rounds_on_nodes
    result = MORE_ROUNDS
    while result != NOTHING_LEFT:
        result = rounds(cluster.state, method, counts, ARRIVAL_ORDER)
        if result == FAULTY:
            slot = int(cluster.slot_of_planned_start(cluster.state.fault))
            violations.append(f"job {cluster.jobs[slot].id}: does not fit on the cluster in its current state")
        tell()
    found = {"none-starts": counts.none, "some-start": counts.some, "all-start": counts.every}
    paths.update({name: n for name, n in found.items() if n})
