"""The privileges of the bridge's Slurm user, from the accounting database or the controller, with stand-in programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpsched_bridge.adapters.slurm.transport.programs import slurm_program_calls
from cpsched_bridge.adapters.slurm.transport.programs.slurm_privilege import query_admin_level

KEPT = """Current Association Manager state

User Records

UserName=cpsched(2100) DefAccount=root DefWckey= AdminLevel=Operator
"""


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
