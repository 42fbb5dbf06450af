"""How Slurm is asked and told: what a transport must offer, and the transports that offer it.

- `pyslurm`: Slurm's library, in a process of its own.
- `cli`: Slurm's own commands as text.
- `programs`: what both do by Slurm's programs, and the rules of what may be touched.
- `choice`: which of the two a bridge takes.

Another one is a package beside them that implements `Transport` and delivers records as
`cpsched_bridge.adapters.slurm.slurm_records` describes them; the translation stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cpsched_bridge.adapters.slurm.slurm_records import ClusterRecords, Record
from cpsched_bridge.ports import OutcomeCode, Result


class Answer(NamedTuple):
    """What became of one order, as in `ports.Outcome`."""

    result: Result
    detail: str = ""
    code: OutcomeCode = ""


class Transport(Protocol):
    """Asks and tells one Slurm controller, in plain records.

    - Every call returns, or raises a `BackendError`, within the transport's own deadline.
    - The three commands take orders and answer each of them, in the order given. They raise only where no order took
      effect (`BackendUnavailable`, `CommandRefused`) or all of them may have (`BackendTimeout`).
    - Job numbers are those of `translation.ids`; a transport finds Slurm's own number of an array task by itself.
    - Calls come from one thread.
    """

    @property
    def child_starts(self) -> int:
        """Processes that stay, started so far; 0 for a transport that needs none."""
        ...

    @property
    def starts_in_one_change(self) -> bool:
        """Whether a job that is pinned was released with that; else a crash may leave it held with its pin."""
        ...

    def waits_for(self) -> str | None:
        """What is left to do before the controller can be asked, in words; None: it can be asked. Never waits."""
        ...

    def chosen(self) -> tuple[str, str] | None:
        """The transport's name and why it was taken; None: that is not known yet. Never waits."""
        ...

    def config(self) -> Record:
        """The controller's configuration: a record of `CONFIG_FIELDS`."""
        ...

    def facts(self) -> Record:
        """What the doctor judges.

        - `config`: as `config()` gives it.
        - `user`, `uid`, `admin_level`: as whom the bridge speaks, and its AdminLevel; None: nobody can tell.
        - `accounting_answers`: whether the accounting database could be asked.
        - `clock_ahead_s`: seconds by which the controller's clock is ahead of this host's.
        - `rate_limit`: the "bucket" and calls "per_s" that slurmctld accepts of this user; None: any,
        - `clients`, `pyslurm`, `node_versions`: versions of what is installed where; `pyslurm` is None where it is
          not used.
        """
        ...

    def read(self) -> ClusterRecords:
        """The cluster now. Jobs are read before nodes, so that what starts in between shows in what is free."""
        ...

    def past(self, since_s: int) -> Sequence[Record]:
        """Records of `PAST_FIELDS`: jobs of the accounting database that ended after `since_s`.

        Raises `BackendTimeout` where the answer takes long. Another call may then have it.
        """
        ...

    def start(self, orders: Sequence[Record]) -> Sequence[Answer]:
        """Pin and release jobs that are still pending and held: in one change of each record, or the pin first.

        An order reads {"job": number, "nodes": names, "tasks_per_node": number or 0}; tasks per node are set where
        they are not 0. An order with "nice" sets that value too; one with "num_nodes" is told, before it is released,
        so many nodes, as "2-2" or "2-6". One with "cpus_per_node", for older controllers, sets the least CPUs
        of a node, and the CPUs of the job to "cpus": by scontrol alone, as no pyslurm speaks to most of these.
        """
        ...

    def hold(self, orders: Sequence[Record]) -> Sequence[Answer]:
        """Hold pending jobs, and clear their pins.

        An order reads {"job": number, "clear": settings}. The settings are scontrol's words, such as
        "ReqNodeList= TasksPerNode=0 NumNodes=1-6 NumTasks=6"; empty settings mean that there is no pin of ours. A job
        that its owner holds, or that runs by now, is refused.
        """
        ...

    def hand_back(self, orders: Sequence[Record]) -> Sequence[Answer]:
        """Clear pins, then release to Slurm's own scheduler; orders as for `hold`."""
        ...

    def unpin(self, orders: Sequence[Record]) -> Sequence[Answer]:
        """Clear pins of pending jobs that are held, by whomever; the holds stay. Orders as for `hold`."""
        ...

    def claim(self, words: str, instead_of: str | None) -> bool:
        """Write `words`, without blanks and quotes, into the reservation of `translation.lease_reservation`; see
        `Backend.claim`.

        `instead_of` are the words in it; None: there is no such reservation, and it is made.
        """
        ...

    def disclaim(self, words: str) -> None:
        """Delete that reservation, if these are the words in it."""
        ...

    def close(self) -> None:
        """Let go of connections and processes; jobs stay as they are."""
        ...
