"""Test faults that occur while a bridge works. Afterwards the ledger matches the cluster, and the fault is reported."""

from __future__ import annotations

import re
import time

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

QUICK = {"options": {"deadline_s": 5.0}, "cycle": {"max_backoff_s": 4.0}, "start": {"timeout_s": 6}}


def all_end(slurm: Slurm, jobs: list[str], timeout_s: float = 120) -> None:
    """Wait until all jobs have completed, and check that none ran twice."""
    slurm.wait_for_state(jobs, "COMPLETED", timeout_s)
    assert {job.restarts for job in slurm.wait_for_accounting(jobs).values()} == {0}


def agree(slurm: Slurm, bridge: LiveBridge) -> bool:
    """Return whether the ledger and the cluster agree about each job in the ledger."""
    queue, ledger = slurm.squeue(tasks=True), bridge.ledger()
    for label, entry in ledger.items():
        job = queue.get(label)
        if entry.state == "held" and not (job and job.held and not job.required_nodes):
            return False
        if entry.state == "running" and not (job and job.state in ("RUNNING", "COMPLETING")):
            return False
        if entry.state in ("starting", "rolling-back", "releasing", "holding"):
            return False
    return all(label in ledger for label, job in queue.items() if job.held and job.admin_comment == "bridge:wait")


def consistent_within_a_cycle(slurm: Slurm, bridge: LiveBridge) -> None:
    bridge.wait_for_rounds(2)
    wait_until(lambda: agree(slurm, bridge), 15, "ledger and cluster agree", every_s=0.5)


def test_controller_is_restarted_and_paused_during_burst(slurm: Slurm) -> None:
    slurm.plugin(on=True)
    with LiveBridge(slurm, "controller", **QUICK) as bridge:
        jobs = slurm.burst(30, "-n4", "-t1", script="sleep 2")
        slurm.restart("slurmctld")
        consistent_within_a_cycle(slurm, bridge)
        jobs += slurm.burst(30, "-n4", "-t1", script="sleep 2")
        slurm.signal("slurmctld", "slurmctld", "STOP")
        time.sleep(16)
        assert bridge.alive()
        assert bridge.metric("cpsched_last_success_timestamp_seconds") < time.time() - 10
        slurm.signal("slurmctld", "slurmctld", "CONT")
        slurm.wait_for_controller()
        consistent_within_a_cycle(slurm, bridge)
        all_end(slurm, jobs)
        assert {"backend_timeout", "backend_unavailable"} & set(bridge.events())
        assert bridge.metric('cpsched_events_total{kind="backend_timeout"}') >= 1
        assert bridge.metric('cpsched_cycles_total{result="backend_timeout"}') >= 1


def test_node_fails_with_running_jobs(slurm: Slurm) -> None:
    """Slurm requeues the jobs unheld, with their old pins and a two-minute delay. The bridge holds them again.

    An administrator then ends the delay, and the bridge starts the jobs on other nodes.
    """
    slurm.plugin(on=True)
    with LiveBridge(slurm, "node", **QUICK) as bridge:
        jobs = slurm.burst(4, "-N1", "-n8", "-t2", "--requeue", script="sleep 60")
        slurm.wait_for_state(jobs, "RUNNING", 30)
        node = slurm.job(jobs[0]).nodes
        there = [job for job in jobs if slurm.job(job).nodes == node]
        slurm.kill(node)

        def taken_up() -> bool:
            found = [slurm.job(job) for job in there]
            return all(job.held and not job.required_nodes for job in found)

        wait_until(taken_up, 90, f"the jobs of {node} are held again, without a pin", every_s=1.0)
        for job in there:
            slurm.scontrol("update", f"JobId={job}", "StartTime=now")
        slurm.wait_for_state(there, "RUNNING", 30)
        where = {job: slurm.job(job).nodes for job in there}
        assert node not in where.values()
        wait_until(lambda: agree(slurm, bridge), 15, "ledger and cluster agree", every_s=0.5)
        assert {job: bridge.ledger()[job].nodes for job in there} == {job: (name,) for job, name in where.items()}
        slurm.start(node)


