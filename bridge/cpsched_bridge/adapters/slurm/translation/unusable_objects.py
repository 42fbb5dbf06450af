"""Find objects with a field that is unreadable or unknown to the adapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords, has_unusable_field
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.ports import ObjectKind, UnusableObject


def make_unusable_object(kind: ObjectKind, record: Record) -> UnusableObject:
    """Return a node, partition or reservation with its first unusable field.

    Raise `ValueError` if the record has no unusable field.
    """
    for reason in ("unreadable", "unknown"):
        for name, detail in (record.get(reason) or {}).items():
            return UnusableObject(kind, str(record["name"]), name, reason, detail)
    raise ValueError(f"{kind} {record['name']} has no unusable field")


def list_unusable_objects(seen: SlurmRecords) -> Iterator[UnusableObject]:
    """Yield all unusable objects in a reading.

    A job with an unreadable field counts only while it is pending. A job in an unknown state always counts.
    """
    tables: tuple[tuple[ObjectKind, Sequence[Record]], ...] = (
        ("node", seen.nodes),
        ("partition", seen.partitions),
        ("reservation", seen.reservations),
    )
    for kind, table in tables:
        yield from (make_unusable_object(kind, record) for record in table if has_unusable_field(record))
    for job in seen.jobs:
        if job["state"] == slurm_states.UNKNOWN:
            label = slurm_job_ids.format_job_id(slurm_job_ids.job_id_of_record(job))
            yield UnusableObject("job", label, "state", "unknown", job["unknown"]["state"])
        elif job.get("unreadable") and job["state"] == slurm_states.PENDING:
            yield UnusableObject(
                "job",
                slurm_job_ids.format_job_id(slurm_job_ids.job_id_of_record(job)),
                job["unreadable"][0],
                "unreadable",
            )
