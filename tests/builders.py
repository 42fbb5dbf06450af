"""Builders with defaults, so that a test shows only what matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np

from cpsched.dispatchers.cp.cp_problem import build_cp_instance
from cpsched.feasibility import amounts_by_node
from cpsched.jit.shared_structs import SharedStruct
from cpsched.kernels.cp.cp_state import CpInstance
from cpsched.model import Cluster, IntArray, Job, Placement, Request, RunningJob, Snapshot
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmNode
from cpsched_bridge.cycle_report import BridgeRole, CycleReport, Decided, JobChanges, Mode
from cpsched_bridge.ports import Hold, Observation, PendingJob, UndoOrder
from cpsched_bridge.store.ledger import LedgerState, ManagedJobEntry
from cpsched_bridge.telemetry.reason_kinds import format_reason


def a_cluster(nodes: int = 4, cores: int = 4, memory: int | None = None, gpus: Sequence[int] = ()) -> Cluster:
    """Return a cluster of `nodes` nodes with `cores` cores each, optional memory, and `gpus[i]` GPUs on node i."""
    resources = ["cores"] + (["memory"] if memory is not None else []) + (["gpus"] if gpus else [])
    rows = [
        [cores] + ([memory] if memory is not None else []) + ([gpus[i] if i < len(gpus) else 0] if gpus else [])
        for i in range(nodes)
    ]
    return Cluster.of(rows, resources)


def a_job(
    id: int = 1,
    units: int = 1,
    per_unit: Sequence[int] | int = 1,
    walltime_s: int = 100,
    submit_s: int = 0,
    distinct: bool = False,
    exclusive: bool = False,
    node_set: int = 0,
    **facts: str,
) -> Job:
    """Return a job. `per_unit` is a number of cores, or one amount per resource."""
    amounts = (per_unit,) if isinstance(per_unit, int) else tuple(per_unit)
    return Job(id, submit_s, walltime_s, Request(units, amounts, distinct, exclusive, node_set), **facts)


def a_running(job: Job, placement: Placement, start_s: int = 0) -> RunningJob:
    """Return `job` running on `placement`."""
    return RunningJob(job, start_s, placement)


def a_snapshot(
    cluster: Cluster,
    queue: Sequence[Job],
    running: Sequence[RunningJob] = (),
    now_s: int = 0,
    estimates: Mapping[int, int] | None = None,
) -> Snapshot:
    """Return a snapshot. `free` is the capacity minus the running jobs, and estimates default to the walltimes."""
    known = {job.id: job.walltime_s for job in [*queue, *(r.job for r in running)]}
    return Snapshot.of(now_s, cluster, free_beside(cluster, running), queue, running, known | dict(estimates or {}))


def free_beside(cluster: Cluster, running: Iterable[RunningJob]) -> IntArray:
    """Return the capacity minus what the running jobs use."""
    free = cluster.capacity.copy()
    for each in running:
        for node, amounts in amounts_by_node(each.job.request, each.placement, cluster.capacity).items():
            free[node] -= amounts
    assert (free >= 0).all(), "the running jobs of the test do not fit"
    return free


def considered(snapshot: Snapshot, count: int | None = None) -> CpInstance:
    """Return a round of constraint programming with the first `count` queued jobs, by default with all."""
    return build_cp_instance(snapshot).with_considered_jobs(snapshot.queue[:count])


def a_node(name: str = "n1", **facts: Any) -> SlurmNode:
    """Return a node of Slurm with 8 CPUs."""
    return SlurmNode(
        name=name, **{"state": "IDLE", "effective_cpus": 8, "threads_per_core": 1, "real_memory": 1000, **facts}
    )


def a_slurm_job(id: int = 1, state: str = "PENDING", **facts: Any) -> SlurmJob:
    """Return a job of Slurm. A fact of None is not set."""
    return SlurmJob(id, state, **{name: fact for name, fact in facts.items() if fact is not None})


def a_pending(job: Job | None = None, hold: Hold = Hold.PLUGIN, **facts: Any) -> PendingJob:
    """Return a pending job, by default held for the bridge."""
    return PendingJob(job or a_job(), hold, **facts)


def undo_orders(*job_ids: int) -> list[UndoOrder]:
    """Return orders to hold, release or unpin jobs whose starts changed nothing."""
    return [UndoOrder(job_id) for job_id in job_ids]


def an_observation(
    *pending: PendingJob, cluster: Cluster | None = None, now_s: int = 100, free: Any = None, **facts: Any
) -> Observation:
    """Return an observation, by default of an empty cluster."""
    cluster = cluster or a_cluster()
    return Observation(now_s, cluster, np.array(cluster.capacity if free is None else free), pending, **facts)


def a_cycle_report(number: int = 1, mode: Mode = "control", at_unix_s: float = 0.0, **facts: Any) -> CycleReport:
    """Return a report. Each fact belongs to the report, or to its role, decision or changes."""

    def take(part: type[Any]) -> dict[str, Any]:
        return {each.name: facts.pop(each.name) for each in fields(part) if each.name in facts}

    role = BridgeRole(mode, **take(BridgeRole))
    return CycleReport(
        number, role, at_unix_s, changes=JobChanges(**take(JobChanges)), decided=Decided(**take(Decided)), **facts
    )


def an_entry(state: LedgerState, since_s: int = 95, job_id: int = 1, **facts: Any) -> ManagedJobEntry:
    """Return a ledger entry, by default of job 1 since 5 s before the observation."""
    return ManagedJobEntry(job_id, state, since_s, **facts)


def plain(handle: SharedStruct) -> Any:
    """Return a shared struct's fields without compiled access, for plain Python."""
    fields = handle.__getstate__().items()
    return SimpleNamespace(**{name: plain(each) if isinstance(each, SharedStruct) else each for name, each in fields})


def words(reason):
    """Return a reason as text, or None without one."""
    return None if reason is None else format_reason(reason)
