"""Test the API for users on a real Slurm: a job starts as estimated, and only its owner sees the estimate."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

ALL = ("-N4", "--exclusive")
HEADER = "X-Remote-User"
LATE_S = 60
"""Maximum seconds that Slurm's own passes and a slow machine may add to a start."""


def asked(bridge: LiveBridge, path: str, user: str) -> tuple[int, dict[str, Any]]:
    """Return the status and body for a path of API version 1, as a proxy requests it for a user."""
    code = (
        "import json, urllib.error, urllib.request\n"
        f"wanted = urllib.request.Request('http://127.0.0.1:9764/api/v1/{path}', headers={{{HEADER!r}: {user!r}}})\n"
        "try:\n"
        "    answer = urllib.request.urlopen(wanted, timeout=30)\n"
        "except urllib.error.HTTPError as error:\n"
        "    answer = error\n"
        "print(json.dumps([answer.status, json.load(answer)]))"
    )
    status, found = json.loads(bridge.shell("python -", stdin=code))
    return status, found


@pytest.mark.conformance
def test_job_starts_by_estimate_and_only_owner_sees_it(slurm: Slurm) -> None:
    blocker = slurm.sbatch(*ALL, "-t2", script="sleep 15", user="bob")
    slurm.wait_for_state(blocker, "RUNNING")
    page = {"user_header": HEADER, "trusted_proxies": ["127.0.0.1"], "operators": ["root"]}
    with LiveBridge(slurm, "answers", mode="shadow", page=page) as bridge:
        if slurm.squeue()[blocker].state != "RUNNING":  # on a slow machine, the bridge starts later
            blocker = slurm.sbatch(*ALL, "-t2", script="sleep 15", user="bob")
            slurm.wait_for_state(blocker, "RUNNING")
        wait_until(
            lambda: asked(bridge, f"jobs/{blocker}", "bob")[1]["state"] == "running", 30, "the bridge sees it run"
        )
        words = ("--nodes", "4", "--time", "1", "--exclusive", "--json")
        first = json.loads(bridge.cpsched("estimate-start", *words).splitlines()[-1])[0]
        assert first["now_s"] <= first["planned_s"] <= first["now_s"] + 2 * 60 + LATE_S
        assert first["likely_from_s"] <= first["likely_to_s"]
        assert not first["calibrated"]

        job = slurm.sbatch(*ALL, "-t1", script="sleep 3")
        slurm.wait_for_state(job, "COMPLETED", 120)
        start_s = slurm.wait_for_accounting([job])[job].start_s or 0
        assert first["now_s"] <= start_s <= first["planned_s"] + LATE_S

        assert asked(bridge, f"jobs/{job}", "alice")[0] == 200
        assert asked(bridge, f"jobs/{job}", "root")[0] == 200
        status, found = asked(bridge, f"jobs/{job}", "bob")
        assert (status, found["state"]) == (404, "unknown")
        assert asked(bridge, "windows", "bob, root")[0] == 403
        assert asked(bridge, "windows", "bob")[0] == 200
        assert abs(asked(bridge, "windows", "bob")[1]["now_s"] - time.time()) < LATE_S
