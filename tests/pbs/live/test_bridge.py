"""The bridge in control of a queue on a real PBS server. The server's accounting log is checked."""

import json
import os
import random
import time
from pathlib import Path

import pytest

from tests.pbs.live.conftest import in_control
from tests.pbs.live.harness import LEFT, QUEUE, RACK, LiveBridge, Pbs, home, run, until

pytest.importorskip("cpsched_bridge.adapters.pbs", reason="the PBS adapter is not there")
MANY, KILLS, SHARED = 200, 20, 300


def test_jobs_start_once_on_free_vnodes(pbs: Pbs, bridge: LiveBridge) -> None:
    most = min(has["ncpus"] for has in pbs.vnodes().values())
    jobs = [pbs.submit(f"1:ncpus={1 + at % most}", 1) for at in range(12)]
    jobs += [pbs.submit("2:ncpus=1", 1, "-l", "place=vscatter"), pbs.submit("2:ncpus=1", 1, "-l", "place=pack:excl")]
    until(lambda: not pbs.jobs(), "all jobs are over", 120)
    assert pbs.judge().once(jobs) == []


def test_vnodes_are_never_overcommitted_while_pbs_starts_jobs(pbs: Pbs, bridge: LiveBridge) -> None:
    """A third of the jobs is left to PBS, whose scheduler starts them at any moment on the same vnodes."""
    most = min(has["ncpus"] for has in pbs.vnodes().values())
    left = (f"1:ncpus={most - 1}+1:ncpus=2", f"1:ncpus={most + 2}")
    jobs = []
    for at in range(SHARED):
        select = left[at % 2] if at % 3 == 0 else f"1:ncpus={1 + at % most}"
        jobs.append(pbs.submit(select, at % 4, walltime_s=60))
    until(lambda: not pbs.jobs(), f"all jobs are over\n{bridge.said()}", 1200)
    assert len([line for line in pbs.log() if ";S;" in line and f" queue={LEFT} " in line]) >= SHARED // 3
    assert pbs.judge().once(jobs) == []
    assert "job_gone" not in bridge.log_file.read_text()


def test_wide_job_runs_on_its_vnodes(pbs: Pbs, bridge: LiveBridge) -> None:
    vnodes = pbs.vnodes()
    least = min(has["ncpus"] for has in vnodes.values())
    job = pbs.submit(f"{len(vnodes)}:ncpus={least}", 2, "-l", "place=vscatter")
    until(lambda: pbs.state(job) == "R", "it runs")
    assert all(f"({name}:ncpus={least})" in pbs.jobs()[job]["exec_vnode"] for name in vnodes)
    until(lambda: not pbs.jobs(), "it is over")
    assert pbs.judge().once([job]) == []


def test_chunks_of_group_share_one_group(pbs: Pbs, bridge: LiveBridge) -> None:
    """The first vnode is a group of its own, all others are the other one."""
    vnodes = pbs.vnodes()
    groups = {name: "alone" if at == 0 else "others" for at, name in enumerate(vnodes)}
    if RACK not in run("qmgr", "-c", "list resource"):
        pbs.manage(f"create resource {RACK} type=string,flag=h")
    try:
        pbs.manage(*(f"set node {name} resources_available.{RACK}={value}" for name, value in groups.items()))
        least = min(has["ncpus"] for has in vnodes.values())
        wide, narrow = f"{len(vnodes) - 1}:ncpus={least}", "2:ncpus=1"
        jobs = [pbs.submit(wide if at % 3 else narrow, 1, "-l", f"place=free:group={RACK}") for at in range(9)]
        jobs += [pbs.submit(f"1:ncpus={least}", 1) for _ in range(3)]
        until(lambda: not pbs.jobs(), "all jobs are over", 120)
        assert pbs.judge(groups).once(jobs) == []
        assert [line for line in pbs.log() if f"group={RACK}" in line]
    finally:
        pbs.manage(*(f"unset node {name} resources_available.{RACK}" for name in groups))


def test_gpus_are_counted(pbs: Pbs, bridge: LiveBridge) -> None:
    gpus = {name: has["ngpus"] for name, has in pbs.vnodes().items() if has["ngpus"]}
    assert gpus, "a vnode needs resources_available.ngpus, a custom resource"
    jobs = [pbs.submit("1:ncpus=1:ngpus=1", 2) for _ in range(2 * sum(gpus.values()))]
    until(lambda: not pbs.jobs(), "all jobs are over", 120)
    assert pbs.judge().once(jobs) == []


def test_array_runs_subjob_by_subjob(pbs: Pbs, bridge: LiveBridge) -> None:
    array = pbs.submit("1:ncpus=1", 1, "-J", "1-6")
    until(lambda: not pbs.jobs(), "the array is over", 120)
    assert pbs.judge().once([array.replace("[]", f"[{at}]") for at in range(1, 7)]) == []


