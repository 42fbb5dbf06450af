"""Choose pyslurm if it works on this host, otherwise Slurm's commands.

This module is used if the settings leave the choice open. pyslurm is tried in its own process. It is chosen if it can
be imported, can read the controller's configuration, and is not newer than the controller. It is not chosen if the
controller limits this user's calls (rl_enable). In a call over the limit, Slurm's library silently sleeps 1, 2, 3 ...
seconds. A batch of starts then exceeds its deadline, and its process is killed before the batch is finished. Only the
`cli` transport waits until the limit permits its calls. The choice holds until the bridge stops.
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

MAX_CONSECUTIVE_TIMEOUTS = 3
"""Number of consecutive timeouts after which the trial of pyslurm fails."""


def is_pyslurm_installed() -> bool:
    """Return whether pyslurm is installed, without importing it."""
    try:
        return find_spec("pyslurm") is not None
    except (ImportError, ValueError):
        return False


class AutoSlurmTransport(SlurmTransport):
    """A transport that chooses pyslurm or the commands on first contact.

    `not_ready_reason` never chooses pyslurm.
    """

    def __init__(
        self,
        pyslurm: Callable[[], PyslurmTransport],
        cli: Callable[[str], SlurmCliTransport],
        there: Callable[[], bool] = is_pyslurm_installed,
    ) -> None:
        self._cli = cli
        self._chosen: SlurmTransport | None = None
        self._why = ""
        self._timeouts = 0
        self._candidate: PyslurmTransport | None = None
        if there():
            self._candidate = pyslurm()
        else:
            self._choose_cli("pyslurm is not installed")

    @property
    @override
    def child_starts(self) -> int:
        tried = self._chosen or self._candidate
        return 0 if tried is None else tried.child_starts

    @property
    @override
    def starts_in_one_change(self) -> bool:
        """Return whether a start is a single change; False until a transport is chosen."""
        return self._chosen is not None and self._chosen.starts_in_one_change

    @override
    def not_ready_reason(self) -> str | None:
        if self._chosen is None and self._candidate is not None:
            try:
                return self._candidate.not_ready_reason()
            except BackendStartFailed as error:
                self._choose_cli(str(error))
        return None if self._chosen is None else self._chosen.not_ready_reason()

    @override
    def transport_choice(self) -> tuple[str, str] | None:
        found = None if self._chosen is None else self._chosen.transport_choice()
        return None if found is None else (found[0], self._why)

    @override
    def read_config(self) -> Record:
        return self._chosen_transport().read_config()

    @override
    def gather_doctor_facts(self) -> Record:
        return self._chosen_transport().gather_doctor_facts()

    @override
    def read(self) -> SlurmRecords:
        return self._chosen_transport().read()

    @override
    def read_accounting(self, since_s: int) -> Sequence[Record]:
        return self._chosen_transport().read_accounting(since_s)

    @override
    def send(self, kind: OrderKind, orders: Sequence[Record]) -> Sequence[CommandReply]:
        return self._chosen_transport().send(kind, orders)

    @override
    def acquire_lease(self, text: str, expected: str | None) -> bool:
        return self._chosen_transport().acquire_lease(text, expected)

    @override
    def release_lease(self, text: str) -> None:
        self._chosen_transport().release_lease(text)

    @override
    def close(self) -> None:
        for each in (self._chosen, self._candidate):
            if each is not None:
                each.close()

    def _chosen_transport(self) -> SlurmTransport:
        """Return the chosen transport.

        If the trial of pyslurm has no result yet, raise its error. The next call continues the trial.
        """
        if self._chosen is None and self._candidate is not None:
            try:
                hello = self._candidate.hello()
            except (CommandRefused, BackendStartFailed, BackendDied) as error:
                self._choose_cli(str(error))
            except BackendTimeout as error:
                self._timeouts += 1
                if self._timeouts < MAX_CONSECUTIVE_TIMEOUTS:
                    raise
                self._choose_cli(f"{error} ({MAX_CONSECUTIVE_TIMEOUTS} consecutive timeouts)")
            else:
                self._choose_pyslurm_or_cli(self._candidate, hello)
        assert self._chosen is not None
        return self._chosen

    def _choose_pyslurm_or_cli(self, tried: PyslurmTransport, hello: Record) -> None:
        own, controller = str(hello["pyslurm"] or ""), str(hello["config"]["version"] or "")
        if parse_release(own) > parse_release(controller):
            self._choose_cli(f"pyslurm {own} is newer than slurmctld {controller}")
        elif hello["rate_limit"]:
            self._choose_cli("slurmctld limits this user's calls (rl_enable), and pyslurm does not respect the limit")
        else:
            self._chosen, self._why = tried, f"pyslurm {own} works with slurmctld {controller}"

    def _choose_cli(self, why: str) -> None:
        if self._candidate is not None:
            self._candidate.close()
            self._candidate = None
        self._chosen, self._why = self._cli(why), why
