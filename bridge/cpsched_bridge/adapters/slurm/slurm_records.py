"""Define one reading of a Slurm cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmNode, SlurmPartition, SlurmReservation, SlurmTopology

Record = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class SlurmRecords:
    """One reading of a Slurm cluster. `now_s` is the controller's time."""

    now_s: int
    nodes: Sequence[SlurmNode]
    partitions: Sequence[SlurmPartition]
    reservations: Sequence[SlurmReservation]
    jobs: Sequence[SlurmJob]
    """All jobs that the controller remembers."""
    guarded: bool = True
    """Whether the submit plugin is loaded, even if it is switched off."""
    outside: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Groups, by user, that partitions allow and that the user is known not to belong to."""
    topologies: Mapping[str, SlurmTopology] = field(default_factory=dict)
    """Topologies by the name that partitions use ("" if they name no topology)."""


def name_users(records: SlurmRecords, user_names: Mapping[int, str]) -> SlurmRecords:
    """Return the records with the user names of Slurm's associations instead of this host's."""
    jobs = [
        job
        if job.user_id is None or user_names.get(job.user_id, job.user_name) == job.user_name
        else job._replace(user_name=user_names[job.user_id])
        for job in records.jobs
    ]
    return replace(records, jobs=jobs)


NODE_FILTER_PARAMETER = "extra_constraints"
"""Item of SchedulerParameters with which `--extra` is a node filter instead of a comment."""


SETTABLE_PARTITIONS_PATTERN = r"[\w.+@-]+(?:,[\w.+@-]+)*"
"""Pattern (ASCII) for partitions that a start can set and restore. Slurm also accepts names with blanks or slashes."""
