"""The times at which slurmctld runs each pass."""

import pytest

from cpsched.dispatchers.slurm.pass_schedule import (
    DueSchedulingPasses,
    PassScheduleState,
    QueueInstantSummary,
    SchedulingPassResults,
    advance_pass_schedule,
    due_passes,
    next_pass_s,
)
from cpsched.dispatchers.slurm.scheduler_parameters import read_scheduler_parameters
from cpsched.kernels.slurm_passes import DEPTH, FULL, NO_PASS, SUBMITTED

QUIET = PassScheduleState(seen_s=100, asked_s=100, full_s=100, pass_s=100, backfill_s=100, running=2, waiting=1)
"""Everything ran at second 100; one job waits since, two run."""


def made(text, now_s, agenda=QUIET, newest_s=90, running=2, oldest_s=90):
    return due_passes(
        agenda, read_scheduler_parameters(text).parameters, QueueInstantSummary(now_s, oldest_s, newest_s, running)
    )


def after(made, **came):
    return advance_pass_schedule(
        made,
        SchedulingPassResults(
            **({"waiting": 1, "started": 0, "backfilled": 0, "main_cut": 0, "backfill_cut": 0} | came)
        ),
    )


def test_all_passes_are_due_initially():
    found = made("", 7, PassScheduleState(), newest_s=7, oldest_s=7, running=0)
    assert (found.main, found.backfill) == (FULL, True)


def test_tries_submitted_job_at_once_and_requests_pass():
    found = made("", 101, newest_s=101)
    assert found.main == SUBMITTED
    assert next_pass_s(after(found), read_scheduler_parameters("").parameters, 1) == 103
    assert made("", 103, after(found)._replace(changed=0), newest_s=101).main == DEPTH


def test_backfill_waits_for_interval_while_jobs_wait():
    rules = read_scheduler_parameters("").parameters
    changed = after(made("", 110, running=1))
    assert next_pass_s(changed, rules, 1) == 130
    assert made("", 135, QUIET).after.backfill_s == 130


def test_backfill_runs_at_once_after_idle_time():
    idle = QUIET._replace(waiting=0)
    assert made("", 147, idle, newest_s=147, oldest_s=147).backfill
    assert not made("", 120, idle, newest_s=120, oldest_s=120).backfill
    assert made("", 151, idle, newest_s=147, oldest_s=147).after.backfill_s == 147


def test_complete_backfill_waits_for_next_event():
    rules = read_scheduler_parameters("").parameters
    assert next_pass_s(after(made("", 130)), rules, 1) is None
    assert next_pass_s(after(made("", 130), started=1, backfilled=1), rules, 1) is None
    assert next_pass_s(after(made("", 130), started=1, backfilled=1, backfill_cut=1), rules, 1) == 160


def test_needs_no_pass_without_pending_jobs():
    assert next_pass_s(after(made("", 110, running=1)), read_scheduler_parameters("").parameters, 0) is None


def test_detects_ends_by_number_of_running_jobs():
    assert after(made("", 130), started=3).running == 5


