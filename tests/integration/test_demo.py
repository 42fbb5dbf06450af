"""The demo, short: it runs where there is no terminal, ends with a table, and can be stopped in the middle."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

from cpsched.compile.cache import folders
from tests import warm
from tests.patience import ENOUGH_S

DEMO = ["demo", "--dispatcher", "easy", "--baseline", "fcfs"]


def test_the_demo_ends_with_both_policies_side_by_side():
    done = warm.cpsched(*DEMO, "--jobs", "250", "--seconds", "1", "--mornings", "2", timeout=ENOUGH_S)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    table = {line.split("│")[1].strip(): line.split("│")[2:4] for line in done.stdout.splitlines() if "│" in line}
    assert [cell.strip() for cell in table["jobs"]] == ["500", "500"]
    waits = [float(cell.strip().removesuffix(" s").replace(",", "")) for cell in table["wait, mean"]]
    assert 0 < waits[0] < waits[1], "backfilling waits less than first come, first served"
    assert re.search(r"mean wait of easy beside fcfs: -\d+ %; better in 1, worse in 0 of 2 mornings", done.stdout)
    assert "of easy beside slurm" not in done.stdout
    assert re.search(r"queue \d+, running \d+, ended \d+ of 250", done.stdout)


def test_ctrl_c_leaves_cleanly_and_metrics_are_served_meanwhile():
    command = [sys.executable, "-IS", warm.__file__, warm.server(), *DEMO]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        url = re.search(r"http://\S+/metrics", "".join(lines))[0]
        until = time.monotonic() + ENOUGH_S
        while "cpsched_started_jobs_total 0.0" in (page := urllib.request.urlopen(url).read().decode()):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert 'cpsched_mode{mode="control"} 1.0' in page
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=ENOUGH_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "stopped; the held jobs went back" in out
    assert "Traceback" not in err


MISSING = "starts_of"
"""A kernel that the demo needs and that compiles in a second."""

SHOW = """
import sys
from cpsched.compile.cache import FILED
from cpsched_bridge.program import cli, demo

class Screen(demo.Console):
    def print(self, *words, **how):
        super().print(*words, **how)
        opened.append(len(FILED))

opened, demo.Console = [], Screen
sys.argv[0] = "cpsched"
try:
    cli.main()
finally:
    print("opened before the show and at its end:", opened[0], opened[-1])
"""


def test_right_after_install_the_demo_compiles_first_and_no_decision_is_charged_with_it(tmp_path):
    """Before the first line of the show, kernels that are missing are compiled, which is said, and all are opened."""
    for file in {file.name: file for folder in folders() for file in folder.glob("*.bin")}.values():
        if f".{MISSING}." not in file.name:
            shutil.copy(file, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SHOW, *DEMO, "--jobs", "100", "--seconds", "1", "--mornings", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env={**os.environ, "CPSCHED_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    before, show = done.stdout.split("100 jobs of a generated Eurora morning")
    assert "compiling kernels" in before
    assert f"{MISSING}: " in before
    assert "functions" not in show, "a kernel was compiled during the show"
    opened = re.search(r"opened before the show and at its end: (\d+) (\d+)", show)
    assert int(opened[1]) == int(opened[2]) > 0, "what the show opens would be compiled in it after an install"
    assert "Traceback" not in done.stdout
