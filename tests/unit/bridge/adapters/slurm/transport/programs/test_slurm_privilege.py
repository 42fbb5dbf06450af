"""The privileges of the bridge's Slurm user, from the accounting database or the controller, with stand-in programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.transport.programs import slurm_program_calls
from cpsched_bridge.adapters.slurm.transport.programs.slurm_privilege import query_admin_level
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import PyslurmClient
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import PyslurmTransport
from cpsched_bridge.errors import BackendTimeout

KEPT = """Current Association Manager state

User Records

UserName=cpsched(2100) DefAccount=root DefWckey= AdminLevel=Operator
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(("told", "level"), [("Administrator", "Administrator"), ("None", "None"), ("", "")])
def test_queries_accounting_database_first(programs: Path, told: str, level: str) -> None:
    put(programs, "sacctmgr", f"echo '{told}'")
    put(programs, "scontrol", "exit 1")
    assert query_admin_level("cpsched") == {"admin_level": level, "accounting_answers": True}


@pytest.mark.parametrize("script", ["exit 1", "sleep 30"])
def test_asks_controller_if_database_is_unavailable(
    programs: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        slurm_program_calls.run_and_read_output, "__defaults__", (5.0,)
    )  # the other one answers by then
    put(programs, "sacctmgr", script)
    put(programs, "scontrol", f"cat <<EOF\n{KEPT}EOF")
    assert query_admin_level("cpsched") == {"admin_level": "Operator", "accounting_answers": False}


def test_reports_unknown_level_without_any_answer(programs: Path) -> None:
    put(programs, "sacctmgr", "exit 1")
    put(programs, "scontrol", "exit 1")
    assert query_admin_level("cpsched") == {"admin_level": None, "accounting_answers": False}


class Waits(PyslurmClient):
    """Never answers; notes how long it was waited for."""

    waited_s: list[float]

    def wait_until_ready(self, wait_s: float) -> bool:
        return True

    def send_call(self, name: str, deadline_s: float, **arguments: Any) -> None:
        pass

    def wait_for_answer(self, wait_s: float) -> bool:
        self.waited_s.append(wait_s)
        return False


class Facts(PyslurmClient):
    """A controller's child that reports the user of its connection."""

    def call(self, name: str, deadline_s: float, **arguments: Any) -> Any:
        return {"user": "cpsched", "config": {}}


@pytest.mark.parametrize(("script", "waited_s"), [("echo Operator", [7.0, 0.0]), ("exit 1", [0.0, 0.0])])
def test_waits_for_history_once_and_only_if_accounting_answers(
    programs: Path, script: str, waited_s: list[float]
) -> None:
    put(programs, "sacctmgr", script)
    put(programs, "scontrol", f"cat <<EOF\n{KEPT}EOF")
    accounting = Waits()
    accounting.waited_s = []
    transport = PyslurmTransport(7.0, client=Facts(), accounting=accounting)
    assert transport.gather_doctor_facts()["admin_level"] == "Operator"
    for _ in range(2):
        with pytest.raises(BackendTimeout, match="no response yet"):
            transport.read_accounting(0)
    assert accounting.waited_s == waited_s


class Begins(PyslurmClient):
    """Has not begun; notes how long it was waited for, and takes no question."""

    waited_s: list[float]

    def wait_until_ready(self, wait_s: float) -> bool:
        self.waited_s.append(wait_s)
        return False

    def not_ready_reason(self) -> str | None:
        return "the process imports pyslurm"


def test_slow_import_is_no_accounting_failure() -> None:
    """The process that asks it imports pyslurm first: the first reading waits a while for that, later ones do not."""
    accounting = Begins()
    accounting.waited_s = []
    transport = PyslurmTransport(7.0, client=Facts(), accounting=accounting)
    for _ in range(2):
        with pytest.raises(BackendTimeout, match=r"no response yet after .* s: the process imports pyslurm"):
            transport.read_accounting(0)
    assert accounting.waited_s == [7.0, 0.0]
    assert accounting.starts == 0
