"""The requests that fit in the free amounts, on permitted nodes, and on whole nodes if requested."""

from __future__ import annotations

import numpy as np
import pytest

from cpsched.model import NEVER, Job, NodeSetCondition, Request, RunningJob
from cpsched.slurm_text.configuration import SelectRules
from cpsched_bridge.adapters.slurm.translation.free_capacity import FreeNodeCapacity
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from tests.builders import a_node

MACHINE = SlurmNodeTable.from_records([a_node(f"n{i}") for i in range(3)], rules=SelectRules(counts_memory=False))
"""Three nodes of 8 cores."""
FIRST_TWO = MACHINE.intern_node_set(np.array([True, True, False]), NodeSetCondition("feature", "first two"))
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
def test_counts_only_allowed_nodes_and_idle_whole_nodes(request_: Request, fits: bool) -> None:
    room = FreeNodeCapacity(MACHINE, FREE)
    assert room.fits(request_) is fits
    assert room.fits(request_) is fits, "as looked up before"


def running(start_s: int, walltime_s: int, units: int, node: int) -> RunningJob:
    request = Request(units, (1, 0))
    return RunningJob(Job(1, 0, walltime_s, request), start_s, ((node, units),))


@pytest.mark.parametrize(
    ("request_", "start_s"),
    [
        (Request(16, (1, 0)), 50),
        (Request(17, (1, 0)), 51),
        (Request(20, (1, 0)), 70),
        (Request(23, (1, 0)), NEVER),
        (Request(1, (8, 0), exclusive=True), 50),
        (Request(2, (8, 0), exclusive=True), 70),
        (Request(12, (1, 0), node_set=FIRST_TWO), 70),
    ],
)
def test_job_fits_after_ends_of_running_jobs(request_: Request, start_s: int) -> None:
    """The job on node 2 should have ended at 30; node 1 is free at 70, and 2 cores of node 2 stay in use."""
    jobs = [running(0, 70, 5, 1), running(10, 20, 1, 2)]
    room = FreeNodeCapacity(MACHINE, FREE, jobs, now_s=50)
    assert [room.find_earliest_fit_s(request_) for _ in range(2)] == [start_s] * 2
