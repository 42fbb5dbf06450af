"""Choose a transport: pyslurm if it works on this host, otherwise Slurm's commands.

This module is used if the settings leave the choice open. pyslurm is tried in its own process. It is chosen if it can
be imported, reads the controller's configuration, is not of a newer release than the controller, and the controller
does not limit this user's calls (rl_enable). Within a call that is over the limit, Slurm's library sleeps 1, 2, 3, ...
seconds without notifying the caller. A batch of starts then exceeds its deadline and is killed before it finishes. Only
the commands respect the limit. The choice holds until the bridge stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from typing_extensions import override

from cpsched_bridge.adapters.slurm.slurm_records import Record, SlurmRecords
from cpsched_bridge.adapters.slurm.transport import CommandReply, OrderKind, SlurmTransport
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.programs.slurm_releases import parse_release
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import PyslurmTransport
from cpsched_bridge.errors import BackendDied, BackendStartFailed, BackendTimeout, CommandRefused

MOST_TIMEOUTS = 3
"""Number of consecutive timeouts after which pyslurm counts as broken, before a transport is chosen."""


def is_pyslurm_installed() -> bool:
    """Return whether pyslurm is installed, without importing it."""
    try:
        return find_spec("pyslurm") is not None
    except (ImportError, ValueError):
        return False


class AutoSlurmTransport(SlurmTransport):
    """A transport that chooses between pyslurm and the commands with the first call that reaches the controller.

    `not_ready_reason` never chooses pyslurm.
    """

    def __init__(
        self,
        pyslurm: Callable[[], PyslurmTransport],
        cli: Callable[[str], SlurmCliTransport],
        there: Callable[[], bool] = is_pyslurm_installed,
    ) -> None:
        self._cli = cli
        self._taken: SlurmTransport | None = None
        self._why = ""
        self._timeouts = 0
        self._tried: PyslurmTransport | None = None
        if there():
            self._tried = pyslurm()
        else:
            self._take_cli("pyslurm is not installed")

    @property
    @override
    def child_starts(self) -> int:
        tried = self._taken or self._tried
        return 0 if tried is None else tried.child_starts

    @property
    @override
    def starts_in_one_change(self) -> bool:
        """Return whether a start is one change; False before the choice."""
        return self._taken is not None and self._taken.starts_in_one_change

    @override
    def not_ready_reason(self) -> str | None:
        if self._taken is None and self._tried is not None:
            try:
                return self._tried.not_ready_reason()
            except BackendStartFailed as error:
                self._take_cli(str(error))
        return None if self._taken is None else self._taken.not_ready_reason()

    @override
    def transport_choice(self) -> tuple[str, str] | None:
        found = None if self._taken is None else self._taken.transport_choice()
        return None if found is None else (found[0], self._why)

    @override
    def read_config(self) -> Record:
        return self._one().read_config()

    @override
    def gather_facts(self) -> Record:
        return self._one().gather_facts()

    @override
    def read(self) -> SlurmRecords:
        return self._one().read()

    @override
    def read_accounting(self, since_s: int) -> Sequence[Record]:
        return self._one().read_accounting(since_s)

    @override
    def send(self, kind: OrderKind, orders: Sequence[Record]) -> Sequence[CommandReply]:
        return self._one().send(kind, orders)

    @override
    def acquire_lease(self, words: str, instead_of: str | None) -> bool:
        return self._one().acquire_lease(words, instead_of)

    @override
    def release_lease(self, words: str) -> None:
        self._one().release_lease(words)

    @override
    def close(self) -> None:
        for each in (self._taken, self._tried):
            if each is not None:
                each.close()

    def _one(self) -> SlurmTransport:
        """Return the chosen transport.

        Raise the error that prevented the trial of pyslurm. The next call continues the trial.
        """
        if self._taken is None and self._tried is not None:
            try:
                said = self._tried.hello()
            except (CommandRefused, BackendStartFailed, BackendDied) as error:
                self._take_cli(str(error))
            except BackendTimeout as error:
                self._timeouts += 1
                if self._timeouts < MOST_TIMEOUTS:
                    raise
                self._take_cli(f"{error}, {MOST_TIMEOUTS} times in a row")
            else:
                self._judge(self._tried, said)
        assert self._taken is not None
        return self._taken

    def _judge(self, tried: PyslurmTransport, said: Record) -> None:
        own, controller = str(said["pyslurm"] or ""), str(said["config"]["version"] or "")
        if parse_release(own) > parse_release(controller):
            self._take_cli(f"pyslurm {own} is newer than the controller, which is {controller}")
        elif said["rate_limit"]:
            self._take_cli("slurmctld limits this user's calls (rl_enable), to which pyslurm does not keep")
        else:
            self._taken, self._why = tried, f"pyslurm {own} works beside a controller of {controller}"

    def _take_cli(self, why: str) -> None:
        if self._tried is not None:
            self._tried.close()
            self._tried = None
        self._taken, self._why = self._cli(why), why
