"""Query jobs again if several records have the same number.

A job's name may contain forged records of other jobs. If the other jobs are queried without that job, each has one
record. The jobs are therefore queried in groups. If a number still appears twice, the group contains such a job, and
each half of the ambiguous jobs is queried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from cpsched_bridge.adapters.slurm.transport.cli.scontrol_job_parsing import UnparsedScontrolJob, split_job_records
from cpsched_bridge.adapters.slurm.transport.cli.squeue_parsing import SqueueRow
from cpsched_bridge.errors import BackendError

MAX_QUERIES_PER_READING = 12
"""Maximum number of groups that one reading queries. Jobs in other groups are unreadable in that reading."""
JOBS_PER_QUERY = 1000
CACHE_S = 60.0
"""Seconds for which an answer is reused while squeue shows the job unchanged."""


@dataclass(slots=True)
class DuplicateJobRecordResolver:
    """A cache of unambiguous records.

    `ask` returns scontrol's output for some jobs, or None on failure.
    """

    ask: Callable[[list[int]], str | None]
    clock: Callable[[], float]
    _known: dict[int, tuple[float, SqueueRow, UnparsedScontrolJob]] = field(default_factory=dict)

    def resolve(self, numbers: Collection[int], rows: Mapping[int, SqueueRow]) -> dict[int, UnparsedScontrolJob]:
        """Return the unambiguous records among these jobs, by number."""
        now_s = self.clock()
        wanted = {number for number in numbers if number in rows}
        self._known = {
            number: known
            for number, known in self._known.items()
            if number in wanted and known[1] == rows[number] and now_s - known[0] < CACHE_S
        }
        missing = sorted(wanted - self._known.keys())
        groups = [missing[at : at + JOBS_PER_QUERY] for at in range(0, len(missing), JOBS_PER_QUERY)]
        for _ in range(MAX_QUERIES_PER_READING):
            if not groups:
                break
            group = groups.pop(0)
            found = self._query_group(group)
            self._known |= {number: (now_s, rows[number], shown) for number, shown in found.items()}
            left = [number for number in group if number not in found]
            if len(group) > 1 and left:
                half = max(1, len(left) // 2)
                groups += [part for part in (left[:half], left[half:]) if part]
        return {number: known[2] for number, known in self._known.items()}

    def _query_group(self, group: list[int]) -> dict[int, UnparsedScontrolJob]:
        printed = self.ask(group)
        if printed is None:
            return {}
        try:
            found, _ = split_job_records(printed)
        except BackendError:
            return {}
        return {number: shown for number, shown in found.items() if number in group}
