"""The rows of "When the bridge dies" of docs/pbs.md: the bridge dies right there, and what the next cycles do."""

import random
import re
from pathlib import Path

import pytest

pytest.importorskip("cpsched_bridge.adapters.pbs", reason="the PBS adapter is not there")

from tests.pbs.commands import Fault
from tests.pbs.server import RUNS
from tests.pbs.world import LEFT, QUEUE, World

PAGE = Path(__file__).parents[2] / "docs" / "pbs.md"
ROWS = {
    "before it closes a queue": "closing",
    "after it closed a queue, before the answer is written": "closed",
    "between the intent to start and `qrun`": "starting",
    "between a walltime that it chose and `qrun`": "fitted",
    "after `qrun`, before the answer is written": "started",
    "after `qrun`, before `left_queue` is open": "left_closed",
    "while the job's host still takes it on": "beginning",
    "before `qmove` of a job that is left": "moving",
    "after `qmove`, before the answer is written": "moved",
    "before `qmove` of an array, which begins meanwhile": "begun",
    "while stopping, before a queue is opened": "opening",
    "while stopping, before PBS is told to look": "looking",
    "between its book and `qalter`": "advising",
    "after `qalter`, before the answer is written": "advised",
    "while stopping, before points are off": "taking_off",
}
"""By the page's words, the test below."""


