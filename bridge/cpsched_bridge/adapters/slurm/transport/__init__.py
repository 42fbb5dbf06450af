"""Define the interface of a transport to Slurm.

- `pyslurm`: uses Slurm's library in a child process.
- `cli`: parses the output of Slurm's own commands.
- `programs`: the operations that both perform with Slurm's programs, and the rules for changing jobs.
- `auto_transport`: chooses one of the two.

Another transport is a sibling package that implements `SlurmTransport`. It delivers records as described in
`cpsched_bridge.adapters.slurm.slurm_records`. The translation needs no change.
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


OrderKind = Literal["start", "hold", "release", "unpin", "preempt"]


class SlurmTransport(Protocol):
    """The interface for reading and commanding one Slurm controller, in plain records.

    - Every call returns or raises a `BackendError` within the transport's own deadline.
    - Commands take orders and return a reply to each, in the same order. They raise only if no order took effect
      (`BackendUnavailable`, `CommandRefused`) or if all may have taken effect (`BackendTimeout`).
    - Job numbers are those of `translation.slurm_job_ids`. The transport itself finds Slurm's own number of an array
      task.
    - All calls come from one thread.
    """

    @property
    def child_starts(self) -> int:
        """Return the number of long-lived child processes started so far, or 0 if the transport needs none."""
        ...

    @property
    def starts_in_one_change(self) -> bool:
        """Return whether a start pins and releases a job in a single change.

        Otherwise a crash may leave the job held with its pin.
        """
        ...

    def not_ready_reason(self) -> str | None:
        """Return what must happen before the first call, or None if the transport is ready. Never wait."""
        ...

    def transport_choice(self) -> tuple[str, str] | None:
        """Return the transport's name and the reason for choosing it, or None if undecided. Never wait."""
        ...

    def read_config(self) -> Record:
        """Return the controller's configuration, a record with the fields in `CONFIG_FIELDS`."""
        ...

    def gather_facts(self) -> Record:
        """Return the facts that the doctor checks.

        - `config`: the record that `read_config()` returns.
        - `user`, `uid`, `admin_level`: the bridge's user and its AdminLevel, which is None if unknown.
        - `accounting_answers`: whether the accounting database answered.
        - `clock_ahead_s`: seconds by which the controller's clock is ahead of this host's.
        - `topology_plugins`: the topology plugins in use that may reject nodes.
        - `rate_limit`: the "bucket" and the calls "per_s" that slurmctld accepts from this user; None without a limit.
        - `clients`, `pyslurm`, `node_versions`: installed versions; `pyslurm` is None if it is not used.
        """
        ...

    def read(self) -> SlurmRecords:
        """Return one reading of the cluster, with jobs read before nodes.

        In this order, the free amounts account for jobs that start in between.
        """
        ...

    def read_accounting(self, since_s: int) -> Sequence[Record]:
        """Return the jobs in the accounting database that ended after `since_s`, in Unix seconds.

        The records have the fields in `PAST_FIELDS`. Raise `BackendTimeout` if the answer is late. A later call may
        then return it.
        """
        ...

    def send(self, kind: OrderKind, orders: Sequence[Record]) -> Sequence[CommandReply]:
        """Execute orders, and return a reply to each.

        - `start`: pin and release jobs that are still pending and held. Each record is changed once, or pinned first
          and then released. An order has the form {"job": number, "nodes": names, "tasks_per_node": number or 0}. A
          `tasks_per_node` of 0 is not set. "nice" sets the nice value of the job. "partition" selects the partition in
          which a job that names several starts. "num_nodes", such as "2-2" or "2-6", sets the number of nodes before
          the release. For older controllers, "cpus_per_node" sets the minimum CPUs per node, and "cpus" the CPUs of the
          job. Only scontrol sends both, because pyslurm does not support most of these releases.
        - `hold`: hold pending jobs, and clear their pins. An order has the form {"job": number, "clear": settings}. The
          settings use scontrol's syntax, such as "ReqNodeList= TasksPerNode=0 NumNodes=1-6 NumTasks=6". Empty settings
          mean that the bridge has set no pin. A job that is held by its owner, or that has started in the meantime, is
          rejected.
        - `release`: clear pins, then release jobs to Slurm's own scheduler; orders as for `hold`.
        - `unpin`: clear pins of pending jobs with a hold of any kind, and keep the holds; orders as for `hold`.
        - `preempt`: stop running jobs. An order has the form {"job": number, "start_s": time, "partition": name, "qos":
          name, "mode": "requeue" or "cancel"}. A job that runs since another time, or in another partition or QOS, is
          rejected.
        """
        ...

    def acquire_lease(self, text: str, expected: str | None) -> bool:
        """Write `words` into the reservation of `translation.lease_reservation`. Return whether that succeeded.

        `words` contains no blanks or quotes; see `Backend.acquire_lease`. `expected` is the current text. If it is
        None, the reservation does not exist, and this call creates it.
        """
        ...

    def release_lease(self, text: str) -> None:
        """Delete the lease reservation if its text equals `words`."""
        ...

    def close(self) -> None:
        """Close connections and processes; jobs stay unchanged."""
        ...
