"""The commands by scontrol: what it can do with one job, for `programs.orders`; and the reservation of a claim.

scontrol cannot pin and release in one change: it takes no priority of INFINITE (`parse_uint32` of Slurm's
src/common/proc_args.c, the same from 22.05 to 26.05), and its `release` takes nothing else. So a start is two changes
of a held job: all that pins it, and then, once that is done, the release. A crash between leaves the job held with its
pin, never released without one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.adapters.slurm.translation import ids
from cpsched_bridge.adapters.slurm.transport import Answer
from cpsched_bridge.adapters.slurm.transport.programs import arrays
from cpsched_bridge.adapters.slurm.transport.programs.dialogue import Dialogue
from cpsched_bridge.adapters.slurm.transport.programs.orders import Orders
from cpsched_bridge.adapters.slurm.transport.programs.rules import CallFailed, RefusedCommand, has_plugin
from cpsched_bridge.adapters.slurm.transport.programs.scontrol import complaint, unreachable
from cpsched_bridge.errors import BackendError, BackendUnavailable, CommandRefused

T = TypeVar("T")
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)
"""The name of one node: no list of several, no blank, quote, sign of equality or break of a line."""


class Looks(Protocol):
    """What the commands ask of `cli.reading.Reading`."""

    def config(self) -> Record:
        """See `Transport.config`."""
        ...

    def look(self, numbers: Collection[int] | None) -> Sequence[Record]:
        """Fresh records of jobs by Slurm's own numbers; None: of all jobs."""
        ...


class CliHands:
    """See `Hands`. All changes of one call go to one scontrol."""

    alone_below = 0  # a look at twenty jobs costs as much as one at a single one: a process

    def __init__(self, reading: Looks, dialogue: Dialogue) -> None:
        self._reading = reading
        self._dialogue = dialogue

    def guarded(self) -> bool:
        """See `Hands.guarded`."""
        return has_plugin(_asked(self._reading.config)["job_submit_plugins"])

    def look(self, numbers: Collection[int]) -> Sequence[Record]:
        """See `Hands.look`."""
        return _asked(lambda: self._reading.look(numbers))

    def one(self, number: int) -> Record:
        """See `Hands.one`."""
        found = [job for job in self.look([number]) if job["id"] == number]
        if not found:
            raise RefusedCommand("the controller does not know this job")
        return found[0]

    def start(self, job: Record, order: Record) -> None:
        """See `Hands.start`. The job is named as the order does: an array's task by its index."""
        names = [str(name) for name in order["nodes"]]
        if odd := [name for name in names if not NODE.fullmatch(name)]:
            raise RefusedCommand(f"{odd[0]!r} is no name of a node")
        label = ids.label(order["job"])
        settings = [f"ReqNodeList={','.join(names)}"]
        if "num_nodes" in order:
            settings.append(f"NumNodes={order['num_nodes']}")
        if tasks := int(order["tasks_per_node"] or 0):
            settings.append(f"TasksPerNode={tasks}")
        if least := int(order.get("cpus_per_node") or 0):
            settings.append(f"MinCPUsNode={least} NumCPUs={int(order['cpus'])}")
        if "nice" in order:
            settings.append(f"Nice={int(order['nice'])}")
        self._tell(f"update JobId={label} {' '.join(settings)}")
        try:
            self._tell(f"release {label}")
        except CallFailed as error:
            raise CallFailed(f"pinned, but perhaps not released: {error}", lost=True) from error

    def hold(self, job: Record) -> None:
        """See `Hands.hold`."""
        self._tell(f"hold {arrays.words(job)}")

    def release(self, job: Record) -> None:
        """See `Hands.release`."""
        self._tell(f"release {arrays.words(job)}")

    def scontrol(self, commands: Sequence[str]) -> list[str]:
        """See `Hands.scontrol`."""
        return [complaint(self._dialogue, command) for command in commands]

    def _tell(self, command: str) -> None:
        if words := self._dialogue.tell(command):
            raise CallFailed(words, lost=unreachable(words))


class CliCommands:
    """Orders of `Transport`, each call within `deadline_s` seconds and the looks between."""

    def __init__(self, reading: Looks, deadline_s: float) -> None:
        self._reading = reading
        self._deadline_s = deadline_s

    def start(self, orders: Sequence[Record]) -> list[Answer]:
        """See `Transport.start`."""
        return self._told(lambda told: told.start(orders))

    def hold(self, orders: Sequence[Record]) -> list[Answer]:
        """See `Transport.hold`."""
        return self._told(lambda told: told.hold(orders))

    def hand_back(self, orders: Sequence[Record]) -> list[Answer]:
        """See `Transport.hand_back`."""
        return self._told(lambda told: told.hand_back(orders))

    def unpin(self, orders: Sequence[Record]) -> list[Answer]:
        """See `Transport.unpin`."""
        return self._told(lambda told: told.unpin(orders))

    def scontrol(self, commands: Sequence[str]) -> list[str]:
        """What one scontrol complains of each command."""
        with Dialogue(self._deadline_s) as dialogue:
            return [complaint(dialogue, command) for command in commands]

    def _told(self, act: Callable[[Orders], list[Answer]]) -> list[Answer]:
        with Dialogue(self._deadline_s) as dialogue:
            try:
                return act(Orders(CliHands(self._reading, dialogue)))
            except CallFailed as error:  # a look before anything was commanded
                kind = CommandRefused if isinstance(error.__cause__, CommandRefused) else BackendUnavailable
                raise kind(str(error)) from error


def _asked(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except BackendError as error:
        raise CallFailed(str(error), lost=True) from error
