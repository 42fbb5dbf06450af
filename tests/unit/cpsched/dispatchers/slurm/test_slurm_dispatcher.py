"""One small machine for each parameter: the starts with and without it, and the times at which each pass runs."""

import pytest

from cpsched.dispatchers.slurm.scheduler_parameters import read_scheduler_parameters
from cpsched.dispatchers.slurm.slurm_dispatcher import (
    DueSchedulingPasses,
    PassScheduleState,
    QueueInstantSummary,
    SchedulingPassResults,
    SlurmTwinDispatcher,
    advance_pass_schedule,
    due_passes,
    next_pass_s,
)
from cpsched.kernels.slurm_passes import DEPTH, FULL, NO_PASS, SUBMITTED
from cpsched.model import Cluster
from tests.builders import a_cluster, a_job, a_running, a_snapshot

LONG = 100_000
HELD = a_running(a_job(90, units=2, per_unit=4, walltime_s=130), ((0, 1), (1, 1)))
"""Holds nodes 0 and 1 until second 130."""
WIDE = a_job(1, units=4, per_unit=4, walltime_s=60, user="x", queue="p", account="u")
"""Wants all four nodes: its reservation begins at second 130."""


def small(id, walltime_s=60, **facts):
    return a_job(id, walltime_s=walltime_s, **({"user": "x", "queue": "p", "account": "u"} | facts))


def started(text, queue, running=(HELD,), cluster=None, now_s=0, **how):
    """Who starts at the first instant: the whole queue is gone through, then backfill."""
    snapshot = a_snapshot(cluster or a_cluster(), queue, running, now_s)
    return sorted(SlurmTwinDispatcher(text, **how).decide(snapshot, "starts").starts_by_job(snapshot))


PARTITIONS = Cluster.of([[4]] * 4, ["cores"], node_sets={"p": [0, 1], "q": [1, 2], "r": [3]})
PART_OF_PARTITION = Cluster.of([[4]] * 3, ["cores"], node_sets={"p": [0, 1, 2], "some": [0]})
FIRST_OF_TWO = Cluster.of([[4]] * 2, ["cores"], node_sets={"first": [0]})
MOST_NODES = Cluster.of([[4]] * 4, ["cores"], node_sets={"most": [0, 1, 2]})
LARGE_AND_SMALL = Cluster.of([[4], [1]], ["cores"])
FIRST_NODE_HELD = a_running(a_job(90, per_unit=4, walltime_s=LONG), ((0, 1),))
PART_HELD = a_running(a_job(90, per_unit=3, walltime_s=130), ((0, 1),))
LAST_NODES_HELD = a_running(a_job(90, units=2, per_unit=4, walltime_s=130), ((1, 1), (2, 1)))
PREFERRED = a_job(1, units=4, per_unit=4, priority=5, queue="p")
ALL_NODES = a_job(2, units=4, per_unit=4, queue="p")


def used_until(*ends_s):
    """Three cores of each node are in use until these ends."""
    return [a_running(a_job(90 + n, per_unit=3, walltime_s=end_s), ((n, 1),)) for n, end_s in enumerate(ends_s)]


NEXT_IN_PARTITION = [
    a_job(1, units=3, per_unit=4, walltime_s=60, node_set=1, queue="p"),
    a_job(2, units=4, per_unit=4, walltime_s=60, queue="p"),
    a_job(3, walltime_s=LONG, queue="p"),
]
"""The first two of a partition would begin one after the other."""


