"""Programs with a deadline: only complete output is used."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from cpsched_bridge.adapters.shared import parallel_commands
from cpsched_bridge.adapters.slurm.transport.cli.slurm_programs import (
    ParallelSlurmPrograms,
    interpret_exit,
)
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable, CommandRefused, ProgramMissing
from cpsched_sim.slurm_environment import build_slurm_environment


def sh(script: str) -> Sequence[str]:
    return ("sh", "-c", script)


def test_runs_programs_in_parallel_and_escapes_bytes() -> None:
    texts = ParallelSlurmPrograms({"a": sh("printf 'x\\377y'"), "b": sh("sleep 0.01; echo b")}, 20.0).collect_outputs()
    assert texts == {"a": "x\\xffy", "b": "b\n"}


def test_standard_input_is_empty_or_given_text() -> None:
    assert ParallelSlurmPrograms({"a": sh("cat"), "b": sh("cat")}, 20.0, {"b": "show job 1\n"}).collect_outputs() == {
        "a": "",
        "b": "show job 1\n",
    }


def test_long_outputs_do_not_deadlock() -> None:
    texts = ParallelSlurmPrograms(
        {"a": sh("head -c 3000000 /dev/zero | tr '\\0' e >&2; head -c 3000000 /dev/zero | tr '\\0' o")}, 60.0
    ).collect_outputs()
    assert len(texts["a"]) == 3_000_000


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1", BackendUnavailable),
        ("echo part; echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 0", BackendUnavailable),
        ("echo part; exit 3", BackendUnavailable),
        ("echo part; kill -9 $$", BackendUnavailable),
        ("echo 'squeue: error: Incompatible versions of client and server code' >&2; exit 1", CommandRefused),
        ("echo 'sacct: error: Access/permission denied' >&2; exit 1", CommandRefused),
        ("echo 'Socket timed out on send/recv operation' >&2; exit 1", BackendTimeout),
    ],
)  # fmt: skip
def test_failed_program_gives_no_output(script: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        ParallelSlurmPrograms({"good": sh("echo fine"), "bad": sh(script)}, 20.0).collect_outputs()


def test_ignores_warnings() -> None:
    assert interpret_exit("squeue", 0, "squeue: warning: something is old") is None


def test_kills_late_program(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    asked = ParallelSlurmPrograms({"slow": sh(f"echo $$ > {mark}; exec sleep 600")}, 0.5)
    with pytest.raises(BackendTimeout, match=r"no response within 0\.5 s"):
        asked.collect_outputs()
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_continuous_output_extends_timeout_to_maximum(tmp_path: Path) -> None:
    """Up to a last deadline: one program waits between its words for the test, another one prints for ever."""
    script = "echo a; until [ -e go ]; do echo .; sleep 0.05; done; echo b"
    asked = ParallelSlurmPrograms({"slow": ("sh", "-c", f"cd {tmp_path}; {script}")}, 2.0, most_s=60.0)
    began_s = time.monotonic()
    while time.monotonic() < began_s + 3.0:
        assert not asked.wait_for_outputs(0.1)
    (tmp_path / "go").touch()
    assert asked.collect_outputs()["slow"].split()[-1] == "b"
    with pytest.raises(BackendTimeout):
        ParallelSlurmPrograms(
            {"endless": sh("while :; do echo .; sleep 0.05; done")}, 0.5, most_s=1.0
        ).collect_outputs()


def test_polls_without_waiting() -> None:
    asked = ParallelSlurmPrograms({"slow": sh("sleep 600")}, 60.0)
    begun_s = time.monotonic()
    assert not asked.wait_for_outputs(0.0)
    assert time.monotonic() - begun_s < 30
    asked.close()


def test_rejects_oversized_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_commands, "MAX_OUTPUT_BYTES", 1000)
    with pytest.raises(BackendUnavailable, match="more than 1000 bytes"):
        ParallelSlurmPrograms({"a": sh("yes")}, 20.0).collect_outputs()


def test_reports_missing_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissing, match=f"no-such-program: not found in PATH={tmp_path}"):
        ParallelSlurmPrograms({"b": ("no-such-program",)}, 5.0)
    (tmp_path / "not-executable").touch(0o600)
    with pytest.raises(ProgramMissing, match="not-executable: cannot run: Permission denied"):
        ParallelSlurmPrograms({"b": ("not-executable",)}, 5.0)


def test_removes_variables_that_change_slurm_output() -> None:
    own = {
        "PATH": "/bin", "SLURM_CONF": "/etc/x", "SLURM_JWT": "t", "SLURM_TIME_FORMAT": "relative", "TZ": "Asia/Tokyo",
        "SQUEUE_FORMAT": "%i",
        "SQUEUE_ARRAY": "1", "SACCT_FORMAT": "x", "SLURM_CLUSTERS": "other", "LC_ALL": "de_DE", "SLURM_SACK_KEY": "k",
    }  # fmt: skip
    assert build_slurm_environment(own) == {
        "PATH": "/bin", "SLURM_CONF": "/etc/x", "SLURM_JWT": "t", "SLURM_SACK_KEY": "k", "LC_ALL": "C",
        "SLURM_TIME_FORMAT": "%s", "TZ": "UTC0", "SLURM_BITSTR_LEN": "0", "INPUTRC": "/dev/null",
    }  # fmt: skip


def test_programs_get_clean_environment() -> None:
    seen = ParallelSlurmPrograms(
        {"a": (sys.executable, "-c", "import os; print(os.environ['SLURM_TIME_FORMAT'])")}, 60.0
    ).collect_outputs()
    assert seen == {"a": "%s\n"}
