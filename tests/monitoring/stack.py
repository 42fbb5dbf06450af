"""Real Prometheus, Alertmanager and bridges as processes on loopback, for tests, measurements and the demo.

Requires Debian's packages `prometheus` and `prometheus-alertmanager` (`make monitoring-packages`).
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
PROMETHEUS, ALERTMANAGER = "prometheus", "prometheus-alertmanager"
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def missing(*programs: str) -> list[str]:
    """Return the programs that are not installed."""
    return [program for program in programs if shutil.which(program) is None]


def free_port() -> int:
    """Return a free port of loopback."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def port_or_free(wanted: int) -> int:
    """Return `wanted` if it is free, else any free port."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", wanted))
        except OSError:
            return free_port()
    return wanted


def faster(rules: str, times: float) -> str:
    """Return rules with all durations divided, so that hours take minutes."""

    def shorter(found: re.Match[str]) -> str:
        return f"{max(1, round(int(found[2]) * _UNITS_S[found[3]] / times))}s"

    rules = re.sub(r"(?<=\[)()(\d+)([smhd])(?=\])", shorter, rules)
    rules = re.sub(r"((?<=for: )|(?<=offset ))(\d+)([smhd])", shorter, rules)
    return re.sub(
        r"(time\(\) - \w+(?:\{[^}]*\})? > )(\d+)", lambda found: f"{found[1]}{int(found[2]) / times:g}", rules
    )


def ask(url: str) -> Any:
    """Return the JSON at an address."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def until(what: Callable[[], Any], seconds: float, every_s: float = 0.25) -> Any:
    """Return the first true result of `what`. Raise `TimeoutError` if there is none in time."""
    end_s = time.monotonic() + seconds
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            if found := what():
                return found
        if time.monotonic() > end_s:
            raise TimeoutError(f"nothing after {seconds:g} s")
        time.sleep(every_s)


@dataclass(slots=True)
class Process:
    """A child process whose output goes to a file."""

    popen: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, words: list[str], log: Path, **options: Any) -> Process:
        # Its own session, so that Ctrl-C reaches only this process, which ends the children in order.
        with log.open("ab") as output:
            popen = subprocess.Popen(words, stdout=output, stderr=output, cwd=ROOT, start_new_session=True, **options)
            return cls(popen, log)

    def stop(self, seconds: float = 5.0) -> None:
        """Request the process to end, then kill it."""
        self.popen.terminate()
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


@dataclass(slots=True)
class BridgeProcess:
    """A bridge with its settings in a folder."""

    folder: Path
    settings: Mapping[str, Any]
    port: int = field(default_factory=free_port)
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the bridge, and wait for its first successful cycle."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "bridge.yaml"
        content = {"mode": "control", "adapter": "mock", "state_dir": str(self.folder / "state"), "durable": False}
        content |= {"metrics": {"port": self.port}, **self.settings}
        config.write_text(yaml.safe_dump(content))
        words = [sys.executable, "-m", "cpsched_bridge.program.cli", "bridge", "--config", str(config)]
        self.process = Process.start(words, self.folder / "bridge.log")
        try:
            until(self.ready, 180)
        except TimeoutError as error:
            raise AssertionError((self.folder / "bridge.log").read_text()[-3000:]) from error

    def ready(self) -> bool:
        with urllib.request.urlopen(self.url + "readyz", timeout=5) as answer:
            return bool(answer.status == 200)

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()


@dataclass(slots=True)
class Monitoring:
    """Prometheus with the rules of `deploy/prometheus`, and Alertmanager."""

    folder: Path
    targets: list[str]
    times_faster: float = 1.0
    scrape_s: int = 1
    port: int = field(default_factory=free_port)
    alertmanager_port: int = field(default_factory=free_port)
    _processes: list[Process] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start both, and wait until they respond."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("rules.yaml", "alerts.yaml"):
            text = (DEPLOY / name).read_text()
            (self.folder / name).write_text(text if self.times_faster == 1 else faster(text, self.times_faster))
        config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": f"{self.scrape_s}s", "evaluation_interval": f"{self.scrape_s}s"}
        config["scrape_configs"][0]["static_configs"] = [{"targets": self.targets}]
        config["alerting"]["alertmanagers"][0]["static_configs"] = [
            {"targets": [f"127.0.0.1:{self.alertmanager_port}"]}
        ]
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._start(
            ALERTMANAGER, f"--config.file={DEPLOY / 'alertmanager.yml'}", f"--storage.path={self.folder / 'am'}",
            f"--web.listen-address=127.0.0.1:{self.alertmanager_port}", "--cluster.listen-address=",
        )  # fmt: skip
        self._start(
            PROMETHEUS, f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{self.port}",
        )  # fmt: skip
        until(lambda: urllib.request.urlopen(f"{self.url}/-/ready").status == 200, 60)
        until(lambda: ask(f"http://127.0.0.1:{self.alertmanager_port}/api/v2/status"), 60)

    def _start(self, *words: str) -> None:
        self._processes.append(Process.start(list(words), self.folder / f"{words[0]}.log"))

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an instant query; raise if Prometheus rejects the expression."""
        try:
            answer = ask(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def told(self, target: str) -> set[str]:
        """Return the alerts about a bridge that Alertmanager currently sends: firing and not inhibited."""
        active = f"http://127.0.0.1:{self.alertmanager_port}/api/v2/alerts?active=true&silenced=false&inhibited=false"
        return {each["labels"]["alertname"] for each in ask(active) if each["labels"].get("instance") == target}

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()


@contextlib.contextmanager
def running(*parts: BridgeProcess | Monitoring) -> Iterator[None]:
    """Start the parts in order. Stop all of them at the end, even after a failure."""
    with contextlib.ExitStack() as stack:
        for part in parts:
            stack.callback(part.stop)
            part.start()
        yield
