"""Test the program as users run it: a bridge process, and a site in another process."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from cpsched_bridge.errors import BridgeError
from cpsched_bridge.settings import load_settings
from cpsched_bridge.store.ledger import MANAGED_STATES
from cpsched_bridge.store.state_paths import open_ledger
from tests import warm
from tests.patience import ENOUGH_S, until

CPSCHED = [sys.executable, "-m", "cpsched_bridge.program.cli"]
SITE = "from tests.remote_site import main; main()"


def cpsched(*arguments, check=True, in_new_process=False):
    """Run a command, in a new process if `in_new_process`. Return its stdout, or with `check=False` its result."""
    if in_new_process:
        done = subprocess.run([*CPSCHED, *map(str, arguments)], capture_output=True, text=True, timeout=ENOUGH_S)
    else:
        done = warm.cpsched(*arguments, timeout=ENOUGH_S)
    if check:
        assert done.returncode == 0, done.stderr
        return done.stdout
    return done


@pytest.fixture
def config(tmp_path):
    """Return a settings file for a bridge in control of a site behind a socket."""
    return written(tmp_path, mode="control")


def written(tmp_path, **changes):
    path = tmp_path / "bridge.yaml"
    settings = {
        "adapter": "tests.remote_site",
        "state_dir": str(tmp_path / "state"),
        "options": {"site_socket": str(tmp_path / "site.sock"), "days": 0.2, "load": 8.0, "seed": 3, "speed": 600.0},
        "cycle": {"interval_s": 0.05},
        "start": {"timeout_s": 600},
        "metrics": {"port": 0},
    }
    path.write_text(yaml.safe_dump(settings | changes))
    return path


@pytest.fixture
def site(tmp_path, config):
    process = warm.Begun(warm.server(), ["-c", SITE, str(config)])
    try:
        until((tmp_path / "site.sock").exists)
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.done()


class Bridge:
    """A bridge process that is forked, for tests that do not depend on its start."""

    def __init__(self, config, state_dir):
        self.state_dir = state_dir
        self.process = self.begun(["bridge", "--config", str(config)])
        self.ended = False

    def begun(self, words):
        return warm.Begun(warm.server(), words)

    def beat(self):
        path = self.state_dir / "heartbeat"
        return path.stat().st_mtime if path.exists() else 0.0

    def wait_for_a_sign_of_life(self):
        """Wait for the next heartbeat; the bridge writes heartbeats even before its first decision."""
        last = self.beat()
        until(lambda: self.beat() > last)

    def end(self, number):
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        self.ended = True
        return self.exit_code()

    def exit_code(self):
        return self.process.done(ENOUGH_S).returncode


class NewBridge(Bridge):
    """A bridge process that imports everything itself, as if a user started it."""

    def begun(self, words):
        self.log = self.state_dir.with_suffix(".log").open("w+")
        return subprocess.Popen([*CPSCHED, *words], stderr=self.log)

    def exit_code(self):
        self.log.close()
        return self.process.wait(timeout=ENOUGH_S)


@contextlib.contextmanager
def alive(kind, config, state_dir):
    """Yield a bridge that has written a heartbeat, and end it after the test."""
    bridge = kind(config, state_dir)
    try:
        bridge.wait_for_a_sign_of_life()
        yield bridge
    finally:
        if not bridge.ended:
            bridge.end(signal.SIGKILL)


@pytest.fixture
def bridge(tmp_path, config, site):
    with alive(Bridge, config, tmp_path / "state") as bridge:
        yield bridge


@pytest.fixture
def new_bridge(tmp_path, config, site):
    with alive(NewBridge, config, tmp_path / "state") as bridge:
        yield bridge


def rounds(config):
    """Return the journal's rows of rounds; rows that report the bridge's start do not count."""
    listed = cpsched("journal", "list", "--config", config).splitlines()[1:]
    return [row for row in (line.split() for line in listed) if row[0].isdigit()]


def kept(config):
    """Return whether the ledger has a managed job, without a new process."""
    with contextlib.suppress(BridgeError), open_ledger(load_settings(config), read_only=True) as ledger:
        return bool(ledger.list_entries(*MANAGED_STATES))


def held(config):
    return int(re.search(r"held by the bridge: (\d+)", cpsched("status", "--config", config))[1])


def test_bridge_is_monitored_paused_resumed_and_stopped(new_bridge, config):
    until(lambda: kept(config))
    assert "configured mode: control" in cpsched("status", "--config", config)
    assert cpsched("unmanaged", "--config", config) == "no pending job is unmanaged\n"
    second = cpsched("bridge", "--config", config, check=False, in_new_process=True)
    assert (second.returncode, "another bridge" in second.stderr) == (1, True)
    refused = cpsched("release-all", "--config", config, check=False)
    assert (refused.returncode, "cpsched pause" in refused.stderr) == (1, True)
    cpsched("pause", "--config", config, "--reason", "maintenance")
    until(lambda: kept(config) is False and held(config) == 0)  # jobs still arrive held, each until the next cycle
    assert "paused: maintenance" in cpsched("status", "--config", config)
    assert cpsched("resume", "--config", config) == "the bridge resumes in its next cycle\n"
    until(lambda: kept(config))
    url = re.search(r"http://[\d.:]+/metrics", Path(new_bridge.log.name).read_text())[0]
    assert "cpsched_cycles_total" in urlopen(url).read().decode()
    assert new_bridge.end(signal.SIGTERM) == 0
    assert held(config) == 0
    replayed = cpsched("journal", "replay", "--all", "--config", config)
    assert re.search(r"[1-9]\d* rounds the same, 0 different, 0 not replayed", replayed)


def test_release_all_works_without_bridge(bridge, config, tmp_path):
    until(lambda: kept(config))
    assert bridge.end(signal.SIGKILL) == -signal.SIGKILL
    assert held(config) > 0
    assert "nothing to do" in cpsched("release-all", "--config", config, "--if-stale", 1e6)
    assert held(config) > 0
    os.utime(tmp_path / "state" / "heartbeat", (0, 0))
    assert cpsched("release-all", "--config", config, "--if-stale", 60, in_new_process=True).startswith(
        "the bridge no longer holds any job"
    )
    assert held(config) == 0
