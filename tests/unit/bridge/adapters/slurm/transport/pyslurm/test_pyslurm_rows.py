"""The library's objects as values of the text parsers: an unreadable object affects only itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cpsched.slurm_text.gres import SharedGpus
from cpsched.slurm_text.jobs import JobDependencies, SlurmJob
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from cpsched_bridge.adapters.slurm.transport.pyslurm import pyslurm_rows
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_reader import (
    LIMIT_OPTIONS,
    TOTAL_GRES_OPTIONS,
    JobColumnLookup,
    PyslurmReader,
    read_total_gres,
    read_unlimited_jobs,
)
from tests.builders import a_slurm_job
from tests.unit.bridge.adapters.slurm.transport.cli.standin import NODE, Programs


class Node:
    """A node whose generic resources the library cannot read, and of which an older library lacks a field."""

    name, state, effective_cpus, partitions = "n1", "IDLE", 16, ["main"]

    @property
    def configured_gres(self) -> dict[str, int]:
        raise ValueError("invalid literal for int(): 'no_consume'")


def test_node_unreadable_for_library_is_unusable() -> None:
    (record,) = pyslurm_rows.table_to_records(pyslurm_rows.to_node_table([Node()]))
    node = pyslurm_rows.to_node(record)
    assert node.unreadable == {"configured_gres": "pyslurm cannot read it"}
    found = node.state, node.effective_cpus, node.configured_gres, node.slurm_version, node.unknown
    assert found == ("UNKNOWN", 16, None, None, None)


UNSET = dict.fromkeys(pyslurm_rows.JOB_FIELDS)


def test_reads_values_as_text_parser_does() -> None:
    told = {
        "id": 5, "state": "PENDING", "user_id": 0, "num_nodes": 0, "cpus": 0, "cpus_per_task": 1,
        "time_limit": "UNLIMITED",
        "threads_per_core": "UNLIMITED", "ntasks_per_core": 1, "threads_reserved_for_system": 2, "network": "ib",
        "dependencies": {"afterok": ["7(unfulfilled)"], "afterany": [], "singleton": False, "satisfy": "any"},
    }  # fmt: skip
    jobs = [SimpleNamespace(**UNSET | told | {"state": state}) for state in ("PENDING", "CANCELLED")]
    pending, ended = pyslurm_rows.table_to_records(pyslurm_rows.to_job_table(jobs))
    expected = SlurmJob(
        5, "PENDING", user_id=0, user_name="root", time_limit="UNLIMITED", ntasks_per_core=1,
        special_requests=frozenset({"cores_reserved_for_system", "network"}),
        dependencies=JobDependencies((("afterok", "7(unfulfilled)"),), None, True),
    )  # fmt: skip
    assert pyslurm_rows.to_slurm_job(pending) == expected
    assert pyslurm_rows.to_slurm_job(ended) == expected._replace(state="CANCELLED", dependencies=None)


class Library:
    """A child that answers with these jobs."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self.nodes: list[Any] = [Node()]
        self.jobs = [SimpleNamespace(**{**UNSET, "state": "PENDING", "user_id": 0, **job}) for job in jobs]

    def call(self, name: str, deadline_s: float) -> Any:
        return pyslurm_rows.to_job_table(self.jobs) if name == "jobs" else pyslurm_rows.to_node_table(self.nodes)


def test_takes_singleton_dependency_from_squeue() -> None:
    """None if squeue has no value."""
    wanted = {"afterok": ["7(unfulfilled)"], "singleton": False, "satisfy": "all"}
    asked = [wanted, {**wanted, "singleton": True}, wanted, wanted]
    jobs = [{"id": number, "dependencies": each} for number, each in enumerate(asked)]
    reader = PyslurmReader(Library(*jobs), programs=Programs())  # type: ignore[arg-type]
    reader._dependencies.read = lambda keys: {2: "singleton", 3: "afterok:7(unfulfilled)"}  # type: ignore[method-assign]  # noqa: SLF001
    found = [job.dependencies.singleton for job in reader.read().jobs if job.dependencies]
    assert found == [None, True, True, False]


def test_takes_missing_time_limit_from_squeue() -> None:
    """pyslurm shows None for a job without a limit and for one with its partition's limit."""
    lookup = JobColumnLookup(LIMIT_OPTIONS, lambda _: "5 UNLIMITED\n6 NOT_SET\n7 1:00:00\n")
    assert read_unlimited_jobs([a_slurm_job(5), a_slurm_job(6)], lookup) == [5]


def test_takes_total_gres_from_squeue() -> None:
    """pyslurm shows their number without types. Each job is queried once, and ended jobs are not."""
    asked: list[list[str]] = []
    shown = "5 gres/gpu:a100:2 \n6 gres/gpu:1 \n7 N/A \n8 ? \n9 gres/gpu:3 \n11 gres/gpu:1 \n12 gres/gpu:1 \n"
    lookup = JobColumnLookup(TOTAL_GRES_OPTIONS, lambda command: asked.append(command) or shown)
    gpus = {"requested_tres": {"cpu": 1, "gres/gpu": 2}}
    jobs = [
        *(a_slurm_job(number, **gpus) for number in (6, 7)),
        a_slurm_job(5, state="RUNNING", **gpus),
        a_slurm_job(10, **gpus),
        a_slurm_job(8, gres_per_node={"gpu": 2}, **gpus),
        a_slurm_job(9, requested_tres={"cpu": 1}),
        a_slurm_job(11, state="COMPLETED", **gpus),
    ]
    for read in (jobs[:3] + jobs[4:], jobs[:3]):
        assert read_total_gres(read, lookup) == {5: {"gpu:a100": 2}, 6: {"gpu": 1}, 7: {}}
    command = ["squeue", "--noheader", "--all", "--states=all", "--Format=JobID: ,tres-per-job: "]
    assert asked == [command]


class SharedNode(SimpleNamespace):
    """A node whose GPUs jobs share."""

    name, state, effective_cpus, partitions, configured_gres = "n1", "IDLE", 16, ["main"], {"gpu": 2, "shard": 8}


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("transport", ["cli", "pyslurm"])
def test_reads_the_use_of_shared_gpus(transport: str, shares: bool) -> None:
    """Only `scontrol --details` shows it. It is not run if no node has such GPUs."""
    node = NODE.format(name="n1").replace("gpu:2\n", "gpu:2,shard:8\n" if shares else "gpu:2\n")
    programs, library = Programs(), Library()
    used = "   GresUsed=gpu:1(IDX:1),shard:3(3/4,-/4)\n   NodeAddr"
    programs.broken = {"scontrol --all --details show nodes": node.replace("   NodeAddr", used),
                       "scontrol --all show nodes": node}  # fmt: skip
    library.nodes = [SharedNode() if shares else Node()]
    reader = SlurmCliReader(programs=programs) if transport == "cli" else PyslurmReader(library, programs=programs)  # type: ignore[arg-type]
    (seen,) = reader.read().nodes
    expected = SharedGpus("shard", 4, (3, None)) if shares else None
    assert (seen.shared_gpus, programs.counted("--details", "nodes")) == (expected, shares)
