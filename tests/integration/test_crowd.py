"""Thousands of clients that only connect, at a bridge that may open 256 files: its loop notices nothing."""

import contextlib
import errno
import re
import resource
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from functools import cached_property
from threading import Event, Thread

import pytest
import yaml

from tests.patience import ENOUGH_S

OPEN_FILES = 256
CLIENTS = 8000
AT_ONCE = 3000
CYCLES = 30


class CrowdedBridge:
    """A real bridge over a simulated cluster, and who connects to it."""

    def __init__(self, folder):
        self.folder, self.log, self.connected = folder, folder / "log", 0
        settings = {
            "mode": "control", "adapter": "mock", "state_dir": str(folder / "state"), "durable": False,
            "metrics": {"port": 0}, "cycle": {"interval_s": 0.05, "max_backoff_s": 0.2},
            "policy": {"dispatcher": "easy"}, "options": {"load": 2.0, "days": 1.0, "speed": 60.0},
        }  # fmt: skip
        (folder / "bridge.yaml").write_text(yaml.safe_dump(settings))
        command = [
            sys.executable,
            "-m",
            "cpsched_bridge.program.cli",
            "bridge",
            "--config",
            str(folder / "bridge.yaml"),
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", f'ulimit -n {OPEN_FILES}; exec "$@"', "sh", *command], stdout=log, stderr=log
            )

    @cached_property
    def port(self):
        """Where the bridge serves, as it says when it begins."""
        until_s = time.monotonic() + ENOUGH_S
        while time.monotonic() < until_s and self.process.poll() is None:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/metrics", self.log.read_text()):
                return int(found[1])
            time.sleep(0.1)
        raise AssertionError(f"serves nothing: {self.log.read_text()[-3000:]}")

    def asked(self, path):
        """What is answered, within `ENOUGH_S`: a client that waits in the kernel's queue asks again."""
        until_s = time.monotonic() + ENOUGH_S
        while time.monotonic() < until_s and self.process.poll() is None:
            with contextlib.suppress(urllib.error.URLError, OSError):
                return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=10).read().decode()
            time.sleep(0.1)
        raise AssertionError(f"no answer to /{path}: {self.log.read_text()[-3000:]}")

    def metrics(self, name):
        """Labels, as written -> value."""
        found = re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", self.asked("metrics"), re.MULTILINE)
        return {labels: float(value) for labels, value in found}

    def heartbeat(self):
        return (self.folder / "state" / "heartbeat").stat().st_mtime_ns

    def crowd_in(self, over):
        """Connections that say nothing, opened one after the other, the last `AT_ONCE` of them kept."""
        kept = deque()
        most = min(AT_ONCE, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [each.close() for each in kept])
            while self.connected < CLIENTS and not over.is_set():
                client = socket.socket()
                client.setblocking(False)
                assert client.connect_ex(("127.0.0.1", self.port)) in (0, errno.EINPROGRESS, errno.ECONNREFUSED)
                kept.append(client)
                self.connected += 1
                if len(kept) > most:
                    kept.popleft().close()
            over.wait()


@pytest.fixture
def bridge(tmp_path):
    made = CrowdedBridge(tmp_path)
    yield made
    made.process.terminate()
    made.process.wait(60)


def test_the_loop_notices_nothing_of_clients_that_only_connect(bridge):
    def cycles():
        return sum(bridge.metrics("cpsched_cycles_total").values())

    assert bridge.asked("readyz").startswith("ok: "), "from its first good cycle on"
    before, beat, over = cycles(), bridge.heartbeat(), Event()
    crowd = Thread(target=bridge.crowd_in, args=(over,))
    crowd.start()
    try:
        most_open = 0.0
        until_s = time.monotonic() + ENOUGH_S
        while (cycles() < before + CYCLES or bridge.connected < CLIENTS) and time.monotonic() < until_s:
            (now_open,) = bridge.metrics("process_open_fds").values()
            most_open = max(most_open, now_open)
        results = {labels for labels, value in bridge.metrics("cpsched_cycles_total").items() if value}
        assert bridge.connected == CLIENTS
        assert results == {'{result="ok"}'}
        assert bridge.metrics("cpsched_mode")['{mode="control"}'] == 1, "it has not stood down"
        assert bridge.heartbeat() > beat
        assert bridge.asked("healthz").startswith("ok: ")
        assert most_open < 150, "64 of them are clients"
        assert bridge.log.stat().st_size < 20_000
    finally:
        over.set()
        crowd.join()