def test_rejected_subjob_of_started_array_is_retried(pbs: Pbs, tmp_path: Path) -> None:
    """A bridge that gives up after one failure: PBS does not move such an array, so no one else starts the subjob."""
    prologue, refuses = home() / "mom_priv" / "prologue", tmp_path / "refuses"
    if os.geteuid() or prologue.exists():
        pytest.skip("the host has a prologue of its own, or is not this account's")
    refuses.touch()
    prologue.write_text(f"#!/bin/sh\ncase $1 in *'[2]'*) [ ! -e {refuses} ] || exit 2;; esac\nexit 0\n")
    prologue.chmod(0o500)
    live = LiveBridge(tmp_path / "bridge", start={"timeout_s": 60, "max_failures": 1})
    try:
        with live:
            in_control(pbs, live)
            array = pbs.submit("1:ncpus=1", 40, "-J", "1-2")
            second = array.replace("[]", "[2]")

            def records(kind: str) -> list[str]:
                return [line for line in pbs.log() if f";{kind};{second};" in line]

            until(lambda: len(records("S")) > 2, "it is tried three times", 120)
            assert pbs.jobs()[array]["job_state"] == "B"
            assert '"still_managed"' in live.log_file.read_text()
            refuses.unlink()
            until(lambda: not pbs.jobs(), "the array is over", 240)
        assert len(records("E")) == 1
        assert {line.partition(" queue=")[2].partition(" ")[0] for line in records("S")} == {QUEUE}
    finally:
        prologue.unlink()


def test_keeps_holds_of_all_users(pbs: Pbs, bridge: LiveBridge) -> None:
    jobs: dict[str, str] = {}
    for kind in "uos":
        jobs[kind] = pbs.submit("1:ncpus=1", 1, "-h")
        if kind != "u":
            run("qhold", "-h", kind, jobs[kind])
            run("qrls", "-h", "u", jobs[kind])
    other = pbs.submit(sleep_s=1)
    until(lambda: not pbs.state(other), "another job is over")
    assert [pbs.state(job) for job in jobs.values()] == ["H", "H", "H"]
    for kind, job in jobs.items():
        run("qrls", "-h", kind, job)
    until(lambda: not pbs.jobs(), "all jobs are over", 120)
    assert pbs.judge().once([*jobs.values(), other]) == []


def test_requeued_job_runs_again(pbs: Pbs, bridge: LiveBridge) -> None:
    job = pbs.submit(sleep_s=6)
    until(lambda: pbs.jobs()[job].get("substate") == 42, "it runs")
    run("qrerun", job)
    until(lambda: not pbs.jobs(), "it is over", 120)
    judge = pbs.judge()
    assert (judge.once([job]), judge.requeues[job]) == ([], 1)


def test_no_job_starts_on_offline_vnode(pbs: Pbs, bridge: LiveBridge) -> None:
    away, *others = pbs.vnodes()
    pbs.manage(f"set node {away} state=offline")
    jobs = [pbs.submit(sleep_s=1) for _ in range(8)]
    until(lambda: not pbs.jobs(), "all jobs are over", 120)
    assert others
    assert pbs.judge().once(jobs) == []
    assert not [line for line in pbs.log() if any(f";S;{job};" in line for job in jobs) and f"({away}:" in line]


def test_queue_limit_is_respected(pbs: Pbs, bridge: LiveBridge) -> None:
    pbs.manage(f'set queue {QUEUE} max_run = "[u:PBS_GENERIC=2]"')
    time.sleep(2)
    jobs = [pbs.submit(sleep_s=2) for _ in range(6)]
    most = 0

    def over() -> bool:
        nonlocal most
        states = [job["job_state"] for job in pbs.jobs().values()]
        most = max(most, states.count("R"))
        return not states

    until(over, "all jobs are over", 120)
    assert most <= 2
    assert pbs.judge().once(jobs) == []


def test_reserved_vnodes_are_not_used(pbs: Pbs, bridge: LiveBridge) -> None:
    begin = time.localtime(time.time() + 61)
    wanted = ["-R", time.strftime("%H%M.%S", begin), "-D", "60", "-l", "select=1:ncpus=1", "-l", "place=excl"]
    id = pbs.as_user("pbs_rsub", *wanted).split()[0]
    try:
        until(lambda: "RESV_CONFIRMED" in run("pbs_rstat", "-F"), "the reservation stands")
        kept = run("pbs_rstat", "-F").partition("resv_nodes = (")[2].partition(":")[0]
        jobs = [pbs.submit(sleep_s=1, walltime_s=600) for _ in range(6)]
        until(lambda: not [job for job in jobs if pbs.state(job)], "all jobs are over", 120)
        assert not [line for line in pbs.log() if any(f";S;{job};" in line for job in jobs) and f"({kept}:" in line]
    finally:
        run("pbs_rdel", id)


