"""The units for PBS, as parsed by systemd itself."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cpsched_bridge.cycle.bridge_loop import STOP_TIMEOUT_S

SYSTEMD = Path(__file__).parents[3] / "deploy" / "systemd"
NO_NEW_PRIVILEGES = {
    "NoNewPrivileges", "PrivateDevices", "ProtectClock", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules",
    "ProtectKernelTunables", "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID",
    "LockPersonality", "SystemCallArchitectures", "SystemCallFilter", "MemoryDenyWriteExecute",
}  # fmt: skip
"""systemd.exec(5): each of them keeps a service with a user of its own from programs that are setuid."""


def settings(*files: str) -> dict[str, str]:
    """What files say one after the other; of lists the last line."""
    lines = [line for file in files for line in (SYSTEMD / file).read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.mark.parametrize(
    "files", [("cpsched-deadman-pbs.service",), ("cpsched-bridge.service", "cpsched-bridge-pbs.conf")]
)
def test_pbs_commands_may_become_root(files):
    """pbs_iff is setuid root, and binds a port below 1024: without that no command of PBS is answered."""
    said = settings(*files)
    assert {name for name in NO_NEW_PRIVILEGES & said.keys() if said[name] not in ("no", "")} == set()
    assert said["CapabilityBoundingSet"] == "CAP_NET_BIND_SERVICE"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("name", ["cpsched-bridge", "cpsched-deadman", "cpsched-tune"])
def test_systemd_accepts_units(name, tmp_path):
    unit = "cpsched-deadman-pbs.service" if name == "cpsched-deadman" else f"{name}.service"
    text = (SYSTEMD / unit).read_text().replace("/opt/cpsched/bin/cpsched", "/bin/true")
    (tmp_path / f"{name}.service").write_text(text)
    shutil.copy(SYSTEMD / "cpsched-deadman.timer", tmp_path)
    folder = tmp_path / f"{name}.service.d"
    folder.mkdir()
    if name == "cpsched-bridge":
        shutil.copy(SYSTEMD / "cpsched-bridge-pbs.conf", folder / "pbs.conf")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / f"{name}.service")], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert (done.returncode, ours) == (0, [])


MOST_EXPOSED = 6.0
"""Of 10. The units beside Slurm have 2 at most: what would close the rest is what `NO_NEW_PRIVILEGES` names."""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("name", ["cpsched-bridge", "cpsched-deadman"])
def test_pbs_units_expose_only_what_commands_need(name, tmp_path):
    unit = "cpsched-deadman-pbs.service" if name == "cpsched-deadman" else "cpsched-bridge.service"
    shutil.copy(SYSTEMD / unit, tmp_path / f"{name}.service")
    if name == "cpsched-bridge":
        (tmp_path / f"{name}.service.d").mkdir()
        shutil.copy(SYSTEMD / "cpsched-bridge-pbs.conf", tmp_path / f"{name}.service.d" / "pbs.conf")
    command = ["systemd-analyze", "--no-pager", "--offline=true", "security", str(tmp_path / f"{name}.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd reads no units that are not installed")
    (exposure,) = re.findall(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert float(exposure) <= MOST_EXPOSED
    assert name == "cpsched-deadman" or float(exposure) > 2.0, "the drop-in was not read"


def test_stop_steps_have_time_limit_of_unit():
    """systemd kills a bridge that asks for more time later than this."""
    assert settings("cpsched-bridge.service")["TimeoutStopSec"] == f"{STOP_TIMEOUT_S:g}"