def on_release(slurm: Slurm, job: str, command: str, timeout_s: int = 20) -> str:
    """Run a command as soon as a held job is released, and return the job's state after the command."""
    watch = f"""
for i in $(seq {timeout_s * 100}); do
    record=$(scontrol -o show job {job})
    case $record in
    *"Priority=0 "*) sleep 0.005 ;;
    *) {command}; break ;;
    esac
done
scontrol -o show job {job}
"""
    record = slurm.run("bash", "-s", stdin=watch, timeout_s=timeout_s + 30)
    return re.findall(r"JobState=(\S+)", record)[-1]


@pytest.mark.conformance
def test_node_is_drained_between_decision_and_start(slurm: Slurm) -> None:
    """The start fails. The job is held again without its pin, and starts when the node has returned."""
    slurm.plugin(on=True, begin_delay_s=0)
    with LiveBridge(slurm, "drain", **QUICK) as bridge:
        for _ in range(8):
            job = slurm.sbatch("-n2", "-t1", "-C", "cpu&rack1", script="sleep 1")
            state = on_release(slurm, job, "scontrol update NodeName=n1 State=DRAIN Reason=test")
            if state == "PENDING":
                break
            slurm.resume("n1")
            slurm.wait_for_state(job, "COMPLETED", 30)
        else:
            pytest.fail("Slurm started the job before the node was drained, eight times in a row")
        wait_until(lambda: "start_failed" in bridge.events(), 20, "the start has failed")
        wait_until(lambda: slurm.job(job).held and not slurm.job(job).required_nodes, 10, "held again without a pin")
        assert bridge.metric('cpsched_events_total{kind="start_failed"}') >= 1
        consistent_within_a_cycle(slurm, bridge)
        slurm.resume("n1")
        slurm.wait_for_state(job, "COMPLETED", 30)
        assert bridge.ledger()[job].nodes == ("n1",)


TIMES = re.compile(
    r" (LastSchedEval|StartTime|EndTime|AccrueTime|EligibleTime|RunTime|Scheduler|SuspendTime|Deadline)=\S+"
)
PLANS = re.compile(r" (Reason|SchedNodeList|NtasksPerTRES|Priority)=(\S+)")


def records(slurm: Slurm) -> dict[str, str]:
    """Return the records of unfinished jobs without times, and without Slurm's plans for jobs that are not held."""
    found = {}
    for line in slurm.run("scontrol", "-o", "show", "job").splitlines():
        if "JobState=PENDING" not in line and "JobState=RUNNING" not in line:
            continue
        text = TIMES.sub("", line)
        held = "Priority=0 " in text
        found[line.split()[0]] = text if held else PLANS.sub("", text)
    return found


def test_shadow_mode_changes_nothing_in_100_cycles(slurm: Slurm) -> None:
    slurm.plugin(on=False)
    running = slurm.burst(4, "-N1", "-n14", "-t5", script="sleep 300")
    slurm.wait_for_state(running, "RUNNING", 30)
    slurm.burst(3, "-N2", "-n20", "-t5", script="sleep 300")
    slurm.plugin(on=True, begin_delay_s=0)
    slurm.burst(6, "-n2", "-t5", script="sleep 300")
    slurm.sbatch("-H", "-n1", "-t5")
    slurm.sbatch("--array=0-9", "-n1", "-t5")
    slurm.sbatch("-w", "n2", "-n1", "-t5")
    slurm.sbatch("-d", f"afterok:{running[0]}", "-n1", "-t5")
    before = records(slurm)
    with LiveBridge(slurm, "shadow", mode="shadow", cycle={"interval_s": 0.1}) as bridge:
        bridge.wait_for_rounds(100, timeout_s=180)
        decided = bridge.query("journal", "select sum(starts) from rounds")[0][0]
    assert records(slurm) == before
    assert decided > 0, "the shadow would have started jobs"
    assert bridge.ledger() == {}
