"""Test SIGKILL of the bridge: no job is lost, started twice or held forever. Without a restart, Slurm takes over."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import KILLS, TRANSPORT, Slurm, wait_until

pytestmark = pytest.mark.usefixtures("plugin_on")


def starts_of(slurm: Slurm, log: str) -> dict[str, int]:
    """Return how often each job's script ran, by the word that the script logs."""
    return Counter(slurm.run("sh", "-c", f"cat {log} 2>/dev/null || true").split())


def test_kills_during_burst_lose_and_repeat_no_job(slurm: Slurm) -> None:
    """The bridge is killed `CPSCHED_SIGKILLS` times (default 10) among single-node jobs, wide jobs and array tasks."""
    log = f"/home/alice/starts-{time.monotonic_ns()}"
    name = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
    note = f"echo {name} >>{log}; sleep 2"
    bridge = LiveBridge(slurm, "crash")
    choose = random.Random(4)
    jobs: list[str] = []
    bridge.start()
    for kill in range(KILLS):
        jobs += slurm.burst(6, "-n4", "-t1", script=note)
        array = slurm.sbatch("--array=1-6", "-n4", "-t1", script=note)
        jobs += [f"{array}_{task}" for task in range(1, 7)]
        if kill % 2 == 0:
            jobs += slurm.burst(1, "-N2", "-n4", "-t1", script=note)
        time.sleep(choose.uniform(0.0, 1.5))
        bridge.kill("KILL")
        bridge.start(wait=kill % 4 != 0 or kill == KILLS - 1)  # most kills hit a busy bridge
        time.sleep(choose.uniform(0.0, 2.0))
    try:
        slurm.wait_until_empty(180 + 10 * KILLS)
        bridge.wait_for_rounds(2)
        ran = slurm.sacct({job.partition("_")[0] for job in jobs})
        print(f"{len(jobs)} jobs and tasks through {KILLS} kills")
        assert ran.keys() == set(jobs)
        assert {job: each.state for job, each in ran.items() if each.state != "COMPLETED"} == {}
        assert {job: each.restarts for job, each in ran.items() if each.restarts} == {}
        assert starts_of(slurm, log) == dict.fromkeys(jobs, 1)
        ledger = bridge.ledger()
        assert {ledger[job].state for job in jobs if job in ledger} == {"ended"}
        alive = bridge.shell("pgrep -f '[t]ransport.pyslurm.pyslurm_worker' | wc -l").strip()
        expected = "1" if TRANSPORT == "pyslurm" else "0"
        assert alive == expected, f"{alive} pyslurm processes: those of the killed bridges live on"
    finally:
        bridge.stop()


DEADLY = """#!/bin/sh
[ $# -eq 0 ] || exec /usr/bin/scontrol "$@"
while IFS= read -r line; do
    case $line in
        "release "*) kill -KILL "$(cat {state}/pid)"; exit ;;
        *" Partition=bridge:start"*) line="${{line%%:start*}}:unknown${{line#*:start}}" ;;
    esac
    printf '%s\\n' "$line"
done | /usr/bin/scontrol
"""
"""A scontrol that kills the bridge at the first release, and makes the plugin reject a start in one change."""


@pytest.mark.conformance
@pytest.mark.skipif(TRANSPORT != "cli", reason="pyslurm pins and releases in one change: nothing is between")
def test_kill_between_pin_and_release_starts_each_job_once(slurm: Slurm) -> None:
    log = f"/home/alice/starts-{time.monotonic_ns()}"
    note = f"echo $SLURM_JOB_ID >>{log}; sleep 2"
    bridge = LiveBridge(slurm, "between")
    bridge.shell(f"mkdir {bridge.state}/bin; cat >{bridge.state}/bin/scontrol; chmod +x {bridge.state}/bin/scontrol",
                 stdin=DEADLY.format(state=bridge.state))  # fmt: skip
    bridge.start(environment=f"PATH={bridge.state}/bin:$PATH")
    jobs = [*slurm.burst(3, "-n2", "-t1", script=note), slurm.sbatch("-N2", "-n4", "-t1", script=note)]
    wait_until(lambda: not bridge.alive(), 30, "the bridge was killed at a release")
    pinned = [job for job in jobs if slurm.job(job).required_nodes]
    assert len(pinned) == 1, "pinned, and none of the others was touched"
    assert slurm.job(pinned[0]).held
    with bridge:
        slurm.wait_for_state(jobs, "COMPLETED", 60)
        ran, ledger = slurm.wait_for_accounting(jobs), bridge.ledger()
        assert {job.restarts for job in ran.values()} == {0}
        assert starts_of(slurm, log) == dict.fromkeys(jobs, 1)
        assert {job: ran[job].nodes for job in jobs} == {job: ledger[job].nodes for job in jobs}
