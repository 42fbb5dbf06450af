"""Run the commands that print a site's policy in the background.

All commands share one deadline. Only `collect_output(wait=True)` waits for them, because a slow accounting database
must not delay a cycle.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.slurm_text.accounts import QOS_COLUMNS
from cpsched_sim.program_runner import CallBudget, ProgramFailure, ProgramRunner, RunningPrograms
from cpsched_sim.slurm_environment import build_slurm_environment

COMMANDS: Mapping[str, Sequence[Sequence[str]]] = {
    "config": (("scontrol", "show", "config"),),
    "partitions": (("scontrol", "-o", "show", "partition"),),
    "licenses": (("scontrol", "-o", "show", "license"),),
    "state": (("scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos"),),
    "qos": (("sacctmgr", "-P", "show", "qos", f"format={','.join(f'{name}%1000' for name in QOS_COLUMNS)}"),),
    "shares": (("sshare", "-a", "--json"), ("sshare", "-a", "-P", "-o", "ID,FairShare")),
}
"""Commands by answer name. If some sites lack a command, a fallback follows it."""
DEADLINE_S = 10.0
"""Time limit in seconds for all commands together. After that, the last known policy is used."""
_POLL_S = 0.02
REQUIRED_OUTPUTS = ("config", "partitions")
"""Required answers. A cluster without accounting lacks the others."""


@dataclass(frozen=True, slots=True)
class BackgroundCommandOutput:
    """The commands' output, and the reason for each missing answer."""

    texts: Mapping[str, str]
    failures: Mapping[str, str]


@dataclass(slots=True)
class BackgroundCommandQuery:
    """A query that runs Slurm's commands in the background, with a common deadline."""

    deadline_s: float = DEADLINE_S
    commands: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=lambda: COMMANDS)
    budget: CallBudget | None = None
    _running: dict[str, RunningPrograms] = field(default_factory=dict)
    _tried: dict[str, int] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    _failures: dict[str, str] = field(default_factory=dict)
    _until_s: float | None = None
    _chosen: dict[str, int] = field(default_factory=dict)
    """Index of the first command to try, by name, so that a command that always fails is not repeated."""

    def start(self) -> None:
        """Start the commands unless they are already running."""
        if self._until_s is not None:
            return
        self._texts, self._failures = {}, {}
        self._until_s = time.monotonic() + self.deadline_s
        for name in self.commands:
            self._start_command(name, self._chosen.get(name, 0), self.deadline_s)

    def collect_output(self, wait: bool = False) -> BackgroundCommandOutput | None:
        """Return all answers if every command has ended, otherwise None.

        With `wait`, wait for the commands until the deadline.
        """
        if self._until_s is None:
            return None
        while True:
            for name, programs in list(self._running.items()):
                if programs.wait_for_outputs(_POLL_S if wait else 0.0):
                    self._collect_answer(name, programs, self._until_s - time.monotonic())
            if not self._running:
                self._until_s = None
                return BackgroundCommandOutput(dict(self._texts), dict(self._failures))
            if not wait:
                return None

    def close(self) -> None:
        """Stop the commands."""
        for programs in self._running.values():
            programs.close()
        self._running.clear()
        self._until_s = None

    def _start_command(self, name: str, index: int, deadline_s: float) -> None:
        self._tried[name] = index
        runner = ProgramRunner(build_slurm_environment, budget=self.budget)
        self._running[name] = runner.start({name: self.commands[name][index]}, deadline_s)

    def _collect_answer(self, name: str, programs: RunningPrograms, left_s: float) -> None:
        """Collect the answer of an ended command. If it failed, start its fallback within `left_s` seconds."""
        del self._running[name]
        result, index = programs.collect_results()[name], self._tried[name]
        if result.has_succeeded:
            self._texts[name], self._chosen[name] = result.output, index
        elif index + 1 < len(self.commands[name]) and result.failure is not ProgramFailure.TIMED_OUT:
            self._start_command(name, index + 1, max(0.0, left_s))
        else:
            self._failures[name] = f"{result.command}: {result.error}"
