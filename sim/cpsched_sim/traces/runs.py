"""Numbers for the runs of a job: accounting data tells of one job as often as it was requeued."""

from __future__ import annotations

from cpsched.errors import InvalidValue
from cpsched_sim.reading.bounds import MAX_ID

NEXT_RUN = 10**16
"""Added to a job's number for each further run: 10000000000000007 is the second run of job 7."""
TASKS = 10**7
"""More than the tasks of any array: -70000003 is task 3 of the array 7."""
READ_BEFORE = "line of a job that was read before"
FURTHER_RUN = "is a further run of a job that was requeued"


class Runs:
    """The runs that were seen so far, told apart by when they began."""

    def __init__(self) -> None:
        self._begun: dict[int, tuple[int, ...]] = {}

    def number(self, id: int, start_s: int) -> int | None:
        """The number of a run: the job's own for the first, None for one that was seen. Raises `InvalidValue`."""
        before = self._begun.get(id, ())
        if start_s in before:
            return None
        further = len(before) * NEXT_RUN
        if before and abs(id) + further > MAX_ID:
            raise InvalidValue("job", id, f"must not have more than {MAX_ID // NEXT_RUN + 1} runs")
        self._begun[id] = (*before, start_s)
        return id + further if id >= 0 else id - further
