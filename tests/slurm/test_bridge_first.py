"""Test the simplest case: a user submits a job, the plugin holds it, and the bridge starts it on the decided nodes."""

from __future__ import annotations

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm


@pytest.mark.conformance
def test_job_runs_from_sbatch_to_completion(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    with LiveBridge(slurm, "first") as bridge:
        jobs = [slurm.sbatch("-n2", "-t1", script="sleep 2"), slurm.sbatch("-N2", "-t1", script="sleep 2")]
        held = slurm.sbatch("-H", "-n1", "-t1")
        slurm.wait_for_state(jobs, "COMPLETED", 120)
        assert slurm.job(held).held
        bridge.wait_for_ends(jobs)
        ran, ledger = slurm.wait_for_accounting(jobs), bridge.ledger()
        assert {job: ran[job].nodes for job in jobs} == {job: ledger[job].nodes for job in jobs}
        assert ", 0 different" in bridge.cpsched("journal", "replay", "--all")
