"""Test that a job with several partitions starts in one of them, and has all of them again after a requeue."""

from __future__ import annotations

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until


@pytest.mark.conformance
@pytest.mark.parametrize("options", [(), ("--array=1-2",)])
def test_a_job_of_several_partitions_runs_in_one_and_gets_all_back(slurm: Slurm, options: tuple[str, ...]) -> None:
    """The job starts in main, because partition short has only n1 and n2, which are full."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, "several", start={"timeout_s": 8}) as bridge:
        full = [slurm.sbatch("-p", "short", "-N1", "-n16", "-t5", script="sleep 300", user="bob") for _ in range(2)]
        slurm.wait_for_state(full, "RUNNING")
        job = slurm.sbatch("-p", "short,main", "-n2", "-t3", "--requeue", *options, script="sleep 120")
        label = f"{job}_2" if options else job
        wait_until(lambda: slurm.record(label)["JobState"] == "RUNNING", 60, "it runs")
        started = slurm.record(label)
        assert (started["Partition"], started["NodeList"] in ("n3", "n4")) == ("main", True)
        slurm.scontrol("requeue", label)
        wait_until(lambda: slurm.record(label)["Partition"] != "main", 60, "it is in all of its partitions")
        again = slurm.record(label)
        assert (set(again["Partition"].split(",")), again["ReqNodeList"]) == ({"short", "main"}, "(null)")
        assert not {"unmanaged", "start_failed", "started_elsewhere"} & set(bridge.events())
        slurm.run("scancel", job, *full)
