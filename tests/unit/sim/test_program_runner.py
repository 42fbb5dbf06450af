"""Programs with a deadline: a result is complete, or says why it is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cpsched_sim import program_runner
from cpsched_sim.program_runner import ProgramFailure, ProgramResult, ProgramRunner, build_slurm_environment

RUNNER = ProgramRunner(lambda: os.environ)


def sh(script: str) -> Sequence[str]:
    return ("sh", "-c", script)


def wait_until(is_true: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60.0
    while not is_true():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_runs_programs_in_parallel_and_escapes_bytes() -> None:
    scripts = {"a": sh("printf 'x\\377y'"), "b": sh("sleep 0.01; echo b; echo no >&2; exit 3")}
    assert RUNNER.start(scripts, 20.0).collect_results() == {
        "a": ProgramResult("sh -c printf 'x\\377y'", "", "x\\xffy"),
        "b": ProgramResult("sh -c sleep 0.01; echo b; echo no >&2; exit 3", "no", "b\n", 3),
    }


def test_standard_input_is_empty_or_given_text() -> None:
    programs = RUNNER.start({"a": sh("cat"), "b": sh("cat")}, 20.0, {"b": "show job 1\n"})
    assert programs.collect_outputs() == {"a": "", "b": "show job 1\n"}


def test_reads_long_output_in_background(tmp_path: Path) -> None:
    """A pipe holds less, and the caller may be busy meanwhile."""
    script = f"head -c 3000000 /dev/zero | tr '\\0' e >&2; head -c 3000000 /dev/zero | tr '\\0' o; touch {tmp_path}/end"
    programs = RUNNER.start({"a": sh(script)}, 60.0)
    wait_until((tmp_path / "end").exists)
    assert programs.collect_outputs() == {"a": "o" * 3_000_000}


def test_first_error_ends_all_programs() -> None:
    def interpret(result: ProgramResult) -> Exception | None:
        return ValueError(result.error) if result.status else None

    programs = ProgramRunner(lambda: os.environ, interpret).start({"a": sh("exec sleep 600"), "b": sh("exit 3")}, 600.0)
    with pytest.raises(ValueError, match=r"^exit status 3$"):
        programs.collect_outputs()


def test_kills_late_program(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    result = RUNNER.run(sh(f"echo $$ > {mark}; exec sleep 600"), 0.5)
    assert (result.failure, result.complaint) == (ProgramFailure.TIMED_OUT, "no response within 0.5 s; killed")
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_continuous_output_extends_timeout_to_maximum(tmp_path: Path) -> None:
    """Up to a last deadline: one program waits between its words for the test, another one prints for ever."""
    script = "echo a; until [ -e go ]; do echo .; sleep 0.05; done; echo b"
    programs = RUNNER.start({"slow": sh(f"cd {tmp_path}; {script}")}, 2.0, most_s=60.0)
    assert not programs.wait_for_outputs(3.0)
    (tmp_path / "go").touch()
    assert programs.collect_outputs()["slow"].split()[-1] == "b"
    endless = RUNNER.start({"": sh("while :; do echo .; sleep 0.05; done")}, 0.5, most_s=1.0)
    assert endless.collect_results()[""].failure is ProgramFailure.TIMED_OUT


def test_close_leaves_no_process(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    programs = RUNNER.start({"slow": sh(f"echo $$ > {mark}; exec sleep 600")}, 600.0)
    wait_until(lambda: mark.exists() and mark.read_text() != "")
    assert not programs.wait_for_outputs(0.0)
    programs.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_rejects_oversized_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_runner, "MAX_OUTPUT_BYTES", 1000)
    result = RUNNER.run(("yes",), 20.0)
    assert result == ProgramResult(
        "yes", "printed more than 1000 bytes; killed", failure=ProgramFailure.OUTPUT_TOO_LONG
    )


def test_budget_extends_deadlines_of_counted_programs() -> None:
    counted = []

    class Budget:
        def count_programs(self, *programs: object) -> float:
            counted.append(programs)
            return 600.0

    result = ProgramRunner(lambda: os.environ, budget=Budget()).run(sh("sleep 0.2"), 0.0)
    assert result.has_succeeded
    assert counted == [({"": sh("sleep 0.2")}, {})]


def test_removes_variables_that_change_slurm_output() -> None:
    own = {
        "PATH": "/bin", "SLURM_CONF": "/etc/x", "SLURM_JWT": "t", "SLURM_TIME_FORMAT": "relative", "TZ": "Asia/Tokyo",
        "SQUEUE_FORMAT": "%i", "SCANCEL_INTERACTIVE": "1",
        "SQUEUE_ARRAY": "1", "SACCT_FORMAT": "x", "SLURM_CLUSTERS": "other", "LC_ALL": "de_DE", "SLURM_SACK_KEY": "k",
    }  # fmt: skip
    assert build_slurm_environment(own) == {
        "PATH": "/bin", "SLURM_CONF": "/etc/x", "SLURM_JWT": "t", "SLURM_SACK_KEY": "k", "LC_ALL": "C",
        "SLURM_TIME_FORMAT": "%s", "TZ": "UTC0", "SLURM_BITSTR_LEN": "0", "INPUTRC": "/dev/null",
    }  # fmt: skip


@pytest.mark.parametrize("has_setpriv", [True, False])
def test_program_ends_with_its_parent(has_setpriv: bool) -> None:
    if has_setpriv and not program_runner.find_parent_death_prefix():
        pytest.skip("setpriv has no --pdeathsig")
    code = (
        "import os, subprocess; from cpsched_sim import program_runner\n"
        f"if not {has_setpriv}: program_runner.find_parent_death_prefix = tuple\n"
        "pipe = subprocess.PIPE\n"
        "process = program_runner.start_process(['sleep', '600'], os.environ, stdin=pipe, stdout=pipe)\n"
        "print(process.pid, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        command_line = Path("/proc", parent.stdout.readline().decode().strip(), "cmdline")
        wait_until(lambda: command_line.read_bytes().split(b"\0")[1:] == [b"600", b""])  # no longer setpriv
        parent.kill()
    wait_until(lambda: not command_line.exists() or not command_line.read_bytes())
