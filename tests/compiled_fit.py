"""The fit rule as the simulator applies it, for single decisions."""

import numpy as np

from cpsched.feasibility import find_format_faults, start_columns, verify
from cpsched.jit.decorators import kernel
from cpsched.jit.shared_structs import FixedColumn
from cpsched.kernels.fit_rules import QUEUED, Starting, verify_and_take_starts
from cpsched.kernels.scheduling_state import NodeResourceState, build_node_resource_state
from cpsched.model import JobTable


@kernel
def first_fault(machine: NodeResourceState, jobs: JobTable, queue: FixedColumn, starts: Starting) -> int:
    """Return the position of the first start that breaks a rule, -1 if none does."""
    phase = np.zeros(len(jobs.units), np.int64)
    for slot in queue:
        phase[slot] = QUEUED
    slots, offsets, nodes, units = starts
    total_free = np.zeros(machine.free.shape[1], np.int64)
    return verify_and_take_starts(slots, offsets, nodes, units, phase, machine.free.copy(), total_free, machine, jobs)


def is_feasible(decision, snapshot):
    """Return whether `verify` finds no violation, by the compiled rule; the cap of power has no compiled one."""
    if find_format_faults(decision, snapshot):
        return False
    machine = build_node_resource_state(snapshot.cluster, snapshot.free)
    if first_fault(machine, snapshot.table, snapshot.queue, start_columns(decision)) >= 0:
        return False
    return not any("power cap" in str(each) for each in verify(decision, snapshot))
