"""Records of a real cluster with accounting, from pyslurm: each case is parsed into what its name states."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cpsched.feasibility import amounts_by_node
from cpsched.model import RunningJob
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.transport.pyslurm import pyslurm_rows
from cpsched_bridge.ports import Hold, Holder, Observation, UnmanagedJob
from tests.builders import words
from tests.recordings import job_to_object
from tests.unit.bridge.adapters.slurm.scenes import make_records

DATA = Path(__file__).parents[4] / "data" / "slurm"


class Recorded:
    """One recorded moment."""

    def __init__(self, name: str) -> None:
        self.content = json.loads((DATA / f"{name}.json").read_text())
        self.cases: dict[str, str] = self.content["cases"]

    def read(self) -> SlurmRecords:
        """Read from objects with pyslurm's attributes."""
        jobs = pyslurm_rows.to_job_table(job_to_object(job) for job in self.content["jobs"])
        nodes = pyslurm_rows.to_node_table(SimpleNamespace(**node) for node in self.content["nodes"])
        tables = {"jobs": jobs, "nodes": nodes}
        rows = {name: pyslurm_rows.table_to_records(table) for name, table in tables.items()}
        rows |= {name: self.content[name] for name in ("partitions", "reservations")}
        names = {job["id"]: job["user_name"] for job in self.content["jobs"]}
        records = make_records(self.content["recorded_at_s"], rows)
        return replace(records, jobs=[job._replace(user_name=names[job.id]) for job in records.jobs])


def observe(name: str) -> tuple[Recorded, Observation]:
    recorded = Recorded(name)
    return recorded, SlurmTranslator().observe(recorded.read())


def by_case(recorded: Recorded, seen: Observation) -> dict[str, Any]:
    """What each case has become: its first `PendingJob`, its `UnmanagedJob`, or its `RunningJob`."""
    names = {int(number): case for case, number in recorded.cases.items()}
    found: dict[str, Any] = {}
    for pending in seen.pending:
        found.setdefault(names.get(slurm_job_ids.split_task_id(pending.job.id)[0], ""), pending)
    for left in seen.unmanaged:
        found.setdefault(names.get(left.job_id, ""), left)
    for running in seen.running:
        found.setdefault(names.get(slurm_job_ids.split_task_id(running.job.id)[0], ""), running)
    return found


REQUESTS = {
    "one_core": (1, 1, 1000, 0),
    "six_tasks": (1, 6, 6000, 0),
    "forty_tasks": (4, 10, 10000, 0),
    "two_nodes": (2, 1, 1000, 0),
    "two_nodes_six_tasks": (2, 3, 3000, 0),
    "two_nodes_three_tasks_each": (2, 3, 3000, 0),
    "tasks_per_node_without_nodes": (2, 3, 3000, 0),
    "four_tasks_of_two_cpus": (1, 8, 8000, 0),
    "one_to_three_nodes": (2, 10, 10000, 0),
    "use_min_nodes": (1, 4, 4000, 0),
    "mem_per_node": (1, 2, 4096, 0),
    "mem_per_node_two_nodes": (2, 1, 4096, 0),
    "mem_per_cpu": (1, 4, 8192, 0),
    "mem_per_gpu": (1, 1, 2048, 1),
    "gres_two_gpus": (1, 1, 1000, 2),
    "gpus_total": (1, 1, 1000, 2),
    "gpus_per_node_two_nodes": (2, 1, 1000, 1),
    "gpus_per_task": (1, 2, 2000, 2),
}
"""Units, then cores, MiB and GPUs of each."""

LEFT = {
    "time_min": "minimum time",
    "min_cpus": "more CPUs than its tasks use",
    "mem_all_of_node": "all of a node's memory",
    "cpus_per_gpu": "per GPU",
    "exclusive_user": "nodes that are exclusive per user",
    "features_matching_or": "features",
    "features_counted": "features",
    "nodelist": "owner chose",
    "nodelist_two": "owner chose",
    "deadline": "deadline",
    "contiguous": "contiguous",
    "switches": "switches",
    "tmp_disk": "disk",
    "threads_per_core": "threads",
    "ntasks_per_socket": "per socket",
    "sockets_per_node": "sockets",
    "spread": "spread",
    "licenses": "licenses",
    "reservation_wanted": "reservation",
    "het": "heterogeneous",
}

INELIGIBLE = {
    "begin_later": "its begin time is 20",
    "partition_down": "DOWN",
    **dict.fromkeys(
        ("dependency_after", "dependency_afterok", "dependency_either", "dependency_never"), "depends on job "
    ),
    "dependency_singleton": "dependencies are not satisfied",
}

HOLDS = {
    "one_core": Hold.PLUGIN,
    "held_by_user": Hold.USER,
    "held_by_user_later": Hold.USER,
    "held_by_admin": Hold.USER,
    "held_by_bridge": Hold.ADMIN,
    "not_held_dependency": Hold.NONE,
    "not_held_user_hold": Hold.USER,
    "not_held_admin_hold": Hold.ADMIN,
}


def test_reads_requests() -> None:
    found = by_case(*observe("pending"))
    requests = {case: found[case].job.request for case in REQUESTS}
    assert {case: (r.units, *r.per_unit) for case, r in requests.items()} == REQUESTS
    assert all(r.distinct == (r.units > 1) for r in requests.values())
    assert found["exclusive"].job.request.exclusive


