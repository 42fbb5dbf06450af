"""The whole bridge with a stand-in for PBS: the next cycle after each kind of event."""

import random
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("cpsched_bridge.adapters.pbs", reason="the PBS adapter is not there")

from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.adapters.pbs.pbs_objects import LEASE_RESOURCE
from cpsched_bridge.ports import CANNOT_BE_RELEASED
from cpsched_bridge.store.journal_reader import BACKOFF_KIND
from tests.pbs.commands import Fault
from tests.pbs.server import RUNS, Refused
from tests.pbs.world import LEFT, QUEUE, World


@pytest.fixture
def world(tmp_path):
    """A bridge in control, whose queue is closed to PBS's own scheduler."""
    found = World(tmp_path, random.Random(1))
    found.close()
    found.server.submit(runs_s=1, queue=QUEUE)
    cycles(found, 6)
    assert not found.server.jobs
    return found


def cycles(world, count):
    return [world.cycle() for _ in range(count)]


def runs(world):
    return {job.id for job in world.server.jobs.values() if job.state in RUNS}


def told(world, program="qrun"):
    return [argv for argv in world.commands.asked if argv[0] == program]


def test_group_job_waits_for_one_group_and_takes_first_free(world):
    """Vnodes 0 and 1 are in one rack, 2 in the other."""
    blocks = [world.server.submit("1:ncpus=3", runs_s=at, queue=QUEUE) for at in (30, 30, 10)]
    for at, block in enumerate(blocks):
        world.server.run(block, f"(vm[{at}]:ncpus=3)")
    job = world.server.submit("2:ncpus=2", place="free:group=rack", runs_s=3, queue=QUEUE)
    cycles(world, 8)
    assert world.server.jobs[job].state == "Q", "two vnodes of different racks have room"
    cycles(world, 8)
    placed = next(line for line in world.server.log if f";S;{job};" in line)
    assert "exec_vnode=(vm[2]:ncpus=2)+(vm[2]:ncpus=2)" in placed
    assert world.calm() == []


def test_start_in_one_group_stays_if_another_becomes_free(world):
    """Between the reading that decides and the one before the start a smaller group becomes free."""
    block = world.server.submit("1:ncpus=3", runs_s=60, queue=QUEUE)
    world.server.run(block, "(vm[2]:ncpus=3)")
    cycles(world, 2)
    job = world.server.submit("2:ncpus=2", place="free:group=rack", runs_s=3, queue=QUEUE)
    between(world, lambda: world.server.delete(block))
    cycles(world, 2)
    assert runs(world) == {job}
    assert {name for name, _ in world.server.jobs[job].placed} <= {"vm[0]", "vm[1]"}


def test_job_rejected_by_host_has_not_run_while_exiting(world):
    """For a moment it exits (state E) with its vnodes, and then waits again: that is a failed start, not a run."""
    job = world.server.submit("1:ncpus=4", runs_s=30, queue=QUEUE)
    world.server.refused.add(job)
    reports = cycles(world, 2)
    assert world.server.jobs[job].state == "E"
    reports += cycles(world, 8)
    assert (runs(world), world.server.jobs[job].run_count) == ({job}, 1)
    assert bridge_events(reports).count("start_failed") == 1


def bridge_events(reports):
    return [each.kind for report in reports for each in report.bridge_events]


def test_walltime_change_of_running_job_is_no_event(world):
    job = world.server.submit("1:ncpus=2:mem=1gb", runs_s=30, queue=QUEUE)
    other = world.server.submit(runs_s=30, queue=QUEUE, between_s=(60, 900))
    reports = cycles(world, 4)
    world.server.alter_walltime(job, 7200)
    reports += cycles(world, 4)
    assert runs(world) == {job, other}
    assert "started_elsewhere" not in bridge_events(reports)


def vnode_goes(world):
    """An operator deletes the vnode of a job that runs."""
    job = world.server.submit("1:ncpus=4", runs_s=60, queue=QUEUE)
    cycles(world, 3)
    del world.server.vnodes[world.server.jobs[job].placed[0][0]]


def walltime_beyond_all(world):
    """PBS itself runs a job whose walltime no program can print as a time."""
    world.server.submit(runs_s=60, queue=LEFT, walltime_s=10**17)
    world.server.tick()


@pytest.mark.parametrize("happens", [vnode_goes, walltime_beyond_all])
def test_unreadable_running_job_does_not_prevent_decisions(world, happens):
    happens(world)
    job = world.server.submit(runs_s=30, queue=QUEUE)
    assert {report.result for report in cycles(world, 3)} == {"ok"}
    assert (job in runs(world), world.server.wrongs) == (True, [])


def test_queue_deleted_before_start_starts_nothing(world):
    """And its jobs are the bridge's again when it is there again."""
    job = world.server.submit(runs_s=30, queue=QUEUE)
    queue = world.server.queues[QUEUE]
    between(world, lambda: world.server.queues.pop(QUEUE))
    before = len(told(world))
    report = world.bridge().cycle()
    assert (report.result, len(told(world))) == ("ok", before)
    assert "start_refused" in bridge_events([report])
    world.server.queues[QUEUE] = queue
    cycles(world, 12)
    assert runs(world) == {job}


