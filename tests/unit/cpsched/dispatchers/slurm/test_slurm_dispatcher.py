"""One small machine for each parameter: the starts with and without it."""

import pytest

from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher
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


def test_first_blocked_job_stops_main_loop_but_not_backfill():
    assert started("bf_interval=-1", [WIDE, small(2)]) == []
    assert started("", [WIDE, small(2)]) == [2]
    assert started("", [WIDE, small(2, LONG)]) == []


def test_blocked_partition_blocks_only_its_nodes():
    cluster = Cluster.of([[4]] * 4, ["cores"], node_sets={"p": [0, 1], "q": [1, 2], "r": [3]})
    blocked = a_job(1, units=2, per_unit=4, node_set=1, queue="p")
    other, far = a_job(2, units=1, per_unit=4, node_set=2, queue="q"), a_job(3, node_set=3, queue="r")
    held = a_running(a_job(90, per_unit=4, walltime_s=LONG), ((0, 1),))
    assert started("bf_interval=-1", [blocked, other, far], [held], cluster) == [2, 3]
    snapshot = a_snapshot(cluster, [blocked, other], [held])
    assert SlurmTwinDispatcher("bf_interval=-1").decide(snapshot).starts_by_job(snapshot) == {2: ((2, 1),)}


def test_blocked_partition_blocks_all_its_nodes():
    """Not those of the job alone, which may want a part of them."""
    cluster = Cluster.of([[4]] * 3, ["cores"], node_sets={"p": [0, 1, 2], "some": [0]})
    blocked = a_job(1, per_unit=4, node_set=2, queue="p")
    held = a_running(a_job(90, per_unit=4, walltime_s=LONG), ((0, 1),))
    assert started("bf_interval=-1", [blocked, a_job(2, queue="q")], [held], cluster) == []


def test_sorts_by_tier_then_priority_then_arrival():
    queue = [small(1), small(2, priority=9), small(3, tier=1)]
    cluster = a_cluster(nodes=1, cores=1)
    assert started("", queue, [], cluster) == [3]
    assert started("", queue[:2], [], cluster) == [2]


def test_sched_max_job_start_limits_started_jobs():
    queue = [small(1), small(2), small(3)]
    assert started("bf_interval=-1,sched_max_job_start=2", queue, []) == [1, 2]


def test_partition_job_depth_limits_tested_jobs():
    queue = [small(1), small(2), small(3, queue="q")]
    assert started("bf_interval=-1,partition_job_depth=1", queue, []) == [1, 3]
    snapshot = a_snapshot(a_cluster(), queue)
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


def test_bf_window_limits_reservations():
    """Without a reservation in the window no job is held back."""
    assert started("bf_window=3", [WIDE, small(2, LONG)]) == []
    assert started("bf_window=2", [WIDE, small(2, LONG)]) == [2]


def test_bf_resolution_rounds_start_of_reservation_down():
    assert started("bf_resolution=1", [WIDE, small(2, 125)]) == [2]
    assert started("bf_resolution=60", [WIDE, small(2, 125)]) == []


def test_bf_resolution_rounds_end_of_reservation_up():
    """The second wide job begins when the first has left its nodes: at second 190, or at 240."""
    plan = {}
    for step in (1, 60):
        snapshot = a_snapshot(a_cluster(), [WIDE, a_job(2, units=4, per_unit=4, queue="p")], [HELD])
        plan[step] = SlurmTwinDispatcher(f"bf_resolution={step}").decide(snapshot).plan_by_job(snapshot)
    assert plan == {1: {1: 130, 2: 190}, 60: {1: 130, 2: 240}}


def test_job_must_end_one_second_before_reservation():
    assert started("bf_resolution=1", [WIDE, small(2, 129)]) == [2]
    assert started("bf_resolution=1", [WIDE, small(2, 130)]) == []


def test_bf_max_job_test_limits_tested_jobs():
    assert started("bf_max_job_test=1", [WIDE, small(2)]) == []
    assert started("bf_max_job_test=2", [WIDE, small(2), small(3)]) == [2]


def test_cut_backfill_that_started_jobs_repeats():
    snapshot = a_snapshot(a_cluster(), [WIDE, small(2), small(3)], [HELD])
    again_s = {text: SlurmTwinDispatcher(text).decide(snapshot, "starts").again_s
               for text in ("bf_max_job_test=2", "bf_max_job_test=3", "bf_max_job_user=2")}  # fmt: skip
    assert again_s == {"bf_max_job_test=2": 30, "bf_max_job_test=3": None, "bf_max_job_user=2": 30}


def test_bf_max_job_start_limits_started_jobs():
    assert started("bf_max_job_start=1", [WIDE, small(2), small(3)]) == [2]


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


def test_association_limit_disables_user_limit():
    assert started("bf_max_job_user=1,bf_max_job_assoc=5", [WIDE, small(2)]) == [2]


def test_bf_job_part_count_reserve_limits_reservations():
    """Only the first of a partition reserves: the second, which would begin at 190, delays no job."""
    first = a_job(1, units=3, per_unit=4, walltime_s=60, node_set=1, queue="p")
    cluster = Cluster.of([[4]] * 4, ["cores"], node_sets={"most": [0, 1, 2]})
    second = a_job(2, units=4, per_unit=4, walltime_s=60, queue="p")
    tail = a_job(3, walltime_s=LONG, queue="p")
    assert started("", [first, second, tail], cluster=cluster) == []
    assert started("bf_job_part_count_reserve=1", [first, second, tail], cluster=cluster) == [3]