@pytest.mark.parametrize(
    ("text", "queue", "scene", "expected"),
    [
        # The first job that is blocked stops the main loop, but not backfill.
        ("bf_interval=-1", [WIDE, small(2)], {}, []),
        ("", [WIDE, small(2)], {}, [2]),
        ("", [WIDE, small(2, LONG)], {}, []),
        # A blocked partition blocks only its nodes, but all of them: not only those that the job may use.
        ("bf_interval=-1",
         [a_job(1, units=2, per_unit=4, node_set=1, queue="p"), a_job(2, units=1, per_unit=4, node_set=2, queue="q"),
          a_job(3, node_set=3, queue="r")], {"running": [FIRST_NODE_HELD], "cluster": PARTITIONS}, [2, 3]),
        ("bf_interval=-1",
         [a_job(1, units=2, per_unit=4, node_set=1, queue="p"), a_job(2, units=2, per_unit=4, node_set=2, queue="q"),
          a_job(3, node_set=3, queue="r")], {"running": [FIRST_NODE_HELD], "cluster": PARTITIONS}, [3]),
        ("bf_interval=-1", [a_job(1, per_unit=4, node_set=2, queue="p"), a_job(2, queue="q")],
         {"running": [FIRST_NODE_HELD], "cluster": PART_OF_PARTITION}, []),
        # Tier, then priority, then arrival
        ("", [small(1), small(2, priority=9), small(3, tier=1)], {"running": [], "cluster": a_cluster(1, 1)}, [3]),
        ("", [small(1), small(2, priority=9)], {"running": [], "cluster": a_cluster(1, 1)}, [2]),
        ("bf_interval=-1,sched_max_job_start=2", [small(1), small(2), small(3)], {"running": []}, [1, 2]),
        ("bf_interval=-1,partition_job_depth=1", [small(1), small(2), small(3, queue="q")], {"running": []}, [1, 3]),
        # Without a reservation in the window, no job is held back.
        ("bf_window=3", [WIDE, small(2, LONG)], {}, []),
        ("bf_window=2", [WIDE, small(2, LONG)], {}, [2]),
        # The start of a reservation is rounded down. A job must end one second before it.
        ("bf_resolution=1", [WIDE, small(2, 125)], {}, [2]),
        ("bf_resolution=60", [WIDE, small(2, 125)], {}, []),
        ("bf_resolution=1", [WIDE, small(2, 129)], {}, [2]),
        ("bf_resolution=1", [WIDE, small(2, 130)], {}, []),
        # Limits of a pass
        ("bf_max_job_test=1", [WIDE, small(2)], {}, []),
        ("bf_max_job_test=2", [WIDE, small(2), small(3)], {}, [2]),
        ("bf_max_job_start=1", [WIDE, small(2), small(3)], {}, [2]),
        ("bf_max_job_user=1,bf_max_job_assoc=5", [WIDE, small(2)], {}, [2]),
        # Only the first of a partition reserves: the second, which would begin at 190, delays no job.
        ("", NEXT_IN_PARTITION, {"cluster": MOST_NODES}, []),
        ("bf_job_part_count_reserve=1", NEXT_IN_PARTITION, {"cluster": MOST_NODES}, [3]),
        # Both loops respect these limits.
        ("bf_min_age_reserve=10", [WIDE, small(2, LONG)], {"now_s": 9}, [2]),
        ("bf_min_age_reserve=10", [WIDE, small(2, LONG)], {"now_s": 10}, []),
        ("bf_min_age_reserve=10,bf_interval=-1", [WIDE, small(2, LONG)], {"now_s": 9}, [2]),
        ("bf_min_prio_reserve=6", [PREFERRED, small(2, LONG)], {}, [2]),
        ("bf_min_prio_reserve=5", [PREFERRED, small(2, LONG)], {}, []),
        ("bf_min_prio_reserve=6,bf_interval=-1", [PREFERRED, small(2, LONG)], {}, [2]),
        # A reservation makes two entries beside the first: the second one finds the table full, which ends the pass.
        ("bf_node_space_size=4", [WIDE, ALL_NODES, small(3)], {}, [3]),
        ("bf_node_space_size=3", [WIDE, ALL_NODES, small(3)], {}, []),
        # Reserved nodes
        ("", [a_job(1, units=2, per_unit=4, queue="p"), small(2, LONG)],
         {"running": [LAST_NODES_HELD], "cluster": a_cluster(3)}, []),
        ("bf_busy_nodes", [a_job(1, units=2, per_unit=4, queue="p"), small(2, LONG)],
         {"running": [LAST_NODES_HELD], "cluster": a_cluster(3)}, [2]),
        ("", [a_job(1, per_unit=2, queue="p"), small(2, LONG)],
         {"running": [PART_HELD, a_running(a_job(91, walltime_s=LONG), ((1, 1),))], "cluster": LARGE_AND_SMALL}, []),
        ("", [a_job(1, per_unit=2, queue="p"), small(2, LONG)],
         {"running": [PART_HELD, a_running(a_job(91, walltime_s=LONG), ((1, 1),))], "cluster": LARGE_AND_SMALL,
          "reserved": "parts"}, [2]),
        ("", [a_job(1, per_unit=2), a_job(2, walltime_s=LONG)], {"running": [PART_HELD], "cluster": a_cluster(1)}, [2]),
        # The first group of ends goes on for 30 s after the next multiple of 30 s after the first end. Its first node
        # is reserved. The second job requests node 0.
        *(("bf_resolution=10", [a_job(1, per_unit=4, queue="p"), small(2, LONG, node_set=1, queue="q")],
           {"running": used_until(*ends_s), "cluster": FIRST_OF_TWO}, ids)
          for ends_s, ids in (((95, 95), []), ((150, 95), []), ((151, 95), [2]), ((150, 89), [2]))),
        # An impossible job blocks no other.
        ("bf_interval=-1", [a_job(1, units=9, per_unit=4, queue="p"), small(2)], {"running": []}, [2]),
    ],
)  # fmt: skip
def test_starts_jobs_as_parameters_say(text, queue, scene, expected):
    assert started(text, queue, **scene) == expected


def test_partition_job_depth_leaves_jobs_to_next_pass():
    snapshot = a_snapshot(a_cluster(), [small(1), small(2), small(3, queue="q")])
    decision = SlurmTwinDispatcher("bf_interval=-1,partition_job_depth=1,sched_interval=5").decide(snapshot)
    assert decision.again_s == snapshot.now_s + 5, "the next pass tests the second job"


