"""Read jobs and nodes with pyslurm, and everything else with Slurm's commands.

Slurm's commands also show facts that pyslurm does not: whether a dependency is a singleton, whether a job has no time
limit, the types of GPUs that a job requests in total, the layout of a job on several nodes, and the parts of GPUs in
use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from cpsched.slurm_text.jobs import NO_AMOUNTS, UNLIMITED, SlurmJob
from cpsched.slurm_text.output_values import parse_gres_counts
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from cpsched_bridge.adapters.slurm.transport.programs.layout_queries import CachingJobLayoutReader
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import run_and_read_output
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import PyslurmClient
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_rows import table_to_records, to_node, to_slurm_job


class PyslurmReader(SlurmCliReader):
    """A reader of Slurm's state with a pyslurm child. `options` are those of `SlurmCliReader`."""

    def __init__(self, client: PyslurmClient, **options: Any) -> None:
        super().__init__(**options)
        self.client = client
        self._layouts = CachingJobLayoutReader()
        self._dependencies = JobColumnLookup(SINGLETON_OPTIONS)
        self._limits = JobColumnLookup(LIMIT_OPTIONS)
        self._total_gres = JobColumnLookup(TOTAL_GRES_OPTIONS)

    @override
    def _read_cluster(self) -> SlurmRecords:
        table = self.client.call("jobs", self._deadline_s)
        jobs = self._complete([to_slurm_job(record) for record in table_to_records(table)])
        texts = self._run_queries(self._select_object_queries())
        self._cache_answers(texts)
        if not self._filters_by_extra():
            ignored = {"extra"}
            jobs = [job._replace(special_requests=job.special_requests - ignored) for job in jobs]
        nodes = [to_node(record) for record in table_to_records(self.client.call("nodes", self._deadline_s))]
        return self._make_records(jobs, nodes, texts["reservations"])

    def _complete(self, jobs: Sequence[SlurmJob]) -> list[SlurmJob]:
        """Return the jobs with the facts that only Slurm's commands show."""
        singletons, unlimited = read_singletons(jobs, self._dependencies), read_unlimited_jobs(jobs, self._limits)
        total_gres, layouts = read_total_gres(jobs, self._total_gres), self._layouts.read(jobs)
        found = []
        for job in jobs:
            if job.id in unlimited:
                job = job._replace(time_limit=UNLIMITED)
            if job.dependencies is not None and not job.dependencies.singleton:
                job = job._replace(dependencies=job.dependencies._replace(singleton=singletons.get(job.id)))
            if job.id in total_gres:
                job = job._replace(gres_per_job=total_gres[job.id])
            if job.id in layouts:
                job = job._replace(layout=layouts[job.id])
            found.append(job)
        return found

    @override
    def read_jobs(self, numbers: Collection[int] | None) -> list[SlurmJob]:
        wanted = None if numbers is None else sorted(numbers)
        table = self.client.call("jobs", self._deadline_s, numbers=wanted)
        return [to_slurm_job(record) for record in table_to_records(table)]

    def read_job(self, number: int) -> SlurmJob:
        """Return a newly read job. Raise `BackendError` if slurmctld has purged it."""
        (record,) = table_to_records(self.client.call("job", self._deadline_s, number=number))
        return to_slurm_job(record)


_SINGLETON = re.compile(r"(?:^|[,?])singleton(?:$|[(,?])")


class JobColumnLookup:
    """A squeue lookup of one column of jobs, for a fact that pyslurm does not report.

    Each job is queried once, and again if its key changes. The columns in use contain no text that users wrote.
    `options` select the jobs and what is printed of each: its number, a blank and the column. `show` runs a command and
    returns its output, or None if the command fails.
    """

    def __init__(self, options: Sequence[str], show: Callable[[list[str]], str | None] = run_and_read_output) -> None:
        self._command = ["squeue", "--noheader", "--all", *options]
        self._show = show
        self._known: dict[int, tuple[str, str]] = {}

    def read(self, keys: Mapping[int, str]) -> dict[int, str]:
        """Return the column's text by number of the jobs in `keys`. Jobs that squeue did not list are missing."""
        self._known = {number: known for number, known in self._known.items() if keys.get(number) == known[0]}
        if keys.keys() - self._known.keys() and (shown := self._show(self._command)) is not None:
            records = dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)
            self._known |= {
                number: (key, records[str(number)].strip()) for number, key in keys.items() if str(number) in records
            }
        return {number: text for number, (_, text) in self._known.items()}


SINGLETON_OPTIONS = "--states=PENDING", "--format=%A %E"
LIMIT_OPTIONS = "--states=PENDING", "--format=%A %l"
TOTAL_GRES_OPTIONS = "--states=all", "--Format=JobID: ,tres-per-job: "


def read_singletons(jobs: Iterable[SlurmJob], dependencies: JobColumnLookup) -> dict[int, bool]:
    """Return whether `singleton` is among the unsatisfied dependencies of a pending job, by job number.

    pyslurm reports `singleton` only once it is satisfied.
    """
    keys = {job.id: str(job.dependencies) for job in jobs if job.dependencies}
    return {number: _SINGLETON.search(text) is not None for number, text in dependencies.read(keys).items()}


def read_unlimited_jobs(jobs: Iterable[SlurmJob], limits: JobColumnLookup) -> list[int]:
    """Return the numbers of pending jobs without a time limit.

    pyslurm reports them like jobs with their partition's limit.
    """
    keys = {job.id: "" for job in jobs if job.state == slurm_states.PENDING and job.time_limit is None}
    return [number for number, text in limits.read(keys).items() if text == "UNLIMITED"]


def read_total_gres(jobs: Iterable[SlurmJob], gres: JobColumnLookup) -> dict[int, Mapping[str, int]]:
    """Return the resources, with their types, that jobs request in total (`--gpus`), by job number.

    Resources that cannot be read are empty. Ended jobs are ignored.
    """
    keys = {
        job.id: str(job.requested_tres)
        for job in jobs
        if job.state in (slurm_states.PENDING, *slurm_states.OCCUPYING_STATES)
        and not job.gres_per_node
        and any(name.startswith("gres/") for name in job.requested_tres)
    }
    return {number: _parse_gres_or_empty(text) for number, text in gres.read(keys).items()}


def _parse_gres_or_empty(text: str) -> Mapping[str, int]:
    try:
        return parse_gres_counts(text)
    except ValueError:
        return NO_AMOUNTS
