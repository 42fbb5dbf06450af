"""Connect to Slurm through its own commands, without lasting processes.

A reservation's comment holds the bridge's lease (`translation.slurm_reservations`). Reservations in Slurm 22.05 have no
comment. In that release, the `BurstBuffer` field holds the lease: slurmctld reports its text unchanged, and only a
burst buffer plugin reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.object_parsing import RESERVATIONS_COMMAND, parse_reservations
from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import LEASE_RESERVATION_NAME, find_lease_comment
from cpsched_bridge.adapters.slurm.transport import JobOrder, OrderKind
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader, translate_unreadable_output
from cpsched_bridge.adapters.slurm.transport.cli.job_commands import SlurmOrderExecutor
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_commands import (
    NODE_NAME_PATTERN,
    ScontrolJobActions,
    SubmitPluginCapability,
)
from cpsched_bridge.adapters.slurm.transport.programs.call_limits import SlurmRpcTokenBucket
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import ControllerCallError
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import ScontrolSession
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import (
    make_slurm_runner,
    may_command_have_taken_effect,
    send_and_read_error,
)
from cpsched_bridge.errors import BackendUnavailable, CommandRefused
from cpsched_bridge.ports import Outcome

MAX_RATE_LIMIT_WAIT_S = 6.0
"""Maximum wait of one batch for the call limit in seconds. A start may take longer to become visible."""
NODES_COMMAND = ("sinfo", "--noheader", "--Node", "--format=%N")
LEASE_START = "now+3650days"
"""Start of the lease reservation, after the end of any job. Slurm counts a job without a limit as one year long."""
UNKNOWN_COMMENT_ERROR = "Unknown parameter Comment"
"""scontrol's error in releases whose reservations have no comment."""


class SlurmCliTransport:
    """A transport that runs Slurm's own programs.

    `history_deadline_s` applies to the accounting database, and `deadline_s` to everything else.

    - Every call returns or raises a `BackendError` within the transport's own deadline.
    - `send` raises an error only if no order took effect (`BackendUnavailable`, `CommandRefused`) or if every order may
      have taken effect (`BackendTimeout`).
    - Job numbers have the form that `translation.slurm_job_ids` defines. The transport itself finds Slurm's own number
      for an array task.
    - All calls except `acquire_lease` come from one thread.
    """

    name = "cli"
    starts_in_one_change = False
    """Whether a start pins and releases a job in a single change.

    If not, a crash may leave the job held and pinned.
    """

    def __init__(
        self,
        deadline_s: float = 10.0,
        history_deadline_s: float = 60.0,
        why: str = "",
        reader: SlurmCliReader | None = None,
        budget: SlurmRpcTokenBucket | None = None,
    ) -> None:
        self.why = why
        """The reason for choosing this transport."""
        self._deadline_s = deadline_s
        self._budget = budget or SlurmRpcTokenBucket()
        self.reader = reader or SlurmCliReader(deadline_s, history_deadline_s, budget=self._budget)
        self._plugin = SubmitPluginCapability()

    @property
    def child_starts(self) -> int:
        """Return the number of long-lived child processes started so far."""
        return 0

    def not_ready_reason(self) -> str | None:
        """Return what must happen before the first call, or None if ready. Never wait."""
        return None

    @property
    def reading_s(self) -> float:
        """Return the wall time of the last reading in seconds."""
        return self.reader.reading_s

    def read_config(self) -> SlurmConfig:
        """Return the controller's configuration."""
        return self.reader.read_config()

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
        return self.reader.gather_doctor_facts()

    def read(self) -> SlurmRecords:
        """Return one reading of the cluster, with jobs read before nodes.

        A job that starts in between is then already subtracted from the free amounts.
        """
        return self.reader.read()

    def read_accounting(self, since_s: int) -> Sequence[SlurmJob]:
        """Return the jobs that ended after `since_s`, from the accounting database.

        `since_s` is in Unix seconds. Raise `BackendTimeout` if the jobs have not arrived in time. A later call may then
        return them.
        """
        return self.reader.read_accounting(since_s)

    def send(self, kind: OrderKind, orders: Sequence[JobOrder], epoch: int = 0) -> list[Outcome]:
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
        with self._open_session() as session:
            executor = SlurmOrderExecutor(self._make_actions(session, epoch))
            act: Callable[[Sequence[JobOrder]], list[Outcome]] = getattr(executor, kind)
            try:
                return act(orders)
            except ControllerCallError as error:  # a reading failed before any command was sent
                refusal = CommandRefused if isinstance(error.__cause__, CommandRefused) else BackendUnavailable
                raise refusal(str(error)) from error

    def _make_actions(self, session: ScontrolSession, epoch: int) -> ScontrolJobActions:
        return ScontrolJobActions(self.reader, session, self._plugin, epoch)

    def acquire_lease(self, text: str, expected: str | None) -> bool:
        """Replace the lease reservation's text, and return whether that succeeded.

        The present text must be `expected`, and the new text is `text`, without blanks or quotes. If `expected` is
        None, create the reservation, which must not exist. See `Backend.acquire_lease` and
        `translation.slurm_reservations`.
        """
        if self._read_lease_text() != expected:
            return False
        if expected is not None:
            self._run_with_lease_text(f"update ReservationName={LEASE_RESERVATION_NAME}", text)
            return True
        command = self._make_lease_command()
        try:
            self._run_with_lease_text(command, text)
        except (BackendUnavailable, CommandRefused):
            if self._read_lease_text() is None:
                raise
            return False  # another bridge created it first
        return True

    def _read_lease_text(self) -> str | None:
        """Return the lease reservation's text, or None if there is no reservation."""
        with translate_unreadable_output():
            return find_lease_comment(parse_reservations(self._run_query(RESERVATIONS_COMMAND)))

    def _make_lease_command(self) -> str:
        """Return the command that creates the lease reservation for root, on an arbitrary node.

        slurmctld requires a node and a user known to accounting.
        """
        nodes = [name for name in self._run_query(NODES_COMMAND).split() if NODE_NAME_PATTERN.fullmatch(name)]
        if not nodes:
            raise BackendUnavailable("sinfo: the output contains no node name")
        when = f"StartTime={LEASE_START} Duration=1 Flags=IGNORE_JOBS,OVERLAP"
        return f"create ReservationName={LEASE_RESERVATION_NAME} {when} Users=root Nodes={min(nodes)}"

    def _run_with_lease_text(self, command: str, text: str) -> None:
        """Run `command` with the lease's text in the field that this release provides."""
        error = self._run_scontrol(f"{command} Comment={text}")
        if UNKNOWN_COMMENT_ERROR in error:
            error = self._run_scontrol(f"{command} BurstBuffer={text}")
        if error:
            raise (BackendUnavailable if may_command_have_taken_effect(error) else CommandRefused)(error)

    def _run_query(self, command: Sequence[str]) -> str:
        return make_slurm_runner(self._budget).run(command, self._deadline_s).output

    def _run_scontrol(self, command: str) -> str:
        with self._open_session() as session:
            return send_and_read_error(session, command)

    def _open_session(self) -> ScontrolSession:
        return ScontrolSession(self._deadline_s, budget=self._budget, wait_s=MAX_RATE_LIMIT_WAIT_S)

    def close(self) -> None:
        """Close connections and processes, without changing any job."""
        self.reader.close()
