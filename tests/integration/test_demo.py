"""The demo, short: it runs where there is no terminal, ends with a table, and can be stopped in the middle."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

from tests.patience import ENOUGH_S

DEMO = [sys.executable, "-m", "cpsched_bridge.program.cli", "demo", "--dispatcher", "easy", "--baseline", "fcfs"]


def test_the_demo_ends_with_both_policies_side_by_side():
    done = subprocess.run(
        [*DEMO, "--jobs", "1000", "--seconds", "1", "--mornings", "2"], capture_output=True, text=True, timeout=ENOUGH_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    table = {line.split("│")[1].strip(): line.split("│")[2:4] for line in done.stdout.splitlines() if "│" in line}
    assert [cell.strip() for cell in table["jobs"]] == ["2,000", "2,000"]
    waits = [float(cell.strip().removesuffix(" s").replace(",", "")) for cell in table["wait, mean"]]
    assert 0 < waits[0] < waits[1], "backfilling waits less than first come, first served"
    assert re.search(r"mean wait of easy beside fcfs: -\d+ %; better in 2, worse in 0 of 2 mornings", done.stdout)
    assert "of easy beside slurm" not in done.stdout
    assert re.search(r"queue \d+, running \d+, ended \d+ of 1000", done.stdout)


def test_ctrl_c_leaves_cleanly_and_metrics_are_served_meanwhile():
    process = subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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


def test_right_after_install_the_demo_compiles_first_and_no_decision_is_charged_with_it(tmp_path):
    """An empty cache: each kernel is compiled, and that is said, before the first line of the show."""
    done = subprocess.run(
        [*DEMO, "--jobs", "300", "--seconds", "1", "--mornings", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env={**os.environ, "CPSCHED_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    before, show = done.stdout.split("300 jobs of a generated Eurora morning")
    assert "compiling kernels" in before
    assert "plan_placed: " in before
    assert "functions" not in show, "a kernel was compiled during the show"
    assert "Traceback" not in done.stdout
