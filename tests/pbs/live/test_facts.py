"""Check the facts on which the adapter and its stand-in rely against a real server, without a bridge."""

import json
import time

import pytest

from tests.pbs.live.harness import CLAIM, LEFT, QUEUE, RACK, CommandFailed, Pbs, run, until

pytest.importorskip("cpsched_bridge.adapters.pbs", reason="the PBS adapter is not there")

from cpsched_bridge.adapters.pbs.transport.pbs_commands import PbsCommands
from cpsched_bridge.adapters.pbs.transport.pbs_programs import PbsProgramRunner
from cpsched_bridge.adapters.pbs.transport.pbs_reader import PbsStateReader
from cpsched_bridge.errors import CommandRefused


@pytest.fixture
def closed(pbs: Pbs) -> Pbs:
    """The server, with the managed queue closed to PBS's own scheduler."""
    pbs.manage(f"set queue {QUEUE} started=False")
    return pbs


def first(pbs: Pbs) -> str:
    return next(iter(pbs.vnodes()))


def refusal(*command: str) -> tuple[int, str]:
    with pytest.raises(CommandFailed) as caught:
        run(*command)
    return caught.value.status, str(caught.value)


def test_scheduler_ignores_closed_queue_but_qrun_works(closed: Pbs) -> None:
    job = closed.submit()
    time.sleep(3)
    assert closed.state(job) == "Q"
    run("qrun", "-H", f"({first(closed)}:ncpus=1)", job)
    assert until(lambda: closed.jobs().get(job, {}).get("exec_vnode"), "it runs") == f"({first(closed)}:ncpus=1)"


@pytest.mark.parametrize("enabled", [False, True])
def test_opened_queue_is_served_at_next_scheduling_cycle(closed: Pbs, enabled: bool) -> None:
    """Opening it is a reason to look where eligible time is counted; saying that the server schedules is, anywhere."""
    server = next(iter(json.loads(run("qstat", "-B", "-f", "-F", "json"))["Server"].values()))
    closed.manage(f"set server eligible_time_enable={enabled}")
    try:
        job = closed.submit(sleep_s=30)
        time.sleep(8)
        closed.manage(f"set queue {QUEUE} started=True")
        if not enabled:
            time.sleep(3)
            assert closed.state(job) == "Q"
            closed.manage("set server scheduling=True")
        until(lambda: closed.state(job) == "R", "PBS starts it")
    finally:
        closed.manage(f"set server eligible_time_enable={server.get('eligible_time_enable', 'False')}")


def test_qmgr_runs_directives_until_one_fails(pbs: Pbs) -> None:
    """The bridge closes the queue of unmanaged jobs and reads the schedulers in one program."""
    programs = PbsProgramRunner()
    assert PbsCommands(programs).close_queue(LEFT)["default"].state
    assert pbs.queues()[LEFT]["started"] == "False"
    with pytest.raises(CommandRefused, match="Unknown queue"):
        programs.run_directives([f"set queue {n} enabled = False" for n in (QUEUE, "nowhere", LEFT)])
    assert [pbs.queues()[name]["enabled"] for name in (QUEUE, LEFT)] == ["False", "True"]
    assert PbsCommands(programs).open_queue(LEFT).is_scheduling
    assert pbs.queues()[LEFT]["started"] == "True"


def test_vnodes_show_later_reservation(pbs: Pbs) -> None:
    """The bridge lists the reservations again only if the vnodes show others."""
    begin = time.strftime("%H%M.%S", time.localtime(time.time() + 1800))
    vnodes = len(pbs.vnodes())
    wanted = ["-R", begin, "-D", "60", "-l", f"select={vnodes}:ncpus=1", "-l", "place=vscatter"]
    id = pbs.as_user("pbs_rsub", *wanted).split()[0]
    try:
        until(lambda: "RESV_CONFIRMED" in run("pbs_rstat", "-F"), "the reservation stands")
        assert [pbs.vnode(name)["resv"] for name in pbs.vnodes()] == [id] * vnodes
    finally:
        run("pbs_rdel", id)


def test_qrun_runs_held_job(closed: Pbs) -> None:
    job = closed.submit("1:ncpus=1", 30, "-h")
    run("qrun", "-H", f"({first(closed)}:ncpus=1)", job)
    assert closed.state(job) == "R"


def test_qrun_oversubscribes(closed: Pbs) -> None:
    vnode = first(closed)
    all_of_it = closed.vnodes()[vnode]["ncpus"]
    for _ in range(2):
        run("qrun", "-H", f"({vnode}:ncpus={all_of_it})", closed.submit(f"1:ncpus={all_of_it}", 30))
    assert int(closed.vnode(vnode)["resources_assigned"]["ncpus"]) == 2 * all_of_it


def test_job_started_with_too_few_chunks_returns(closed: Pbs) -> None:
    job = closed.submit("2:ncpus=1", 30)
    run("qrun", "-H", f"({first(closed)}:ncpus=1)", job)
    seen = []

    def again() -> bool:
        seen.append(closed.jobs()[job])
        return seen[-1].get("Exit_status") == -3 and seen[-1]["job_state"] == "Q"

    until(again, "its host refuses it, and it waits again")
    assert seen[-1]["run_count"] == 1
    for each in seen:
        assert each["job_state"] in "RQ" or (each["job_state"], each["Exit_status"]) == ("E", -3)


