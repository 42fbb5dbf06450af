"""The process that alone imports pyslurm: answers calls over a socket until its parent is gone.

    python -m cpsched_bridge.adapters.slurm.transport.child FD PARENT_PID [PYSLURM_MODULE]

It is a process of its own because pyslurm holds the interpreter's lock while it waits for the controller, may
crash, and is GPL. It dies with its parent, in mid-call too, so that two bridges never command at once.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from cpsched_bridge.adapters.slurm.translation import hostlist, ids, states
from cpsched_bridge.adapters.slurm.transport import rows as records
from cpsched_bridge.adapters.slurm.transport import wire
from cpsched_bridge.adapters.slurm.transport.rows import Record
from cpsched_bridge.ports import Hold

RELEASE = 0xFFFFFFFF
"""A priority of INFINITE releases a held job: Slurm computes its priority anew."""
SET_PARENT_DEATH_SIGNAL = 1
SCONTROL_S = 20.0
LOOKED_AT_TOGETHER = 20
"""Commands per look at the jobs: one at all jobs costs as much as ten at single ones."""


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends; leave at once if that has happened already."""
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


class Refused(Exception):
    """A command that cannot be carried out for this job."""


class Slurm:
    """The calls that the parent may make; each takes and returns plain values."""

    def __init__(self, module: str) -> None:
        self.pyslurm: Any = importlib.import_module(module)
        self._looked: dict[int, Any] = {}

    def hello(self) -> Record:
        """Who answers, and what the controller is configured like."""
        config = self.pyslurm.slurmctld.Config.load()
        facts = records.table([config], records.CONFIG_FIELDS)
        return {
            "pid": os.getpid(),
            "uid": os.getuid(),
            "pyslurm": str(getattr(self.pyslurm, "__version__", "")),
            "config": records.records(facts)[0],
        }

    def facts(self) -> Record:
        """What the doctor asks for: configuration, versions, privilege, clocks."""
        user = pwd.getpwuid(os.getuid()).pw_name
        controller_s = int(self.pyslurm.slurmctld.diag().request_time)
        return {
            **self.hello(),
            "user": user,
            "admin_level": admin_level(user),
            "clock_ahead_s": controller_s - int(time.time()),
            "clients": version_of(["scontrol", "--version"]),
            "node_versions": sorted({node.slurm_version or "" for node in self.pyslurm.Nodes.load().values()} - {""}),
        }

    def snapshot(self) -> Record:
        """Jobs first, nodes last: what starts or ends in between shows in what the nodes have left."""
        slurm = self.pyslurm
        jobs = records.job_table(self.jobs())
        partitions = records.table(slurm.Partitions.load().values(), records.PARTITION_FIELDS)
        reservations = records.table(slurm.Reservations.load().values(), records.RESERVATION_FIELDS)
        nodes = records.table(slurm.Nodes.load().values(), records.NODE_FIELDS)
        return {
            "now_s": int(time.time()),
            "nodes": nodes,
            "partitions": partitions,
            "reservations": reservations,
            "jobs": jobs,
        }

    def jobs(self) -> list[Any]:
        """Every job that the controller remembers."""
        return list(self.pyslurm.Jobs.load().values())

    def past(self, since_s: int) -> Record:
        """Jobs of the accounting database that ended after `since_s`."""
        database = self.pyslurm.db
        found = database.Jobs.load(database.JobFilter(start_time=since_s))
        return records.table(found.values(), records.PAST_FIELDS)

    def start(self, orders: list[Record]) -> list[list[str]]:
        """Pin and release each of `orders` (job, nodes, tasks_per_node), if still pending and held."""
        numbers = self.numbers([order["job"] for order in orders], separate=True)
        return self._each(self._start, orders, numbers)

    def _start(self, number: int, order: Record) -> None:
        self._held(number)
        changes: Record = {"required_nodes": order["nodes"], "priority": RELEASE}
        if order["tasks_per_node"]:
            changes["ntasks_per_node"] = order["tasks_per_node"]
        self._modify(number, **changes)

    def hold(self, orders: list[Record]) -> list[list[str]]:
        """Hold each of `orders` (job, clear: the scontrol settings that undo its pin, or none) if it is pending."""
        numbers = self.numbers([order["job"] for order in orders], separate=False)
        outcomes = self._each(self._hold, orders, numbers)
        return self._cleared(orders, numbers, outcomes)

    def _hold(self, number: int, order: Record) -> None:
        if self._ours(number).priority != 0:
            self._modify(number, priority=0)

    def hand_back(self, orders: list[Record]) -> list[list[str]]:
        """Undo pins, then release: what stays pinned would be bound to nodes that no one keeps for it."""
        numbers = self.numbers([order["job"] for order in orders], separate=False)
        outcomes = self._cleared(orders, numbers, self._each(self._prepare, orders, numbers))
        ready = [at for at, outcome in enumerate(outcomes) if outcome[0] == "done"]
        released = self._each(self._release, [orders[at] for at in ready], numbers)
        for at, outcome in zip(ready, released, strict=True):
            outcomes[at] = outcome
        return outcomes

    def _prepare(self, number: int, order: Record) -> None:
        """Held while its pin is taken off, so that it does not start half undone."""
        job = self._ours(number)
        if order["clear"] and job.priority != 0:
            self._modify(number, priority=0)

    def _release(self, number: int, order: Record) -> None:
        if self._pending(number).priority == 0:
            self._modify(number, priority=RELEASE)

    def _ours(self, number: int) -> Any:
        """The pending job, unless its owner holds it."""
        job = self._pending(number)
        if states.hold_by(job.priority, job.state_reason, job.admin_comment, job.comment) is Hold.USER:
            raise Refused("is held by its owner, or by an administrator")
        return job

    def _pending(self, number: int) -> Any:
        job = self._looked.get(number) or self.pyslurm.Job.load(number)
        if job.state != "PENDING":
            raise Refused(f"is {job.state}")
        return job

    def _held(self, number: int) -> None:
        priority = self._ours(number).priority
        if priority != 0:
            raise Refused(f"is not held (priority {priority})")

    def _modify(self, number: int, **changes: Any) -> None:
        self.pyslurm.Job(number).modify(self.pyslurm.JobSubmitDescription(**changes))

    def _each(
        self, act: Callable[[int, Record], None], orders: list[Record], numbers: dict[int, int]
    ) -> list[list[str]]:
        """[result, detail] of each order. In long batches the jobs are looked at anew every few commands."""
        outcomes: list[list[str]] = []
        try:
            for at, order in enumerate(orders):
                if len(orders) >= LOOKED_AT_TOGETHER and at % LOOKED_AT_TOGETHER == 0:
                    self._looked = {job.id: job for job in self.jobs()}
                outcomes.append(self._one(act, numbers.get(order["job"]), order))
        except self.pyslurm.RPCError as error:
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
        except self.pyslurm.RPCError as error:
            return ["unknown" if unreachable(error) else "refused", str(error)]
        return ["done", ""]

    def _cleared(self, orders: list[Record], numbers: dict[int, int], outcomes: list[list[str]]) -> list[list[str]]:
        """`outcomes` after the pins of those that are done were cleared, in one run of scontrol.

        A hold of a job that has just started is answered with success too: so each is looked at once more before.
        """
        wanted = [at for at, order in enumerate(orders) if order["clear"] and outcomes[at][0] == "done"]
        if not wanted:
            return outcomes
        try:
            held = {job.id for job in self.jobs() if job.state == "PENDING" and job.priority == 0}
        except self.pyslurm.RPCError as error:
            for at in wanted:
                outcomes[at] = ["unknown", f"held, but its pin is not cleared: {error}"]
            return outcomes
        number = {at: numbers[orders[at]["job"]] for at in wanted}
        ready = [at for at in wanted if number[at] in held]
        complaints = scontrol([f"update JobId={number[at]} {orders[at]['clear']}" for at in ready])
        for at in wanted:
            if at not in ready:
                outcomes[at] = ["refused", "is not pending and held any more"]
            elif number[at] in complaints or -1 in complaints:
                detail = complaints.get(number[at], complaints.get(-1, ""))
                outcomes[at] = ["unknown", f"held, but its pin is not cleared: {detail}"]
        return outcomes

    def numbers(self, wanted: list[int], *, separate: bool) -> dict[int, int]:
        """The controller's number of each wanted job; `separate` splits array tasks off their common record first.

        Without it, a task that has no record of its own stands for all waiting tasks of its array.
        """
        known = {job_id: job_id for job_id in wanted if ids.split(job_id)[1] is None}
        if len(known) == len(wanted):
            return known
        own, common = self._array_records()
        if separate:
            commands = _splits([job_id for job_id in wanted if job_id not in known and job_id not in own], common)
            if commands:
                scontrol(commands)
                own, common = self._array_records()
        for job_id in wanted:
            array = ids.split(job_id)[0]
            if job_id in own:
                known[job_id] = own[job_id]
            elif array in common and not separate:
                known[job_id] = common[array][0]
        return known

    def _array_records(self) -> tuple[dict[int, int], dict[int, tuple[int, tuple[int, ...]]]]:
        """Tasks that have a record of their own; per array the common record of the others, with their indices."""
        own: dict[int, int] = {}
        common: dict[int, tuple[int, tuple[int, ...]]] = {}
        for job in self.jobs():
            if not job.array_id:
                continue
            waiting = hostlist.task_ids(job.array_tasks_waiting) if job.state == "PENDING" else ()
            if len(waiting) > 1:
                common[job.array_id] = (job.id, waiting)
            else:
                task = waiting[0] if waiting else job.array_task_id or 0
                own[ids.task_id(job.array_id, task)] = job.id
        return own, common


