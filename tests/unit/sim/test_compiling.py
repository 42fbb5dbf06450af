"""What commands say while kernels are compiled, `cpsched warm-up`, and the time that it is not counted as."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cpsched import _cache, _compiling, _jit
from cpsched_sim.cli import app
from cpsched_sim.compiling import Display, WarmUp, every_opener


def quarter(value: int) -> int:
    """A function to compile."""
    return value // 4


def a_door() -> _jit.Door:
    return _jit.Door(quarter, lambda: _jit.hinted(quarter), True)


def test_where_stderr_is_no_terminal_each_door_is_one_line_below_one_heading(
    capsys: pytest.CaptureFixture[str],
) -> None:
    display = Display()
    for step in (("plan", 0, 3), ("plan", 1, 3), ("plan", 3, 3), ("dive", 0, 2)):
        display(*step)
    heading, *lines = capsys.readouterr().err.splitlines()
    assert "compiling" in heading
    assert lines == ["  plan: 3 functions", "  dive: 2 functions"]


def test_warm_up_compiles_once_and_says_where_the_kernels_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPSCHED_CACHE_DIR", str(tmp_path))
    said = []
    for _ in range(2):
        monkeypatch.setattr("cpsched_sim.compiling.every_opener", lambda: [a_door().opened])
        monkeypatch.setattr(_cache, "FILED", {})
        done = CliRunner().invoke(app, ["warm-up"])
        assert done.exit_code == 0, done.output
        said.append(done.output)
    assert f"1 kernels in {tmp_path}: 1 compiled now, 0 found, in" in said[0]
    assert f"1 kernels in {tmp_path}: 0 compiled now, 1 found\n" in said[1]


def test_warm_up_opens_the_doors_of_all_packages_and_what_makes_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(_jit.Door, "opened", lambda door: opened.append(door.__name__))
    monkeypatch.setattr("cpsched.kernels.structs.ready", lambda cls: opened.append(cls.__name__))
    for opener in every_opener():
        opener()
    assert {"plan_counted", "dive", "step", "rounds_placed", "Simulated", "JobTable"} <= set(opened)


def test_warm_up_finds_the_doors_where_no_extra_is_installed() -> None:
    code = """
import sys
for extra in ("pytest", "hypothesis", "matplotlib", "pandas"):
    sys.modules[extra] = None
from cpsched_sim.compiling import every_opener
every_opener()
from cpsched._jit import DOORS
print(*(door.__name__ for door in DOORS))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"plan_counted", "plan_placed", "dive", "step", "rounds_placed"} <= set(done.stdout.split())


def test_kernels_that_cannot_be_kept_are_a_failure_of_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cpsched_sim.compiling.warm_up", lambda: WarmUp((), 0, 2, lost=2, seconds=3.0, cpu_s=2.0))
    done = CliRunner().invoke(app, ["warm-up"])
    assert done.exit_code == 1
    assert "2 kernels in memory alone" in done.output


def test_opening_a_door_is_measured_once_where_doors_open_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([(10, 1.0), (40, 1.5)])
    monkeypatch.setattr(_compiling, "_clock", lambda: next(ticks))
    monkeypatch.setattr(_compiling, "_spent", (5, 0.0))
    with _compiling.opening(), _compiling.opening():
        pass
    assert _compiling.spent() == (35, 0.5)
