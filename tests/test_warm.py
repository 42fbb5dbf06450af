"""A command forked by the server of `tests.warm` is one that began anew, to whoever looks at it from outside."""

import os
import signal
import subprocess
import sys
import time

import pytest

from cpsched_sim.processes import side_by_side
from tests.patience import ENOUGH_S
from tests.unit.sim.test_cli import FOUR_JOBS
from tests.warm import Begun, cpsched, server
from tests.warm import __file__ as program

ANEW = [sys.executable, "-m", "cpsched_bridge.program.cli"]
HANGS = ["--dispatcher", "tests.bad_plugins:HangingDispatcher", "--decide-timeout", "0"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["simulate", "four.swf", "--max-jobs", "2", "--dispatcher", "nobody"], 2),
        (["compare", "four.swf", "--dispatchers", "fcfs", "--out", "out-{}"], 0),
        (["status"], 2),
    ],
)
def test_it_answers_as_a_process_that_began_anew(tmp_path, monkeypatch, arguments, code):
    (tmp_path / "four.swf").write_text(FOUR_JOBS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPSCHED_CONFIG", "of-this-test.yaml")
    words = [[word.format(which) for word in arguments] for which in ("warm", "anew")]
    warm, anew = cpsched(*words[0]), subprocess.run([*ANEW, *words[1]], capture_output=True, text=True, check=False)
    assert warm.returncode == anew.returncode == code
    assert warm.stderr.replace("warm", "anew") == anew.stderr
    if arguments[0] != "compare":  # whose table has times that were measured
        assert warm.stdout == anew.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_for_shells_passes_signals_on_and_takes_the_command_with_it(tmp_path, number):
    (tmp_path / "four.swf").write_text(FOUR_JOBS)
    command = [sys.executable, "-IS", program, server(), "simulate", str(tmp_path / "four.swf"), *HANGS]
    inside, outside = os.pipe()
    process = subprocess.Popen(command, stdout=outside, stderr=outside)
    os.close(outside)
    time.sleep(0.5)  # whether it hangs by then, or still begins, it has to end
    process.send_signal(number)
    assert process.wait(ENOUGH_S) == -number
    with os.fdopen(inside, "rb") as output:
        assert b"Traceback" not in output.read()  # to its end: all who could write to it are gone


@pytest.mark.parametrize(
    "code",
    [
        "print('said', end='')",
        "import sys; sys.exit(3)",
        "import sys; print('last words', end=''); sys.exit('why')",
        "import sys; sys.exit(-1)",
        "import atexit, sys; atexit.register(print, 'at the end'); sys.exit(256)",
        "import threading, time; threading.Thread(target=lambda: time.sleep(0.2) or print('late')).start()",
        "1 / 0",
        "raise KeyboardInterrupt",
    ],
)
def test_it_ends_as_a_process_that_began_anew(code):
    """Threads and last words are waited for, and the exit code is the same; only what is shared is not freed."""
    anew = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    warm = Begun(server(), ["-c", code]).done(ENOUGH_S)
    assert (warm.returncode, warm.stdout) == (anew.returncode, anew.stdout)
    assert warm.stderr.splitlines()[-1:] == anew.stderr.splitlines()[-1:]


def test_a_command_has_the_kernels_of_the_server_and_settings_of_its_own():
    code = """
import numba
from cpsched.compile.cache import FILED
print(any("pool.plan_counted" in name for name in FILED), numba.config.BOUNDSCHECK)
"""
    bounds = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}
    assert Begun(server(), ["-c", code], environment=bounds).done(ENOUGH_S).stdout == "True 1\n"


def loaded(pipe):
    from cpsched.compile.cache import FILED

    pipe.send(sorted(FILED))


def test_processes_of_a_study_have_their_kernels_from_the_server_that_forks_them():
    told = []
    side_by_side(loaded, {0: ()}, 1, lambda at, names: told.append(names) or True)
    assert any("pool.plan_counted" in name for name in told[0])
