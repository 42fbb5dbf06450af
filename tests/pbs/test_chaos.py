"""Kills at random commands, among faults and users' actions: according to the accounting log, each job runs once."""

import os
import random

import pytest

pytest.importorskip("cpsched_bridge.adapters.pbs", reason="the PBS adapter is not there")

from tests.pbs.world import ADVISED_STEPS, GROUPED, LEFT, SHARED, SHRINKING, World

HISTORIES = int(os.environ.get("CPSCHED_PBS_HISTORIES", "4"))
STEPS = 120


BUSY = (*("cycle",) * 14, *("submit",) * 9, "kill", "fault")
FOUND = (60005,)
"""Seeds that found a fault: a subjob of a begun array was given up and never started."""


@pytest.mark.parametrize("seed", [*range(HISTORIES), *FOUND])
def test_every_job_runs_once_despite_faults(tmp_path, seed):
    world = World(tmp_path, random.Random(seed))
    assert world.play(STEPS) == [], "\n".join(world.log[-200:])


@pytest.mark.parametrize("seed", range(HISTORIES // 4))
def test_group_jobs_run_in_one_group_of_vnodes(tmp_path, seed):
    world = World(tmp_path, random.Random(f"grouped {seed}"), kinds=GROUPED)
    assert world.play(STEPS) == [], "\n".join(world.log[-200:])
    assert any("group=rack" in line for line in world.server.log)


@pytest.mark.parametrize("seed", range(HISTORIES // 2))
def test_vnodes_are_never_overcommitted_while_pbs_starts_jobs(tmp_path, seed):
    """PBS's own scheduler may act between any two commands, also on what it has read before the last one."""
    world = World(tmp_path, random.Random(f"shared {seed}"), kinds=SHARED)
    world.server.moments = random.Random(seed)
    assert world.play(STEPS, BUSY) == [], "\n".join(world.log[-200:])
    assert any(f" queue={LEFT} " in line for line in world.server.log if ";S;" in line)


def test_shrinkable_jobs_run_once_with_allowed_walltime(tmp_path):
    """Not in each history does the bridge start one: PBS may have all of them where its queue is open for long."""
    told = 0
    for seed in range(max(2, HISTORIES // 4)):
        (tmp_path / str(seed)).mkdir()
        world = World(tmp_path / str(seed), random.Random(f"shrinking {seed}"), kinds=SHRINKING)
        assert world.play(STEPS) == [], "\n".join(world.log[-200:])
        told += sum(argv[0] == "qalter" and argv[2].startswith("walltime=") for argv in world.commands.asked)
    assert told > 0


@pytest.mark.parametrize("seed", range(HISTORIES // 2))
def test_advising_bridge_leaves_no_points(tmp_path, seed):
    """Sometimes the next bridge is in control, and back; administrators' own points stay."""
    world = World(tmp_path, random.Random(f"advised {seed}"), mode="advise")
    for _ in range(STEPS):
        getattr(world, world.rng.choice(ADVISED_STEPS))()
    assert world.advice_ends() == []
    assert world.counts["advised"] == (world.mode == "advise")
    assert world.calm() == []
