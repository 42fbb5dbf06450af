"""Backfill of the twin of Slurm's scheduler, on machines of a few nodes of four cores: the exact starts.

The kernel runs as plain Python, so that nothing is compiled here and faults of it can be planted.
"""

import pytest

from cpsched.dispatchers.slurm.scheduler_parameters import SchedulerParameters, read_scheduler_parameters
from cpsched.dispatchers.slurm.slurm_dispatcher import build_scheduler_rules, number_job_owners
from cpsched.kernels import node_list_scheduling, slurm_passes
from cpsched.kernels.scheduling_state import empty_column
from cpsched.model import NEVER, Cluster
from cpsched.planning import get_scheduling_state
from tests.builders import a_cluster, a_job, a_running, a_snapshot, plain

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # in hashes, which are of 64 bits
plan_as_slurm = slurm_passes.plan_as_slurm.py_func  # type: ignore[attr-defined]


def wide(number, count, walltime_s=60):
    """A job of whole nodes."""
    return a_job(number, count, 4, walltime_s, distinct=True)


def held(*runs):
    """Running jobs of (node, cores, end)."""
    return [a_running(a_job(90 + at, per_unit=cores, walltime_s=end_s), ((node, 1),))
            for at, (node, cores, end_s) in enumerate(runs)]  # fmt: skip


def planned(machine, running, queue, text="bf_resolution=1", now_s=0, whole=True, passes=None):
    """Return the start of each job of the queue on a cluster or a number of nodes; None if unknown."""
    cluster = machine if isinstance(machine, Cluster) else a_cluster(machine)
    snapshot = a_snapshot(cluster, queue, running, now_s)
    site = plain(get_scheduling_state(snapshot))
    passes = passes or nothing_counted()
    passes.tally.rules = plain(build_scheduler_rules(read_scheduler_parameters(text).parameters))
    passes.main, passes.backfill, passes.whole = slurm_passes.FULL, 1, int(whole)
    plan_as_slurm(site, number_job_owners(cluster, snapshot.table), passes, empty_column())
    return [None if at_s == NEVER else at_s for at_s in site.draft.plan_s[: len(queue)].tolist()]


def nothing_counted():
    """What backfill counts, before its first pass."""
    e = empty_column
    tally = slurm_passes.BackfillPassState(
        build_scheduler_rules(SchedulerParameters()), 0, 0, 0, e(), e(), e(), e(), e(), e(), e(), 0, e(), e(), 0, e()
    )
    return plain(slurm_passes.SchedulingPassState(slurm_passes.NO_PASS, 0, 0, 0, 0, 0, 0, 0, tally))


SECOND_NODE = Cluster.of([[4]] * 2, ["cores"], node_sets={"q": [1]})


