"""Advice on a real server: who may set job priorities, how PBS uses them, and a bridge in advise mode."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pbs.live.harness import POINTS, QUEUE, CommandFailed, LiveBridge, Pbs, run, until

pytest.importorskip("cpsched_bridge.adapters.pbs", reason="the PBS adapter is not there")


@pytest.fixture
def advised(pbs: Pbs) -> Iterator[Pbs]:
    """The server, whose scheduler sorts by points, with the resource that they stand in."""
    if POINTS not in run("qmgr", "-c", "list resource"):
        pbs.manage(f"create resource {POINTS} type=long,flag=r")
    try:
        pbs.manage(f'set server job_sort_formula = "{POINTS}"')
    except CommandFailed as error:
        pytest.skip(f"root alone may set a formula: {error}")
    yield pbs
    pbs.manage("unset server job_sort_formula")


def points(pbs: Pbs, id: str) -> str:
    return str(pbs.jobs()[id]["Resource_List"].get(POINTS, ""))


def advised_now(pbs: Pbs, jobs: list[str]) -> list[str]:
    """Those of the jobs that wait and have points."""
    now = pbs.jobs()
    return [job for job in jobs if job in now and str(now[job]["Resource_List"].get(POINTS, "0")) != "0"]


def block(pbs: Pbs, sleep_s: float = 300) -> str:
    """A job that has all vnodes."""
    vnodes = pbs.vnodes()
    least = min(has["ncpus"] for has in vnodes.values())
    job = pbs.submit(f"{len(vnodes)}:ncpus={least}", sleep_s, "-l", "place=vscatter:excl")
    until(lambda: pbs.state(job) == "R", "the vnodes are taken")
    return job


def test_only_managers_write_points_and_all_users_see_them(advised: Pbs) -> None:
    block(advised)
    job = advised.submit()
    run("qalter", "-l", f"{POINTS}=7", job)
    assert points(advised, job) == "7"
    if not advised.user:
        pytest.skip("jobs are this account's own, which is a manager")
    for words in (["qalter", "-l", f"{POINTS}=9", job], ["qalter", "-l", f"{POINTS}=", job]):
        with pytest.raises(CommandFailed, match="insufficient permission"):
            advised.as_user(*words)
    with pytest.raises(CommandFailed, match="insufficient permission"):
        advised.submit("1:ncpus=1", 1, "-l", f"{POINTS}=9")
    assert points(advised, job) == "7"


def test_removed_points_are_0(advised: Pbs) -> None:
    """There is no way to have the resource gone from the job."""
    block(advised)
    jobs = [advised.submit() for _ in range(2)]
    run("qalter", "-l", f"{POINTS}=7", *jobs)
    assert [points(advised, job) for job in jobs] == ["7", "7"]
    run("qalter", "-l", f"{POINTS}=0", jobs[0])
    run("qalter", "-l", f"{POINTS}=", jobs[1])
    assert [points(advised, job) for job in jobs] == ["0", "0"]


def test_refused_job_does_not_prevent_points_of_others(advised: Pbs) -> None:
    running = block(advised)
    one, other = advised.submit(), advised.submit()
    with pytest.raises(CommandFailed, match="Cannot modify attribute while job running"):
        run("qalter", "-l", f"{POINTS}=7", one, running, other)
    assert [points(advised, job) for job in (one, other)] == ["7", "7"]
    with pytest.raises(CommandFailed, match="Unknown Job Id"):
        run("qalter", "-l", f"{POINTS}=7", "999999." + one.split(".", 1)[1])


def test_array_has_one_value_even_with_started_subjobs(advised: Pbs) -> None:
    least = min(has["ncpus"] for has in advised.vnodes().values())
    array = advised.submit(f"1:ncpus={least}", 60, "-J", f"1-{2 * len(advised.vnodes())}")
    until(lambda: advised.state(array) == "B", "the array has begun")
    run("qalter", "-l", f"{POINTS}=7", array)
    assert points(advised, array) == "7"
    with pytest.raises(CommandFailed, match="Invalid request"):
        run("qalter", "-l", f"{POINTS}=8", array.replace("[]", "[2]"))


def test_pbs_starts_jobs_in_order_of_points(advised: Pbs) -> None:
    """As many as there are vnodes begin; of jobs submitted alike, the one with points is the first of them."""
    blocker = block(advised)
    jobs = [advised.submit(f"1:ncpus={least(advised)}", 30) for _ in range(len(advised.vnodes()) + 1)]
    run("qalter", "-l", f"{POINTS}=50", jobs[-1])
    run("qdel", blocker)
    until(lambda: len(in_order(advised, jobs)) == len(advised.vnodes()), "the vnodes are taken")
    assert in_order(advised, jobs) == [jobs[-1], *jobs[:-2]]


def least(pbs: Pbs) -> int:
    return min(has["ncpus"] for has in pbs.vnodes().values())


def in_order(pbs: Pbs, jobs: list[str]) -> list[str]:
    """Jobs in the order in which PBS has started them."""
    found = [line.split(";")[2] for line in pbs.log() if ";S;" in line]
    return [job for job in found if job in jobs]


def an_adviser(folder: Path) -> LiveBridge:
    return LiveBridge(
        folder, mode="advise", policy={"dispatcher": "list-sjf", "predictor": "walltime"}, advise={"every_s": 2}
    )


def test_advising_bridge_reverses_order_and_stop_removes_points(advised: Pbs, tmp_path: Path) -> None:
    """Shortest walltime first; a kill leaves points and nothing else, and a stop takes all of them off."""
    blocker = block(advised)
    wide = f"{len(advised.vnodes())}:ncpus={least(advised)}"
    jobs = [advised.submit(wide, 1, "-l", "place=vscatter", walltime_s=900 - 60 * at) for at in range(6)]
    live = an_adviser(tmp_path / "bridge")
    live.start()

    def pointed() -> list[str]:
        return advised_now(advised, jobs)

    try:
        until(lambda: len(pointed()) >= 5, f"jobs have points\n{live.said()}", 240)
        assert advised.queues()[QUEUE]["started"] == "True"
        live.kill()
        assert len(pointed()) >= 5
        live.start()
        until(lambda: live.log_file.read_text().count('"begun"') == 2, "the next one has begun", 240)
        time.sleep(5)
        assert len(pointed()) >= 5
        run("qdel", blocker)
        until(lambda: len(in_order(advised, jobs)) == 3, "three have run", 120)
        live.stop()
        waiting = {id for id, job in advised.jobs().items() if job["job_state"] == "Q"}
        assert not waiting & set(pointed())
        until(lambda: not advised.jobs(), "all jobs are over", 120)
    finally:
        live.stop()
    assert in_order(advised, jobs)[:3] == jobs[:2:-1]
    assert advised.judge().once(jobs) == []


def test_release_all_removes_points_of_dead_bridge(advised: Pbs, tmp_path: Path) -> None:
    block(advised)
    wide = f"{len(advised.vnodes())}:ncpus={least(advised)}"
    jobs = [advised.submit(wide, 1, "-l", "place=vscatter", walltime_s=900 - 60 * at) for at in range(4)]
    theirs = advised.submit(wide, 1, "-l", "place=vscatter")
    run("qalter", "-l", f"{POINTS}=7777", theirs)
    live = an_adviser(tmp_path / "bridge")
    live.start()
    try:
        until(lambda: advised_now(advised, jobs), f"jobs have points\n{live.said()}", 240)
    finally:
        live.kill()
    code = "from cpsched_bridge.program.cli import main; main()"
    command = [sys.executable, "-c", code, "release-all", "--force", "--config", str(live.config)]
    subprocess.run(command, check=True, timeout=120)
    assert advised_now(advised, jobs) == []
    assert points(advised, theirs) == "7777"
