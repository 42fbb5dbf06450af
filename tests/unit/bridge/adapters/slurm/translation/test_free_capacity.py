"""What fits on what is free now: on the nodes that a job may use, whole ones where it wants them."""

from __future__ import annotations

import numpy as np
import pytest

from cpsched.model import NodeSetPart, Request
from cpsched_bridge.adapters.slurm.translation.free_capacity import FreeNodeCapacity
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from tests.unit.bridge.adapters.slurm.translation.test_slurm_nodes import a_node

MACHINE = SlurmNodeTable.from_records([a_node(f"n{i}") for i in range(3)], counts_memory=False)
"""Three nodes of 8 cores."""
FIRST_TWO = MACHINE.intern_node_set(np.array([True, True, False]), NodeSetPart("feature", "first two"))
FREE = np.array([[8, 0], [3, 0], [5, 0]])


@pytest.mark.parametrize(
    ("request_", "fits"),
    [
        (Request(16, (1, 0)), True),
        (Request(17, (1, 0)), False),
        (Request(11, (1, 0), node_set=FIRST_TWO), True),
        (Request(12, (1, 0), node_set=FIRST_TWO), False),
        (Request(2, (4, 0), distinct=True), True),
        (Request(2, (4, 0), distinct=True, node_set=FIRST_TWO), False),
        (Request(8, (1, 0), exclusive=True), True),
        (Request(9, (1, 0), exclusive=True), False),
    ],
)
def test_only_the_nodes_of_its_node_set_count_and_whole_nodes_must_be_idle(request_: Request, fits: bool) -> None:
    room = FreeNodeCapacity(MACHINE, FREE)
    assert room.fits(request_) is fits
    assert room.fits(request_) is fits, "as looked up before"