def test_subjobs_run_one_by_one(closed: Pbs) -> None:
    array = closed.submit("1:ncpus=1", 30, "-J", "1-3")
    second = array.replace("[]", "[2]")
    run("qrun", "-H", f"({first(closed)}:ncpus=1)", second)
    states = closed.jobs()
    assert (states[array]["job_state"], states[second]["job_state"]) == ("B", "R")
    assert states[array.replace("[]", "[1]")]["job_state"] == "Q"


def test_started_array_cannot_be_moved(closed: Pbs) -> None:
    array = closed.submit("1:ncpus=1", 30, "-J", "1-2")
    subjob = array.replace("[]", "[1]")
    run("qrun", "-H", f"({first(closed)}:ncpus=1)", subjob)
    until(lambda: closed.jobs()[subjob].get("substate") == 42, "its host has taken it on")
    run("qrerun", subjob)
    until(lambda: closed.state(subjob) == "Q", "it waits again")
    assert closed.state(array) == "B"
    assert refusal("qmove", LEFT, array) == (168, f"exit 168: qmove: Request invalid for state of job {array}")


def test_qrun_ignores_limits(closed: Pbs) -> None:
    closed.manage(f'set queue {QUEUE} max_run = "[u:PBS_GENERIC=1]"')
    jobs = [closed.submit(sleep_s=30) for _ in range(2)]
    for job in jobs:
        run("qrun", "-H", f"({first(closed)}:ncpus=1)", job)
    assert [closed.state(job) for job in jobs] == ["R", "R"]


def test_no_user_writes_lease_but_all_see_it(pbs: Pbs) -> None:
    pbs.manage(f'set server resources_available.{CLAIM} = "a:b:1:c"')
    server = next(iter(json.loads(run("qstat", "-B", "-f", "-F", "json"))["Server"].values()))
    assert server["resources_available"][CLAIM] == "a:b:1:c"
    if pbs.user:
        with pytest.raises(CommandFailed, match=r"insufficient permission|Unauthorized"):
            pbs.as_user("qmgr", "-c", f'set server resources_available.{CLAIM} = "x"')
        with pytest.raises(CommandFailed, match="insufficient permission"):
            pbs.submit("1:ncpus=1", 1, "-l", f"{CLAIM}=x")


def test_manager_writes_walltime_of_shrinkable_job(closed: Pbs) -> None:
    """`qrun` writes none: the caller has to."""
    wanted = ["-q", QUEUE, "-l", "select=1:ncpus=1", "-l", "min_walltime=60,max_walltime=600", "--", "/bin/sleep", "30"]
    job, other = (closed.as_user("qsub", "-o", "/dev/null", "-e", "/dev/null", *wanted).strip() for _ in range(2))
    wishes = closed.jobs()[job]["Resource_List"]
    assert ("walltime" in wishes, wishes["min_walltime"], wishes["max_walltime"]) == (False, "00:01:00", "00:10:00")
    run("qalter", "-l", "walltime=120", job)
    for each in (job, other):
        run("qrun", "-H", f"({first(closed)}:ncpus=1)", each)
    now = closed.jobs()
    assert now[job]["Resource_List"]["walltime"] == "00:02:00"
    assert "walltime" not in now[other]["Resource_List"]


def test_unheld_job_in_closed_queue_is_eligible(closed: Pbs) -> None:
    server = next(iter(json.loads(run("qstat", "-B", "-f", "-F", "json"))["Server"].values()))
    closed.manage("set server eligible_time_enable=True")
    try:
        waits, held = closed.submit(), closed.submit("1:ncpus=1", 1, "-h")
        array = closed.submit("1:ncpus=1", 1, "-J", "1-2")
        time.sleep(6)
        now = closed.jobs()
        assert "00:00:04" <= now[waits]["eligible_time"] <= "00:00:20"
        assert now[held]["eligible_time"] == "00:00:00"
        assert now[array]["eligible_time"] >= "00:00:04"
    finally:
        closed.manage(f"set server eligible_time_enable={server.get('eligible_time_enable', 'False')}")


def test_only_plain_list_prints_numeric_text_unchanged(pbs: Pbs) -> None:
    """JSON shows `07` as 7 and `null` as nothing, or quotes some of them, as the release goes."""
    if RACK not in run("qmgr", "-c", "list resource"):
        pbs.manage(f"create resource {RACK} type=string,flag=h")
    name, texts = first(pbs), ("7", "07", "007", "1e5", "null", "true", "[1]", "0x7")
    try:
        seen = set()
        for text in texts:
            pbs.manage(f"set node {name} resources_available.{RACK} = '{text}'")
            seen.add(PbsStateReader(PbsProgramRunner()).read().vnodes[name].available[RACK])
        assert seen == set(texts)
    finally:
        pbs.manage(f"unset node {name} resources_available.{RACK}")
