"""Assign numbers to a job's runs: accounting data has one record per requeue.

Derived tables may store array tasks under the array's number, with equal start times and different end times.
"""

from __future__ import annotations

from cpsched.errors import InvalidValue
from cpsched_sim.input.input_limits import MAX_ID

RUN_OFFSET = 10**16
"""Offset between the numbers of a job's runs: 10000000000000007 is the second run of job 7."""
TASK_FACTOR = 10**7
"""Factor above any array's number of tasks: -70000003 is task 3 of array 7."""
_UNNUMBERED_OFFSET = 5 * 10**6
"""Offset of missing task numbers: -75000001 is the second task of array 7. Slurm's task numbers end at 4,000,000."""
_MAX_UNNUMBERED = 4 * 10**6
ALREADY_READ_REASON = "repeats a job that was already read"
FURTHER_RUN_NOTE = "is another run of a requeued job"
DUPLICATE_NUMBER_REASON = (
    "has the number and start of another job, but a different end or other nodes: read as an array task"
)


class _RunsOfOneJob:
    """The runs that share a job number. `nodes` contains their nodes by (start, end)."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, int], set[str]] = {}
        self.starts: set[int] = set()
        self.further = self.tasks = 0

    def add(self, start_s: int, end_s: int, nodes: str) -> bool:
        """Add a run. Return False if it already exists.

        The file may lack the nodes of a run. Such a run equals any run with the same start and end.
        """
        there = self.nodes.setdefault((start_s, end_s), set())
        if nodes in there or "" in there or (there and not nodes):
            return False
        there.add(nodes)
        return True


class JobRunNumbering:
    """The runs read so far, distinguished by start, end and nodes."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[int, int, str]] = {}
        self._several: dict[int, _RunsOfOneJob] = {}

    def assign_run_number(self, id: int, start_s: int, end_s: int = 0, nodes: str = "") -> tuple[int | None, bool]:
        """Return the run's number, and whether it shares its start with another run.

        The first run has the job's own number. The number of a run that was already read is None. Raise `InvalidValue`
        if the job has too many runs.
        """
        first = self._first.setdefault(id, run := (start_s, end_s, nodes))
        if first is run:
            return id, False
        several = self._several.get(id)
        if several is None:
            several = self._several[id] = _RunsOfOneJob()
            several.add(*first)
            several.starts.add(first[0])
        if not several.add(start_s, end_s, nodes):
            return None, False
        if start_s in several.starts and id >= 0:
            several.tasks += 1
            return self._make_task_number(id, several.tasks), True
        several.starts.add(start_s)
        several.further += 1
        further = several.further * RUN_OFFSET
        if abs(id) + further > MAX_ID:
            raise InvalidValue("job", id, f"must not have more than {MAX_ID // RUN_OFFSET + 1} runs")
        return (id + further if id >= 0 else id - further), False

    def has_run_since(self, id: int, since_s: int, nodes: str = "") -> bool:
        """Return whether a run of the job started at or after `since_s`.

        If `nodes` is given, count only runs on these nodes or on unknown nodes.
        """
        if id not in self._first:
            return False
        start_s, end_s, where = self._first[id]
        several = self._several.get(id)
        runs = several.nodes if several is not None else {(start_s, end_s): {where}}
        return any(
            begin_s >= since_s and (not nodes or nodes in there or "" in there) for (begin_s, _), there in runs.items()
        )

    def _make_task_number(self, id: int, number: int) -> int:
        if number >= _MAX_UNNUMBERED or id * TASK_FACTOR > MAX_ID - TASK_FACTOR:
            raise InvalidValue("job", id, "is shared by too many jobs")
        return -(id * TASK_FACTOR + _UNNUMBERED_OFFSET + number)
