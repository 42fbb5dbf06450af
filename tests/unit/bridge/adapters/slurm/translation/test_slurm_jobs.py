"""A Slurm record as a job: walltime, permitted nodes, partition limits, and allocated resources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cpsched.model import Job, Request
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.shared.adapter_errors import JobNotModelled
from cpsched_bridge.adapters.slurm.translation.slurm_jobs import (
    UNLIMITED_WALLTIME_S,
    find_allowed_node_set,
    find_partition_state_reason,
    get_walltime_s,
    require_walltime_within_partition_limit,
    translate_placed_job,
    translate_unreadable_job,
)
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import PartitionRules
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import ReservedNodes
from tests.builders import a_node, a_slurm_job, words


def a_machine(**facts: Any) -> SlurmNodeTable:
    features = (["big", "new"], ["big"], ["new"], None)
    return SlurmNodeTable.from_records(
        [a_node(f"n{i}", active_features=each, **facts) for i, each in enumerate(features)]
    )


def a_partition(**facts: Any) -> PartitionRules:
    parts: dict[str, Any] = {
        "name": "main",
        "state": "UP",
        "members": np.array([True, True, True, False]),
        "max_time_min": None,
        "default_time_min": None,
        "max_nodes": None,
        "min_nodes": 0,
        "exclusive": False,
        "unmodelled": None,
    }
    return PartitionRules(**parts | facts)


def a_record(**facts: Any) -> SlurmJob:
    return a_slurm_job(
        **{
            "submit_time": 7, "user_name": "ada", "user_id": 1001, "name": "run", "partition": "main",
            "account": "physics", "time_limit": 10, "allocated_tres": {"mem": 4000}, "cpus": 8, **facts,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "default", "most", "expected_s"),
    [
        (10, 20, 30, 600),
        (None, 20, 30, 1200),
        (0, 20, 30, 1200),
        (None, None, 30, 1800),
        (None, None, None, UNLIMITED_WALLTIME_S),
    ],
)
def test_computes_walltime_from_limits(
    limit: int | None, default: int | None, most: int | None, expected_s: int
) -> None:
    partition = a_partition(default_time_min=default, max_time_min=most)
    assert get_walltime_s(a_record(time_limit=limit), partition) == expected_s


def test_unlimited_walltime_is_longer_than_one_year() -> None:
    """No limit in minutes equals it."""
    assert UNLIMITED_WALLTIME_S == 31_536_001


@pytest.mark.parametrize(
    ("partition", "reason"),
    [
        ({}, None),
        ({"state": "DRAIN"}, None),
        ({"state": "DOWN"}, "PartitionDown: partition main is DOWN"),
        ({"state": "INACTIVE"}, "PartitionInactive: partition main is INACTIVE"),
    ],
)
def test_partition_state_blocks_its_jobs(partition: dict[str, Any], reason: str | None) -> None:
    assert words(find_partition_state_reason(a_partition(**partition))) == reason


def test_walltime_may_equal_partition_limit() -> None:
    require_walltime_within_partition_limit(a_partition(max_time_min=10), 600)
    with pytest.raises(JobNotModelled):
        require_walltime_within_partition_limit(a_partition(max_time_min=10), 601)


def reservation(name: str, *members: bool) -> ReservedNodes:
    return ReservedNodes(name, np.array(members), 0, 1)


@pytest.mark.parametrize(
    ("facts", "conflicts", "allowed", "named"),
    [
        ({}, (), [0, 1, 2], "main"),
        ({"constraints": ["big"]}, (), [0, 1], "main & big"),
        ({"constraints": ["big&new"]}, (), [0], "main & big & new"),
        ({"constraints": ["big", "new"]}, (), [0], "main & big & new"),
        ({"constraints": ["nobody has this"]}, (), [], "main & nobody has this"),
        ({"constraints": ["big|new"]}, (), [0, 1, 2], "main & big|new"),
        ({"constraints": ["[big|new]"], "max_nodes": 1, "ntasks": 4}, (), [0, 1, 2], "main & [big|new]"),
        ({"excluded_nodes": "n[0-1],elsewhere"}, (), [2], "main & excluded nodes"),
        ({}, (reservation("maint", True, False, True, True),), [1], "main & not maint"),
        (
            {"constraints": ["new"], "excluded_nodes": "n0"},
            (reservation("a", False, False, False, False), reservation("b", False, True, False, False)),
            [2],
            "main & new & excluded nodes",
        ),
    ],
)
def test_computes_allowed_nodes_of_job(
    facts: dict[str, Any], conflicts: tuple[ReservedNodes, ...], allowed: list[int], named: str
) -> None:
    machine = a_machine()
    row = find_allowed_node_set(a_record(**facts), machine, a_partition(), conflicts)
    assert np.flatnonzero(machine.rows[row]).tolist() == allowed
    assert machine.build_cluster().node_set_names[row] == named


@pytest.mark.parametrize(
    ("text", "nodes"),
    [*((text, 2) for text in ("big*2", "[big|new]", "[big*1&new*1]", "big:new", "big|", "|big", "(big", "((big)|new)")),
     ("big&", 1)],
)  # fmt: skip
def test_leaves_complex_feature_expression(text: str, nodes: int) -> None:
    record = a_record(constraints=[text], max_nodes=nodes, ntasks=nodes)
    with pytest.raises(JobNotModelled, match="features"):
        find_allowed_node_set(record, a_machine(), a_partition(), ())


@pytest.mark.parametrize(
    ("facts", "nodes", "request_", "walltime_s"),
    [
        ({}, 1, Request(1, (8, 4000)), 600),
        ({}, 2, Request(2, (4, 2000), distinct=True), 600),
        ({"cpus": 9, "allocated_tres": {"mem": 4001}}, 2, Request(2, (5, 2001), distinct=True), 600),
        ({"resource_sharing": "NO"}, 1, Request(1, (8, 4000), exclusive=True), 600),
        ({"time_limit": None}, 1, Request(1, (8, 4000)), UNLIMITED_WALLTIME_S),
        ({"time_limit": 0}, 1, Request(1, (8, 4000)), UNLIMITED_WALLTIME_S),
        ({"time_limit": 1}, 1, Request(1, (8, 4000)), 60),
        ({"time_limit": "UNLIMITED"}, 1, Request(1, (8, 4000)), UNLIMITED_WALLTIME_S),
        ({"cpus": None}, 1, Request(1, (1, 4000)), 600),
    ],
)
def test_running_job_takes_equal_shares_of_allocation(
    facts: dict[str, Any], nodes: int, request_: Request, walltime_s: int
) -> None:
    job = translate_placed_job(a_record(**facts), 5, a_machine(), nodes)
    assert job == Job(5, 7, walltime_s, request_, "ada", "run", "main", "physics")


def test_missing_fields_are_empty_and_user_is_numeric() -> None:
    facts = dict.fromkeys(("submit_time", "user_name", "name", "partition", "account"))
    job = translate_placed_job(a_record(**facts), 5, a_machine(), 1)
    assert (job.submit_s, job.user, job.name, job.queue, job.account) == (0, "1001", "", "", "")


@pytest.mark.parametrize("nodes", [1, 2])
def test_unreadable_running_job_holds_nodes_exclusively(nodes: int) -> None:
    job = translate_unreadable_job(a_record(submit_time="never", cpus="?"), 5, a_machine(), nodes)
    assert job.request == Request(nodes, (1, 0), distinct=nodes > 1, exclusive=True)
    assert (job.submit_s, job.walltime_s) == (0, UNLIMITED_WALLTIME_S)
