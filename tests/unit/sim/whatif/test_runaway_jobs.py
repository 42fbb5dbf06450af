"""Jobs that accounting data lists as running or waiting although they cannot be."""

import pytest

from cpsched_sim.systems.system_file import parse_system
from cpsched_sim.whatif.accounting_history import (
    BEYOND_LIMIT_REASON,
    LONG_WAIT_REASON,
    NODE_REUSED_REASON,
    REPLACED_LINE_NOTE,
    RUNAWAY_HINT,
    STILL_RUNNING_NOTE,
    STILL_WAITING_NOTE,
    THROTTLED_TASKS_NOTE,
    UNLISTED_TASKS_NOTE,
    find_runaway_jobs,
    read_history,
)
from tests.unit.sim.whatif.accounting import SYSTEM, a_file, a_line, a_window

DAY_S = 86_400
ENDED = [a_line(at + 1, at * 3600, at * 3600, at * 3600 + 3000, NodeList=f"a{at % 2 + 1}") for at in range(48)]
"""Two days in which a1 and a2 are whole in use by turns."""
RUNNING = {"end": None, "State": "RUNNING"}


def found(tmp_path, *lines):
    history = read_history(a_file(tmp_path, [*ENDED, *lines]))
    return find_runaway_jobs(history, parse_system(tmp_path, SYSTEM))


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (a_line(99, -206 * DAY_S, -206 * DAY_S, NodeList="b1", **RUNNING), BEYOND_LIMIT_REASON),
        (a_line(99, 0, 0, NodeList="b1", Timelimit="20:00:00", end=None, State="SUSPENDED"), BEYOND_LIMIT_REASON),
        (a_line(99, 0, 0, NodeList="b1", Timelimit="1-22:00:00", **RUNNING), ""),
        (a_line(99, 0, 0, NodeList="a1", NCPUS=1, Timelimit="9-00:00:00", **RUNNING), NODE_REUSED_REASON),
        (a_line(99, 0, 0, NodeList="a[1,3]", NNodes=2, NCPUS=2, Timelimit="9-00:00:00", **RUNNING), NODE_REUSED_REASON),
        (a_line(99, 0, 47 * 3600 + 1, NodeList="a1", Timelimit="9-00:00:00", **RUNNING), ""),
        (a_line(99, 0, 0, NodeList="a3", Timelimit="9-00:00:00", **RUNNING), ""),
        (a_line(99, -90 * DAY_S, None, None, State="PENDING"), LONG_WAIT_REASON),
        (a_line(99, -20 * DAY_S, None, None, State="PENDING"), ""),
        (a_line(99, -90 * DAY_S, None, 60, State="CANCELLED by 7"), ""),
    ],
)
def test_detects_runaway_jobs(tmp_path, job, why):
    assert found(tmp_path, job) == ({99: why + RUNAWAY_HINT} if why else {})


def test_leaves_runaway_out_of_window_and_reports_it(tmp_path):
    lost = a_line(99, -206 * DAY_S, -206 * DAY_S, NodeList="a1", **RUNNING)
    true = a_line(98, 3600, 47 * 3600, NodeList="b1", **RUNNING)
    window = a_window(tmp_path, [*ENDED, lost, true])
    assert {item.job.id for item in window.jobs} == {*range(1, 49), 98}
    assert window.left_out[BEYOND_LIMIT_REASON + RUNAWAY_HINT] == 1
    assert [note for note in window.notes if STILL_RUNNING_NOTE in note] == [f"in 1 job: {STILL_RUNNING_NOTE}"]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (a_line(7, 0, 60, **RUNNING), a_line(7, 0, 60, 600)),
        (a_line(7, 0, None, None, State="PENDING"), a_line(7, 0, 60, 600)),
    ],
)
def test_job_with_later_end_line_is_one_job(tmp_path, earlier, later):
    history = read_history(a_file(tmp_path, [earlier, later]))
    assert ([job.id for job in history.ran], history.open) == ([7], [])
    assert history.reader.tally.dropped == {REPLACED_LINE_NOTE: 1}


def test_future_begin_time_does_not_extend_file(tmp_path):
    waits = a_line(7, 0, None, None, State="PENDING", Eligible="2099-01-01T00:00:00")
    history = read_history(a_file(tmp_path, [a_line(1), waits]))
    assert history.last_recorded_s == history.ran[0].submit_s + 100
    assert history.reader.tally.taken[STILL_WAITING_NOTE] == 1


def test_reads_abbreviated_states(tmp_path):
    lines = [a_line(1), a_line(2, 0, 10, None, State="R"), a_line(3, 0, None, None, State="PD")]
    history = read_history(a_file(tmp_path, [*lines, a_line(4, 0, None, 50, State="CA")]))
    assert [(job.id, job.start_s is not None, job.left_s is not None) for job in history.open] == [
        (2, True, False), (3, False, False), (4, False, True),
    ]  # fmt: skip


def test_line_of_pending_tasks_stands_for_each_task(tmp_path):
    """sacct prints them on one line; tasks that ran or run have lines of their own."""
    waiting = {"State": "PENDING"}
    lines = [
        a_line("7_[3-7:2,9]", 0, None, None, **waiting), a_line("7_3", 0, 10, None, State="RUNNING"), a_line("7_5"),
        a_line("7_[9]", 0, None, None, **waiting),
    ]  # fmt: skip
    history = read_history(a_file(tmp_path, [a_line(1), *lines]))
    assert [job.id for job in history.open] == [-70000003, -70000007, -70000009]
    assert history.reader.tally.taken[STILL_WAITING_NOTE] == 2
    assert history.reader.tally.dropped == {REPLACED_LINE_NOTE: 3}


def test_counts_pending_tasks_that_are_not_replayed(tmp_path):
    lines = [a_line(f"79_[{tasks}]", 0, None, None, State="PENDING") for tasks in ("1-500%4", "20-501%4", "1,3,...")]
    history = read_history(a_file(tmp_path, [a_line(1), *lines]))
    assert (history.open, history.reader.tally.dropped) == ([], {THROTTLED_TASKS_NOTE: 501, UNLISTED_TASKS_NOTE: 1})
