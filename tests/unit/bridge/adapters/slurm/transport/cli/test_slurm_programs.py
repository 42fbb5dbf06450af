"""Programs with a deadline: an answer counts whole or not at all."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from cpsched_bridge.adapters.shared import parallel_commands
from cpsched_bridge.adapters.slurm.transport.cli.slurm_programs import SlurmPrograms, build_environment, interpret_exit
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable, CommandRefused


def sh(script: str) -> Sequence[str]:
    return ("sh", "-c", script)


def test_programs_run_side_by_side_and_their_bytes_are_told() -> None:
    texts = SlurmPrograms({"a": sh("printf 'x\\377y'"), "b": sh("sleep 0.01; echo b")}, 20.0).collect_outputs()
    assert texts == {"a": "x\\xffy", "b": "b\n"}


def test_standard_input_is_closed_or_what_is_typed() -> None:
    assert SlurmPrograms({"a": sh("cat"), "b": sh("cat")}, 20.0, {"b": "show job 1\n"}).collect_outputs() == {
        "a": "",
        "b": "show job 1\n",
    }


def test_long_answers_on_both_outputs_do_not_block() -> None:
    texts = SlurmPrograms(
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
def test_a_program_that_fails_has_no_answer(script: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        SlurmPrograms({"good": sh("echo fine"), "bad": sh(script)}, 20.0).collect_outputs()


def test_a_warning_does_not_spoil_an_answer() -> None:
    assert interpret_exit("squeue", 0, "squeue: warning: something is old") is None


def test_what_is_late_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    asked = SlurmPrograms({"slow": sh(f"echo $$ > {mark}; exec sleep 600")}, 0.5)
    with pytest.raises(BackendTimeout, match=r"no answer in 0\.5 s"):
        asked.collect_outputs()
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_what_goes_on_printing_may_take_longer_than_a_silence(tmp_path: Path) -> None:
    """Up to a last deadline: one program waits between its words for the test, another one prints for ever."""
    script = "echo a; until [ -e go ]; do echo .; sleep 0.05; done; echo b"
    asked = SlurmPrograms({"slow": ("sh", "-c", f"cd {tmp_path}; {script}")}, 2.0, most_s=60.0)
    began_s = time.monotonic()
    while time.monotonic() < began_s + 3.0:
        assert not asked.wait_for_outputs(0.1)
    (tmp_path / "go").touch()
    assert asked.collect_outputs()["slow"].split()[-1] == "b"
    with pytest.raises(BackendTimeout):
        SlurmPrograms({"endless": sh("while :; do echo .; sleep 0.05; done")}, 0.5, most_s=1.0).collect_outputs()


def test_one_may_look_without_waiting() -> None:
    asked = SlurmPrograms({"slow": sh("sleep 600")}, 60.0)
    begun_s = time.monotonic()
    assert not asked.wait_for_outputs(0.0)
    assert time.monotonic() - begun_s < 30
    asked.close()


def test_too_long_an_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_commands, "MAX_OUTPUT_BYTES", 1000)
    with pytest.raises(BackendUnavailable, match="more than 1000 bytes"):
        SlurmPrograms({"a": sh("yes")}, 20.0).collect_outputs()


def test_a_program_that_is_not_there_is_told() -> None:
    with pytest.raises(CommandRefused, match="no-such-program: cannot be run"):
        SlurmPrograms({"b": ("no-such-program",)}, 5.0)


def test_what_changes_the_way_slurm_prints_is_left_out() -> None:
    own = {
        "PATH": "/bin", "SLURM_CONF": "/etc/x", "SLURM_JWT": "t", "SLURM_TIME_FORMAT": "relative", "TZ": "Asia/Tokyo",
        "SQUEUE_FORMAT": "%i",
        "SQUEUE_ARRAY": "1", "SACCT_FORMAT": "x", "SLURM_CLUSTERS": "other", "LC_ALL": "de_DE", "SLURM_SACK_KEY": "k",
    }  # fmt: skip
    assert build_environment(own) == {
        "PATH": "/bin", "SLURM_CONF": "/etc/x", "SLURM_JWT": "t", "SLURM_SACK_KEY": "k", "LC_ALL": "C",
        "SLURM_TIME_FORMAT": "%s", "TZ": "UTC0", "SLURM_BITSTR_LEN": "0", "INPUTRC": "/dev/null",
    }  # fmt: skip


def test_programs_see_that_environment() -> None:
    seen = SlurmPrograms(
        {"a": (sys.executable, "-c", "import os; print(os.environ['SLURM_TIME_FORMAT'])")}, 60.0
    ).collect_outputs()
    assert seen == {"a": "%s\n"}