def test_leaves_unsupported_jobs_with_reason() -> None:
    found = by_case(*observe("pending"))
    left = {case: found[case] for case in LEFT if isinstance(found[case], UnmanagedJob)}
    assert {case: part for case, part in LEFT.items() if part in words(left[case].reason)} == LEFT
    assert (left["het"].held_for_bridge, left["licenses"].held_for_bridge) == (False, True)


def test_gives_reason_of_ineligible_jobs() -> None:
    found = by_case(*observe("pending"))
    assert {
        case: part for case, part in INELIGIBLE.items() if part not in (words(found[case].job.ineligible) or "")
    } == {}


def test_reads_holder_of_each_job() -> None:
    found = by_case(*observe("pending"))
    assert {case: found[case].hold for case in HOLDS} == HOLDS
    by_user = {case: found[case].holder for case in HOLDS if HOLDS[case] is Hold.USER}
    assert by_user == {case: Holder.ADMINISTRATOR if case == "held_by_admin" else Holder.OWNER for case in by_user}


def test_computes_allowed_nodes_of_jobs() -> None:
    """Features, a conjunction of them, excluded nodes, a partition."""
    recorded, seen = observe("pending")
    found = by_case(recorded, seen)
    names = np.array(seen.cluster.node_names)
    sets = {case: set(names[seen.cluster.node_sets[found[case].job.request.node_set]]) for case in
            ("feature", "features_and", "features_or", "exclude", "partition_short", "one_core")}  # fmt: skip
    assert sets == {
        "feature": {"n1", "n3"},
        "features_and": {"n4"},
        "features_or": {"n1", "n2", "n3", "n4"},
        "exclude": {"n2", "n4"},
        "partition_short": {"n1", "n2"},
        "one_core": {"n1", "n2", "n3", "n4"},
    }


def test_reads_array_with_step_and_array_with_limit() -> None:
    recorded, seen = observe("pending")
    tasks = {
        case: [(p.label.partition("_")[2], p.job.ineligible is None) for p in seen.pending
               if p.label.startswith(f"{recorded.cases[case]}_")]
        for case in ("array_stepped", "array")
    }  # fmt: skip
    assert tasks["array_stepped"] == [("1", True), ("5", True), ("9", True)]
    assert [startable for _, startable in tasks["array"]] == [True, True] + [False] * 8


def test_running_jobs_and_free_resources_match_slurm() -> None:
    """Slurm's own figures, but for n2, where an uneven job counts with an equal share."""
    recorded, seen = observe("running")
    found = by_case(recorded, seen)
    assert found["gpus_per_node_two_nodes"].placement == ((2, 1), (3, 1))
    assert found["six_tasks"].placement == ((0, 1),)
    assert isinstance(found["held_while_running"], RunningJob)
    by_slurm = [[1, 384, 0], [6, 1192, 0], [14, 14384, 0], [15, 15384, 1]]
    assert (seen.free <= np.array(by_slurm)).all()
    assert [row for n, row in enumerate(seen.free.tolist()) if n != 1] == [r for n, r in enumerate(by_slurm) if n != 1]


def test_free_and_allocated_resources_fit_on_each_node() -> None:
    for moment in ("pending", "running", "trouble", "not_responding"):
        seen = observe(moment)[1]
        total = seen.free.copy()
        for job in seen.running:
            for node, amounts in amounts_by_node(job.job.request, job.placement, seen.cluster.capacity).items():
                total[node] += amounts
        assert (total <= seen.cluster.capacity).all(), moment


@pytest.mark.parametrize("moment", ["trouble", "not_responding"])
def test_unavailable_nodes_offer_and_free_no_resources(moment: str) -> None:
    seen = observe(moment)[1]
    assert (seen.free.any(), {running.placement for running in seen.running} <= {()}) == (False, True)


def test_detects_requeued_job_with_our_pin() -> None:
    recorded = Recorded("trouble")
    number = int(recorded.cases["requeued_after_node_failure"])
    seen = SlurmTranslator().observe(recorded.read(), pinned=[number])
    job = next(p for p in seen.pending if p.job.id == number)
    assert (job.hold, job.pinned) == (Hold.NONE, True)


def test_leaves_jobs_with_unreadable_gpu_type() -> None:
    """pyslurm shows no type of `--gpus=a100:1`: with two types in the cluster, a pin could be on a wrong node."""
    recorded, seen = observe("typed_gpus")
    lines = {job["id"]: job["submit_line"] for job in recorded.content["jobs"]}
    left = {lines[job.job_id]: words(job.reason) for job in seen.unmanaged if job.job_id in lines}
    whole_job = [line for line in left if "--gpus=a100:1" in line]
    assert len(whole_job) == 1
    assert "whose type Slurm does not show" in left[whole_job[0]]
    resources = seen.cluster.resources
    placed = {lines[p.job.id]: dict(zip(resources, p.job.request.per_unit, strict=True)) for p in seen.pending}
    typed = next(amounts for line, amounts in placed.items() if "--gres=gpu:a100:2" in line)
    assert (typed["gpu:a100"], typed["gpu"], typed["gpu:l40"]) == (2, 2, 0)
