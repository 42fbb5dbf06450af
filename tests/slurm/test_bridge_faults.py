"""Test faults and changes of the cluster while a bridge works: no job is lost, and the ledger matches the cluster."""

from __future__ import annotations

import re
import time

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

pytestmark = pytest.mark.usefixtures("plugin_on")

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
    with LiveBridge(slurm, "controller", **QUICK) as bridge:
        jobs = slurm.burst(30, "-n4", "-t1", script="sleep 2")
        slurm.restart("slurmctld")
        consistent_within_a_cycle(slurm, bridge)
        jobs += slurm.burst(30, "-n4", "-t1", script="sleep 2")
        slurm.pause("slurmctld")

        def is_unreadable() -> bool:
            timeouts = bridge.metric('cpsched_cycles_total{result="backend_timeout"}')
            return timeouts >= 1 and bridge.metric("cpsched_last_success_timestamp_seconds") < time.time() - 10

        wait_until(is_unreadable, 60, "a cycle whose reading timed out", every_s=1.0)
        assert bridge.alive()
        slurm.unpause("slurmctld")
        slurm.wait_for_controller()
        consistent_within_a_cycle(slurm, bridge)
        all_end(slurm, jobs)
        assert bridge.metric('cpsched_events_total{kind="backend_timeout"}') >= 1


def test_node_fails_with_running_jobs(slurm: Slurm) -> None:
    """Slurm requeues the jobs unheld, with their old pins and a two-minute delay. The bridge holds them again.

    An administrator then ends the delay, and the bridge starts the jobs on other nodes.
    """
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
        wait_until(lambda: bridge.events("start_failed"), 20, "the start has failed")
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


@pytest.mark.parametrize("service", ["slurmdbd", "mariadb"])
def test_accounting_outage_with_bridge(slurm: Slurm, service: str) -> None:
    """Jobs run without accounting, and the controller delivers their records when accounting is back."""
    with LiveBridge(slurm, f"without-{service}", **QUICK) as bridge:
        with slurm.without(service):
            jobs = slurm.burst(6, "-n2", "-t1", script="sleep 1")
            slurm.wait_for_state(jobs, "COMPLETED", 60)
        bridge.wait_for_rounds(2)
        assert {bridge.ledger()[job].state for job in jobs} <= {"running", "ended"}
    wait_until(
        lambda: [j.state for j in slurm.sacct(jobs).values()] == ["COMPLETED"] * 6, 90, "accounting has all", 1.0
    )


def test_bridge_starts_without_accounting(slurm: Slurm) -> None:
    bridge = LiveBridge(slurm, "start-without", **{**QUICK, "options": {}})
    with slurm.without("slurmdbd"):
        bridge.start(wait=False)
        try:
            job = slurm.sbatch("-n2", "-t1", script="sleep 1")
            slurm.wait_for_state(job, "COMPLETED", 50)
            assert job in bridge.ledger(), "it was the bridge that started it"
        finally:
            bridge.stop()
            print(f"bridge log, its end:\n{bridge.log()[-4000:]}")


def test_many_reconfigurations_lose_no_job(slurm: Slurm) -> None:
    with LiveBridge(slurm, "storm", **QUICK) as bridge:
        jobs = slurm.burst(10, "-n2", "-t1", script="sleep 1")
        for _ in range(8):
            slurm.run("scontrol", "reconfigure", check=False)
            time.sleep(0.5)
        slurm.wait_for_controller()
        jobs += slurm.burst(10, "-n2", "-t1", script="sleep 1")
        bridge.wait_for_rounds(2)
        all_end(slurm, jobs)


def test_flapping_node_loses_no_job(slurm: Slurm) -> None:
    """All jobs end, on any nodes, although a node goes down and up several times."""
    with LiveBridge(slurm, "flap", **QUICK) as bridge:
        jobs: list[str] = []
        for _ in range(3):
            jobs += slurm.burst(4, "-n4", "-t1", "--requeue", script="sleep 1")
            slurm.scontrol("update", "NodeName=n2", "State=DOWN", "Reason=flap")
            time.sleep(1)
            # The node may have registered and resumed by itself.
            slurm.run("scontrol", "update", "NodeName=n2", "State=RESUME", check=False)
        wait_until(lambda: all_over_or_due(slurm, jobs), 120, "all jobs have run, or wait for Slurm's two minutes", 1.0)
        bridge.wait_for_rounds(2)
        assert not bridge.events("circuit_breaker_tripped")


def all_over_or_due(slurm: Slurm, jobs: list[str]) -> bool:
    """Return whether all jobs have completed, except those that Slurm requeued with a delay of two minutes."""
    seen = slurm.squeue()
    return all(seen[j].state == "COMPLETED" or slurm.record(j).get("Restarts", "0") != "0" for j in jobs if j in seen)


@pytest.mark.conformance
def test_maintenance_reservation_made_while_jobs_flow(slurm: Slurm) -> None:
    """Reserved nodes get no new jobs, and running jobs continue on them."""
    with LiveBridge(slurm, "maintenance", **QUICK) as bridge:
        running = slurm.burst(4, "-N1", "-n8", "-t2", script="sleep 15")
        slurm.wait_for_state(running, "RUNNING", 30)
        slurm.reserve("window", "Nodes=n1,n2", "Flags=MAINT,IGNORE_JOBS")
        jobs = slurm.burst(8, "-n4", "-t1", script="sleep 1")
        slurm.wait_for_state([*running, *jobs], "COMPLETED", 90)
        assert {node for job in slurm.wait_for_accounting(jobs).values() for node in job.nodes} <= {"n3", "n4"}
        slurm.scontrol("delete", "ReservationName=window")
        late = slurm.sbatch("-n2", "-t1", "-C", "cpu", script="sleep 1")
        slurm.wait_for_state(late, "COMPLETED", 60)
        assert not bridge.events("circuit_breaker_tripped")


def test_partition_is_down_and_up_again(slurm: Slurm) -> None:
    """Jobs in the partition wait until it is up again, and jobs in other partitions run."""
    with LiveBridge(slurm, "partition", **QUICK) as bridge, slurm.partition("gpu", "DOWN"):
        bridge.wait_for_rounds(2)
        waits, runs = slurm.sbatch("-p", "gpu", "-n1", "-t1"), slurm.sbatch("-n1", "-t1")
        slurm.wait_for_state(runs, "COMPLETED", 30)
        assert slurm.states([waits]) == {waits: "PENDING"}
        slurm.scontrol("update", "PartitionName=gpu", "State=UP")
        slurm.wait_for_state(waits, "COMPLETED", 30)


def test_job_starts_on_cpus_of_suspended_job_that_stays_in_ledger(slurm: Slurm) -> None:
    with LiveBridge(slurm, "gives", **QUICK) as bridge:
        first = slurm.sbatch("-N4", "-n64", "-t5", "--mem=100", script="sleep 20")
        slurm.wait_for_state(first, "RUNNING", 30)
        slurm.scontrol("suspend", first)
        slurm.wait_for_state(first, "SUSPENDED", 10)
        second = slurm.sbatch("-N4", "-n64", "-t5", "--mem=100", script="sleep 5")
        slurm.wait_for_state(second, "COMPLETED", 60)
        assert "started on the planned nodes" in [step.why for step in bridge.transitions()[second]]
        assert slurm.record(first)["JobState"] == "SUSPENDED"
        assert bridge.ledger()[first].state == "running"
        slurm.scontrol("resume", first)
        all_end(slurm, [first])
