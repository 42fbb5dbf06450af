"""The jobs of a trace, as objects and in columns.

`ColumnarTrace` creates job objects only when they are accessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Self, overload

import numpy as np
from typing_extensions import override

from cpsched.errors import require
from cpsched.formatting import format_count
from cpsched.model import NEVER, IntArray, Job, Request


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. Dispatchers see only `job`, not what actually happened.

    `recorded_start_s` is the start on the original machine, `soft_walltime_s` the run time that the site expected, and
    `power_w` the mean power on that machine. Each is None if unknown.
    """

    job: Job
    run_s: int
    recorded_start_s: int | None = None
    soft_walltime_s: int | None = None
    power_w: int | None = None

    def __post_init__(self) -> None:
        require(self.run_s > 0, "run_s", self.run_s, "must be positive")


_CHUNK_JOBS = 4096
"""Number of job objects to create at a time when all are requested."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ColumnarTrace(Sequence[TraceJob]):
    """Jobs in columns of equal length, and a sequence of job objects.

    A slice shares the existing objects.

    `recorded_start_s` is `NEVER` if unknown. `request` is an index into `requests`; `user`, `name` and `queue` are
    indices into `words`. The other fields of a job have their defaults, unless the columns were created from job
    objects (`of`).
    """

    id: IntArray
    submit_s: IntArray
    run_s: IntArray
    walltime_s: IntArray
    recorded_start_s: IntArray
    priority: IntArray
    tier: IntArray
    request: IntArray
    user: IntArray
    name: IntArray
    queue: IntArray
    requests: Sequence[Request]
    words: Sequence[str]
    objects: list[TraceJob | None]
    """The job objects created so far, or empty before the first access."""

    @classmethod
    def of(cls, items: Iterable[TraceJob]) -> ColumnarTrace:
        """Return jobs as columns. Return `items` unchanged if it already is a trace."""
        if isinstance(items, ColumnarTrace):
            return items
        found = list(items)
        jobs, count = [item.job for item in found], len(found)
        codes: dict[Request, int] = {}

        def column(values: Iterable[int]) -> IntArray:
            return np.fromiter(values, np.int64, count)

        return cls(
            id=column(job.id for job in jobs),
            submit_s=column(job.submit_s for job in jobs),
            run_s=column(item.run_s for item in found),
            walltime_s=column(job.walltime_s for job in jobs),
            recorded_start_s=column(
                NEVER if item.recorded_start_s is None else item.recorded_start_s for item in found
            ),
            priority=column(job.priority for job in jobs),
            tier=column(job.tier for job in jobs),
            request=column(codes.setdefault(job.request, len(codes)) for job in jobs),
            user=zeros(count),
            name=zeros(count),
            queue=zeros(count),
            requests=tuple(codes),
            words=("",),
            objects=list(found),
        )

    def take(self, chosen: IntArray | slice) -> Self:
        """Return the jobs at the given indices, in that order."""
        taken = {name: getattr(self, name)[chosen] for name in _COLUMN_NAMES}
        if isinstance(chosen, slice):
            objects = self.objects[chosen]
        else:
            objects = [self.objects[index] for index in chosen.tolist()] if self.objects else []
        return type(self)(**taken, requests=self.requests, words=self.words, objects=objects)

    def expand_per_job(self, values: Iterable[int]) -> IntArray:
        """Expand one value per entry of `requests` to one value per job."""
        of_request: IntArray = np.fromiter(values, np.int64, len(self.requests))[self.request]
        return of_request

    @override
    def __len__(self) -> int:
        return len(self.id)

    @overload
    def __getitem__(self, index: int) -> TraceJob: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    @override
    def __getitem__(self, index: int | slice) -> TraceJob | Self:
        if isinstance(index, slice):
            return self.take(index)
        found = self.objects[index] if self.objects else None
        if found is None:
            at = range(len(self))[index]
            found = self._get_or_create_jobs(slice(at, at + 1))[0]
        return found

    @override
    def __iter__(self) -> Iterator[TraceJob]:
        for begin in range(0, len(self), _CHUNK_JOBS):
            yield from self._get_or_create_jobs(slice(begin, begin + _CHUNK_JOBS))

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | tuple | ColumnarTrace) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    @override
    def __repr__(self) -> str:
        return f"<{format_count(len(self), 'job')}>"

    def _get_or_create_jobs(self, part: slice) -> list[TraceJob]:
        """Return a slice's job objects. Create and store those that do not exist yet."""
        if not self.objects:
            self.objects.extend([None] * len(self))
        found = self.objects[part]
        if not all(found):
            found = [old or new for old, new in zip(found, self._create_jobs(part), strict=True)]
            self.objects[part] = found
        return found  # type: ignore[return-value]

    def _create_jobs(self, part: slice) -> Iterator[TraceJob]:
        columns = (self.id, self.submit_s, self.walltime_s, self.request, self.user, self.name, self.queue, self.run_s,
                   self.recorded_start_s)  # fmt: skip
        requests, words = self.requests, self.words
        for id, submit_s, walltime_s, request, user, name, queue, run_s, start_s in zip(
            *(column[part].tolist() for column in columns), strict=True
        ):
            job = Job(id, submit_s, walltime_s, requests[request], words[user], words[name], words[queue])
            yield TraceJob(job, run_s, None if start_s == NEVER else start_s)


_COLUMN_NAMES = tuple(field.name for field in fields(ColumnarTrace) if field.type == "IntArray")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SchedulerVisibleJobs(Sequence[Job]):
    """The jobs of a trace as a scheduler sees them."""

    items: ColumnarTrace

    @override
    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job]: ...
    @override
    def __getitem__(self, index: int | slice) -> Job | Sequence[Job]:
        return SchedulerVisibleJobs(self.items[index]) if isinstance(index, slice) else self.items[index].job

    @override
    def __iter__(self) -> Iterator[Job]:
        return (item.job for item in self.items)

    @override
    def __repr__(self) -> str:
        return repr(self.items)


def zeros(count: int) -> IntArray:
    """Return a column of zeros that occupies no memory."""
    return np.broadcast_to(np.int64(0), count)
