"""Past jobs of the accounting database as ended jobs: what fills a predictor at start."""

from __future__ import annotations

from collections.abc import Iterable

from cpsched.model import EndedJob, Job, Request
from cpsched_bridge.adapters.slurm.translation import ids
from cpsched_bridge.adapters.slurm.translation.jobs import FOREVER_S
from cpsched_bridge.adapters.slurm.translation.machine import Machine, tres_gres
from cpsched_bridge.adapters.slurm.transport.rows import Record


def ended_jobs(past: Iterable[Record], machine: Machine) -> list[EndedJob]:
    """Those that ran and ended, oldest end first; amounts are equal shares of what was allocated."""
    found = [_ended(record, machine) for record in past if _ran(record)]
    return sorted(found, key=lambda ended: (ended.end_s, ended.job.id))


def _ran(record: Record) -> bool:
    start_s, end_s = record["start_time"], record["end_time"]
    return bool(start_s and end_s and end_s >= start_s and record["user_name"])


def _ended(record: Record, machine: Machine) -> EndedJob:
    nodes = max(1, record["num_nodes"] or 1)
    tres = record["allocated_tres"] or {}
    cpus = max(1, -(-(record["cpus"] or 1) // nodes))
    memory_mib = -(-int(tres.get("mem", 0)) // nodes)
    gres = {name: -(-n // nodes) for name, n in tres_gres(tres).items() if name in machine.resources}
    amounts = machine.vector(cpus, memory_mib if machine.counts_memory else 0, gres)
    assert amounts is not None
    limit = record["time_limit"]
    job = Job(
        id=ids.of_record({**record, "array_tasks_waiting": None}),
        submit_s=record["submit_time"] or record["start_time"],
        walltime_s=limit * 60 if isinstance(limit, int) and limit > 0 else FOREVER_S,
        request=Request(nodes, amounts, distinct=nodes > 1),
        user=record["user_name"],
        name=record["name"] or "",
        queue=record["partition"] or "",
        account=record["account"] or "",
    )
    return EndedJob(job, record["start_time"], record["end_time"])
