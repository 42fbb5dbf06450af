"""Measure fragmentation: the idle GPUs that a site's typical requests cannot use.

This is F of FGD for whole GPUs (Weng et al., USENIX ATC 2023, section 4.2): a node's idle GPUs, times the share of the
typical requests that do not fit on the node. `cpsched.kernels.device_placement` has the same for parts of GPUs. All
values are integers, in millionths of a GPU, so that equal inputs give equal decisions on every platform.
"""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, scalar_subroutine, subroutine
from cpsched.jit.shared_structs import FixedColumn, FixedMatrix
from cpsched.kernels.fit_rules import units_that_fit
from cpsched.kernels.scheduling_state import SchedulingState
from cpsched.model import EXCLUSIVE, IntArray
from cpsched.model.typical_requests import TypicalRequests


@scalar_subroutine
def stranded_millionths(typical: TypicalRequests, free: FixedMatrix, row: int) -> int:
    """Return the stranded GPUs of a node that has `free[row]`."""
    idle = free[row, typical.gpu]
    if idle == 0:
        return 0
    stranded = 0
    for kind in range(len(typical.shares)):
        for r in range(free.shape[1]):
            if units_that_fit(1, typical.amounts[kind, r], 0, free[row, r], 0) == 0:
                stranded += typical.shares[kind] * idle
                break
    return stranded


@scalar_subroutine
def stranded_growth(
    typical: TypicalRequests, free: FixedMatrix, row: int, per_unit: FixedColumn, units: int, whole: int
) -> int:
    """Return how many more GPUs are stranded for each of `units` units that are placed on a node with `free[row]`.

    If `whole`, the request takes the node. A kind that fits afterwards also fits before, so one pass suffices.
    """
    idle, gpu = free[row, typical.gpu], typical.gpu
    if idle == 0:
        return 0
    left = 0 if whole else idle - units * per_unit[gpu]
    growth = 0
    for kind in range(len(typical.shares)):
        change = 0
        for r in range(free.shape[1]):
            amount = typical.amounts[kind, r]
            if units_that_fit(1, amount, 0, free[row, r], 0) == 0:
                change = left - idle
                break
            if units_that_fit(1, amount, 0, free[row, r] - units * per_unit[r], 0) == 0:
                change = left
        growth += typical.shares[kind] * change
    return growth if units == 1 else growth // units


@subroutine
def set_ranks_least_stranded(site: SchedulingState, slot: int) -> bool:
    """Set `trial.rank[g]` so that the nodes on which fewest GPUs become stranded come first. Return whether it is set.

    It is not set without typical requests, and for several units below leaf switches, which come first.
    """
    trial, typical, units = site.trial, site.machine.typical, site.jobs.units[slot]
    if len(typical.shares) == 0 or (units > 1 and len(site.machine.leaf_of) > 0):
        return False
    groups, found, rank = trial.groups, trial.found, trial.rank
    per_unit, whole = site.jobs.per_unit[slot], site.jobs.sharing[slot] & EXCLUSIVE
    for g in range(groups.count):
        rank[g] = 0
        if found[g] > 0 and groups.size[g] > 0:
            rank[g] = -stranded_growth(typical, groups.free, groups.first[g], per_unit, min(found[g], units), whole)
    return True


@kernel
def stranded_by_node(typical: TypicalRequests, free: FixedMatrix) -> IntArray:
    """Return the stranded GPUs of nodes with the free amounts `free` (int64[N, R]) in millionths, int64[N]."""
    found = np.empty(len(free), np.int64)
    for node in range(len(free)):
        found[node] = stranded_millionths(typical, free, node)
    return found


@kernel
def stranded_growth_by_node(
    typical: TypicalRequests, free: FixedMatrix, per_unit: FixedColumn, units: FixedColumn, whole: int
) -> IntArray:
    """Return `stranded_growth` on each node for `units` units (int64[N]) of a request, or 0 for none, int64[N]."""
    found = np.zeros(len(free), np.int64)
    for node in range(len(free)):
        if units[node] > 0:
            found[node] = stranded_growth(typical, free, node, per_unit, units[node], whole)
    return found
