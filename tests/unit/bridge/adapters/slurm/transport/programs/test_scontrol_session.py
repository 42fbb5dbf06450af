"""One scontrol process that receives several changes in sequence, with stand-ins for a faulty one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import ControllerCallError, JobCommandRefused
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import MAX_ERROR_BYTES, ScontrolSession
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import send_and_read_error
from tests.patience import ENOUGH_S, is_gone, until
from tests.unit.bridge.adapters.slurm.transport.fake_scontrol import put_scontrol


def run_scontrol(commands: list[str]) -> list[str]:
    with ScontrolSession(ENOUGH_S) as session:
        return [send_and_read_error(session, command) for command in commands]


def test_each_command_has_own_error_in_one_process(programs: Path) -> None:
    said = put_scontrol(programs, f"echo $$ >>{programs}/pids\ncase $line in *2) printf 'a\\n\\nb ' >&2;; esac")
    assert run_scontrol(["hold 1", "hold 2", "release 3"]) == ["", "a; b", ""]
    assert said.read_text() == "hold 1\nhold 2\nrelease 3\n"
    assert len(set((programs / "pids").read_text().split())) == 1


def test_starts_no_process_without_commands(programs: Path) -> None:
    assert run_scontrol([]) == []


@pytest.mark.parametrize(
    "command",
    [
        "",
        "hold 1\nrelease 2",
        "hold 1\n",
        "hold 1\r",
        "hold  1",
        "hold 1 ",
        'update JobId=1 ReqNodeList="n1"',
        "update JobId=1 ReqNodeList='n1'",
        "hold\t1",
        "!!",
        "hold 1\0",
        "hold \x1b1",
        "hold ١",
        "hold n\u2028",
        "update JobId=1 ReqNodeList=n1\\",
        " ".join(["x"] * 200),
    ],
)
def test_refuses_text_that_could_be_another_command(programs: Path, command: str) -> None:
    said = put_scontrol(programs)
    with ScontrolSession(ENOUGH_S) as session:
        with pytest.raises(JobCommandRefused, match="cannot be sent"):
            session.send_command(command)
        assert session.send_command("hold 1") == ""
    assert said.read_text() == "hold 1\n"


@pytest.mark.parametrize(
    ("script", "status", "errors"),
    [
        # An error about another keyword is no end mark. Exit status 0 hides no error.
        ("echo 'invalid keyword: cpsched-0-1' >&2; echo 'no such job' >&2", 1,
         ["invalid keyword: cpsched-0-1; no such job"]),
        ("echo 'Unable to contact slurm controller' >&2", 0, ["Unable to contact slurm controller"]),
        # Output of any length does not block: the real one echoes its input on standard output.
        (f"head -c {4 * MAX_ERROR_BYTES} /dev/zero", 1, ["", ""]),
    ],
)  # fmt: skip
def test_reads_error_of_each_command(programs: Path, script: str, status: int, errors: list[str]) -> None:
    put_scontrol(programs, script)
    text = (programs / "scontrol").read_text()
    (programs / "scontrol").write_text(text.replace("exit 1", f"exit {status}"))
    assert run_scontrol([f"hold {at}" for at in range(len(errors))]) == errors


BREAKS = {
    "missing": ("", "cannot run: No such file", False),
    "hangs": ("#!/bin/sh\nexec sleep 600\n", "no response from scontrol within 1 s", True),
    "ends": ("#!/bin/sh\necho 'fatal: no slurm.conf' >&2\nexit 3\n", "exit status 3.*no slurm.conf", True),
    "dies": ("#!/bin/sh\nread -r line\nkill -9 $$\n", "exit status -9", True),
    "endless": ("#!/bin/sh\nexec yes >&2\n", "bytes of errors", True),
    "silent": ("#!/bin/sh\nexec 2>&-\nexec sleep 600\n", "exit status -9", True),
    "quiet": ("#!/bin/sh\nexec 0<&-\nexec sleep 600\n", "no response", True),
}


@pytest.mark.parametrize("how", BREAKS)
def test_broken_process_leaves_one_command_unknown(programs: Path, how: str) -> None:
    script, words, lost = BREAKS[how]
    if script:
        (programs / "scontrol").write_text(script)
        (programs / "scontrol").chmod(0o755)
    with ScontrolSession(1.0 if "no response" in words else ENOUGH_S) as session:
        with pytest.raises(ControllerCallError, match=words) as first:
            session.send_command("hold 1")
        with pytest.raises(ControllerCallError, match="not sent") as second:
            session.send_command("hold 2")
    assert (first.value.lost, second.value.lost) == (lost, False)


def test_sends_whole_command_longer_than_pipe(programs: Path) -> None:
    said = put_scontrol(programs)
    command = f"hold 19_[{','.join(map(str, range(0, 100_000, 2)))}]"
    assert run_scontrol([command]) == [""]
    assert said.read_text() == f"{command}\n"


def test_process_exit_midway_leaves_one_unknown_and_rest_unsent(programs: Path) -> None:
    said = put_scontrol(programs, "case $line in *2) kill -9 $$;; esac")
    first, second, third = run_scontrol(["hold 1", "hold 2", "hold 3"])
    assert (first, "exit status -9" in second, "not sent" in third) == ("", True, True)
    assert said.read_text() == "hold 1\nhold 2\n"


def test_removes_slurm_variables_from_environment(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_scontrol(programs, f"env >{programs}/env")
    removed = dict.fromkeys(("SLURM_CLUSTERS", "SCONTROL_ALL", "SLURM_JOB_ID"), "other")
    for name, value in {**removed, "SLURM_CONF": "/etc/site.conf", "LC_ALL": "de_DE.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    run_scontrol(["hold 1"])
    found = (programs / "env").read_text().splitlines()
    assert {"SLURM_CONF=/etc/site.conf", "LC_ALL=C", "SLURM_BITSTR_LEN=0"} <= set(found)
    assert not [line for line in found if line.endswith("=other")]


def test_exits_with_bridge_during_command(programs: Path) -> None:
    put_scontrol(programs, f"echo $$ >{programs}/pid; sleep 600")
    program = textwrap.dedent("""
        from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import ScontrolSession
        session = ScontrolSession(20.0)
        session.send_command("hold 1")
        session.send_command("hold 2")
""")
    bridge = subprocess.Popen([sys.executable, "-c", program], env=dict(os.environ))
    until(lambda: (programs / "pid").exists() and (programs / "pid").read_text())
    told = int((programs / "pid").read_text())
    bridge.send_signal(signal.SIGKILL)
    bridge.wait()
    until(lambda: is_gone(told))
    assert (programs / "said").read_text() == "hold 1\n"