def test_each_row_of_the_page_has_a_test():
    table = PAGE.read_text().partition("| the bridge dies |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)
    assert rows == list(ROWS)
    assert all(f"test_dies_{name}" in globals() for name in ROWS.values())


def a_world(tmp_path, mode="control"):
    """A bridge that has begun, and whose queue is closed where it is in control."""
    world = World(tmp_path, random.Random(1), mode=mode)
    if mode == "control":
        world.close()
    world.server.submit(runs_s=1, queue=QUEUE)
    for _ in range(6):
        world.cycle()
    assert not world.server.jobs
    return world


def dies(world, program, acts, *words):
    """Let the bridge die at its next such command: before it `acts`, or when it has, before its answer."""
    execute = world.commands._execute  # noqa: SLF001

    def deadly(argv):
        if argv[0] != program or not set(words) <= set(" ".join(argv).split()):
            return execute(argv)
        world.commands._execute = execute  # noqa: SLF001
        if not acts:
            world.commands.fuse.left = 0
            return execute(argv)
        answer = execute(argv)
        world.commands.fuse.left = 0
        return answer

    world.commands._execute = deadly  # noqa: SLF001
    before = world.counts["killed"]
    return lambda: world.counts["killed"] == before + 1


def until(world, so, within=12):
    for _ in range(within):
        world.cycle()
        if so():
            return
    raise AssertionError("does not come about")


def told(world, program):
    return [argv for argv in world.commands.asked if argv[0] == program]


def test_dies_closing(tmp_path):
    world = World(tmp_path, random.Random(1))
    for _ in range(5):
        world.server.submit("1:ncpus=4", runs_s=9, queue=QUEUE)
    until(world, dies(world, "qmgr", False, "queue"))
    assert world.server.queues[QUEUE].started
    until(world, lambda: not world.server.queues[QUEUE].started)
    assert world.calm() == []


def test_dies_closed(tmp_path):
    world = World(tmp_path, random.Random(1))
    for _ in range(5):
        world.server.submit("1:ncpus=4", runs_s=9, queue=QUEUE)
    until(world, dies(world, "qmgr", True, "queue"))
    assert not world.server.queues[QUEUE].started
    until(world, lambda: told(world, "qrun"))
    assert world.calm() == []


def test_dies_fitted(tmp_path):
    world = a_world(tmp_path)
    job = world.server.submit(runs_s=9, queue=QUEUE, between_s=(60, 900))
    until(world, dies(world, "qalter", True))
    assert (world.server.jobs[job].state, world.server.jobs[job].walltime_s) == ("Q", 900)
    until(world, lambda: world.server.jobs[job].substate == 42)
    assert world.calm() == []


def start(tmp_path, acts):
    world = a_world(tmp_path)
    job = world.server.submit(runs_s=9, queue=QUEUE)
    until(world, dies(world, "qrun", acts))
    assert (world.server.jobs[job].state in RUNS) is acts
    until(world, lambda: world.server.jobs[job].substate == 42)
    return world, [argv for argv in told(world, "qrun") if argv[-1] == job]


def test_dies_starting(tmp_path):
    world, sent = start(tmp_path, False)
    assert len(sent) == 1, "the one that died was never sent"
    assert world.calm() == []


def test_dies_started(tmp_path):
    world, sent = start(tmp_path, True)
    assert len(sent) == 1
    assert world.calm() == []


def test_dies_left_closed(tmp_path):
    world = a_world(tmp_path)
    world.server.submit(runs_s=9, queue=QUEUE)
    left = world.server.submit(runs_s=9, queue=LEFT, holds="u")
    until(world, dies(world, "qrun", True))
    world.server.release(left)
    assert not world.server.queues[LEFT].started
    until(world, lambda: world.server.jobs[left].state in RUNS)
    assert world.calm() == []


def test_dies_beginning(tmp_path):
    """The host refuses the job that the dead bridge had started: it waits again, and is started again."""
    world = a_world(tmp_path)
    job = world.server.submit(runs_s=9, queue=QUEUE)
    until(world, dies(world, "qrun", True))
    assert world.server.jobs[job].substate == 41
    world.server.refuse(job)
    until(world, lambda: world.server.jobs[job].substate == 42)
    assert len([argv for argv in told(world, "qrun") if argv[-1] == job]) == 2


def move(tmp_path, acts):
    world = a_world(tmp_path)
    job = world.server.submit("2:ncpus=1", place="scatter", runs_s=5, queue=QUEUE)
    until(world, dies(world, "qmove", acts))
    assert world.server.jobs[job].queue == (LEFT if acts else QUEUE)
    until(world, lambda: job in world.server.past or world.server.jobs[job].state in RUNS)
    return world, [argv for argv in told(world, "qmove") if argv[-1] == job]


def test_dies_moving(tmp_path):
    world, sent = move(tmp_path, False)
    assert len(sent) == 1, "by the next bridge"
    assert world.calm() == []


def test_dies_moved(tmp_path):
    world, sent = move(tmp_path, True)
    assert len(sent) == 1
    assert world.calm() == []


def test_dies_begun(tmp_path):
    """An operator starts one subjob: PBS moves the others no more, and the next bridge starts them."""
    world = a_world(tmp_path)
    array = world.server.submit(runs_s=9, queue=QUEUE, array=range(2))
    first, second = (array.replace("[]", f"[{at}]") for at in range(2))
    world.commands.faults += [Fault(lambda argv: argv[0] == "qrun", "unreached")] * 9
    until(world, dies(world, "qmove", False), 40)
    world.commands.faults.clear()
    world.server.run(first, "(vm[0]:ncpus=1)")
    until(world, lambda: world.server.jobs[second].state in RUNS)
    assert not told(world, "qmove"), "the one that died was never sent"
    assert world.calm() == []


def test_dies_opening(tmp_path):
    world = a_world(tmp_path)
    job = world.server.submit(runs_s=5, queue=QUEUE)
    died = dies(world, "qmgr", False, "queue")
    world.stop()
    assert died()
    assert not world.server.queues[QUEUE].started
    until(world, lambda: world.server.jobs[job].state in RUNS)
    assert world.calm() == []


def test_dies_looking(tmp_path):
    world = a_world(tmp_path)
    job = world.server.submit(runs_s=5, queue=QUEUE)
    world.server.looks = False
    died = dies(world, "qmgr", False, "server", "scheduling")
    world.stop()
    assert died()
    assert world.server.queues[QUEUE].started
    world.server.tick(600)
    assert job in world.server.past, "PBS looks by itself"


def advice(tmp_path, acts):
    """A bridge that dies at its first points, beside jobs that it wants in another order."""
    world = a_world(tmp_path, "advise")
    jobs = [world.server.submit("1:ncpus=4", runs_s=60, queue=QUEUE, walltime_s=900 - 60 * at) for at in range(8)]
    until(world, dies(world, "qalter", acts))
    return world, [world.server.jobs[job] for job in jobs]


def test_dies_advising(tmp_path):
    world, jobs = advice(tmp_path, False)
    assert not any(job.points for job in jobs)
    until(world, lambda: any(job.points for job in jobs))
    assert world.advice_ends() == []


def test_dies_advised(tmp_path):
    """The next bridge knows them as its own."""
    world, jobs = advice(tmp_path, True)
    assert any(job.points for job in jobs)
    world.cycle()
    assert world.advice_ends() == []


def test_dies_taking_off(tmp_path):
    world, jobs = advice(tmp_path, True)
    until(world, lambda: sum(job.points > 0 for job in jobs) > 1)
    died = dies(world, "qalter", False)
    world.stop()
    assert died()
    assert any(job.points for job in jobs)
    assert world.server.queues[QUEUE].started, "PBS starts the jobs, in the order that it was told last"
    world.mode = "control"
    until(world, lambda: not any(job.points for job in jobs if job.state not in RUNS))