def test_default_queue_depth_tests_one_more_job():
    """Slurm compares before it counts: with a depth of 1 it looks at two jobs."""
    snapshot = a_snapshot(a_cluster(), [small(1, submit_s=5), small(2, submit_s=5), small(3, submit_s=5)], now_s=5)
    twin = SlurmTwinDispatcher("bf_interval=-1,default_queue_depth=1,batch_sched_delay=0")
    twin.recall([[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] * 2)
    decision = twin.decide(snapshot)
    assert sorted(decision.starts_by_job(snapshot)) == [1, 2]
    assert decision.again_s == 60, "the whole queue is due then"


def test_does_not_try_submitted_job_after_pending_ones():
    queue = [small(1, submit_s=0), small(2, submit_s=5)]
    twin = SlurmTwinDispatcher("bf_interval=-1,sched_interval=-1")
    twin.recall([[0] * 10] * 2)
    snapshot = a_snapshot(a_cluster(), queue, now_s=5)
    assert twin.decide(snapshot).starts_by_job(snapshot) == {}
    alone = a_snapshot(a_cluster(), queue[1:], now_s=5)
    assert list(twin.decide(alone).starts_by_job(alone)) == [2]


def test_cut_backfill_that_started_jobs_repeats():
    snapshot = a_snapshot(a_cluster(), [WIDE, small(2), small(3)], [HELD])
    again_s = {text: SlurmTwinDispatcher(text).decide(snapshot, "starts").again_s
               for text in ("bf_max_job_test=2", "bf_max_job_test=3", "bf_max_job_user=2")}  # fmt: skip
    assert again_s == {"bf_max_job_test=2": 30, "bf_max_job_test=3": None, "bf_max_job_user=2": 30}


@pytest.mark.parametrize(
    ("name", "mine", "other"),
    [
        ("bf_max_job_user", {"queue": "q"}, {"user": "y"}),
        ("bf_max_job_part", {"user": "y"}, {"queue": "q"}),
        ("bf_max_job_user_part", {"account": "v"}, {"queue": "q"}),
        ("bf_max_job_assoc", {"queue": "q"}, {"account": "v"}),
    ],
)
def test_limits_count_tested_jobs_per_owner(name, mine, other):
    """The wide job is counted first."""
    assert started(f"{name}=1", [WIDE, small(2, **mine), small(3, **other)]) == [3]
    assert started(f"{name}=2", [WIDE, small(2, **mine), small(3, **other)]) == [2, 3]


def test_starts_nothing_between_passes_but_plans():
    snapshot = a_snapshot(a_cluster(), [WIDE, small(2, 40)], [HELD], now_s=40)
    twin = SlurmTwinDispatcher()
    twin.recall([[39, 39, 39, 39, 39, 1, 2, 0, 0, 0]] * 2)
    decision = twin.decide(snapshot)
    assert (decision.starts_by_job(snapshot), decision.plan_by_job(snapshot)) == ({}, {1: 130, 2: 69})
    idle = twin.decide(snapshot, "starts")
    assert (idle.effort.path, idle.again_s) == ("no-pass-due", None)


def test_repeated_decision_at_same_time_is_equal():
    snapshot = a_snapshot(a_cluster(), [WIDE, small(2)], [HELD], now_s=40)
    twin = SlurmTwinDispatcher()
    assert list(twin.decide(snapshot).starts_by_job(snapshot)) == [2]
    assert list(twin.decide(snapshot).starts_by_job(snapshot)) == [2]


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


RULES = read_scheduler_parameters("").parameters
IDLE = QUIET._replace(waiting=0)


def test_all_passes_are_due_initially():
    found = made("", 7, PassScheduleState(), newest_s=7, oldest_s=7, running=0)
    assert (found.main, found.backfill) == (FULL, True)


def test_tries_submitted_job_at_once_and_requests_pass():
    found = made("", 101, newest_s=101)
    assert found.main == SUBMITTED
    assert next_pass_s(after(found), RULES, 1) == 103
    assert made("", 103, after(found)._replace(changed=0), newest_s=101).main == DEPTH


@pytest.mark.parametrize(
    ("agenda", "now_s", "newest_s", "backfill", "backfill_s"),
    [
        (QUIET, 135, 90, False, 130),
        # After idle time, backfill runs at once.
        (IDLE, 147, 147, True, 147),
        (IDLE, 120, 120, False, 100),
        (IDLE, 151, 147, False, 147),
    ],
)
def test_backfill_waits_for_interval_while_jobs_wait(agenda, now_s, newest_s, backfill, backfill_s):
    found = made("", now_s, agenda, newest_s=newest_s, oldest_s=newest_s)
    assert (found.backfill, found.after.backfill_s) == (backfill, backfill_s)


@pytest.mark.parametrize(
    ("now_s", "running", "came", "waiting", "next_s"),
    [
        (110, 1, {}, 1, 130),
        (110, 1, {}, 0, None),  # no job waits
        # Complete backfill waits for the next event.
        (130, 2, {}, 1, None),
        (130, 2, {"started": 1, "backfilled": 1}, 1, None),
        (130, 2, {"started": 1, "backfilled": 1, "backfill_cut": 1}, 1, 160),
    ],
)
def test_next_pass_depends_on_last_ones(now_s, running, came, waiting, next_s):
    assert next_pass_s(after(made("", now_s, running=running), **came), RULES, waiting) == next_s


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
