"""Test two bridges with separate state directories on one cluster: one is in control, and the other is on standby."""

from __future__ import annotations

import html

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import RELEASE, Slurm
from tests.slurm.inside import bridge_files

NAME = "cpsched-bridge"
FIELD = "BurstBuffer" if RELEASE["slurm"] == "22.05" else "Comment"
"""Field of the reservation that contains the lease; reservations in 22.05 have no comment."""
GONE_S = 120.0
"""The default lease duration in seconds; on a busy machine, a bridge may take half a minute to restart."""


def two(slurm: Slurm) -> tuple[LiveBridge, LiveBridge]:
    lease = {"duration_s": GONE_S}
    first = LiveBridge(slurm, "first", lease=lease)
    second = LiveBridge(slurm, "second", lease=lease, metrics={"port": 9765})
    first.start()
    return first, second


def last_mode(bridge: LiveBridge) -> str:
    """Return the mode that the bridge last reported."""
    query = "select detail from events where kind = 'mode' order by seq desc limit 1"
    return str(bridge.query("journal", query)[0][0])


def started_by(bridge: LiveBridge) -> int:
    """Return the number of starts. A start is recorded again when its answer arrives later than in the same second."""
    query = "select distinct job_id, round from transitions where why = 'decided'"
    return len(bridge.query("state", query))


def claim(slurm: Slurm) -> str:
    return slurm.run("scontrol", "--oneliner", "show", "reservation", NAME, check=False)


def test_later_bridge_yields_reports_and_starts_nothing(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    first, second = two(slurm)
    try:
        second.start()
        jobs = slurm.burst(40, "-n2", "-t1", script="sleep 2")
        slurm.wait_for_state(jobs, "COMPLETED", 90)
        assert started_by(first) == 40
        assert started_by(second) == 0
        assert second.events().count("start_refused") == first.events().count("start_refused") == 0
        told = f"paused another bridge is in control of this cluster: test-python:{first.state}"
        assert last_mode(second) == told
        assert told in second.cpsched("status")
        assert f"the lease is held by test-python:{first.state}" in second.cpsched("doctor", check=False)
        page = slurm.call(bridge_files.page, 9765, "/")
        assert told.removeprefix("paused ") in html.unescape(page)
        second.stop()
        assert first.events().count("mode") == 1
    finally:
        first.stop()
        second.stop()
    assert "run=released" in claim(slurm)


def test_users_cannot_change_lease_and_jobs_are_unaffected(slurm: Slurm) -> None:
    first, _ = two(slurm)
    with_claim = claim(slurm)
    try:
        assert f"on=test-python:{first.state}" in with_claim
        update = ("scontrol", "update", f"ReservationName={NAME}", f"{FIELD}=bridge=x&run=y&beat=1&on=z")
        assert "Invalid user id" in slurm.refused(*update, user="alice")
        assert "Invalid user id" in slurm.refused("scontrol", "delete", f"ReservationName={NAME}", user="alice")
        own = ("ReservationName=x", "StartTime=now+10days", "Duration=1", "Users=alice", "Nodes=n1")
        assert "Invalid user id" in slurm.refused("scontrol", "create", "reservation", *own, user="alice")
        whole = slurm.sbatch("-N4", "--exclusive", "--time=1-0", script="sleep 1")
        slurm.wait_for_state(whole, "COMPLETED", 60)
    finally:
        first.stop()
