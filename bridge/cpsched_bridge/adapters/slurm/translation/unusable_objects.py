"""Find objects with a field that is unreadable or unknown to the adapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cpsched.slurm_text.objects import SlurmObject
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.ports import ObjectKind, UnusableObject


def make_unusable_object(kind: ObjectKind, slurm_object: SlurmObject) -> UnusableObject:
    """Return a node, partition or reservation with its first unusable field.

    Raise `ValueError` if the object has no unusable field.
    """
    for name, detail in (slurm_object.unreadable or {}).items():
        return UnusableObject(kind, slurm_object.name, name, "unreadable", detail)
    for name, detail in (slurm_object.unknown or {}).items():
        return UnusableObject(kind, slurm_object.name, name, "unknown", detail)
    raise ValueError(f"{kind} {slurm_object.name} has no unusable field")


def list_unusable_objects(seen: SlurmRecords) -> Iterator[UnusableObject]:
    """Yield all unusable objects in a reading.

    A job with an unreadable field counts only while it is pending. A job in an unknown state always counts.
    """
    tables: tuple[tuple[ObjectKind, Sequence[SlurmObject]], ...] = (
        ("node", seen.nodes),
        ("partition", seen.partitions),
        ("reservation", seen.reservations),
    )
    for kind, table in tables:
        yield from (make_unusable_object(kind, each) for each in table if each.has_unusable_field)
    for job in seen.jobs:
        if job.state == slurm_states.UNKNOWN:
            label = slurm_job_ids.format_job_id(slurm_job_ids.get_job_id(job))
            yield UnusableObject("job", label, "state", "unknown", job.unknown_state)
        elif job.unreadable and job.state == slurm_states.PENDING:
            yield UnusableObject(
                "job",
                slurm_job_ids.format_job_id(slurm_job_ids.get_job_id(job)),
                job.unreadable[0],
                "unreadable",
            )