def test_shrinkable_job_runs_as_long_as_possible(pbs: Pbs, bridge: LiveBridge) -> None:
    job = pbs.submit("1:ncpus=1", 1, "-l", "min_walltime=60,max_walltime=600", walltime_s=600)
    until(lambda: not pbs.jobs(), "it is over", 120)
    (began,) = [line for line in pbs.log() if f";S;{job};" in line]
    assert "Resource_List.walltime=00:10:00" in began
    assert pbs.judge().once([job]) == []


def test_shrinkable_job_ends_before_reservation_of_all_vnodes(pbs: Pbs, bridge: LiveBridge) -> None:
    vnodes = pbs.vnodes()
    least = min(has["ncpus"] for has in vnodes.values())
    begin = time.localtime(time.time() + 240)
    wanted = ["-l", f"select={len(vnodes)}:ncpus={least}", "-l", "place=vscatter:excl"]
    id = pbs.as_user("pbs_rsub", "-R", time.strftime("%H%M.%S", begin), "-D", "60", *wanted).split()[0]
    try:
        until(lambda: "RESV_CONFIRMED" in run("pbs_rstat", "-F"), "the reservation stands")
        job = pbs.submit("1:ncpus=1", 1, "-l", "min_walltime=60,max_walltime=600")
        long = pbs.submit("1:ncpus=1", 1, "-l", "min_walltime=400,max_walltime=600")
        until(lambda: not pbs.state(job), "it is over", 120)
        (began,) = [line for line in pbs.log() if f";S;{job};" in line]
        assert any(f"Resource_List.walltime=00:0{minutes}:00" in began for minutes in (1, 2, 3))
        assert pbs.state(long) == "Q"
    finally:
        run("pbs_rdel", id)
    until(lambda: not pbs.jobs(), "the other one is over, too", 120)
    assert pbs.judge().once([job, long]) == []


def test_held_job_has_less_eligible_time(pbs: Pbs, bridge: LiveBridge) -> None:
    before = next(iter(json.loads(run("qstat", "-B", "-f", "-F", "json"))["Server"].values()))
    vnodes = pbs.vnodes()
    wide = f"{len(vnodes)}:ncpus={min(has['ncpus'] for has in vnodes.values())}"
    pbs.manage("set server eligible_time_enable=True")
    try:
        blocker = pbs.submit(wide, 300, "-l", "place=vscatter")
        until(lambda: pbs.state(blocker) == "R", "the vnodes are taken")
        held = pbs.submit(wide, 1, "-l", "place=vscatter", "-h")
        time.sleep(2)
        other = pbs.submit(wide, 1, "-l", "place=vscatter")
        time.sleep(12)
        run("qrls", "-h", "u", held)
        time.sleep(4)
        run("qdel", blocker)
        until(lambda: not pbs.jobs(), "all jobs are over", 120)
        began = [line.split(";")[2] for line in pbs.log() if ";S;" in line]
        assert began == [blocker, other, held]
    finally:
        pbs.manage(f"set server eligible_time_enable={before.get('eligible_time_enable', 'False')}")


def test_stop_opens_queue_and_pbs_continues(pbs: Pbs, bridge: LiveBridge) -> None:
    bridge.stop()
    assert pbs.queues()[QUEUE]["started"] == "True"
    job = pbs.submit(sleep_s=1)
    until(lambda: not pbs.state(job), "PBS runs it")
    assert pbs.judge().once([job]) == []


def test_many_jobs_run_once_despite_many_kills(pbs: Pbs, tmp_path: Path) -> None:
    """The bridge is killed at random moments; the judge knows nothing of it."""
    rng = random.Random(1)
    live = LiveBridge(tmp_path / "bridge")
    live.start()
    in_control(pbs, live)
    jobs: list[str] = []
    kinds = (("1:ncpus=1",), ("1:ncpus=2:mem=100mb",), ("2:ncpus=1", "-l", "place=vscatter"), ("1:ncpus=3",),
             ("1:ncpus=2+1:ncpus=1",))  # fmt: skip
    kills = 0
    while len(jobs) < MANY or kills < KILLS:
        for _ in range(min(10, MANY - len(jobs))):
            select, *more = rng.choice(kinds)
            jobs.append(pbs.submit(select, rng.choice((0, 1, 2)), *more))
        if kills < KILLS:
            time.sleep(rng.uniform(0, 6))
            live.kill()
            kills += 1
            live.start()
    until(lambda: not pbs.jobs(), f"all jobs are over\n{live.said()}", 600)
    live.stop()
    assert kills == KILLS
    assert pbs.judge().once(jobs) == []
