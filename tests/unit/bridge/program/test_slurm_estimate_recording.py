"""The output of `squeue --start` is recorded unchanged. A fake squeue prints `answer`."""

import gzip
import os
import time
from types import SimpleNamespace

import pytest

from cpsched_bridge.program import slurm_estimate_recording
from cpsched_bridge.program.slurm_estimate_recording import SQUEUE
from cpsched_sim.start_time_accuracy import HEADING, read_slurm_start_estimates
from tests.fuzz.command_line import invoke


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Replace squeue; a call of the returned function sets what the next calls print, or their exit code."""
    program = tmp_path / "bin" / "squeue"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SQUEUE_PARTITION", "debug")

    def answers(text, code=0):
        checks = f'[ "squeue $*" = "{SQUEUE}" ] && [ "$SLURM_TIME_FORMAT$SQUEUE_PARTITION" = %s ] || exit 9'
        fails = "echo 'no contact' >&2; exit 1" if code else ""
        program.write_text(f"#!/bin/sh\n{checks}\nprintf '{text}'\n{fails}\n")
        program.chmod(0o755)

    answers("7,1900000000\\n12_3,N/A\\n9+1,1900000060\\n")
    return answers


def record(path, *words):
    return invoke("record-slurm-estimates", "--out", str(path), "--for", "0", *words)


@pytest.mark.parametrize("name", ["estimates.csv", "estimates.csv.gz"])
def test_second_run_appends_to_recording(squeue, tmp_path, name):
    path, began_s = tmp_path / name, int(time.time())
    assert [record(path).exit_code for _ in range(2)] == [0, 0]
    found = list(read_slurm_start_estimates(path))
    assert [row[1:] for row in found] == [("7", 1900000000), ("12_3", None), ("9+1", 1900000060)] * 2
    assert all(began_s <= at_s <= time.time() for at_s, _, _ in found)
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert text.startswith(f"{HEADING}\n".encode())


def test_calls_once_per_interval_and_survives_failures(squeue, tmp_path, monkeypatch):
    """The second of three calls fails. The clock moves only in `sleep`."""
    path, clock, slept = tmp_path / "estimates.csv", [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += seconds
        squeue("8,1900000000\\n", code=int(len(slept) == 2))

    clocks = SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0], time=time.time)
    monkeypatch.setattr(slurm_estimate_recording, "time", clocks)
    done = record(path, "--every", "30", "--for", "1")
    assert (done.exit_code, slept, len(list(read_slurm_start_estimates(path)))) == (0, [0, 30, 30], 2)
    assert "warning: squeue --start" in done.stderr
    assert "no contact" in done.stderr


def test_interrupted_recording_keeps_its_rows(squeue, tmp_path, monkeypatch):
    def sleep(seconds):
        if seconds:
            raise KeyboardInterrupt

    clocks = SimpleNamespace(sleep=sleep, monotonic=time.monotonic, time=time.time)
    monkeypatch.setattr(slurm_estimate_recording, "time", clocks)
    done = invoke("record-slurm-estimates", "--out", str(tmp_path / "estimates.csv"))
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (130, "interrupted")
    assert len(list(read_slurm_start_estimates(tmp_path / "estimates.csv"))) == 3


def test_without_slurm_says_where_to_record(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = record(tmp_path / "estimates.csv")
    assert (done.exit_code, done.stderr) == (
        2,
        "error: squeue is not installed on this machine: run record-slurm-estimates on a host with Slurm, such as a "
        "login node\n",
    )
    assert not (tmp_path / "estimates.csv").exists()


def test_other_files_and_answers_are_refused(squeue, tmp_path):
    other = tmp_path / "jobs.csv"
    other.write_text("job,start\n1,2\n")
    assert "must be at_unix_s,job,start_unix_s" in record(other).stderr
    assert other.read_text() == "job,start\n1,2\n"
    assert record(tmp_path / "missing" / "estimates.csv").stderr.count("cannot be written: No such file") == 1
    squeue("7,tomorrow\\n")
    assert "7,tomorrow: must be a job id and a Unix time" in record(tmp_path / "estimates.csv").stderr
    assert record(tmp_path / "estimates.csv").exit_code == 2


@pytest.mark.parametrize(("rows", "warned"), [("7,N/A\\n8,N/A\\n9,1900000000\\n", 1), ("7,N/A\\n8,1900000000\\n", 0)])
def test_warns_once_if_slurm_estimates_no_starts(squeue, tmp_path, monkeypatch, rows, warned):
    """Beside a bridge in control mode, most pending jobs are held, and Slurm estimates no start of a held job."""
    squeue(rows)
    clock = [100.0]
    clocks = SimpleNamespace(
        sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds), monotonic=lambda: clock[0], time=time.time
    )
    monkeypatch.setattr(slurm_estimate_recording, "time", clocks)
    done = record(tmp_path / "estimates.csv", "--every", "30", "--for", "1")
    assert done.exit_code == 0
    assert done.stderr.count("squeue gives no start for 2 of 3 pending jobs") == warned
