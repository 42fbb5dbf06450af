"""Query a site's policy and slurmctld's load in the background.

All commands of a query share one deadline. Only `collect_output(wait=True)` waits for them, because a slow accounting
database or a busy controller must not delay a cycle.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.errors import CpschedError, exception_message
from cpsched.slurm_text.accounts import QOS_COLUMNS
from cpsched.slurm_text.site_policy import SitePolicyReading, parse_site_policy
from cpsched_sim.program_runner import (
    CallBudget,
    ProgramFailure,
    ProgramRunner,
    RunningPrograms,
    build_slurm_environment,
)

SITE_POLICY_COMMANDS: Mapping[str, Sequence[Sequence[str]]] = {
    "config": (("scontrol", "show", "config"),),
    "partitions": (("scontrol", "-o", "show", "partition"),),
    "licenses": (("scontrol", "-o", "show", "license"),),
    "state": (("scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos"),),
    "qos": (("sacctmgr", "-P", "show", "qos", f"format={','.join(f'{name}%1000' for name in QOS_COLUMNS)}"),),
    "shares": (("sshare", "-a", "--json"), ("sshare", "-a", "-P", "-o", "ID,FairShare")),
}
"""Commands by answer name. If some sites lack a command, a fallback follows it."""
REQUIRED_OUTPUTS = ("config", "partitions")
"""Required answers. A cluster without accounting lacks the others."""
MAX_READ_INTERVAL_S = 300.0
"""Maximum interval between readings in seconds, which is Slurm's default of PriorityCalcPeriod."""
RETRY_S = 30.0
"""Maximum time in seconds after which a failed reading is repeated."""


@dataclass(slots=True)
class PeriodicSitePolicyReader:
    """A cache of the last reading of the policy, which is kept if the next one fails.

    It is renewed every `PriorityCalcPeriod`, at least every `MAX_READ_INTERVAL_S`. `poll` reports failures and
    recoveries.
    """

    asking: BackgroundCommandQuery
    clock: Callable[[], float]
    """A function that returns a monotonic time in seconds."""
    reading: SitePolicyReading | None = None
    version: int = 0
    """A number that increases with each changed reading."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons why the last reading lacked answers, by answer name."""
    _due_s: float | None = None
    _texts: dict[str, str] = field(default_factory=dict)

    def start_reading(self) -> None:
        """Start the first reading early, so that the first `poll` waits less."""
        if self._due_s is None:
            self.asking.start()

    def poll(self) -> list[str]:
        """Start a reading if due, collect available answers, and return messages to log.

        The first call waits for the answers until their deadline. Later calls never wait.
        """
        if self._due_s is None or self.clock() >= self._due_s:
            self.asking.start()
        found = self.asking.collect_output(wait=self._due_s is None)
        return [] if found is None else self._update_reading(found)

    def _update_reading(self, found: BackgroundCommandOutput) -> list[str]:
        """Parse the answers, using previous answers for missing ones.

        Return messages to log.
        """
        failures = dict(found.failures)
        texts = self._texts | dict(found.texts)
        try:
            if missing := [name for name in REQUIRED_OUTPUTS if name not in texts]:
                raise CpschedError(f"missing data: {', '.join(missing)}")
            reading = parse_site_policy(texts)
        except Exception as error:  # an unexpected answer must not stop the bridge
            failures["snapshot"] = exception_message(error)
        else:
            self._texts = texts
            if reading != self.reading:
                self.reading, self.version = reading, self.version + 1
        period_s = MAX_READ_INTERVAL_S
        if self.reading is not None:
            period_s = min(period_s, self.reading.policy.priority.period_s)
        self._due_s = self.clock() + (min(RETRY_S, period_s) if failures else period_s)
        changes = _describe_failure_changes(self.failures, failures, self.reading is not None)
        self.failures = failures
        return changes

    def close(self) -> None:
        """Stop any running reading."""
        self.asking.close()


