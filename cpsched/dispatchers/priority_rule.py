"""Define the dispatcher `prb`, the priority rule of mod17 (section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.model import Decision, EndedJob, IntArray, Need, Snapshot
from cpsched.planning import GREEDY, STRICT, Allocation, ListSchedulerSpec, plan_by_spec
from cpsched.registration import FileParameter, Registration


class WaitRatioDispatcher(Dispatcher):
    """A dispatcher that starts the most urgent job first.

    Urgency is a job's wait divided by its queue's expected wait. Jobs of equal urgency start by smaller demand
    (processors times estimate). A job that does not fit is skipped (`greedy`) or ends the round (`strict`). Expected
    waits are learned from ended jobs unless `waits_s` gives them, in seconds by queue (in programs, from `ewt_file`).
    """

    overrun = "one-second"

    def __init__(
        self,
        option: Literal["greedy", "strict"] = "greedy",
        waits_s: Annotated[Mapping[str, float] | None, FileParameter("ewt_file")] = None,
        allocation: Allocation = "best-fit",
    ) -> None:
        self.expected_waits = ExpectedQueueWaits(waits_s)
        self.learns = self.expected_waits.learns
        self._scheme = ListSchedulerSpec(STRICT if option == "strict" else GREEDY, None, allocation=allocation)

    @override
    def learn(self, ended: EndedJob) -> None:
        self.expected_waits.learn(ended)

    @override
    def memory(self) -> dict[str, list[int]]:
        return self.expected_waits.memory()

    @override
    def recall(self, memory: Mapping[str, Sequence[int]]) -> None:
        self.expected_waits.recall(memory)

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        return plan_by_spec(self._scheme, snapshot, need, self.queue_positions_by_urgency(snapshot))

    def queue_positions_by_urgency(self, snapshot: Snapshot) -> IntArray:
        """Return the queue positions with the most urgent job first, int64[Q]."""
        table, queue = snapshot.table, snapshot.queue
        names = [table.jobs[slot].queue for slot in queue.tolist()]
        expected_s = {name: self.expected_waits.expected_wait_s(name) for name in set(names)}
        waits = snapshot.now_s - table.submit_s[queue]
        urgency = waits / np.array([expected_s[name] for name in names])
        demand = table.units[queue] * table.per_unit[queue, 0] * table.estimate_s[queue]
        return np.lexsort((demand, -urgency)).astype(np.int64)


REGISTRATIONS = (
    Registration(
        "prb",
        "Longest wait relative to the queue's expected wait first, on the fullest nodes.",
        "mod17 section 4",
        WaitRatioDispatcher,
    ),
)
