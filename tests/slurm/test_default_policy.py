"""Test that the bridge's default policy makes decisions in its own process on a live Slurm.

Other live tests use `easy`, which starts quickly and runs in the bridge's process. If a policy fails, the fallback
decides and jobs still start, so only an event reports the failure.
"""

from __future__ import annotations

import pytest

from cpsched_bridge.settings import PolicySettings
from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm
from tests.slurm.inside import bridge_files

FAILURES = "select detail from events where kind = 'fallback' and detail like 'the fallback decides:%'"
ENOUGH = 5
"""Minimum number of rounds with pending jobs that the default policy decides."""


@pytest.mark.conformance
def test_default_policy_decides_without_fallback(slurm: Slurm) -> None:
    default = PolicySettings().dispatcher
    slurm.plugin(on=True)
    with LiveBridge(slurm, "default", policy={}) as bridge:

        def decided() -> list[tuple[str, str]]:
            """Return the dispatcher and error of each round since the default policy first decided."""
            found = bridge.files.call(bridge_files.dispatchers, bridge.state)
            names = [dispatcher for dispatcher, _ in found]
            return found[names.index(default) :] if default in names else []

        def failures() -> list[list[str]]:
            return bridge.query("journal", FAILURES)

        jobs = slurm.burst(60, "-N3", "--exclusive", "-t1", script="sleep 3")
        bridge.wait_until(lambda: failures() or len(decided()) >= ENOUGH, 300, f"{default} decides")
        slurm.run("scancel", *jobs, user="alice")
        assert failures() == []
        assert {(dispatcher, failure) for dispatcher, failure in decided()} == {(default, "")}