def _describe_failure_changes(before: dict[str, str], now: dict[str, str], known: bool) -> list[str]:
    """Return messages about new failures and about recoveries."""
    stands_in = "the previous data is used" if known else "jobs are ordered by arrival until it is available"
    lost = [
        f"site policy: {name} is not available: {why}; {stands_in}" for name, why in now.items() if name not in before
    ]
    back = [f"site policy: {name} is available again" for name in before if name not in now]
    return [*lost, *back]


SDIAG_COMMAND = ("sdiag",)
SDIAG_OUTPUT = "sdiag"
"""Name of the command's output."""
QUERY_INTERVAL_S = 15.0
"""Interval between queries in seconds while slurmctld is not busy. While it is busy, each cycle queries it."""

BUSY_REQUESTS = 100
"""Number of concurrent requests at which slurmctld counts as busy, because users begin to wait for commands."""
BUSY_MESSAGES = 1000
"""Number of messages queued for nodes at which slurmctld counts as busy."""

_HEADER_END = "\nJobs submitted:"
_THREADS = re.compile(r"^Server thread count:\s+(\d{1,9})\b", re.MULTILINE)
_MESSAGES = re.compile(r"^Agent queue size:\s+(\d{1,9})\b", re.MULTILINE)
_QUEUED = re.compile(r"^\t[A-Z][A-Z0-9_]*\s*\(\s*\d+\) count:.* queued:(\d{1,9})\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ControllerLoad:
    """The current load on slurmctld."""

    requests: int
    """Calls in progress (`Server thread count`) and queued calls (`queued`, in releases that report it)."""
    messages: int
    """Messages queued for nodes (`Agent queue size`)."""


def parse_controller_load(text: str) -> ControllerLoad | None:
    """Return the load in the output of `sdiag`, or None if its form is unexpected.

    User names appear only after the parsed part.
    """
    head, _, rest = text.partition(_HEADER_END)
    threads, messages = _THREADS.search(head), _MESSAGES.search(head)
    if threads is None or messages is None:
        return None
    types = rest.partition("\nRemote Procedure Call statistics by user")[0]
    queued = sum(int(count) for count in _QUEUED.findall(types))
    return ControllerLoad(int(threads[1]) + queued, int(messages[1]))


@dataclass(slots=True)
class ControllerLoadMonitor:
    """A monitor that reports when slurmctld is too busy for the usual calls."""

    asking: BackgroundCommandQuery
    clock: Callable[[], float]
    busy: str = ""
    """Why slurmctld counts as busy according to the last output, or "" if it is not busy.

    Missing output does not change this value.
    """
    _due_s: float = float("-inf")

    def poll(self) -> str:
        """Collect an available answer, start a query if it is due, and return `busy`.

        This method never waits.
        """
        if (found := self.asking.collect_output()) is not None:
            load = parse_controller_load(found.texts.get(SDIAG_OUTPUT, ""))
            if load is not None:
                self.busy = self._overload_reason(load)
            self._due_s = self.clock() + (0.0 if self.busy else QUERY_INTERVAL_S)
        if self.clock() >= self._due_s:
            self.asking.start()
        return self.busy

    def _overload_reason(self, load: ControllerLoad) -> str:
        if load.requests >= BUSY_REQUESTS:
            return f"slurmctld has {load.requests:,} concurrent requests (limit: {BUSY_REQUESTS})"
        if load.messages >= BUSY_MESSAGES:
            return f"slurmctld has {load.messages:,} unsent messages (limit: {BUSY_MESSAGES:,})"
        return ""

    def close(self) -> None:
        """Stop any running query."""
        self.asking.close()


DEADLINE_S = 10.0
"""Time limit in seconds for all commands together. After that, the last known policy is used."""
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class BackgroundCommandOutput:
    """The commands' output, and the reason for each missing answer."""

    texts: Mapping[str, str]
    failures: Mapping[str, str]


@dataclass(slots=True)
class BackgroundCommandQuery:
    """A query that runs Slurm's commands in the background, with a common deadline."""

    deadline_s: float = DEADLINE_S
    commands: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=lambda: SITE_POLICY_COMMANDS)
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
