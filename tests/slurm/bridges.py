"""Run a bridge as a process on the test cluster: start it, kill it, and read its files."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.slurm.harness import TRANSPORT, InsideProcess, Slurm, docker, wait_until
from tests.slurm.inside import bridge_files

FIRST_CYCLE_S = 240
"""Time limit in seconds of the first cycle, because the first start compiles the kernels."""


@dataclass(frozen=True, slots=True)
class LedgerJob:
    """A job in the bridge's ledger: its state, and the nodes of its latest start."""

    label: str
    state: str
    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Step:
    """A job's change of state in the ledger: round, new state, and reason."""

    round: int
    after: str
    why: str


@dataclass(frozen=True, slots=True)
class Event:
    """An event in the journal: its kind, the job that it concerns, and what happened."""

    kind: str
    job_id: int | None
    detail: str


file_reader = cache(InsideProcess)
"""One process per container reads files, because to start one for each poll would take 0.3 s."""


class LiveBridge:
    """A state directory, and the bridge processes that use it one after the other.

    `settings` become the bridge's settings file. The bridge runs as user cpsched in the container
    `Slurm.bridge_container` of its host; its files are read from `Slurm.python_container`.
    """

    def __init__(self, slurm: Slurm, name: str, host: str = "test-python", **settings: Any) -> None:
        self.slurm, self.host = slurm, host
        self.container = slurm.python_container(host)
        self.files = file_reader(self.container)
        self.state = f"/tmp/bridges/{name}-{time.monotonic_ns()}"
        self.config = f"{self.state}/bridge.yaml"
        content: dict[str, Any] = {
            "mode": "control",
            "adapter": "slurm",
            "state_dir": self.state,
            "log_format": "json",
            "metrics": {"port": 9764},
            "policy": {"dispatcher": "easy"},
            **settings,
            "options": {"transport": TRANSPORT, **settings.get("options", {})},
        }
        self.shell(f"mkdir -p {self.state} && cat > {self.config}", stdin=json.dumps(content))

    def shell(self, command: str, *, stdin: str | None = None, check: bool = True) -> str:
        """Run a shell command on the bridge's host, as its user."""
        interactive = ["--interactive"] if stdin is not None else []
        whole = ["exec", *interactive, "--user", "cpsched", self.container, "sh", "-c", command]
        return docker(*whole, stdin=stdin, check=check)

    def cpsched(self, *arguments: str, check: bool = True) -> str:
        """Run a `cpsched` command with this bridge's settings; return stdout and stderr."""
        words = " ".join(shlex.quote(word) for word in arguments)
        run = f"python -c 'from cpsched_bridge.program.cli import main; main()' {words} --config {self.config} 2>&1"
        return self.shell(run, check=check)

    def __enter__(self) -> LiveBridge:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop()
        if kind is not None:
            print(f"bridge log, its end:\n{self.log()[-4000:]}")

    # The process

    def start(self, wait: bool = True, environment: str = "") -> None:
        """Start the bridge with `environment` (`NAME=VALUE ...`). With `wait`, return after its first cycle."""
        before = self.rounds()
        run = f"env {environment} python -c 'from cpsched_bridge.program.cli import main; main()' bridge --config"
        script = f"echo $$ >{self.state}/pid; exec {run} {self.config} >>{self.state}/log 2>&1"
        docker("exec", "--detach", "--user", "cpsched", self.container, "sh", "-c", script)
        if wait:
            self.wait_until(lambda: self.rounds() > before, FIRST_CYCLE_S, "the bridge's first cycle")

    @property
    def pid(self) -> int:
        return int(self.shell(f"cat {self.state}/pid"))

    def alive(self) -> bool:
        check = f"p=$(cat {self.state}/pid) && grep -q -v zombie /proc/$p/status && test -d /proc/$p && echo yes"
        return "yes" in self.shell(check, check=False)

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU seconds used by the bridge and its pyslurm and dispatcher processes, by name."""
        children = self.shell(f"pgrep -P {self.pid} -f cpsched_bridge", check=False).split()
        return self.files.call(bridge_files.cpu_s, str(self.pid), *children)

    def kill(self, signal: str = "KILL") -> None:
        self.shell(f"kill -{signal} $(cat {self.state}/pid)", check=False)
        wait_until(lambda: not self.alive(), 300, "the bridge is gone", every_s=0.05)

    def stop(self) -> None:
        """Stop the bridge with SIGTERM, so that it releases held jobs to Slurm."""
        if self.alive():
            self.kill("TERM")

    # The bridge's files

    def query(self, file: str, text: str, *values: str) -> list[list[Any]]:
        """Return the rows of a query on the bridge's journal or state file."""
        return self.files.call(bridge_files.query, self.state, file, text, *values)

    def log(self) -> str:
        return self.shell(f"cat {self.state}/log", check=False)

    def rounds(self) -> int:
        """Return the number of the last round in the journal."""
        return self.files.call(bridge_files.last_round, self.state)

    def wait_until(self, condition: Callable[[], object], timeout_s: float, what: str) -> None:
        """Poll until `condition` returns a true value. The error ends with the bridge's log of that time."""
        try:
            wait_until(condition, timeout_s, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()[-2000:]}") from None

    def wait_for_rounds(self, count: int, timeout_s: float = 60) -> None:
        """Wait for `count` more successful cycles."""
        goal = self.rounds() + count
        self.wait_until(lambda: self.rounds() >= goal, timeout_s, f"{count} cycles")

    def wait_for_ends(self, jobs: Iterable[str], timeout_s: float = 60) -> None:
        """Wait until the ledger shows all these jobs as ended; accounting may be some cycles late."""
        wanted = set(jobs)
        self.wait_until(
            lambda: {job for job, one in self.ledger().items() if one.state == "ended"} >= wanted,
            timeout_s, f"{len(wanted)} jobs have ended in the ledger",
        )  # fmt: skip

    def ledger(self) -> dict[str, LedgerJob]:
        """Return the ledger by job label."""
        found = self.query("state", "select label, state, nodes, why from jobs")
        return {
            label: LedgerJob(label, state, tuple(sorted(name for name, units in json.loads(nodes) if units)), why)
            for label, state, nodes, why in found
        }

    def events(self, *kinds: str) -> list[Event]:
        """Return the journal's events, oldest first; with `kinds`, only those of these kinds."""
        events = [Event(*row) for row in self.query("journal", "select kind, job_id, detail from events order by seq")]
        return [event for event in events if not kinds or event.kind in kinds]

    def transitions(self) -> dict[str, list[Step]]:
        """Return each job's changes of state by job number, oldest first."""
        query = "select job_id, round, after, why from transitions order by seq"
        found: dict[str, list[Step]] = {}
        for number, *step in self.query("state", query):
            found.setdefault(str(number), []).append(Step(*step))
        return found

    def round_figures(self) -> list[dict[str, Any]]:
        """Return figures of every round; see `bridge_files.round_figures`."""
        return self.files.call(bridge_files.round_figures, self.state)

    def metric(self, name: str) -> float:
        """Return a metric's value; the name includes labels."""
        lines = self.files.call(bridge_files.page, 9764, "/metrics").splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} ")), 0.0)
