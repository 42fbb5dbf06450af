"""Compare what the transports read."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import Any

from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import PyslurmTransport

CHECKED = (
    "state_reason", "priority", "admin_comment", "comment", "requeue_count", "array_id", "array_task_id",
    "array_tasks_waiting", "start_time", "partition", "qos",
)  # fmt: skip


def _to_fields(record: Any) -> dict[str, Any]:
    if not isinstance(record, SlurmJob):
        return asdict(record)
    # pyslurm shows neither of these requests
    requests = sorted(record.special_requests - {"preferred_features", "node_counts"})
    return record._asdict() | {
        "special_requests": requests,
        "gres_per_node": dict(record.gres_per_node),
        "gres_per_job": dict(record.gres_per_job),
    }


def _without_insignificant_fields(job: SlurmJob) -> SlurmJob:
    """Remove the name that stands for none, and the number of nodes of a job that had nothing."""
    name = "" if job.name == "(null)" else job.name
    num_nodes = job.num_nodes if job.allocated_tres else 1
    return job._replace(
        name=name, user_id=None, time_limit=None, constraints=tuple(job.constraints), num_nodes=num_nodes
    )


def compare() -> dict[str, Any]:
    """Return the differences between pyslurm's records, read before and after, and those of the programs."""
    with closing(PyslurmTransport(60.0)) as library:
        text = SlurmCliReader(60.0)
        before, read, after = library.read(), text.read(), library.read()
        found: list[list[str]] = []
        counts: dict[str, int] = {}
        for kind, key in (("jobs", "id"), ("nodes", "name"), ("partitions", "name"), ("reservations", "name")):
            readings = (map(_to_fields, getattr(seen, kind)) for seen in (before, read, after))
            first, here, last = ({record[key]: record for record in reading} for reading in readings)
            found += [[kind, str(number), "missing"] for number in first.keys() & last.keys() - here.keys()]
            found += [[kind, str(number), "unexpected"] for number in here.keys() - first.keys() - last.keys()]
            for number in first.keys() & here.keys() & last.keys():
                counts[kind] = counts.get(kind, 0) + len(here[number])
                for name, value in here[number].items():
                    if value not in (first[number][name], last[number][name]):
                        state = str(here[number].get("state"))
                        found.append([kind, str(number), state, name, repr(first[number][name]), repr(value)])
        looked = {job.id: job for job in text.read_jobs(None)}
        for job in read.jobs:
            again = looked.get(job.id)
            for name in CHECKED if again is not None and again.state == job.state else ():
                value, other = getattr(job, name), getattr(again, name)
                if value != other:
                    found.append(["looks", str(job.id), name, repr(value), repr(other)])
        mine, theirs = _to_fields(text.read_config()), _to_fields(library.read_config())
        different = [name for name in theirs if mine[name] != theirs[name]]
        found += [["config", "", name, repr(theirs[name]), repr(mine[name])] for name in different]
        past = {job.id: _without_insignificant_fields(job) for job in library.read_accounting(0)}
        for job in map(_without_insignificant_fields, text.read_accounting(0)):
            if past.get(job.id) != job:
                found.append(["past", str(job.id), "", repr(past.get(job.id)), repr(job)])
    return {
        "found": found,
        "counts": counts,
        "jobs": len(read.jobs),
        "layouts": sum(bool(job.layout) for job in read.jobs),
        "looked": len(looked),
        "guarded": [read.guarded, before.guarded],
        "outside": read.outside == before.outside,
    }


def read_topologies(transport: str) -> tuple[dict[str, Any], dict[str, Any], str, Any]:
    """Return the topologies, those of the partitions, and the configured and known plugins."""
    with closing({"cli": SlurmCliTransport, "pyslurm": PyslurmTransport}[transport]()) as opened:
        seen, facts = opened.read(), opened.gather_doctor_facts()
    topologies = {name: asdict(topology) for name, topology in seen.topologies.items()}
    named = {partition.name: partition.topology for partition in seen.partitions}
    return topologies, named, facts["config"].topology_plugin, facts["topology_plugins"]
