"""The whole bridge beside a stand-in for PBS: what the next cycle does about whatever happens."""

import random
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("cpsched_bridge.adapters.pbs", reason="the PBS adapter is not there")

from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.ports import RELEASE_POINTLESS
from cpsched_bridge.store.journal_reader import BACKED_OFF
from tests.pbs.commands import Fault
from tests.pbs.server import RUNS, Queue, Refused
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


def test_a_job_with_a_group_waits_for_one_group_and_takes_the_other_if_that_has_room_first(world):
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


def test_a_start_in_one_group_stands_though_the_other_has_room_meanwhile(world):
    """Between the reading that decides and the one before the start a smaller group becomes free."""
    block = world.server.submit("1:ncpus=3", runs_s=60, queue=QUEUE)
    world.server.run(block, "(vm[2]:ncpus=3)")
    cycles(world, 2)
    job = world.server.submit("2:ncpus=2", place="free:group=rack", runs_s=3, queue=QUEUE)
    between(world, lambda: world.server.delete(block))
    cycles(world, 2)
    assert runs(world) == {job}
    assert {name for name, _ in world.server.jobs[job].placed} <= {"vm[0]", "vm[1]"}


def test_a_job_that_its_host_refuses_has_not_run_while_it_exits(world):
    """For a moment it exits (state E) with its vnodes, and then waits again: that is a failed start, not a run."""
    job = world.server.submit("1:ncpus=4", runs_s=30, queue=QUEUE)
    world.server.refused.add(job)
    reports = cycles(world, 2)
    assert world.server.jobs[job].state == "E"
    reports += cycles(world, 8)
    assert (runs(world), world.server.jobs[job].run_count) == ({job}, 1)
    assert happenings(reports).count("start_failed") == 1


def happenings(reports):
    return [each.kind for report in reports for each in report.happenings]


def test_a_job_that_is_where_it_was_put_is_no_event_also_when_its_walltime_changes(world):
    job = world.server.submit("1:ncpus=2:mem=1gb", runs_s=30, queue=QUEUE)
    other = world.server.submit(runs_s=30, queue=QUEUE, between_s=(60, 900))
    reports = cycles(world, 4)
    world.server.alter_walltime(job, 7200)
    reports += cycles(world, 4)
    assert runs(world) == {job, other}
    assert "started_elsewhere" not in happenings(reports)


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
def test_a_running_job_that_cannot_be_read_keeps_nobody_from_deciding(world, happens):
    happens(world)
    job = world.server.submit(runs_s=30, queue=QUEUE)
    assert {report.result for report in cycles(world, 3)} == {"ok"}
    assert job in runs(world)
    assert world.server.wrongs == []


def test_a_queue_that_is_deleted_right_before_a_start_starts_nothing(world):
    """And its jobs are the bridge's again when it is there again."""
    job = world.server.submit(runs_s=30, queue=QUEUE)
    queue = world.server.queues[QUEUE]
    between(world, lambda: world.server.queues.pop(QUEUE))
    before = len(told(world))
    report = world.bridge().cycle()
    assert (report.result, len(told(world))) == ("ok", before)
    assert "start_refused" in happenings([report])
    world.server.queues[QUEUE] = queue
    cycles(world, 12)
    assert runs(world) == {job}


def test_a_job_that_is_routed_elsewhere_right_before_a_start_is_not_started(world):
    job = world.server.submit(runs_s=30, queue=QUEUE)
    world.server.queues["routes"] = Queue("routes", started=False)
    between(world, lambda: world.server.move(job, "routes"))
    before = len(told(world))
    cycles(world, 3)
    assert (len(told(world)), world.server.jobs[job].queue) == (before, "routes")
    world.server.move(job, QUEUE)
    cycles(world, 4)
    assert runs(world) == {job}


def test_a_vnode_that_is_renamed_right_before_a_start_gets_nothing_under_its_old_name(world):
    jobs = [world.server.submit("1:ncpus=4", runs_s=3, queue=QUEUE) for _ in range(3)]

    def rename():
        vnode = world.server.vnodes.pop("vm[1]")
        vnode.name = "new"
        world.server.vnodes["new"] = vnode

    between(world, rename)
    reports = cycles(world, 2)
    assert {report.result for report in reports} == {"ok"}
    assert not [argv for argv in told(world)[1:] if "vm[1]" in argv[2]]
    cycles(world, 20)
    assert set(jobs) <= world.server.past.keys()
    assert world.server.wrongs == []


@pytest.mark.parametrize("jump_s", [-3600, 10**7])
def test_a_clock_that_jumps_starts_nothing_twice(world, jump_s):
    jobs = [world.server.submit("1:ncpus=4", runs_s=4, queue=QUEUE) for _ in range(9)]
    cycles(world, 3)
    world.server.now_s += jump_s
    assert {report.result for report in cycles(world, 6)} == {"ok"}
    for job in world.server.jobs.values():
        job.start_s = min(job.start_s, world.server.now_s)
    cycles(world, 60)
    assert set(jobs) <= world.server.past.keys()
    assert world.calm() == []


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


