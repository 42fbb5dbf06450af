"""Test a controller that dies while jobs run: the bridge continues with the backup controller, and later with the
first controller.
"""

from __future__ import annotations

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

TAKES_OVER_S = 6
"""SlurmctldTimeout: seconds for which the backup controller waits for the first controller."""


def test_bridge_continues_with_backup_controller(slurm: Slurm) -> None:
    """With either controller, no job is lost, started twice, or left held by a bridge that does not manage it."""
    with slurm.backup_controller(TAKES_OVER_S):
        slurm.plugin(on=True)
        slurm.head = "n1"
        with LiveBridge(slurm, "failover", cycle={"max_backoff_s": 4.0}, start={"timeout_s": 20}) as bridge:
            long = slurm.burst(4, "-N1", "-n16", "-t5", script="sleep 40")
            slurm.wait_for_state(long, "RUNNING", 30)
            jobs = slurm.burst(12, "-N1", "-n8", "-t1", script="sleep 2")
            bridge.wait_for_rounds(2)
            slurm.wait_until_saved(long[0])
            slurm.kill("slurmctld")  # its host is gone, so connections time out instead of being refused
            wait_until(lambda: slurm.controllers() == ["DOWN", "UP"] and answers(slurm), 90, "the backup took over")
            jobs += slurm.burst(4, "-n4", "-t1", script="sleep 1")
            slurm.wait_for_state(jobs, "COMPLETED", 120)
            bridge.wait_for_rounds(2)

            wait_until(lambda: is_back(slurm), 240, "the first is back")
            jobs += slurm.burst(4, "-n4", "-t1", script="sleep 1")
            slurm.wait_for_state([*long, *jobs], "COMPLETED", 90)
            bridge.wait_for_ends([*long, *jobs])
            assert not bridge.events("circuit_breaker_tripped")
            assert not bridge.events("job_gone")
        records = slurm.wait_for_accounting([*long, *jobs])
        assert len(records) == 24
        assert {job.restarts for job in records.values()} == {0}


def is_back(slurm: Slurm) -> bool:
    """Return whether the first controller is in control again; start it if it does not run, as a supervisor would.

    The backup yields control only after more than half a minute. Until then, the first controller exits when started.
    """
    slurm.start("slurmctld")
    return slurm.controllers() == ["UP", "UP"] and answers(slurm)


def answers(slurm: Slurm) -> bool:
    """Return whether the active controller lists jobs."""
    return "JOBID" in slurm.run("timeout", "5", "squeue", check=False)
