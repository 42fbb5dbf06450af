"""Define what a transport to Slurm must offer.

- `pyslurm`: Slurm's library, in a child process.
- `cli`: the output of Slurm's own commands.
- `programs`: what both do by Slurm's programs, and the rules for changing jobs.
- `auto_transport`: chooses one of the two.

Another transport is a package beside them that implements `SlurmTransport`. It delivers records as
`cpsched_bridge.adapters.slurm.slurm_records` describes them. The translation stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords
from cpsched_bridge.ports import OutcomeCode, Result


class CommandReply(NamedTuple):
    """The result of one order, as in `ports.Outcome`."""

    result: Result
    detail: str = ""
    code: OutcomeCode = ""


OrderKind = Literal["start", "hold", "release", "unpin"]


class SlurmTransport(Protocol):
    """Read and command one Slurm controller, in plain records.

    - Every call returns, or raises a `BackendError`, within the transport's own deadline.
    - Commands take orders and return an answer to each, in the same order. They raise only if no order took effect
      (`BackendUnavailable`, `CommandRefused`) or all may have (`BackendTimeout`).
    - Job numbers are those of `translation.slurm_job_ids`. A transport finds Slurm's own number of an array task
      itself.
    - Calls come from one thread.
    """

    @property
    def child_starts(self) -> int:
        """Return the number of lasting processes started so far; 0 if it needs none."""
        ...

    @property
    def starts_in_one_change(self) -> bool:
        """Return whether a start pins and releases a job in one change.

        Otherwise a crash may leave the job held with its pin.
        """
        ...

    def not_ready_reason(self) -> str | None:
        """Describe what must happen before the first call; None if ready. Never wait."""
        ...

    def transport_choice(self) -> tuple[str, str] | None:
        """Return the transport's name and why it was chosen; None if open. Never wait."""
        ...

    def read_config(self) -> Record:
        """Return the controller's configuration, a record of `CONFIG_FIELDS`."""
        ...

    def gather_facts(self) -> Record:
        """Return the facts that the doctor checks.

        - `read_config`: as `read_config()` returns it.
        - `user`, `uid`, `admin_level`: the bridge's user, and its AdminLevel; None if unknown.
        - `accounting_answers`: whether the accounting database answered.
        - `clock_ahead_s`: seconds by which the controller's clock is ahead of this host's.
        - `topology_plugins`: the topology plugins in use that may reject nodes.
        - `rate_limit`: the "bucket" and calls "per_s" that slurmctld accepts from this user; None without a limit.
        - `clients`, `pyslurm`, `node_versions`: installed versions; `pyslurm` is None if it is not used.
        """
        ...

    def read(self) -> SlurmRecords:
        """Read the cluster, jobs before nodes.

        So the free amounts include what starts in between.
        """
        ...

    def read_accounting(self, since_s: int) -> Sequence[Record]:
        """Return jobs of the accounting database that ended after `since_s`.

        They are records of `PAST_FIELDS`. Raise `BackendTimeout` if the answer takes long. A later call may then return
        it.
        """
        ...

    def send(self, kind: OrderKind, orders: Sequence[Record]) -> Sequence[CommandReply]:
        """Execute orders.

        - `start`: pin and release jobs that are still pending and held. Each record gets one change, or the pin first.
          An order reads {"job": number, "nodes": names, "tasks_per_node": number or 0}; tasks per node are set unless
          0. "nice" sets that value, too. "num_nodes", such as "2-2" or "2-6", sets the number of nodes before the
          release. For older controllers, "cpus_per_node" sets the minimum CPUs per node, and "cpus" the CPUs of the
          job: by scontrol alone, as no pyslurm supports most of these releases.
        - `hold`: hold pending jobs, and clear their pins. An order reads {"job": number, "clear": settings}. The
          settings are scontrol's words, such as "ReqNodeList= TasksPerNode=0 NumNodes=1-6 NumTasks=6". Empty settings
          mean that the bridge has set no pin. A job that its owner holds, or that runs by now, is rejected.
        - `release`: clear pins, then release to Slurm's own scheduler; orders as for `hold`.
        - `unpin`: clear pins of pending jobs with any hold, and keep the holds; orders as for `hold`.
        """
        ...

    def acquire_lease(self, words: str, instead_of: str | None) -> bool:
        """Write `words` into the reservation of `translation.lease_reservation`.

        `words` have no blanks and quotes; see `Backend.acquire_lease`. `instead_of` are the present words. If it is
        None, there is no such reservation, and this call creates it.
        """
        ...

    def release_lease(self, words: str) -> None:
        """Delete that reservation if it has these words."""
        ...

    def close(self) -> None:
        """Close connections and processes; jobs stay unchanged."""
        ...
