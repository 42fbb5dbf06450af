"""What became of starts: each transition with what is timed and told of it."""

import pytest

from cpsched_bridge.cycle.progress import CycleProgress
from cpsched_bridge.likes import BackoffKey
from cpsched_bridge.ports import Obstacle
from cpsched_bridge.report import CycleReport, Happening
from cpsched_bridge.store.ledger import FOLLOWS, Entry, State, Transition

LIMIT = Obstacle("AssocMaxJobsLimit", BackoffKey("association", ("ada", "")))


@pytest.fixture
def progress():
    return CycleProgress()


def seen(progress, *transitions, now_s=7.5):
    report = CycleReport(1, "control", 0.0)
    progress.note(transitions, now_s, report)
    return report


def step(before, after, event="", obstacle=None, id=1):
    return Transition(before, Entry(id, after, 0, why="for people"), obstacle, event=event)


@pytest.mark.parametrize("obstacle", [None, LIMIT])
@pytest.mark.parametrize("after", sorted(FOLLOWS[State.STARTING]))
def test_every_end_of_a_start_is_timed_once(progress, after, obstacle):
    progress.decided([1], 5.0)
    report = seen(progress, step(State.STARTING, after, "as_decided", obstacle))
    ran = after in (State.RUNNING, State.ENDED)
    assert report.latencies_s == ([2.5] if ran else [])
    again = seen(progress, step(State.STARTING, State.RUNNING, "as_decided"))
    assert again.latencies_s == [], "when that start was decided is forgotten"


@pytest.mark.parametrize("before", [None, *(state for state in State if state is not State.STARTING)])
def test_what_was_not_on_its_way_is_no_start(progress, before):
    for after in FOLLOWS[before]:
        progress.decided([1], 5.0)
        report = seen(progress, step(before, after))
        assert report.latencies_s == []
        again = seen(progress, step(State.STARTING, State.RUNNING, "as_decided"))
        assert again.latencies_s == [], "a start that was refused is over"


@pytest.mark.parametrize(
    ("transition", "told"),
    [
        (step(State.STARTING, State.RUNNING, "as_decided"), []),
        (step(State.STARTING, State.RUNNING), ["started_elsewhere"]),
        (step(State.STARTING, State.ENDED), []),
        (step(State.HELD, State.RUNNING), []),
        (step(State.STARTING, State.ROLLING_BACK), ["start_failed"]),
        (step(State.STARTING, State.ROLLING_BACK, obstacle=LIMIT), []),
        (step(State.HELD, State.GONE), ["job_gone"]),
        (step(State.STARTING, State.GONE, obstacle=LIMIT), ["job_gone"]),
        (step(State.HELD, State.HANDING_BACK, "left"), ["left_to_cluster"]),
        (step(State.STARTING, State.ROLLING_BACK, "kept_on"), ["not_left", "start_failed"]),
        (step(State.HANDING_BACK, State.HOLDING, "kept_on"), ["not_left"]),
        (step(State.HELD, State.HANDING_BACK), []),
        (step(State.HANDING_BACK, State.FREE, "left"), []),
        (step(State.STARTING, State.FREE, "left", LIMIT), ["left_to_cluster"]),
        (step(State.HELD, State.FREE), []),
    ],
)
def test_what_is_worth_telling_of_a_transition(progress, transition, told):
    report = seen(progress, transition)
    assert report.happenings == [Happening(kind, transition.entry.why, 1) for kind in told]


def test_of_several_jobs_each_has_its_own_time(progress):
    progress.decided([1, 2], 1.0)
    progress.decided([3], 4.0)
    starts = [step(State.STARTING, State.RUNNING, "as_decided", id=id) for id in (3, 1, 9)]
    assert seen(progress, *starts).latencies_s == [3.5, 6.5]
    last = step(State.STARTING, State.RUNNING, "as_decided", id=2)
    assert seen(progress, last, now_s=11.0).latencies_s == [10.0]
