"""Test the units of deploy/systemd with a real systemd, in the container of `deploy/cluster systemd`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.slurm.harness import CommandFailed, Slurm, wait_until

UNIT, DEADMAN = "cpsched-bridge.service", "cpsched-deadman.service"
FIRST_START_S = 600
"""Time limit in seconds of the first start, which compiles the kernels."""


class Host:
    """The container in which systemd is the first process."""

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm

    def run(self, *command: str, check: bool = True, timeout_s: float = 60) -> str:
        return self.slurm.run(*command, service="systemd", check=check, timeout_s=timeout_s)

    def show(self, name: str, unit: str = UNIT) -> str:
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def start(self) -> None:
        self.run("systemctl", "start", UNIT, timeout_s=FIRST_START_S)

    def drop_in(self, text: str) -> None:
        """Add settings to the unit until the next reset."""
        folder = f"/run/systemd/system/{UNIT}.d"
        self.run("bash", "-c", f"mkdir -p {folder} && printf '%b' '{text}' >{folder}/test.conf")
        self.run("systemctl", "daemon-reload")

    def reset(self) -> None:
        self.run("systemctl", "stop", "cpsched-deadman.timer", UNIT, timeout_s=180)
        self.run("rm", "-rf", f"/run/systemd/system/{UNIT}.d")
        self.run("systemctl", "daemon-reload")
        self.run("systemctl", "reset-failed", check=False)


@pytest.fixture
def host(slurm: Slurm) -> Iterator[Host]:
    try:
        slurm.container("systemd")
    except CommandFailed:
        pytest.skip("no systemd host is up: deploy/cluster systemd")
    host = Host(slurm)
    host.reset()
    yield host
    host.reset()


def test_systemd_accepts_units(host: Host) -> None:
    assert host.run("systemd-analyze", "verify", UNIT, DEADMAN, "cpsched-deadman.timer") == ""


@pytest.mark.parametrize("unit", [UNIT, DEADMAN])
def test_security_exposure_is_low(host: Host, unit: str) -> None:
    """The scale is 0 to 10; `make systemd-security` prints each exposure and its reason."""
    words = host.run("systemd-analyze", "--no-pager", "security", unit)
    (exposure,) = re.findall(r"exposure level for \S+: ([\d.]+)", words)
    assert float(exposure) <= 2.0


def test_bridge_runs_jobs_under_all_restrictions(host: Host, slurm: Slurm) -> None:
    """Only the bridge's user can read its files, because they contain names of users and jobs."""
    host.start()
    assert (host.show("ActiveState"), host.show("User")) == ("active", "cpsched")
    slurm.plugin(on=True)
    job = slurm.sbatch("-n2", "-t1", script="sleep 1")
    slurm.wait_for_state(job, "COMPLETED", 60)
    modes = host.run(
        "bash", "-c", "stat -c '%U %a' /var/lib/cpsched; cd /var/lib/cpsched; stat -c '%U %a' *sqlite* heartbeat lock"
    )
    folder, *files = modes.split("\n")
    assert folder == "cpsched 700"
    assert {line for line in files if line} == {"cpsched 600"}
    pid = host.show("MainPID")
    status = host.run("cat", f"/proc/{pid}/status")
    for line in ("NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"):
        assert line in status
    assert host.run("bash", "-c", f"nsenter -t {pid} -m touch /usr/x 2>&1 || echo refused").strip().endswith("refused")


def test_watchdog_kills_and_restarts_hung_bridge(host: Host) -> None:
    settings = "/run/quick.yaml"  # a bridge does not start if a decision may take longer than the watchdog timeout
    host.run("bash", "-c", f"sed 's/^cycle:/&\\n  decide_timeout_s: 5/' /etc/cpsched/bridge.yaml >{settings}")
    command = f"ExecStart=\\nExecStart=/opt/cpsched/bin/cpsched bridge --config {settings}"
    host.drop_in(f"[Service]\\nWatchdogSec=10\\n{command}\\n")
    host.start()
    before = host.show("MainPID")
    host.run("kill", "-STOP", before)
    wait_until(lambda: host.show("NRestarts") == "1" and host.show("ActiveState") == "active", 180, "it is back", 1.0)
    assert host.show("MainPID") != before
    assert "watchdog" in host.run("journalctl", "--no-pager", "--unit", UNIT).lower()


def test_deadman_acts_after_five_failed_restarts(host: Host, slurm: Slurm) -> None:
    host.drop_in("[Service]\\nType=exec\\nExecStartPre=\\nExecStart=\\nExecStart=/bin/false\\nRestartSec=0\\n")
    host.run("rm", "-f", "/var/lib/cpsched/heartbeat")
    slurm.plugin(on=True, begin_delay_s=0)
    jobs = slurm.burst(3, "--begin=now+1hour")
    host.run("systemctl", "start", UNIT, check=False)
    wait_until(lambda: host.show("Result") == "start-limit-hit", 60, "the unit has failed for good", 0.5)
    assert host.show("NRestarts") == "5"
    host.run("systemctl", "start", DEADMAN)
    assert not [job for job in jobs if slurm.job(job).held]
    assert "released 3 held jobs" in host.run("journalctl", "--no-pager", "--unit", DEADMAN)


def test_timer_runs_by_itself(host: Host) -> None:
    host.run("systemctl", "start", "cpsched-deadman.timer")
    assert host.run("systemctl", "is-active", "cpsched-deadman.timer").strip() == "active"


def test_addresses_outside_private_networks_are_denied(host: Host) -> None:
    for unit in (UNIT, DEADMAN):
        assert set(host.show("IPAddressDeny", unit).split()) == {"0.0.0.0/0", "::/0"}
        assert "127.0.0.0/8" in host.show("IPAddressAllow", unit)