def test_vnode_renamed_before_start_gets_no_job(world):
    jobs = [world.server.submit("1:ncpus=4", runs_s=3, queue=QUEUE) for _ in range(3)]

    def rename():
        vnode = world.server.vnodes.pop("vm[1]")
        vnode.name = "new"
        world.server.vnodes["new"] = vnode

    between(world, rename)
    assert {report.result for report in cycles(world, 2)} == {"ok"}
    assert not [argv for argv in told(world)[1:] if "vm[1]" in argv[2]]
    cycles(world, 20)
    assert (set(jobs) - world.server.past.keys(), world.server.wrongs) == (set(), [])


@pytest.mark.parametrize("jump_s", [-3600, 10**7])
def test_clock_jump_starts_nothing_twice(world, jump_s):
    jobs = [world.server.submit("1:ncpus=4", runs_s=4, queue=QUEUE) for _ in range(9)]
    cycles(world, 3)
    world.server.now_s += jump_s
    assert {report.result for report in cycles(world, 6)} == {"ok"}
    for job in world.server.jobs.values():
        job.start_s = min(job.start_s, world.server.now_s)
    cycles(world, 60)
    assert (set(jobs) - world.server.past.keys(), world.calm()) == (set(), [])


def between(world, event):
    """`event` happens when the bridge has read all there is to decide by, before it sends the command."""
    answer = world.commands.query

    def ask(commands, until_s=None):
        found = answer(commands, until_s)
        if "vnodes" in commands:
            world.commands.query = answer
            event()
        return found

    world.commands.query = ask


def test_vnode_kept_by_refused_start_is_unused_and_reported(world):
    server = world.server
    resident, alone = server.submit(queue=LEFT), server.submit("2:ncpus=1", queue=LEFT, place="pack:excl", holds="u")
    server.run(resident, "(vm[0]:ncpus=1)")
    with pytest.raises(Refused, match="temporarily unavailable"):
        server.run(alone, "(vm[0]:ncpus=1)+(vm[0]:ncpus=1)")
    server.delete(resident)
    server.wrongs.clear()
    for _ in range(9):
        server.submit("1:ncpus=2", runs_s=3, queue=QUEUE)
    cycles(world, 20)
    assert set(server.jobs) == {alone}
    assert not [argv for argv in told(world)[1:] if "vm[0]" in argv[2]]
    backend = PbsBackend(world.commands, (QUEUE,), LEFT)
    assert next(each.detail for each in backend.run_checks() if each.name == "vnodes").startswith(
        "vm[0]: job-exclusive"
    )
    server.run(alone, "(vm[0]:ncpus=1)+(vm[0]:ncpus=1)")
    server.tick(12)
    assert server.states("vm[0]") == "free"


def test_subjob_startable_only_by_bridge_is_retried_rarely(world):
    """PBS moves no array that has begun, and leaves its closed queue alone."""
    array = world.server.submit(runs_s=400, queue=QUEUE, array=range(2))
    never = array.replace("[]", "[1]")
    world.commands.faults += [Fault(lambda argv: argv[0] == "qrun" and argv[-1] == never, "unreached")] * 5
    tried, kinds = [], Counter()
    for second in range(300):
        before = len(told(world))
        report = world.cycle()
        kinds.update(each.kind for each in report.bridge_events)
        tried += [second for argv in told(world)[before:] if argv[-1] == never]
    assert runs(world) == {array.replace("[]", "[0]"), never}
    assert len(tried) == 6
    pauses = np.diff(tried)
    assert ((pauses[:-1] <= pauses[1:]).all(), pauses[-1] < 150) == (True, True)
    assert (told(world, "qmove"), kinds["unmanaged"], world.server.wrongs) == ([], 0, [])
    assert kinds["still_managed"] == 3, "from the third failure on, after which others are left"


def test_reason_of_retried_subjob_is_reported(world):
    never = world.server.submit(runs_s=400, queue=QUEUE, array=range(2)).replace("[]", "[1]")
    world.commands.faults += [Fault(lambda argv: argv[0] == "qrun" and argv[-1] == never, "unreached")] * 5
    for _ in range(40):
        report = world.cycle()
    (aside,) = world.bridge().journal.list_unscheduled_jobs(BACKOFF_KIND)
    assert (aside.label, aside.reason.endswith(CANNOT_BE_RELEASED)) == (never.partition(".")[0], True)
    assert len(report.backoff.reasons) == 1


def test_moved_job_belongs_to_pbs(world):
    blocks = [world.server.submit("1:ncpus=4", runs_s=8, queue=QUEUE) for _ in range(3)]
    cycles(world, 2)
    job = world.server.submit(runs_s=3, queue=QUEUE)
    world.server.move(job, LEFT)
    cycles(world, 20)
    assert (runs(world), sorted(argv[-1] for argv in told(world)[1:])) == (set(), blocks)


def test_missing_server_only_fails_cycles(world):
    job = world.server.submit(runs_s=3, queue=QUEUE)
    world.server.down = True
    assert {report.result for report in cycles(world, 2)} == {"backend_unavailable"}
    world.server.down = False
    world.pace.at_s += 300
    cycles(world, 8)
    assert job in world.server.past or job in runs(world)


def test_stop_opens_queue_and_pbs_continues_at_once(world):
    for _ in range(3):
        world.server.submit("1:ncpus=4", runs_s=30, queue=QUEUE)
    cycles(world, 2)
    waiting = world.server.submit("1:ncpus=4", runs_s=1, queue=QUEUE, holds="u")
    world.stop()
    assert world.server.queues[QUEUE].started
    assert "run=released" in bytes.fromhex(world.server.values[LEASE_RESOURCE]).decode()
    world.server.release(waiting)
    world.server.tick(60)
    assert waiting in world.server.past