@pytest.mark.parametrize(
    ("machine", "running", "queue", "how", "expected"),
    [
        # The reservation is from 80 to 160, multiples of the resolution. The second job starts when its nodes return.
        (4, held((1, 4, 88)), [wide(1, 4), wide(2, 1, 240)], {"text": "bf_resolution=20"}, [88, 160]),
        # From now on, the second job would end just where the reservation begins, which is a second too late.
        (5, held((3, 4, 60)), [wide(1, 5), wide(2, 1)], {}, [60, 120]),
        # Node 1 is kept from 60 to 120, and from 480 on: the last job goes between these.
        (2, held((0, 4, 494)), [wide(1, 1), wide(2, 2), wide(3, 1), wide(4, 1)], {"text": "bf_resolution=20"},
         [0, 494, 60, 120]),
        # Node 0 is kept from 180 to 300, and its job ends at 204: the second one gets node 1.
        (2, held((1, 4, 204), (0, 4, 204)), [wide(1, 1), wide(2, 1)], {"text": "bf_resolution=60,bf_busy_nodes"},
         [204, 204]),
        # Both nodes are kept from 109 to 169, and node 0 is free from 90 on.
        (2, held((0, 4, 90), (1, 4, 109)), [wide(1, 2), wide(2, 1, 19)], {}, [109, 90]),
        (2, held((0, 4, 90), (1, 4, 109)), [wide(1, 2), wide(2, 1, 20)], {}, [109, 169]),
        # Groups of ends: two units fit on a node that is free, one on a node of which a core is in use.
        (3, held((0, 1, 120), (2, 1, 469)), [a_job(1, 6, 2)], {"text": "bf_resolution=20"}, [469]),
        # Node 0 has 1 core free, 2 at 120: with those the two nodes are filled from the lowest one on.
        (2, held((1, 2, 90), (0, 1, 120), (0, 2, 200)), [a_job(1, 4)], {"text": "bf_resolution=20"}, [120]),
        # The second group of ends is twice as wide: until 180, with the ends at 160 and 180.
        (3, held((0, 4, 180), (1, 4, 160), (2, 4, 95)), [wide(1, 2), wide(2, 1, 100_000)], {"text": "bf_resolution=10"},
         [180, 95]),
        (3, held((0, 4, 181), (1, 4, 160), (2, 4, 95)), [wide(1, 2), wide(2, 1, 100_000)], {"text": "bf_resolution=10"},
         [160, 181]),
        # The end of a reservation is rounded up.
        (4, held((0, 4, 130), (1, 4, 130)), [wide(1, 4), wide(2, 4)], {}, [130, 190]),
        (4, held((0, 4, 130), (1, 4, 130)), [wide(1, 4), wide(2, 4)], {"text": "bf_resolution=60"}, [130, 240]),
        # All ends of a node within the group count.
        (3, held((1, 4, 300), (0, 1, 9), (0, 1, 415)), [wide(1, 3), wide(2, 2)], {"text": "bf_resolution=60"},
         [415, 480]),
        # The first end is at 30, and the fourth group goes on until 60 + 240: also for a second end on a node.
        (6, held((0, 1, 300), (0, 1, 290), (1, 4, 301), (2, 4, 598), (5, 4, 300), (0, 2, 30)), [wide(1, 4)],
         {"text": "bf_resolution=60,bf_busy_nodes"}, [300]),
        # The last job is tried again at 152, when the second leaves its node; the end at 157 is not looked at before.
        (4, held((3, 4, 62), (1, 4, 346), (0, 2, 157)), [a_job(1, 5, walltime_s=60), wide(2, 1), wide(3, 2)],
         {"now_s": 32}, [32, 92, 152]),
        # The last job may have node 1 alone, which becomes free at 90, when node 0 comes back.
        (SECOND_NODE, held((0, 4, 30), (1, 4, 90)),
         [wide(1, 1), wide(2, 1), a_job(3, 1, 4, 60, distinct=True, node_set=1, queue="q")], {}, [30, 90, 150]),
        # Only starts are needed: node 1 is free until 181, which suffices for the third job, but not for the second.
        (2, held((0, 4, 181)), [wide(1, 2), wide(2, 1, 240), wide(3, 1)], {"whole": False}, [181, 241, 0]),
    ],
)  # fmt: skip
def test_plans_exact_starts(machine, running, queue, how, expected):
    assert planned(machine, running, queue, **how) == expected


@pytest.mark.parametrize(
    ("held_until_s", "walltimes_s", "expected"),
    [
        (63, (60, 60), [63, 3]),
        (64, (60, 60), [None, 3]),
        (62, (60, 60), [62, None]),
        (62, (60, 52), [62, 3]),
        (62, (60, 53), [62, None]),
        (10, (50, 60), [10, None]),
        (10, (46, 60), [10, 56]),
    ],
)
def test_table_of_times_ends_at_last_multiple(held_until_s, walltimes_s, expected):
    """At second 3, with a window of 60 s and a resolution of 7: the table ends at 63, and so does the window.

    A job may start at 63, but reserves nothing from then on; nodes that come back at 63 are not tried again.
    """
    queue = [wide(1, 2, walltimes_s[0]), wide(2, 1, walltimes_s[1])]
    text = "bf_resolution=7,bf_window=1"
    assert planned(2, held((0, 4, held_until_s)), queue, text, now_s=3) == expected


def test_each_pass_starts_without_reservations():
    """The same groups are kept in the second pass, and were not in the first."""
    passes = nothing_counted()
    first = [wide(1, 1), wide(2, 1), wide(3, 1), wide(4, 3), wide(5, 3)]
    assert planned(3, [], first, passes=passes) == [0, 0, 0, 60, 120]
    assert planned(3, held((0, 4, 100)), [wide(1, 3), wide(2, 1, 240)], passes=passes) == [100, 160]


@pytest.mark.parametrize("some", [0, 256])
def test_dropped_groups_keep_data_of_others(some, monkeypatch):
    """Groups without nodes are left out where they are many, and the others get new numbers."""
    monkeypatch.setattr(node_list_scheduling, "MAX_EMPTY_CLASSES", some)
    queue = [wide(number, 1 + number % 2) for number in range(5)]
    assert planned(2, [], queue, "bf_resolution=60") == [0, 60, 120, 180, 240]


@pytest.mark.parametrize("tries", [1, 2, 4, 1000])
def test_number_of_early_tries_changes_no_start(tries, monkeypatch):
    """After the maximum number of tries the earliest second is computed, and the try before that is the next."""
    monkeypatch.setattr(slurm_passes, "TRIES_BEFORE_SEARCH", tries)
    queue = [wide(1, 1, 240), wide(2, 2), wide(3, 1, 240)]
    assert planned(2, [], queue, "bf_resolution=1,bf_window=5") == [0, 240, None]
