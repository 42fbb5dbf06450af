"""The calls that command: start, hold, hand back, each for a batch of jobs.

Every job is looked at immediately before it is touched, since Slurm may have started it meanwhile: a node list set on a
running job would resize it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.adapters.slurm.translation import ids, states
from cpsched_bridge.adapters.slurm.transport.pyslurm.arrays import numbers as numbers_of
from cpsched_bridge.adapters.slurm.transport.pyslurm.reading import has_plugin
from cpsched_bridge.adapters.slurm.transport.pyslurm.rows import value_of
from cpsched_bridge.adapters.slurm.transport.pyslurm.scontrol import scontrol
from cpsched_bridge.ports import HELD_BY_ADMINISTRATOR, Hold

RELEASE = 0xFFFFFFFF
"""A priority of INFINITE releases a held job: Slurm computes its priority anew."""
LOOKED_AT_TOGETHER = 20
"""Commands per look at the jobs: one at all jobs costs as much as ten at single ones."""


class Refused(Exception):
    """A command that cannot be carried out for this job."""


class SlurmCommands:
    """Each call takes orders (see `Transport`) and returns [result, detail] of each."""

    def __init__(self, pyslurm: Any) -> None:
        self._pyslurm = pyslurm
        self._looked: dict[int, Any] = {}
        self._guarded = False

    def start(self, orders: list[Record]) -> list[list[str]]:
        """Pin and release each of `orders` (job, nodes, tasks_per_node, perhaps nice), if still pending and held.

        Those with a `node_count` are told that first, in one run of scontrol: pyslurm cannot change it.
        """
        numbers = self._numbers(orders, separate=True)
        counted = [order for order in orders if order.get("node_count")]
        outcomes = self._each(lambda number, _: self._held(number), counted, numbers)
        held = [order for order, (result, _) in zip(counted, outcomes, strict=True) if result == "done"]
        said = scontrol(
            [f"update JobId={ids.label(o['job'])} NumNodes={o['node_count']}-{o['node_count']}" for o in held]
        )
        complaints = {order["job"]: words for order, words in zip(held, said, strict=True) if words}
        return self._each(
            lambda number, order: self._start(number, order, complaints.get(order["job"], "")), orders, numbers
        )

    def _start(self, number: int, order: Record, complaint: str) -> None:
        self._held(number)
        if complaint:
            raise Refused(f"the number of its nodes is not taken: {complaint}")
        changes: Record = {"required_nodes": order["nodes"], "priority": RELEASE}
        if order["tasks_per_node"]:
            changes["ntasks_per_node"] = order["tasks_per_node"]
        if "nice" in order:
            changes["nice"] = order["nice"]
        self._modify(number, **changes)

    def hold(self, orders: list[Record]) -> list[list[str]]:
        """Hold each of `orders` (job, clear: the scontrol settings that undo its pin, or none) if it is pending."""
        numbers = self._numbers(orders, separate=False)
        outcomes = self._each(self._hold, orders, numbers)
        return self._cleared(orders, numbers, outcomes)

    def _hold(self, number: int, order: Record) -> None:
        job = self._ours(number)
        if value_of(job, "priority") != 0:
            self._modify(number, priority=0)
        elif not order["clear"] and self._administrators(job):
            raise Refused(HELD_BY_ADMINISTRATOR)

    def _administrators(self, job: Any) -> bool:
        """Whether a held job without a pin is held by another than the bridge.

        Somebody may hold a job after the bridge has read that nobody does, and before the bridge's own hold arrives.
        The plugin marks every hold of the bridge's; without a plugin nobody can tell.
        """
        if not self._guarded or value_of(job, "admin_comment") == states.WAIT:
            return False
        return states.WAIT not in (value_of(job, "comment") or "").split(" ")

    def hand_back(self, orders: list[Record]) -> list[list[str]]:
        """Undo pins, then release: what stays pinned would be bound to nodes that no one keeps for it."""
        numbers = self._numbers(orders, separate=False)
        outcomes = self._cleared(orders, numbers, self._each(self._prepare, orders, numbers))
        ready = [at for at, outcome in enumerate(outcomes) if outcome[0] == "done"]
        released = self._each(self._release, [orders[at] for at in ready], numbers)
        for at, outcome in zip(ready, released, strict=True):
            outcomes[at] = outcome
        return outcomes

    def _prepare(self, number: int, order: Record) -> None:
        """Hold the job while its pin is taken off, so that it does not start half undone."""
        job = self._ours(number)
        if order["clear"] and value_of(job, "priority") != 0:
            self._modify(number, priority=0)

    def _release(self, number: int, order: Record) -> None:
        job = self._pending(number)
        if value_of(job, "priority") == 0 and value_of(job, "state_reason") not in states.LASTING_HOLDS:
            self._modify(number, priority=RELEASE)

    def _ours(self, number: int) -> Any:
        """The record of the job, which must be pending and not held by its owner, else `Refused`."""
        job = self._pending(number)
        hold = states.hold_by(
            value_of(job, "priority"),
            value_of(job, "state_reason"),
            value_of(job, "admin_comment"),
            value_of(job, "comment"),
            value_of(job, "requeue_count"),
            self._guarded,
        )
        if hold is Hold.USER:
            raise Refused("is held by its owner, or by an administrator")
        return job

    def _pending(self, number: int) -> Any:
        job = self._looked.get(number) or self._pyslurm.Job.load(number)
        state = value_of(job, "state")
        if state != states.PENDING:
            raise Refused(f"is {state}")
        return job

    def _held(self, number: int) -> None:
        priority = value_of(self._ours(number), "priority")
        if priority != 0:
            raise Refused(f"is not held (priority {priority})")

    def _modify(self, number: int, **changes: Any) -> None:
        self._pyslurm.Job(number).modify(self._pyslurm.JobSubmitDescription(**changes))

    def _each(
        self, act: Callable[[int, Record], None], orders: list[Record], numbers: dict[int, int]
    ) -> list[list[str]]:
        """[result, detail] of each order. In long batches the jobs are looked at anew every few commands."""
        outcomes: list[list[str]] = []
        try:
            for at, order in enumerate(orders):
                if len(orders) >= LOOKED_AT_TOGETHER and at % LOOKED_AT_TOGETHER == 0:
                    self._looked = {job.id: job for job in self._jobs()}
                outcomes.append(self._one(act, numbers.get(order["job"]), order))
        except self._pyslurm.RPCError as error:
            if not outcomes:
                raise
            outcomes += [["unknown", f"not looked at: {error}"]] * (len(orders) - len(outcomes))
        finally:
            self._looked = {}
        return outcomes

    def _one(self, act: Callable[[int, Record], None], number: int | None, order: Record) -> list[str]:
        if number is None:
            return ["refused", "the controller does not know this job"]
        try:
            act(number, order)
        except Refused as error:
            return ["refused", str(error)]
        except self._pyslurm.RPCError as error:
            return ["unknown" if unreachable(error) else "refused", str(error)]
        except Exception as error:
            # Whatever is odd about this job, the others of the batch are none the worse for it.
            return ["refused", f"{type(error).__name__}: {error}"]
        return ["done", ""]

    def _cleared(self, orders: list[Record], numbers: dict[int, int], outcomes: list[list[str]]) -> list[list[str]]:
        """`outcomes` after the pins of those that are done were cleared, in one run of scontrol.

        A hold of a job that has just started is answered with success too: so each is looked at once more before. An
        array's task is named as such: under the bare number of an array a change would be meant for its running tasks
        too, and is refused.
        """
        wanted = [at for at, order in enumerate(orders) if order["clear"] and outcomes[at][0] == "done"]
        if not wanted:
            return outcomes
        try:
            held = {job.id for job in self._jobs() if job.state == states.PENDING and job.priority == 0}
        except self._pyslurm.RPCError as error:
            for at in wanted:
                outcomes[at] = ["unknown", f"held, but its pin is not cleared: {error}"]
            return outcomes
        ready = [at for at in wanted if numbers[orders[at]["job"]] in held]
        labels = [ids.label(orders[at]["job"]) for at in ready]
        found = scontrol(
            [f"update JobId={label} {orders[at]['clear']}" for label, at in zip(labels, ready, strict=True)]
        )
        complaints = dict(zip(ready, found, strict=True))
        for at in wanted:
            if at not in complaints:
                outcomes[at] = ["refused", "is not pending and held any more"]
            elif complaints[at]:
                outcomes[at] = ["unknown", f"held, but its pin is not cleared: {complaints[at]}"]
        return outcomes

    def _numbers(self, orders: list[Record], *, separate: bool) -> dict[int, int]:
        self._guarded = has_plugin(self._pyslurm.slurmctld.Config.load())
        return numbers_of([order["job"] for order in orders], self._jobs, separate=separate)

    def _jobs(self) -> list[Any]:
        """Every job that the controller remembers."""
        return list(self._pyslurm.Jobs.load().values())


def unreachable(error: Exception) -> bool:
    """Whether a command may have been lost on its way: state must tell what became of it."""
    words = str(error).lower()
    return any(word in words for word in ("contact", "connect", "timed out", "zero bytes", "communication", "socket"))
