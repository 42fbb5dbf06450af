"""A real PBS server without other jobs, and a bridge as a separate process.

The server must be on this host with a readable accounting log, and this account must be its manager. If the account is
root, which PBS gives no jobs, CPSCHED_PBS_USER submits the jobs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tests.pbs.judge import Judge
from tests.pbs.server import Amounts, kib

QUEUE, LEFT, CLAIM, POINTS = "cpsched_test", "cpsched_left", "cpsched_lease", "cpsched_boost"
RACK = "cpsched_rack"
"""A resource of vnodes by which jobs ask to be grouped."""
PATIENCE_S = 60.0
FIRST_CYCLE_S = 240.0
"""The first start of all compiles the kernels."""
T = TypeVar("T")


class CommandFailed(Exception):
    """A command that PBS rejected: its exit status and message."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"exit {status}: {words}")
        self.status = status


def run(*command: str) -> str:
    """Return the output of a command. Raise `CommandFailed`."""
    own = {**os.environ, "LC_ALL": "C", "TZ": "UTC0"}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=own, timeout=60, check=False)
    if done.returncode:
        raise CommandFailed(done.returncode, done.stderr.strip())
    return done.stdout


def until(so: Callable[[], T], what: str, within_s: float = PATIENCE_S) -> T:
    """Wait until `so()` is true; return its value."""
    deadline = time.monotonic() + within_s
    while not (found := so()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        time.sleep(0.2)
    return found


def home() -> Path:
    """Return PBS_HOME from pbs.conf."""
    conf = Path(os.environ.get("PBS_CONF_FILE", "/etc/pbs.conf")).read_text(encoding="utf-8")
    said = dict(line.split("=", 1) for line in conf.splitlines() if "=" in line)
    return Path(said["PBS_HOME"])


def why_not() -> str | None:
    """Return why there is no PBS for the tests, or None."""
    if not os.environ.get("CPSCHED_PBS"):
        return "they want a PBS for themselves: make test-pbs"
    if shutil.which("qstat") is None or shutil.which("qrun") is None:
        return "PBS's commands are not on the path"
    try:
        run("qstat", "-B")
        others = json.loads(run("qstat", "-f", "-F", "json", "-t")).get("Jobs", {})
        if any(job.get("queue") not in (QUEUE, LEFT) for job in others.values()):
            return "the server has jobs of others"
        run("qmgr", "-c", "set server comment = cpsched")
        run("qmgr", "-c", "unset server comment")
        next((home() / "server_priv" / "accounting").iterdir(), None)
    except (CommandFailed, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return f"no server here that this account manages: {error}"
    if os.geteuid() == 0 and not os.environ.get("CPSCHED_PBS_USER"):
        return "root has no jobs: CPSCHED_PBS_USER names an account that may have some"
    return None if len(Pbs().vnodes()) > 1 else "the server has fewer than two vnodes with processors"


class Pbs:
    """The server; all jobs go to two queues of the tests, the first of which the bridge manages."""

    def __init__(self) -> None:
        self.user = os.environ.get("CPSCHED_PBS_USER", "")
        self._log_from = 0.0
        self._begins: dict[Path, int] = {}

    def begin(self) -> None:
        """Prepare: no jobs, both queues started, all vnodes online; the accounting log counts from here."""
        self.clear()
        for queue in (QUEUE, LEFT):
            if queue not in self.queues():
                self.manage(f"create queue {queue} queue_type=execution")
            self.manage(f"set queue {queue} enabled=True", f"set queue {queue} started=True")
        if CLAIM not in run("qmgr", "-c", "list resource"):
            self.manage(f"create resource {CLAIM} type=string,flag=r")
        self.manage(f"unset server resources_available.{CLAIM}")
        self._begins = {file: file.stat().st_size for file in self._logs()}

    def clear(self) -> None:
        """Remove all jobs, limits and offline states."""
        for id in self.jobs():
            try:
                run("qdel", "-W", "force", id)
            except CommandFailed:
                continue
        until(lambda: not self.jobs(), "no jobs")
        for name in json.loads(run("pbsnodes", "-av", "-F", "json"))["nodes"]:
            if "offline" in self.vnode(name)["state"]:
                self.manage(f"set node {name} state-=offline")
        if QUEUE in self.queues():
            self.manage(f"unset queue {QUEUE} max_run")

    def manage(self, *directives: str) -> None:
        """qmgr."""
        for each in directives:
            run("qmgr", "-c", each)

    def queues(self) -> dict[str, Any]:
        """Return queues by name."""
        return dict(json.loads(run("qstat", "-Q", "-f", "-F", "json")).get("Queue", {}))

    def jobs(self) -> dict[str, Any]:
        """Return jobs with subjobs, by id."""
        return dict(json.loads(run("qstat", "-f", "-F", "json", "-t")).get("Jobs", {}))

    def state(self, id: str) -> str:
        """Return the state of a job, or "" if it is gone."""
        return str(self.jobs().get(id, {}).get("job_state", ""))

    def vnode(self, name: str) -> dict[str, Any]:
        """One vnode."""
        return dict(json.loads(run("pbsnodes", "-av", "-F", "json"))["nodes"][name])

    def vnodes(self) -> dict[str, Amounts]:
        """Return the amounts of vnodes with processors: ncpus, mem (KiB), ngpus."""
        found = {}
        for name, vnode in json.loads(run("pbsnodes", "-av", "-F", "json"))["nodes"].items():
            has = vnode["resources_available"]
            if int(has.get("ncpus", 0)):
                found[name] = Counter(
                    ncpus=int(has["ncpus"]), mem=kib(str(has.get("mem", "0"))), ngpus=int(has.get("ngpus", 0))
                )
        return found

    def submit(self, select: str = "1:ncpus=1", sleep_s: float = 1, *more: str, walltime_s: int = 300) -> str:
        """Submit a job as a user; return its id."""
        wanted = ["-l", f"select={select}", "-l", f"walltime={walltime_s}", *more]
        command = ["qsub", "-q", QUEUE, "-o", "/dev/null", "-e", "/dev/null", *wanted, "--", "/bin/sleep", str(sleep_s)]
        return self.as_user(*command).strip()

    def as_user(self, *command: str) -> str:
        """Run a command as the user of the jobs."""
        if not self.user:
            return run(*command)
        return run("runuser", "-u", self.user, "--", str(shutil.which(command[0])), *command[1:])

    def log(self) -> list[str]:
        """Return the accounting log since `begin`."""
        lines: list[str] = []
        for file in self._logs():
            with file.open("rb") as opened:
                opened.seek(self._begins.get(file, 0))
                lines += opened.read().decode("utf-8", "replace").splitlines()
        return lines

    def judge(self, groups: Mapping[str, str] | None = None) -> Judge:
        """Return a judge that has read the log."""
        return Judge(self.vnodes(), groups or {}).read(self.log())

    def _logs(self) -> list[Path]:
        return sorted(file for file in (home() / "server_priv" / "accounting").iterdir() if file.name.isdigit())


class LiveBridge:
    """The bridge in control of the first queue; `settings` go into its file."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.config, self.log_file = folder, folder / "bridge.json", folder / "log"
        content: Mapping[str, Any] = {
            "mode": "control", "adapter": "pbs", "state_dir": str(folder / "state"), "log_format": "json",
            "metrics": {"port": 0}, "policy": {"dispatcher": "easy"}, "cycle": {"interval_s": 1},
            "options": {"queues": [QUEUE], "left_queue": LEFT}, **settings,
        }  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(json.dumps(content))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LiveBridge:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process; use `until` to wait for it."""
        code = "from cpsched_bridge.program.cli import main; main()"
        with self.log_file.open("ab") as log:
            command = [sys.executable, "-c", code, "bridge", "--config", str(self.config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=PATIENCE_S)
            self._process = None

    def said(self) -> str:
        """Return the end of the bridge's log."""
        return self.log_file.read_text(errors="replace")[-3000:] if self.log_file.exists() else ""
