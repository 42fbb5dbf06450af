"""Errors of Slurm's programs: only complete output is used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import make_slurm_runner
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable, CommandRefused, ProgramMissing


def sh(script: str) -> Sequence[str]:
    return ("sh", "-c", script)


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
    programs = make_slurm_runner().start({"good": sh("echo fine"), "bad": sh(script)}, 20.0)
    with pytest.raises(error):
        programs.collect_outputs()


def test_ignores_warnings() -> None:
    result = make_slurm_runner().run(sh("echo x; echo 'squeue: warning: something is old' >&2"), 20.0)
    assert result.output == "x\n"


def test_reports_late_program() -> None:
    with pytest.raises(BackendTimeout, match=r"^sleep 600: no response within 0\.5 s; killed$"):
        make_slurm_runner().run(("sleep", "600"), 0.5)


def test_reports_missing_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search path is named, because that of a service differs from an administrator's."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramMissing, match=f"no-such-program: not found in PATH={re.escape(str(tmp_path))}"):
        make_slurm_runner().run(("no-such-program",), 5.0)
    (tmp_path / "not-executable").touch()
    with pytest.raises(ProgramMissing, match="not-executable: cannot run: Permission denied"):
        make_slurm_runner().run(("not-executable",), 5.0)
