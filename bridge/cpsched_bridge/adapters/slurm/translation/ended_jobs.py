"""Find ended jobs in the controller's memory and in the accounting database."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.model import EndedJob, Job
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.shared.job_not_modelled import UNREADABLE_FIELD_ERRORS
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.adapters.slurm.translation.slurm_jobs import translate_placed_job
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable


@dataclass(slots=True)
class NewlyEndedJobReader:
    """A reader that reports each ended job once."""

    _reported: set[tuple[int, int]] = field(default_factory=set)
    """The job numbers and end times of reported jobs that the controller still remembers."""

    def read(self, jobs: Sequence[SlurmJob], machine: SlurmNodeTable, known: Mapping[int, Job]) -> tuple[EndedJob, ...]:
        """Return the jobs that ran and ended since the last reading, sorted by end time.

        The first reading returns all ended jobs that Slurm remembers, so that a restarted bridge learns how its jobs
        ended. A job in `known` keeps the translation found there.
        """
        over = [job for job in jobs if _has_run_and_ended(job) and job.end_time >= job.start_time]
        keys = {(slurm_job_ids.get_job_id(job), job.end_time): job for job in over}
        fresh = [keys[key] for key in keys if key not in self._reported]
        self._reported = set(keys)
        return tuple(_translate_readable_ended_jobs(lambda job: _translate_ended_job(job, machine, known), fresh))


def list_ended_jobs(jobs: Iterable[SlurmJob], machine: SlurmNodeTable, known: Mapping[int, Job]) -> list[EndedJob]:
    """Return every ended job that the controller still remembers, sorted by end time."""
    return _translate_readable_ended_jobs(
        lambda job: _translate_ended_job(job, machine, known), filter(_has_run_and_ended, jobs)
    )


def ended_jobs_from_sacct(past: Iterable[SlurmJob], machine: SlurmNodeTable) -> list[EndedJob]:
    """Return the jobs in accounting records that ran and ended, sorted by end time."""
    return _translate_readable_ended_jobs(
        lambda job: _translate_database_record(job, machine), filter(has_run_and_ended_in_database, past)
    )


def _has_run_and_ended(job: SlurmJob) -> bool:
    """Return whether a job ran and has ended.

    A job that was cancelled while pending has a start time, which equals its end time, but no nodes.
    """
    is_over = job.state in slurm_states.ENDED_STATES
    return bool(is_over and job.start_time and job.end_time and job.allocated_nodes)


def _translate_ended_job(slurm_job: SlurmJob, machine: SlurmNodeTable, known: Mapping[int, Job]) -> EndedJob:
    number = slurm_job_ids.get_job_id(slurm_job)
    job = known.get(number)
    if job is None:
        nodes = len(expand_hostlist_or_empty(slurm_job.allocated_nodes)) or slurm_job.num_nodes
        job = translate_placed_job(slurm_job, number, machine, nodes)
    return EndedJob(job, slurm_job.start_time, slurm_job.end_time)


def has_run_and_ended_in_database(job: SlurmJob) -> bool:
    """Return whether an accounting record shows a user's job that ran and ended."""
    start_s, end_s = job.start_time, job.end_time
    return bool(job.allocated_nodes and start_s and end_s >= start_s and job.user_name)


def _translate_database_record(slurm_job: SlurmJob, machine: SlurmNodeTable) -> EndedJob:
    """Return the ended job in an accounting record."""
    number = slurm_job_ids.get_job_id(slurm_job)
    job = translate_placed_job(slurm_job, number, machine, slurm_job.num_nodes)
    return EndedJob(job, slurm_job.start_time, slurm_job.end_time)


def _translate_readable_ended_jobs(
    translate: Callable[[SlurmJob], EndedJob], records: Iterable[SlurmJob]
) -> list[EndedJob]:
    """Return the jobs in these records by end time, without unreadable records."""
    found = []
    for job in records:
        with contextlib.suppress(*UNREADABLE_FIELD_ERRORS):
            found.append(translate(job))
    return sorted(found, key=lambda each: (each.end_s, each.job.id))
