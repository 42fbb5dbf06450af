"""Run the commands that print a site's policy in the background.

All commands share one deadline. Only `collect_output(wait=True)` waits for them, because a slow accounting database
must not delay a cycle.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Protocol

from typing_extensions import override

from cpsched_bridge.adapters.slurm.policy.site_policy_parsing import QOS_FORMAT
from cpsched_sim.slurm_environment import build_slurm_environment

MAX_OUTPUT_BYTES = 64 * 1024 * 1024
"""Maximum length of an answer in bytes. A longer answer counts as failed."""

COMMANDS: Mapping[str, Sequence[Sequence[str]]] = {
    "config": (("scontrol", "show", "config"),),
    "partitions": (("scontrol", "-o", "show", "partition"),),
    "licenses": (("scontrol", "-o", "show", "license"),),
    "state": (("scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos"),),
    "qos": (("sacctmgr", "-P", "show", "qos", f"format={','.join(f'{name}%1000' for name in QOS_FORMAT)}"),),
    "shares": (("sshare", "-a", "--json"), ("sshare", "-a", "-P", "-o", "ID,FairShare")),
}
"""Commands by answer name. If some sites lack a command, a fallback follows it."""
DEADLINE_S = 10.0
"""Time limit in seconds for all commands together. After that, the last known policy is used."""
REQUIRED_OUTPUTS = ("config", "partitions")
"""Required answers. A cluster without accounting lacks the others."""


@dataclass(frozen=True, slots=True)
class BackgroundCommandOutput:
    """The commands' output, and the reason for each missing answer."""

    texts: Mapping[str, str]
    failures: Mapping[str, str]


class BackgroundQuery(Protocol):
    """A query that runs its commands in the background."""

    def start(self) -> None:
        """Start the commands unless they are already running."""
        ...

    def collect_output(self, wait: bool = False) -> BackgroundCommandOutput | None:
        """Return all answers if every command has ended, otherwise None.

        With `wait`, wait for the commands until the deadline.
        """
        ...

    def close(self) -> None:
        """Stop the commands."""
        ...


@dataclass(slots=True)
class _RunningCommand:
    process: subprocess.Popen[bytes]
    printed: IO[bytes]
    complained: IO[bytes]


def _count_no_calls(command: Sequence[str]) -> float:
    return 0.0


@dataclass(slots=True)
class BackgroundCommandQuery(BackgroundQuery):
    """A query that runs Slurm's commands as processes with a common deadline."""

    deadline_s: float = DEADLINE_S
    commands: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=lambda: COMMANDS)
    counted: Callable[[Sequence[str]], float] = _count_no_calls
    """A function that counts a starting command's calls, and returns the extra seconds that it may take."""
    _running: dict[str, _RunningCommand] = field(default_factory=dict)
    _tried: dict[str, int] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    _failures: dict[str, str] = field(default_factory=dict)
    _until_s: float | None = None
    _chosen: dict[str, int] = field(default_factory=dict)
    """Index of the first command to try, by name, so that a command that always fails is not repeated."""

    @override
    def start(self) -> None:
        if self._until_s is not None:
            return
        self._texts, self._failures = {}, {}
        self._tried = {name: self._chosen.get(name, 0) for name in self.commands}
        longer_s = max(map(self._start_command, self.commands), default=0.0)
        self._until_s = time.monotonic() + self.deadline_s + longer_s

    @override
    def collect_output(self, wait: bool = False) -> BackgroundCommandOutput | None:
        if self._until_s is None:
            return None
        while True:
            for name in list(self._running):
                self._collect_answer(name)
            late = time.monotonic() >= self._until_s
            if late:
                for name in list(self._running):
                    self._finish_command(name)
                    self._failures[name] = f"no response within {self.deadline_s:g} s"
            if not self._running:
                self._until_s = None
                return BackgroundCommandOutput(dict(self._texts), dict(self._failures))
            if not wait:
                return None
            time.sleep(0.02)

    @override
    def close(self) -> None:
        for name in list(self._running):
            self._finish_command(name)
        self._until_s = None

    def _start_command(self, name: str) -> float:
        printed, complained = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  closed in _finish_command
        command = list(self.commands[name][self._tried[name]])
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=printed, stderr=complained, env=build_slurm_environment()
            )
        except OSError as error:
            printed.close()
            complained.close()
            self._failures[name] = f"{command[0]}: {error.strerror or error}"
            return 0.0
        self._running[name] = _RunningCommand(process, printed, complained)
        return self.counted(command)

    def _collect_answer(self, name: str) -> None:
        """Collect the answer of an ended command. If it failed, start its fallback."""
        status = self._running[name].process.poll()
        if status is None:
            return
        printed, complained = self._finish_command(name)
        command = " ".join(self.commands[name][self._tried[name]][:3])
        if status == 0 and len(printed) <= MAX_OUTPUT_BYTES:
            self._texts[name] = printed.decode(errors="replace")
            self._chosen[name] = self._tried[name]
            self._failures.pop(name, None)
        elif self._tried[name] + 1 < len(self.commands[name]):
            self._tried[name] += 1
            self._start_command(name)
        else:
            words = complained.decode(errors="replace").strip()
            self._failures[name] = f"{command}: {words.splitlines()[0] if words else f'exit status {status}'}"

    def _finish_command(self, name: str) -> tuple[bytes, bytes]:
        running = self._running.pop(name)
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
        found = []
        for file in (running.printed, running.complained):
            file.seek(0)
            found.append(file.read(MAX_OUTPUT_BYTES + 1))
            file.close()
        return found[0], found[1]
