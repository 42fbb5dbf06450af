"""Progress messages while kernels are compiled, `cpsched warm-up`, and measurements that exclude compilation."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cpsched.jit import compile_progress, compiled_functions, kernel_cache
from cpsched_sim.cli import app
from cpsched_sim.kernel_warm_up import (
    CompileProgressLine,
    KernelWarmUpResult,
    all_kernel_loaders,
    load_registered_kernels,
    modules_with_kernels,
)
from tests import warm
from tests.patience import ENOUGH_S


def quarter(value: int) -> int:
    """A function to compile."""
    return value // 4


def a_door() -> compiled_functions.CompiledKernel:
    return compiled_functions.CompiledKernel(quarter)


def test_lists_kernels_line_by_line_without_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    display = CompileProgressLine()
    for step in (("plan", 0, 3), ("plan", 1, 3), ("plan", 3, 3), ("dive", 0, 2)):
        display(*step)
    heading, *lines = capsys.readouterr().err.splitlines()
    assert "compiling" in heading
    assert lines == ["  plan: 3 functions", "  dive: 2 functions"]


def test_warm_up_compiles_once_and_reports_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPSCHED_CACHE_DIR", str(tmp_path))
    said = []
    for _ in range(2):
        monkeypatch.setattr("cpsched_sim.kernel_warm_up.all_kernel_loaders", lambda: [a_door().load_or_compile])
        monkeypatch.setattr(kernel_cache, "CACHE_LOCATIONS", {})
        done = CliRunner().invoke(app, ["warm-up"])
        assert done.exit_code == 0, done.output
        said.append(done.output)
    assert f"1 kernel in {tmp_path}: 1 compiled now, 0 found, in" in said[0]
    assert f"1 kernel in {tmp_path}: 0 compiled now, 1 found\n" in said[1]


def test_warm_up_covers_kernels_of_all_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(compiled_functions.CompiledKernel, "load_or_compile", lambda door: opened.append(door.__name__))
    for opener in all_kernel_loaders():
        opener()
    assert {"plan_on_pool", "dive", "start_jobs_and_advance", "run_rounds_on_nodes"} <= set(opened)


def with_numba(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that has imported Numba and nothing of this project."""
    server = warm.server("tests.unit.cpsched.jit.numba_at_work")
    return warm.Begun(server, ["-c", code, *arguments]).done(ENOUGH_S)


def test_warm_up_finds_kernels_without_extras() -> None:
    code = """
import sys
for extra in ("pytest", "hypothesis", "matplotlib", "pandas"):
    sys.modules[extra] = None
from cpsched_sim.kernel_warm_up import all_kernel_loaders
all_kernel_loaders()
from cpsched.jit.compiled_functions import KERNELS
print(*(kernel.__name__ for kernel in KERNELS))
"""
    done = with_numba(code)
    assert done.returncode == 0, done.stderr
    assert {"plan_on_pool", "plan_on_nodes", "dive", "start_jobs_and_advance", "run_rounds_on_nodes"} <= set(
        done.stdout.split()
    )


def test_warm_up_fails_if_kernels_cannot_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "cpsched_sim.kernel_warm_up.warm_up_kernels",
        lambda: KernelWarmUpResult((), 0, 2, lost=2, seconds=3.0, cpu_s=2.0),
    )
    done = CliRunner().invoke(app, ["warm-up"])
    assert done.exit_code == 1
    assert "2 kernels in memory alone" in done.output


def test_nested_compilation_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([(10, 1.0), (40, 1.5)])
    monkeypatch.setattr(compile_progress, "_clock", lambda: next(ticks))
    monkeypatch.setattr(compile_progress, "_spent", (5, 0.0))
    with compile_progress.measure_compilation(), compile_progress.measure_compilation():
        pass
    assert compile_progress.compile_seconds() == (35, 0.5)


def test_compiles_all_kernels_and_reports_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPSCHED_CACHE_DIR", str(tmp_path))
    told: list[str] = []
    before = compile_progress.current_progress_callback()
    for _ in range(2):
        monkeypatch.setattr(
            "cpsched_sim.kernel_warm_up.registered_kernel_loaders", lambda: [a_door().load_or_compile, lambda: None]
        )
        load_registered_kernels(told.append)
    assert told == [
        "loads kernels: 0 of 2 kernels are ready",
        "compiles kernels: 0 of 2 kernels are ready; quarter: 0 of 1 function",
        "compiles kernels: 0 of 2 kernels are ready; quarter: 1 of 1 function",
        "loads kernels: 1 of 2 kernels are ready",
        "loads kernels: 0 of 2 kernels are ready",
        "loads kernels: 1 of 2 kernels are ready",
    ]
    assert compile_progress.current_progress_callback() is before


DECIDES = """
import sys
from cpsched.registry import DISPATCHERS
from cpsched_sim.kernel_warm_up import load_registered_kernels, modules_with_kernels
dispatcher = DISPATCHERS.build(sys.argv[1], {}, None)
load_registered_kernels(lambda words: None)
from cpsched.jit import compiled_functions
from tests.builders import a_cluster, a_job, a_running, a_snapshot
compiled_functions.CompiledKernel._load_under_lock = lambda it: sys.exit(f"{it.__name__} opened during a decision")
cluster = a_cluster(4, 4)
running = [a_running(a_job(90, 1, 2, 500), ((3, 1),), start_s=0)]
for now_s in range(3):
    jobs = [a_job(10 * now_s + i, 1 + i % 3, 3, 50 + 7 * i) for i in range(12)]
    decision = dispatcher.decide(a_snapshot(cluster, jobs, running, now_s))
"""


@pytest.mark.parametrize("dispatcher", ["easy", "lookahead", "list-saf", "hcp19", "pcp20", "cph"])
def test_decision_compiles_no_kernel_beyond_its_modules(dispatcher: str) -> None:
    """What a bridge compiles before its first decision is all that its decisions need."""
    done = with_numba(DECIDES, dispatcher)
    assert done.returncode == 0, done.stderr


def test_other_process_with_same_imports_has_same_kernels() -> None:
    import cpsched.dispatchers.easy
    import cpsched.dispatchers.lookahead.lookahead_dispatcher  # noqa: F401

    assert {
        "cpsched.kernels.node_list_scheduling",
        "cpsched.kernels.order_search",
        "cpsched.kernels.scheduling_state",
    } <= set(modules_with_kernels())


def test_ctrl_c_ends_compiling_process_at_once() -> None:
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
    try:
        display, seen = CompileProgressLine(), []
        for done in (0, 1, 3):
            display("plan", done, 3)
            seen.append(signal.getsignal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, former)
    assert seen == [signal.SIG_DFL, signal.SIG_DFL, signal.default_int_handler]


@pytest.mark.parametrize("at", [0, 1])
def test_check_can_stop_compiler_before_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    monkeypatch.setenv("CPSCHED_CACHE_DIR", str(tmp_path))
    answers = [False] * at + [True]
    monkeypatch.setattr(compile_progress, "_check", lambda: answers.pop(0))
    steps: list[tuple[str, int, int]] = []
    monkeypatch.setattr(compile_progress, "_watcher", lambda *step: steps.append(step))
    door = a_door()
    with pytest.raises(compile_progress.CompilationCancelled):
        door.load_or_compile()
    assert not steps
    monkeypatch.setattr(compile_progress, "_check", bool)
    assert door(9) == 2
