"""Compute a model's number of decision variables before it is built."""

from __future__ import annotations

import numpy as np

from cpsched.kernels.cp.cp_state import CpInstance
from cpsched.kernels.cp.startable_jobs import units_fitting_on_empty_nodes
from cpsched.model import EXCLUSIVE, IntArray


def position_model_size(facts: CpInstance) -> int:
    """Return PCP'20's number of variables: |Q| + sum of rn_i * |R| (pcp20 section 3)."""
    return len(facts.jobs) + int(facts.table.units[facts.jobs].sum()) * int(facts.machine.capacity.shape[1])


def node_model_size(facts: CpInstance) -> int:
    """Return PCP'19's number of variables: |Q| + sum of p[i,n] (pcp20 section 2.2)."""
    slots = facts.jobs.tolist()
    return len(slots) + sum(int(intervals_per_node(facts, slot, int(facts.table.units[slot])).sum()) for slot in slots)


def pool_model_size(facts: CpInstance) -> int:
    """Return the number of variables in HCP: one start per job."""
    return len(facts.jobs)


def intervals_per_node(facts: CpInstance, slot: int, parts: int) -> IntArray:
    """Return p[i,n], the number of a job's intervals on each node, int64[N]."""
    room = units_fitting_on_empty_nodes(facts, slot)
    return np.minimum(room, 1 if facts.table.sharing[slot] & EXCLUSIVE else parts)
