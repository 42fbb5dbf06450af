"""The resources that running jobs use, as boxes over position and time."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel
from cpsched.jit.shared_structs import FixedColumn
from cpsched.kernels.cp.cp_state import CpInstance
from cpsched.kernels.fit_rules import amount_taken_on_node
from cpsched.model import IntArray

Boxes = tuple[IntArray, IntArray, IntArray]


@kernel
def running_rectangles(facts: CpInstance, axis: tuple[FixedColumn, int], r: int, horizon_s: int) -> Boxes:
    """Return boxes for amounts of `r` in use: first positions, sizes and ends.

    - `axis`: the index of each node on the position axis (-1 if the node is omitted), and the number of positions per
      node.
    - All boxes begin now. A job's box ends when the job ends, in seconds. Amounts out of service end at
      `horizon_s`.
    - The boxes of one node form a staircase, with the box that ends last at the bottom.
    """
    (base, stride), table, machine = axis, facts.table, facts.machine
    # There is at most one box per entry of a placement, and one per node.
    room = len(machine.free)
    for i in range(len(facts.running)):
        room += table.place_count[facts.running[i]]
    y, dy, end_s = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    count = 0

    # From the top of a node's stack down, each running job occupies the piece below the job that ends before it.
    height = np.empty(len(machine.free), np.int64)
    for node in range(len(machine.free)):
        height[node] = machine.capacity[node, r] - max(machine.free[node, r], 0)
    for i in range(len(facts.running)):
        slot = facts.running[i]
        for p in range(table.place_at[slot], table.place_at[slot] + table.place_count[slot]):
            node = facts.place_node[p]
            amount = amount_taken_on_node(table, slot, machine, node, facts.place_units[p], r)
            if amount == 0 or base[node] < 0:
                continue
            height[node] -= amount
            y[count], dy[count] = base[node] * stride + height[node], amount
            end_s[count] = facts.end_s[slot]
            count += 1

    # Amounts that are in use, but not by a running job, are out of service until the horizon.
    for node in range(len(machine.free)):
        if base[node] >= 0 and height[node] > 0:
            y[count], dy[count], end_s[count] = base[node] * stride, height[node], horizon_s
            count += 1
    return y[:count].copy(), dy[:count].copy(), end_s[:count].copy()
