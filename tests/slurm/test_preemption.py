"""Test preemption in control mode: preemptors start, and preempted jobs run again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

QUICK = {"start": {"timeout_s": 8}}


@contextmanager
def preempting(slurm: Slurm, mode: str) -> Iterator[None]:
    """Configure Slurm so that QOS `high` preempts QOS `low`."""
    for words in ("low", "high set Preempt=low Priority=100 PreemptMode=cluster"):
        slurm.run("sacctmgr", "--immediate", "add", "qos", *words.split(), check=False)
    slurm.run("sacctmgr", "--immediate", "modify", "user", "alice", "set", "QOS+=low,high", check=False)
    with slurm.configured(
        "PreemptType=preempt/qos", f"PreemptMode={mode}", "PriorityWeightQOS=10000", "PreemptExemptTime=00:00:00"
    ):
        yield


@pytest.mark.conformance
@pytest.mark.parametrize("mode", ["REQUEUE", "CANCEL"])
def test_held_preemptor_starts_and_victims_survive(slurm: Slurm, mode: str) -> None:
    slurm.plugin(on=True)
    with preempting(slurm, mode), LiveBridge(slurm, f"preempt-{mode.lower()}", **QUICK) as bridge:
        low = slurm.burst(5, "-N1", "--exclusive", "-t3", "--qos=low", "--requeue", script="sleep 90")
        wait_until(lambda: list(slurm.states(low).values()).count("RUNNING") == 4, 60, "four run, one waits")
        waiting = next(job for job, state in slurm.states(low).items() if state == "PENDING")
        high = slurm.sbatch("-N2", "--exclusive", "-t3", "--qos=high", script="sleep 5")
        wait_until(lambda: slurm.states([high]).get(high) in ("RUNNING", "COMPLETED"), 60, "the preemptor runs")
        reasons = [step.why for step in bridge.transitions()[high]]
        assert "left to the cluster: may start by preempting jobs in QOS low" in reasons
        if mode == "CANCEL":
            wait_until(lambda: slurm.states([waiting]).get(waiting) == "RUNNING", 30, "the next job runs")
            assert not bridge.events("no_effect", "circuit_breaker_tripped")
            return
        again = [job for job in low if slurm.record(job)["Restarts"] == "1"]
        assert len(again) == 2
        for job in again:
            wait_until(lambda job=job: slurm.job(job).held, 30, "the bridge has taken it again")
            slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
        wait_until(lambda: "RUNNING" in slurm.states(again).values(), 60, "a victim runs again")
        assert not bridge.events("no_effect", "circuit_breaker_tripped")


@pytest.mark.parametrize("mode", ["REQUEUE", "CANCEL"])
def test_bridge_stops_job_that_loses_least_work(slurm: Slurm, mode: str) -> None:
    """Slurm would stop the first of two equal jobs. Stopping the second loses less work, because it started later."""
    slurm.plugin(on=True)
    settings = {"preemption": {"choose": True}, "options": {"site_policy": True}, **QUICK}
    with preempting(slurm, mode), LiveBridge(slurm, f"choose-{mode.lower()}", **settings) as bridge:
        options = ("-N2", "--exclusive", "-t3", "--qos=low", "--requeue")
        first = slurm.sbatch(*options, script="sleep 90")
        wait_until(lambda: slurm.states([first]).get(first) == "RUNNING", 60, "the first job runs")
        time.sleep(4)  # the second job has lost less work
        second = slurm.sbatch(*options, script="sleep 90")
        wait_until(lambda: slurm.states([second]).get(second) == "RUNNING", 60, "the second job runs")
        high = slurm.sbatch("-N2", "--exclusive", "-t3", "--qos=high", script="sleep 5")
        wait_until(lambda: slurm.states([high]).get(high) in ("RUNNING", "COMPLETED"), 90, "the preemptor runs")
        assert len(bridge.events("preemption")) == 1
        assert not bridge.events("preemption_ineffective", "preemption_dropped", "preemption_failed")
        assert slurm.states([first]) == {first: "RUNNING"}
        if mode == "REQUEUE":
            assert slurm.record(second)["Restarts"] == "1"
        assert "starting" in [step.after for step in bridge.transitions()[high]], "the bridge started it"
