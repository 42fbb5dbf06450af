"""Define the interface of a transport to Slurm.

- `cli`: parses the output of Slurm's own commands.
- `pyslurm`: reads jobs and nodes, and changes jobs, with Slurm's library in a child process, and uses `cli` otherwise.
- `programs`: runs Slurm's programs for changes and lookups, and decides which jobs may change.

A new transport is a sibling package that implements `SlurmTransport` and returns the classes of `cpsched.slurm_text`.
The `translation` package needs no change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords
from cpsched_bridge.ports import Outcome, StartOrder, UndoOrder, Victim

CONFIG_INTERVAL_S = 15.0
PARTITIONS_INTERVAL_S = 15.0
"""Seconds for which readings use the configuration and the partitions again.

A change of the submit plugin, which requires a reconfiguration or a restart of slurmctld, may go unnoticed for so long.
"""


JobOrder = StartOrder | UndoOrder | Victim
OrderKind = Literal["start", "hold", "release", "unpin", "preempt"]


class SlurmTransport(Protocol):
    """The interface to one Slurm controller.

    - Every call returns or raises a `BackendError` within the transport's own deadline.
    - `send` raises an error only if no order took effect (`BackendUnavailable`, `CommandRefused`) or if every order may
      have taken effect (`BackendTimeout`).
    - Job numbers have the form that `translation.slurm_job_ids` defines. The transport itself finds Slurm's own number
      for an array task.
    - All calls come from one thread.
    """

    @property
    def child_starts(self) -> int:
        """Return the number of long-lived child processes started so far.

        It is 0 if the transport needs none.
        """
        return 0

    @property
    def starts_in_one_change(self) -> bool:
        """Return whether a start pins and releases a job in a single change.

        If not, a crash may leave the job held and pinned.
        """
        ...

    def not_ready_reason(self) -> str | None:
        """Return what must happen before the first call, or None if ready. Never wait."""
        return None

    def transport_choice(self) -> tuple[str, str] | None:
        """Return the chosen transport's name and the reason. Never wait.

        Return None before the choice.
        """
        ...

    def read_config(self) -> SlurmConfig:
        """Return the controller's configuration."""
        ...

    def gather_doctor_facts(self) -> Record:
        """Return the facts that the doctor checks.

        - `config`: what `read_config()` returns.
        - `user`, `uid`, `admin_level`: the bridge's user and the user's AdminLevel, which is None if unknown.
        - `accounting_answers`: whether the accounting database answered.
        - `clock_ahead_s`: seconds by which the controller's clock is ahead of this host's clock.
        - `topology_plugins`: the topology plugins in use that may reject nodes.
        - `unmodelled_options`: what `find_unmodelled_options` yields for the configuration.
        - `rate_limit`: slurmctld's limit on this user's calls, as returned by `make_rate_limit_facts`.
        - `clients`, `pyslurm`, `node_versions`: installed versions; `pyslurm` is empty if pyslurm is not used.
        """
        ...

    def read(self) -> SlurmRecords:
        """Return one reading of the cluster, with jobs read before nodes.

        A job that starts in between is then already subtracted from the free amounts.
        """
        ...

    def read_accounting(self, since_s: int) -> Sequence[SlurmJob]:
        """Return the jobs that ended after `since_s`, from the accounting database.

        `since_s` is in Unix seconds. Raise `BackendTimeout` if the jobs have not arrived in time. A later call may then
        return them.
        """
        ...

    def send(self, kind: OrderKind, orders: Sequence[JobOrder], epoch: int = 0) -> Sequence[Outcome]:
        """Execute the orders, and return one outcome per order in the same sequence.

        If the submit plugin is loaded and `epoch` is not 0, every change except `preempt` carries the epoch, and the
        plugin refuses it after a change with a larger one.

        - `start` (`StartOrder`): pin and release jobs that are still pending and held. Each record is changed once, or
          pinned first and then released.
        - `hold` (`UndoOrder`): hold pending jobs, and clear their pins. An order is rejected if an owner or
          administrator holds the job, or if the job has started in the meantime.
        - `release` (`UndoOrder`): clear pins, then release jobs to Slurm's own scheduler.
        - `unpin` (`UndoOrder`): clear the pins of held pending jobs without releasing any job, regardless of the actor
          that holds it.
        - `preempt` (`Victim`): stop running jobs. A job with another start time, partition or QOS is rejected.
        """
        ...

    def acquire_lease(self, text: str, expected: str | None) -> bool:
        """Replace the lease reservation's text, and return whether that succeeded.

        The present text must be `expected`, and the new text is `text`, without blanks or quotes. If `expected` is
        None, create the reservation, which must not exist. See `Backend.acquire_lease` and
        `translation.lease_reservation`.
        """
        ...

    def close(self) -> None:
        """Close connections and processes, without changing any job."""
        ...
