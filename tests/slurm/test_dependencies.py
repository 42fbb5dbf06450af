"""Test held jobs with dependencies: they start soon after their dependencies are satisfied, and never earlier."""

from __future__ import annotations

import statistics

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm

KINDS = ("afterok", "afterany", "afternotok", "after", "aftercorr", "singleton")


def test_each_dependency_type_starts_within_seconds(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    """slurmctld itself checks the dependencies of held jobs only once a minute."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, "dependencies"):
        pairs = [_pair(slurm, kind) for kind in KINDS for _ in range(3)]
        slurm.wait_for_state([child for child, _, _ in pairs], "COMPLETED", 90)
        ran = slurm.sacct()
        waits = {kind: [] for kind in KINDS}
        for child, parent, kind in pairs:
            since_s = ran[parent].start_s if kind == "after" else ran[parent].end_s
            waits[kind].append(ran[child].start_s - since_s)
        with capsys.disabled():
            print(f"\nfrom the parent's end to the dependent's start, in whole seconds: {waits}")
        assert all(wait >= 0 for each in waits.values() for wait in each), "none started before it might"
        assert statistics.median(wait for each in waits.values() for wait in each) <= 2


def _pair(slurm: Slurm, kind: str) -> tuple[str, str, str]:
    """Submit a job that depends on another. Return both ids and the kind; for arrays, the ids of one task each."""
    options = ("-n1", "-t1")
    end = "exit 1" if kind == "afternotok" else "exit 0"
    script = f"sleep 2; {end}"
    if kind == "aftercorr":
        parent = slurm.sbatch("--array=1-2", *options, script=script)
        child = slurm.sbatch("--array=1-2", f"--dependency=aftercorr:{parent}", *options, script="true")
        return f"{child}_2", f"{parent}_2", kind
    if kind == "singleton":
        name = f"--job-name=only-{slurm.sbatch('--begin=now+1hour')}"
        parent = slurm.sbatch(name, *options, script=script)
        return slurm.sbatch(name, "--dependency=singleton", *options, script="true"), parent, kind
    parent = slurm.sbatch(*options, script=script)
    return slurm.sbatch(f"--dependency={kind}:{parent}", *options, script="true"), parent, kind


def test_impossible_dependency_does_not_start(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    with LiveBridge(slurm, "never-met") as bridge:
        parent = slurm.sbatch("-n1", "-t1", script="exit 1")
        child = slurm.sbatch("-n1", "-t1", f"--dependency=afterok:{parent}")
        slurm.wait_for_state(parent, "FAILED", 30)
        bridge.wait_for_rounds(6)
        assert slurm.states([child]) == {child: "PENDING"}
        assert f"depends on job {parent}" in " ".join(bridge.cpsched("why", child).split())
