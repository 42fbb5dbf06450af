"""What became of starts: each transition with what is timed and told of it."""

import pytest

from cpsched_bridge.cycle.progress import CycleProgress
from cpsched_bridge.ports import NO_WAY_BACK, Obstacle
from cpsched_bridge.report import CycleReport, Happening
from cpsched_bridge.store.ledger import FOLLOWS, Entry, State, Transition

LIMIT = Obstacle("AssocMaxJobsLimit", "user ada")


@pytest.fixture
def progress():
    return CycleProgress()


def seen(progress, *transitions, now_s=7.5):
    report = CycleReport(1, "control", 0.0)
    progress.note(transitions, now_s, report)
    return report


def step(before, after, why="", obstacle=None, leave="", id=1):
    return Transition(before, Entry(id, after, 0, why=why, leave=leave), obstacle)


@pytest.mark.parametrize("obstacle", [None, LIMIT])
@pytest.mark.parametrize("after", sorted(FOLLOWS[State.STARTING]))
def test_every_end_of_a_start_is_timed_once(progress, after, obstacle):
    progress.decided([1], 5.0)
    report = seen(progress, step(State.STARTING, after, "started where decided", obstacle))
    ran = after in (State.RUNNING, State.ENDED)
    assert report.latencies_s == ([2.5] if ran else [])
    again = seen(progress, step(State.STARTING, State.RUNNING, "started where decided"))
    assert again.latencies_s == [], "when that start was decided is forgotten"


@pytest.mark.parametrize("before", [None, *(state for state in State if state is not State.STARTING)])
def test_what_was_not_on_its_way_is_no_start(progress, before):
    for after in FOLLOWS[before]:
        progress.decided([1], 5.0)
        report = seen(progress, step(before, after))
        assert report.latencies_s == []
        again = seen(progress, step(State.STARTING, State.RUNNING, "started where decided"))
        assert again.latencies_s == [], "a start that was refused is over"


@pytest.mark.parametrize(
    ("transition", "told"),
    [
        (step(State.STARTING, State.RUNNING, "started where decided"), []),
        (step(State.STARTING, State.RUNNING, "started elsewhere"), ["started_elsewhere"]),
        (step(State.STARTING, State.ENDED, "ran meanwhile"), []),
        (step(State.HELD, State.RUNNING, "started by someone else"), []),
        (step(State.STARTING, State.ROLLING_BACK, "too late"), ["start_failed"]),
        (step(State.STARTING, State.ROLLING_BACK, "at a limit", LIMIT), []),
        (step(State.HELD, State.GONE, "cancelled"), ["job_gone"]),
        (step(State.STARTING, State.GONE, "cancelled", LIMIT), ["job_gone"]),
        (step(State.HELD, State.HANDING_BACK, "given up: odd", leave="odd"), ["left_to_cluster"]),
        (step(State.STARTING, State.ROLLING_BACK, f"{NO_WAY_BACK}: too late"), ["not_left", "start_failed"]),
        (step(State.HANDING_BACK, State.HOLDING, f"{NO_WAY_BACK}: given up"), ["not_left"]),
        (step(State.HELD, State.HANDING_BACK, "paused", leave="odd"), []),
        (step(State.HELD, State.HANDING_BACK, "paused"), []),
        (step(State.HANDING_BACK, State.FREE, "handed back: odd", leave="odd"), []),
        (step(State.STARTING, State.ROLLING_BACK, "given up: odd", leave="odd"), ["start_failed"]),
        (step(State.STARTING, State.ROLLING_BACK, "given up: odd", LIMIT, leave="odd"), ["start_failed"]),
        (step(State.HELD, State.FREE, "released"), []),
    ],
)
def test_what_is_worth_telling_of_a_transition(progress, transition, told):
    report = seen(progress, transition)
    assert report.happenings == [Happening(kind, transition.entry.why, 1) for kind in told]


def test_of_several_jobs_each_has_its_own_time(progress):
    progress.decided([1, 2], 1.0)
    progress.decided([3], 4.0)
    starts = [step(State.STARTING, State.RUNNING, "started where decided", id=id) for id in (3, 1, 9)]
    assert seen(progress, *starts).latencies_s == [3.5, 6.5]
    last = step(State.STARTING, State.RUNNING, "started where decided", id=2)
    assert seen(progress, last, now_s=11.0).latencies_s == [10.0]
