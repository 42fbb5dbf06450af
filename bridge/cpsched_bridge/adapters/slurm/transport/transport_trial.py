"""Choose between Slurm's commands and pyslurm by one reading with each.

The figure is the wall time of a whole reading on this cluster. The first reading with a transport does not count,
because it also reads what later readings use again. Until the trial ends, Slurm's commands are used. They are also used
if pyslurm fails, is not ready in time, or is not faster.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass

from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import PyslurmTransport
from cpsched_bridge.errors import BackendError

MIN_JOBS = 1_000
"""Minimum number of jobs for a trial. A reading of fewer jobs is cheap with either transport."""
START_LIMIT_S = 120.0
"""Seconds in which pyslurm's process must become ready. Cycles do not wait for it."""


def is_pyslurm_installed() -> bool:
    """Return whether pyslurm can be found, without importing it."""
    return importlib.util.find_spec("pyslurm") is not None


@dataclass(slots=True)
class TransportTrial:
    """A trial of pyslurm beside Slurm's commands."""

    commands: SlurmCliTransport
    pyslurm: PyslurmTransport
    clock: Callable[[], float] = time.monotonic
    """A function that returns a monotonic time in seconds."""
    _until_s: float | None = None
    _is_pyslurm_warm: bool = False

    def choose_transport(self, jobs: int) -> SlurmCliTransport | None:
        """Return the transport to use, or None until both can be compared. The other transport is closed.

        A reading of this number of jobs with Slurm's commands has just ended.
        """
        if jobs < MIN_JOBS:
            return self._choose_commands(f"{jobs:,} jobs; pyslurm is tried for at least {MIN_JOBS:,}")
        if self._until_s is None:
            self._until_s = self.clock() + START_LIMIT_S
        try:
            is_ready = self.pyslurm.not_ready_reason() is None
            if is_ready:
                self.pyslurm.read()
        except BackendError as error:
            return self._choose_commands(f"pyslurm failed: {error}")
        if not is_ready and self.clock() >= self._until_s:
            return self._choose_commands(f"pyslurm was not ready within {START_LIMIT_S:g} s")
        if not self._is_pyslurm_warm:
            self._is_pyslurm_warm = is_ready
            return None

        commands_s, pyslurm_s = self.commands.reading_s, self.pyslurm.reading_s
        figures = f"one reading of {jobs:,} jobs took {commands_s:.2f} s with cli and {pyslurm_s:.2f} s with pyslurm"
        if commands_s <= pyslurm_s:
            return self._choose_commands(figures)
        self.commands.close()
        self.pyslurm.why = f"auto: {figures}"
        return self.pyslurm

    def _choose_commands(self, why: str) -> SlurmCliTransport:
        self.pyslurm.close()
        self.commands.why = f"auto: {why}"
        return self.commands