def _splits(tasks: list[int], common: dict[int, tuple[int, tuple[int, ...]]]) -> list[str]:
    """Commands that give every wanted task a record of its own; they hold it, as it is already.

    A command for all waiting tasks of an array would leave their common record whole: the last one keeps it.
    """
    by_array: dict[int, list[int]] = {}
    for job_id in tasks:
        array, task = ids.split(job_id)
        if array in common and task in common[array][1]:
            by_array.setdefault(array, []).append(task)
    commands = []
    for array, wanted in by_array.items():
        if len(wanted) == len(common[array][1]):
            wanted = wanted[:-1]
        commands.append(f"hold {array}_[{hostlist.compact(wanted)}]")
    return commands


def scontrol(commands: list[str]) -> dict[int, str]:
    """Run `commands`, if any, in one scontrol; its complaints by job number, -1 where that cannot be told.

    The only place where scontrol is used: pyslurm can neither clear a node list nor name one task of an array.
    """
    if not commands:
        return {}
    try:
        run = subprocess.run(
            ["scontrol"],
            input="".join(f"{command}\n" for command in commands),
            capture_output=True,
            text=True,
            timeout=SCONTROL_S,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {-1: str(error)}
    complaints: dict[int, str] = {}
    for line in run.stderr.splitlines():
        number = line.rsplit(" job ", 1)[-1].split(":")[0].split("_")[0].strip()
        complaints[int(number) if number.isdigit() else -1] = line.strip()
    return complaints


def version_of(command: list[str]) -> str | None:
    """The last word that a command says of itself: its version."""
    words = output_of(command).split()
    return words[-1] if words else None


def admin_level(user: str) -> str | None:
    """The user's AdminLevel in the accounting database; None where that cannot be asked."""
    command = ["sacctmgr", "--noheader", "--parsable2", "show", "user", f"name={user}", "format=adminlevel"]
    words = output_of(command).split()
    return words[0] if words else None


def output_of(command: list[str]) -> str:
    """What a command prints; nothing where it fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=SCONTROL_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout if run.returncode == 0 else ""


def unreachable(error: Exception) -> bool:
    """Whether a command may have been lost on its way: state must tell what became of it."""
    words = str(error).lower()
    return any(word in words for word in ("contact", "connect", "timed out", "zero bytes", "communication", "socket"))


def answer(slurm: Callable[[], Slurm], request: Record) -> Record:
    """The reply to one request; an exception becomes {"error": kind, "detail": words}."""
    try:
        return {"result": getattr(slurm(), request["call"])(**request["arguments"])}
    except ImportError as error:
        return {"error": "refused", "detail": f"pyslurm cannot be imported: {error}"}
    except Exception as error:
        words = str(error) or type(error).__name__
        if "timed out" in words.lower():
            return {"error": "timeout", "detail": words}
        return {"error": "unavailable" if unreachable(error) else "refused", "detail": words}


def serve(channel: socket.socket, module: str) -> None:
    """Answer until the other side closes."""
    loaded: list[Slurm] = []

    def slurm() -> Slurm:
        if not loaded:
            loaded.append(Slurm(module))
        return loaded[0]

    while True:
        try:
            request = wire.receive(channel)
            wire.send(channel, answer(slurm, request))
        except wire.Closed:
            return


def main(arguments: list[str]) -> None:
    """Run as a process."""
    die_with(int(arguments[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries may print; nothing but the socket is ours
    module = arguments[2] if len(arguments) > 2 else "pyslurm"
    serve(socket.socket(fileno=int(arguments[0])), module)


if __name__ == "__main__":
    main(sys.argv[1:])