def test_bf_min_age_reserve_applies_to_both_loops():
    queue = [WIDE, small(2, LONG)]
    assert started("bf_min_age_reserve=10", queue, now_s=9) == [2]
    assert started("bf_min_age_reserve=10", queue, now_s=10) == []
    assert started("bf_min_age_reserve=10,bf_interval=-1", queue, now_s=9) == [2]


def test_bf_min_prio_reserve_applies_to_both_loops():
    queue = [a_job(1, units=4, per_unit=4, priority=5, queue="p"), small(2, LONG)]
    assert started("bf_min_prio_reserve=6", queue) == [2]
    assert started("bf_min_prio_reserve=5", queue) == []
    assert started("bf_min_prio_reserve=6,bf_interval=-1", queue) == [2]


def test_full_bf_node_space_table_ends_pass():
    """A reservation makes two entries beside the first: the second one finds the table full."""
    queue = [WIDE, a_job(2, units=4, per_unit=4, queue="p"), small(3)]
    assert started("bf_node_space_size=4", queue) == [3]
    assert started("bf_node_space_size=3", queue) == []


def test_bf_busy_nodes_reserves_nodes_in_use():
    held = a_running(a_job(90, units=2, per_unit=4, walltime_s=130), ((1, 1), (2, 1)))
    queue, cluster = [a_job(1, units=2, per_unit=4, queue="p"), small(2, LONG)], a_cluster(nodes=3)
    assert started("", queue, [held], cluster) == []
    assert started("bf_busy_nodes", queue, [held], cluster) == [2]


def who_keeps(first_s, second_s, now_s=0, text="bf_resolution=10"):
    """Which node of two is left to a long job of one core, while one that wants a node waits for their ends."""
    ends = [
        a_running(a_job(90 + n, per_unit=3, walltime_s=end_s), ((n, 1),)) for n, end_s in enumerate((first_s, second_s))
    ]
    queue = [a_job(1, per_unit=4, walltime_s=60, queue="p"), small(2, LONG, queue="q")]
    snapshot = a_snapshot(a_cluster(nodes=2), queue, ends, now_s)
    [[(node, _)]] = SlurmTwinDispatcher(text).decide(snapshot, "starts").starts_by_job(snapshot).values()
    return 1 - node


def test_groups_ends_and_reserves_first_nodes_of_group():
    """The first group goes on for 30 s after the next multiple of 30 s after the first end."""
    assert who_keeps(95, 95) == 0
    assert who_keeps(150, 95) == 0, "150 = 120 + 30"
    assert who_keeps(151, 95) == 1
    assert who_keeps(120 + 30, 89) == 1, "90 + 30 is before"


def test_next_group_of_ends_is_twice_as_wide():
    """Three nodes for two: the second group, until 120 + 60, has the second and the third end."""
    cluster = a_cluster(nodes=3)
    runs = [a_running(a_job(90 + n, per_unit=4, walltime_s=end_s), ((n, 1),)) for n, end_s in enumerate((180, 160, 95))]
    queue = [a_job(1, units=2, per_unit=4, walltime_s=60), a_job(2, per_unit=4, walltime_s=LONG)]

    def plan(until_s):
        later = a_running(a_job(90, per_unit=4, walltime_s=until_s), ((0, 1),))
        snapshot = a_snapshot(cluster, queue, [later, *runs[1:]])
        return SlurmTwinDispatcher("bf_resolution=10").decide(snapshot).plan_by_job(snapshot)

    assert plan(180) == {1: 180, 2: 95}, "nodes 0 and 1, though 1 and 2 are free at 160"
    assert plan(181) == {1: 160, 2: 181}


def test_reserves_whole_nodes_for_partial_job():
    held = a_running(a_job(90, per_unit=3, walltime_s=130), ((0, 1),))
    cluster = Cluster.of([[4], [1]], ["cores"])
    full = a_running(a_job(91, walltime_s=LONG), ((1, 1),))
    queue = [a_job(1, per_unit=2, queue="p"), small(2, LONG)]
    assert started("", queue, [held, full], cluster) == []
    assert started("", queue, [held, full], cluster, reserved="parts") == [2]


def test_reserves_parts_of_single_node():
    held = a_running(a_job(90, per_unit=3, walltime_s=130), ((0, 1),))
    assert started("", [a_job(1, per_unit=2), a_job(2, walltime_s=LONG)], [held], a_cluster(nodes=1)) == [2]


def test_impossible_job_blocks_no_other():
    never = a_job(1, units=9, per_unit=4, queue="p")
    assert started("bf_interval=-1", [never, small(2)], []) == [2]


def test_starts_nothing_between_passes_but_plans():
    snapshot = a_snapshot(a_cluster(), [WIDE, small(2, 40)], [HELD], now_s=40)
    twin = SlurmTwinDispatcher()
    twin.recall([[39, 39, 39, 39, 39, 1, 2, 0, 0, 0]] * 2)
    decision = twin.decide(snapshot)
    assert decision.starts_by_job(snapshot) == {}
    assert decision.plan_by_job(snapshot) == {1: 130, 2: 69}
    idle = twin.decide(snapshot, "starts")
    assert (idle.effort.path, idle.again_s) == ("no-pass-due", None)


def test_repeated_decision_at_same_time_is_equal():
    snapshot = a_snapshot(a_cluster(), [WIDE, small(2)], [HELD], now_s=40)
    twin = SlurmTwinDispatcher()
    assert list(twin.decide(snapshot).starts_by_job(snapshot)) == [2]
    assert list(twin.decide(snapshot).starts_by_job(snapshot)) == [2]