def test_a_vnode_that_an_operators_refused_start_left_taken_gets_nothing_and_the_doctor_names_it(world):
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
    assert next(each.detail for each in backend.checks() if each.name == "vnodes").startswith("vm[0]: job-exclusive")
    server.run(alone, "(vm[0]:ncpus=1)+(vm[0]:ncpus=1)")
    server.tick(12)
    assert server.states("vm[0]") == "free"


def test_a_subjob_that_nobody_else_could_start_is_tried_ever_more_rarely_until_it_runs(world):
    """PBS moves no array that has begun, and leaves its closed queue alone."""
    array = world.server.submit(runs_s=400, queue=QUEUE, array=range(2))
    never = array.replace("[]", "[1]")
    world.commands.faults += [Fault(lambda argv: argv[0] == "qrun" and argv[-1] == never, "unreached")] * 5
    tried, kinds = [], Counter()
    for second in range(300):
        before = len(told(world))
        report = world.cycle()
        kinds.update(each.kind for each in report.happenings)
        tried += [second for argv in told(world)[before:] if argv[-1] == never]
    assert runs(world) == {array.replace("[]", "[0]"), never}
    assert len(tried) == 6
    pauses = np.diff(tried)
    assert (pauses[:-1] <= pauses[1:]).all()
    assert pauses[-1] < 150
    assert not told(world, "qmove")
    assert kinds["not_left"] == 3, "from the third failure on, after which others are left"
    assert kinds["left_to_cluster"] == 0
    assert world.server.wrongs == []


def test_why_such_a_subjob_waits_is_told_where_other_waits_are(world):
    array = world.server.submit(runs_s=400, queue=QUEUE, array=range(2))
    never = array.replace("[]", "[1]")
    world.commands.faults += [Fault(lambda argv: argv[0] == "qrun" and argv[-1] == never, "unreached")] * 5
    for _ in range(40):
        report = world.cycle()
    journal = world.bridge().journal
    (aside,) = journal.list_unscheduled_jobs(BACKED_OFF)
    assert (aside.label, aside.reason.endswith(RELEASE_POINTLESS)) == (never.partition(".")[0], True)
    assert len(report.put_off) == 1


def test_a_queue_opened_by_hand_is_left_alone_until_it_is_closed(world):
    world.open()
    job = world.server.submit("1:ncpus=4", runs_s=3, queue=QUEUE)
    before = len(told(world))
    cycles(world, 6)
    assert (len(told(world)), job in world.server.past) == (before, True)
    assert world.server.queues[QUEUE].started
    world.close()
    after = world.server.submit(runs_s=3, queue=QUEUE)
    cycles(world, 4)
    assert [argv[-1] for argv in told(world)[before:]] == [after]


def test_a_job_moved_away_is_pbss_own(world):
    blocks = [world.server.submit("1:ncpus=4", runs_s=8, queue=QUEUE) for _ in range(3)]
    cycles(world, 2)
    job = world.server.submit(runs_s=3, queue=QUEUE)
    world.server.move(job, LEFT)
    cycles(world, 20)
    assert runs(world) == set()
    assert [argv[-1] for argv in told(world)[1:]] == blocks


def test_a_server_that_is_away_is_a_failed_cycle_and_nothing_else(world):
    job = world.server.submit(runs_s=3, queue=QUEUE)
    world.server.down = True
    assert {report.result for report in cycles(world, 2)} == {"backend_unavailable"}
    world.server.down = False
    world.pace.at_s += 300
    cycles(world, 8)
    assert job in world.server.past or job in runs(world)


def test_a_stop_opens_the_queue_and_pbs_goes_on_at_once(world):
    for _ in range(3):
        world.server.submit("1:ncpus=4", runs_s=30, queue=QUEUE)
    cycles(world, 2)
    waiting = world.server.submit("1:ncpus=4", runs_s=1, queue=QUEUE, holds="u")
    world.stop()
    assert world.server.queues[QUEUE].started
    assert not world.server.values
    world.server.release(waiting)
    world.server.tick(60)
    assert waiting in world.server.past


@pytest.mark.parametrize("schedules", [True, False])
def test_jobs_that_wait_at_a_stop_need_no_other_event_and_a_scheduler_that_is_off_stays_off(world, schedules):
    cycles(world, 2)
    world.server.schedules = schedules
    job = world.server.submit(runs_s=5, queue=QUEUE)
    world.server.looks = False
    world.stop()
    world.server.tick(20)
    assert (job in world.server.past, world.server.schedules) == (schedules, schedules)