@pytest.mark.parametrize(
    ("text", "now_s", "seen", "before", "main", "backfill", "changes"),
    [
        ("", 101, {}, {}, NO_PASS, False, {}),
        ("", 101, {"newest_s": 101}, {}, SUBMITTED, False, {"changed": 1, "asked": 1}),
        ("", 102, {"newest_s": 101}, {}, NO_PASS, False, {"changed": 1, "asked": 1}),
        ("", 103, {"newest_s": 101}, {}, DEPTH, False, {"changed": 1, "asked_s": 103, "pass_s": 103}),
        ("", 101, {"running": 1}, {}, DEPTH, False, {"changed": 1, "pass_s": 101}),
        ("", 101, {"running": 3}, {}, NO_PASS, False, {}),
        ("defer", 101, {"running": 1}, {}, NO_PASS, False, {"changed": 1, "asked": 1}),
        ("defer", 103, {"running": 1}, {}, DEPTH, False, {"changed": 1, "asked_s": 103, "pass_s": 103}),
        ("", 160, {}, {"cut": 1}, FULL, True,
         {"asked_s": 160, "full_s": 160, "pass_s": 160, "backfill_s": 160}),
        ("", 159, {}, {"cut": 1}, NO_PASS, False, {"backfill_s": 130, "cut": 1}),
        ("", 229, {}, {}, NO_PASS, False, {"backfill_s": 220, "full_s": 220}),
        ("sched_min_interval=2000000", 160, {}, {"pass_s": 159}, NO_PASS, True,
         {"pass_s": 159, "backfill_s": 160, "asked": 1}),
        ("sched_min_interval=2000001", 162, {"running": 1}, {"pass_s": 160}, NO_PASS, False,
         {"pass_s": 160, "backfill_s": 160, "asked": 1, "changed": 1}),
        ("sched_min_interval=999999", 101, {"running": 1}, {}, DEPTH, False, {"changed": 1, "pass_s": 101}),
        ("defer", 101, {"newest_s": 101}, {}, NO_PASS, False, {"changed": 1, "asked": 1}),
        ("defer_batch", 101, {"newest_s": 101}, {}, NO_PASS, False, {"changed": 1, "asked": 1}),
        ("defer_batch", 101, {"running": 1}, {}, DEPTH, False, {"changed": 1, "pass_s": 101}),
        ("batch_sched_delay=10", 103, {"newest_s": 103}, {}, SUBMITTED, False, {"changed": 1, "asked": 1}),
        ("batch_sched_delay=0", 101, {"newest_s": 101}, {}, DEPTH, False,
         {"changed": 1, "asked_s": 101, "pass_s": 101}),
        ("sched_interval=-1,bf_interval=-1", 160, {"newest_s": 160}, {}, SUBMITTED, False, {"changed": 1}),
    ],
)  # fmt: skip
def test_computes_complete_agenda(text, now_s, seen, before, main, backfill, changes):
    """What is made at one instant, and every entry of the agenda that differs from the one before."""
    found = made(text, now_s, QUIET._replace(**before), **seen)
    running = seen.get("running", QUIET.running)
    agenda = QUIET._replace(
        **{**before, "seen_s": now_s, "running": running, **({"cut": 0} if main else {}), **changes}
    )
    assert found == DueSchedulingPasses(main, backfill, agenda)


def test_time_without_pass_keeps_agenda():
    """That the last pass was cut, and what started since backfill ran, stays known until the next pass."""
    rules = read_scheduler_parameters("bf_interval=-1").parameters
    cut = after(made("bf_interval=-1", 110, running=1), main_cut=1, started=2)
    quiet = after(made("bf_interval=-1", 115, cut, running=3))
    assert (quiet.cut, quiet.changed, quiet.running, quiet.waiting) == (1, 1, 3, 1)
    assert next_pass_s(quiet, rules, 1) == 160
    assert after(made("bf_interval=-1", 160, quiet, running=3)).cut == 0


def test_pass_delayed_by_minimum_interval_runs_later():
    text = "bf_interval=-1,sched_min_interval=5000000"
    kept_back = after(made(text, 160, QUIET._replace(pass_s=158)))
    assert next_pass_s(kept_back, read_scheduler_parameters(text).parameters, 1) == 163
    assert made(text, 163, kept_back).main == DEPTH


@pytest.mark.parametrize(
    ("asked", "now_s", "expected"),
    [({"changed": 1}, 105, 130), ({"changed": 1}, 140, 141), ({"asked": 1}, 100, 103), ({"cut": 1}, 100, 160),
     ({"changed": 1, "asked": 1, "cut": 1}, 100, 103), ({"asked": 1, "pass_s": 102, "asked_s": 90}, 100, 104)],
)  # fmt: skip
def test_next_pass_is_first_that_may_start_job(asked, now_s, expected):
    rules = read_scheduler_parameters("sched_min_interval=2000000").parameters
    assert next_pass_s(QUIET._replace(seen_s=now_s, **asked), rules, 1) == expected
