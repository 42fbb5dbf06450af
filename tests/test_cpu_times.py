"""The plug-in that says which tests take most CPU time."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUSY = """
import subprocess, sys, time
from tests import warm

SPIN = "import time; until = time.process_time() + 0.4\\nwhile time.process_time() < until: pass"

def test_that_waits(): time.sleep(0.5)
def test_that_works_itself(): exec(SPIN)
def test_that_has_others_work(): subprocess.run([sys.executable, "-c", SPIN], check=True)
def test_that_asks_a_server(): warm.Begun(warm.server("time"), ["-c", SPIN]).done()
"""


@pytest.mark.parametrize("processes", ["0", "1"])
def test_work_counts_and_waiting_does_not(tmp_path, processes):
    (tmp_path / "test_busy.py").write_text(BUSY)
    command = ["-p", "tests.cpu_times", "-p", "no:cacheprovider", "-n", processes, "--rootdir", tmp_path, tmp_path]
    done = subprocess.run([sys.executable, "-m", "pytest", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    tests, files = done.stdout.split("files that took most CPU time")
    took_s = {name: float(text) for text, name in re.findall(r"([\d.]+) s  .*::test_that_(\w+)", tests)}
    assert set(took_s) == {"waits", "works_itself", "has_others_work", "asks_a_server"}
    assert took_s["waits"] < 0.4 <= min(spent_s for name, spent_s in took_s.items() if name != "waits")
    assert float(re.search(r"([\d.]+) s  .*test_busy\.py$", files, re.MULTILINE)[1]) >= 1.2
