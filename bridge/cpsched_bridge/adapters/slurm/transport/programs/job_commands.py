"""Start, hold, hand back, unpin, each for a batch of orders: the same for every transport, over what it can do.

Every job is looked at immediately before it is touched; see `command_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.adapters.slurm.transport import Answer
from cpsched_bridge.adapters.slurm.transport.programs import array_records, command_rules
from cpsched_bridge.adapters.slurm.transport.programs.command_rules import CallError, RefusedCommand

LOOKED_AT_TOGETHER = 20
"""Commands per look at the jobs; releases need one look for all of them, since they are one command."""

Act = Callable[[Record, Record], None]
"""Does one order, the second argument, to the job whose record is the first."""


class JobControl(Protocol):
    """What a transport can do. Raises `CallError` where the controller does not, `RefusedCommand` for an order."""

    alone_below: int
    """Batches of fewer orders are looked at job by job, longer ones `LOOKED_AT_TOGETHER` jobs at a time."""

    def guarded(self) -> bool:
        """Whether the submit plugin is loaded."""
        ...

    def look(self, numbers: Collection[int]) -> Sequence[Record]:
        """Fresh records (see `command_rules.LOOKED_AT`) of the jobs, and of the arrays, of these numbers. Others may
        come too.

        Without those that the controller does not know.
        """
        ...

    def one(self, number: int) -> Record:
        """A fresh record of one job; raises `CallError` or `RefusedCommand` where the controller does not know it."""
        ...

    def start(self, job: Record, order: Record) -> None:
        """Pin a held job, and release it once that is done."""
        ...

    def hold(self, job: Record) -> None:
        """Hold a pending job."""
        ...

    def release(self, jobs: Sequence[Record]) -> Sequence[Answer]:
        """Release held jobs; what became of each."""
        ...

    def scontrol(self, commands: Sequence[str]) -> Sequence[str]:
        """What scontrol complains of each of the commands; empty texts where of nothing."""
        ...


class JobCommands:
    """Each call takes orders (see `Transport`) and returns what became of each.

    Raises the `CallError` of a look before anything was commanded.
    """

    def __init__(self, hands: JobControl) -> None:
        self._hands = hands
        self._guarded = False

    def start(self, orders: Sequence[Record]) -> list[Answer]:
        """Pin and release each job, if still pending and held."""
        numbers = self._numbers(orders, separate=True)
        return self._each(self._start, orders, numbers)

    def _start(self, job: Record, order: Record) -> None:
        command_rules.require_held(job, self._guarded)
        self._hands.start(job, order)

    def hold(self, orders: Sequence[Record]) -> list[Answer]:
        """Hold each job if it is pending, then clear its pin."""
        numbers = self._numbers(orders, separate=False)
        return self._cleared(orders, numbers, self._each(self._hold, orders, numbers))

    def _hold(self, job: Record, order: Record) -> None:
        command_rules.require_unpin_settings(order["clear"])
        command_rules.require_ours(job, self._guarded)
        if command_rules.is_free(job):
            self._hands.hold(job)
        elif not order["clear"] and command_rules.by_administrator(job, self._guarded):
            raise RefusedCommand("is held by an administrator", "held_by_administrator")

    def hand_back(self, orders: Sequence[Record]) -> list[Answer]:
        """Undo pins, then release: what stays pinned would be bound to nodes that no one keeps for it."""
        numbers = self._numbers(orders, separate=False)
        outcomes: list[Answer] = [Answer("done")] * len(orders)
        pinned = [at for at, order in enumerate(orders) if order["clear"]]
        self._replace(outcomes, pinned, self._unpinned([orders[at] for at in pinned], numbers))
        ready = [at for at, each in enumerate(outcomes) if each.result == "done"]
        try:
            released = self._released([orders[at] for at in ready], numbers)
        except CallError as error:
            if not pinned:
                raise
            released = [Answer("unknown", f"not released: {error}")] * len(ready)
        return self._replace(outcomes, ready, released)

    def _unpinned(self, orders: Sequence[Record], numbers: Mapping[int, int]) -> list[Answer]:
        return self._cleared(orders, numbers, self._each(self._prepare, orders, numbers))

    def _released(self, orders: Sequence[Record], numbers: Mapping[int, int]) -> list[Answer]:
        """Release all of these jobs that are held for us, by one command where the transport can."""
        ready: dict[int, Record] = {}

        def judge(job: Record, order: Record) -> None:
            if order["clear"]:
                command_rules.require_pending(job)
            else:
                command_rules.require_ours(job, self._guarded)
            if command_rules.may_be_released(job):
                ready[order["job"]] = job

        outcomes = self._each(judge, orders, numbers, len(orders))
        wanted = [at for at, order in enumerate(orders) if order["job"] in ready]
        return self._replace(outcomes, wanted, self._hands.release(list(ready.values())))

    @staticmethod
    def _replace(outcomes: list[Answer], at: Sequence[int], by: Sequence[Answer]) -> list[Answer]:
        for place, outcome in zip(at, by, strict=True):
            outcomes[place] = outcome
        return outcomes

    def _prepare(self, job: Record, order: Record) -> None:
        """Hold the job while its pin is taken off, so that it does not start half undone."""
        command_rules.require_unpin_settings(order["clear"])
        command_rules.require_ours(job, self._guarded)
        if order["clear"] and command_rules.is_free(job):
            self._hands.hold(job)

    def unpin(self, orders: Sequence[Record]) -> list[Answer]:
        """Clear the pin of each job that is pending and held, by whomever: no hold is taken off, and none is made."""
        numbers = self._numbers(orders, separate=False)
        return self._cleared(orders, numbers, self._each(self._held_by_anybody, orders, numbers))

    def _held_by_anybody(self, job: Record, order: Record) -> None:
        command_rules.require_unpin_settings(order["clear"])
        command_rules.require_pending(job)
        if command_rules.is_free(job):
            raise RefusedCommand("is not held")

    def _each(
        self, act: Act, orders: Sequence[Record], numbers: Mapping[int, int], at_once: int = LOOKED_AT_TOGETHER
    ) -> list[Answer]:
        """What became of each order. In long batches the jobs are looked at again every `at_once` commands."""
        outcomes: list[Answer] = []
        together = len(orders) >= self._hands.alone_below
        looked: dict[int, Record] = {}
        for at, order in enumerate(orders):
            if together and at % at_once == 0:
                part = {numbers[each["job"]] for each in orders[at : at + at_once] if each["job"] in numbers}
                try:
                    looked = {job["id"]: job for job in self._hands.look(part)} if part else {}
                except CallError as error:
                    if not outcomes:
                        raise
                    return outcomes + [Answer("unknown", f"not looked at: {error}")] * (len(orders) - len(outcomes))
            outcomes.append(self._one(act, numbers.get(order["job"]), order, looked))
        return outcomes

    def _one(self, act: Act, number: int | None, order: Record, looked: Mapping[int, Record]) -> Answer:
        if number is None:
            return Answer("refused", "the controller does not know this job")
        try:
            job = looked.get(number) or self._hands.one(number)
            act(job, order)
        except RefusedCommand as error:
            return Answer("refused", str(error), error.code)
        except CallError as error:
            return Answer("unknown" if error.lost else "refused", str(error), error.code)
        except Exception as error:
            # Whatever is odd about this job, the others of the batch are none the worse for it.
            return Answer("refused", f"{type(error).__name__}: {error}")
        return Answer("done")

    def _cleared(self, orders: Sequence[Record], numbers: Mapping[int, int], outcomes: list[Answer]) -> list[Answer]:
        """`outcomes` after the pins of those that are done were cleared.

        A hold of a job that has just started is answered with success too: so each is looked at once more before. An
        array's task is named as such: under the bare number of an array a change would be meant for its running tasks
        too, and is refused.
        """
        wanted = [at for at, order in enumerate(orders) if order["clear"] and outcomes[at].result == "done"]
        if not wanted:
            return outcomes
        try:
            looked = self._hands.look({numbers[orders[at]["job"]] for at in wanted})
        except CallError as error:
            for at in wanted:
                outcomes[at] = Answer("unknown", f"held, but its pin is not cleared: {error}")
            return outcomes
        held = {job["id"] for job in looked if job["state"] == slurm_states.PENDING and job["priority"] == 0}
        ready = [at for at in wanted if numbers[orders[at]["job"]] in held]
        commands = [f"update JobId={slurm_job_ids.label(orders[at]['job'])} {orders[at]['clear']}" for at in ready]
        complaints = dict(zip(ready, self._hands.scontrol(commands), strict=True))
        for at in wanted:
            if at not in complaints:
                outcomes[at] = Answer("refused", "is not pending and held any more")
            elif complaints[at]:
                outcomes[at] = Answer("unknown", f"held, but its pin is not cleared: {complaints[at]}")
        return outcomes

    def _numbers(self, orders: Sequence[Record], *, separate: bool) -> dict[int, int]:
        self._guarded = self._hands.guarded()
        wanted = [order["job"] for order in orders]
        return array_records.numbers(wanted, self._hands.look, self._hands.scontrol, separate=separate)
