from dataclasses import replace

import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.feasibility import (
    FreeAmounts,
    units_fitting_by_node,
    units_fitting_on_empty_cluster,
    verify,
    why_infeasible,
)
from cpsched.model import Cluster, Decision, Effort, PowerCap, Request, Starts
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.compiled_fit import is_feasible


def decision(placements):
    return Decision(Starts.of(placements), Effort("test"))


def faults(placements, snapshot):
    """What the judge says of these starts, as text; the compiled judge must agree that there is something, or not."""
    found = [str(violation) for violation in verify(decision(placements), snapshot)]
    assert is_feasible(decision(placements), snapshot) == (found == [])
    return found


CLUSTER = Cluster.of([[4, 8]] * 3, ["cores", "memory"], node_sets={"left": [0, 1]})
QUEUE = [
    a_job(1, units=2, per_unit=(2, 1)),
    a_job(2, units=2, per_unit=(1, 5), distinct=True),
    a_job(3, units=1, per_unit=(1, 1), exclusive=True),
    a_job(4, units=1, per_unit=(1, 1), node_set=1),
    a_job(5, units=1, per_unit=(3, 9)),
    a_job(6, units=1, per_unit=(1, 1), exclusive=True),
    a_job(7, units=1, per_unit=(5, 9)),
]


@pytest.mark.parametrize(
    ("placements", "said"),
    [
        ({0: ((0, 2),)}, []),
        ({0: ((2, 2),)}, ["job 1: n2 lacks cores"]),
        ({0: ((0, 1),)}, ["job 1: the number of placed units differs from the 2 requested"]),
        ({0: ((0, 3),)}, ["job 1: the number of placed units differs from the 2 requested"]),
        ({0: ((3, 2),)}, ["job 1: is placed on a node that does not exist"]),
        ({0: ((-1, 2),)}, ["job 1: is placed on a node that does not exist"]),
        # A rejected start takes nothing from later ones.
        *(
            ({0: placed, 2: ((0, 1),)}, [f"job 1: {rule}"])
            for placed, rule in (
                (((0, 1),), "the number of placed units differs from the 2 requested"),
                (((0, 3),), "the number of placed units differs from the 2 requested"),
                (((0, 1), (3, 1)), "is placed on a node that does not exist"),
            )
        ),
        ({0: ((1, 1), (0, 1))}, ["job 1: its nodes are not in ascending order"]),
        ({0: ((0, 1), (0, 1))}, ["job 1: lists a node twice"]),
        ({1: ((0, 2),)}, ["job 2: units that must be on distinct nodes share a node", "job 2: n0 lacks memory"]),
        ({1: ((0, 1), (1, 1))}, []),
        ({2: ((0, 1),)}, []),
        ({2: ((2, 1),)}, ["job 3: requests node n2 exclusively, but it is in use"]),
        ({3: ((1, 1),)}, []),
        ({3: ((2, 1),)}, ["job 4: is placed on a node outside left"]),
        ({4: ((2, 1),)}, ["job 5: n2 lacks memory"]),
        ({0: ((0, 2),), 1: ((0, 1), (1, 1))}, ["job 2: n0 lacks cores"]),
        ({0: ((0, 2),), 2: ((0, 1),)}, ["job 3: requests node n0 exclusively, but it is in use"]),
        ({2: ((0, 1),), 0: ((0, 2),)}, ["job 1: n0 lacks cores, memory"]),
        ({2: ((0, 1),), 3: ((0, 1),)}, ["job 4: n0 lacks cores, memory"]),
        ({2: ((1, 1),), 0: ((0, 2),)}, []),
        ({2: ((1, 1),), 5: ((1, 1),)}, ["job 6: requests node n1 exclusively, but it is in use"]),
        ({1: ((0, 1), (1, 1)), 3: ((1, 1),)}, []),
        ({1: ((0, 1), (1, 1)), 3: ((0, 1),), 0: ((0, 2),)}, ["job 1: n0 lacks cores"]),
        ({6: ((0, 1),)}, ["job 7: n0 lacks cores, memory"]),
        ({7: ((0, 1),)}, ["job 9: is not in the queue"]),
        ({8: ((0, 1),)}, ["decision: slot 8: is not in the queue"]),
        ({77: ((0, 1),)}, ["decision: slot 77: is not in the queue"]),
        (
            {0: ((-1, 1), (2, 1)), 4: ((2, 1),)},
            ["job 1: is placed on a node that does not exist", "job 5: n2 lacks memory"],
        ),
        (
            {4: ((-1, 1), (0, 1), (3, 1))},
            ["job 5: is placed on a node that does not exist", "job 5: n0 lacks memory"],
        ),
    ],
)
def test_names_each_rule_and_counts_earlier_starts(placements, said):
    """Seven jobs wait for three nodes of 4 cores and 8 GiB; a core of n2 is taken; what earlier starts took is gone."""
    snapshot = a_snapshot(CLUSTER, QUEUE, [a_running(a_job(9, per_unit=(1, 0)), ((2, 1),))])
    assert faults(placements, snapshot) == said


def test_job_is_started_once():
    snapshot = a_snapshot(CLUSTER, QUEUE)
    columns = ([0, 3, 0], [0, 1, 2, 3], [0, 1, 2], [2, 1, 2])
    twice = Decision(Starts(*(np.array(column, np.int64) for column in columns), by_construction=True), Effort("test"))
    assert [str(violation) for violation in verify(twice, snapshot)] == ["job 1: is started twice"]
    assert not is_feasible(twice, snapshot)


def capped(cluster, cap_w, **watts):
    return replace(cluster, power=PowerCap.of(cap_w, watts))


@pytest.mark.parametrize(
    ("cap_w", "left_w"), [(72, {}), (71, {2: 23}), (48, {2: 0}), (31, {1: 15, 2: 0}), (15, {1: 0, 2: 0})]
)
def test_checks_power_cap_start_by_start(cap_w, left_w):
    """Two running cores draw 16 W; the first start 32 W, the second 24 W, a job without cores nothing."""
    running = [a_running(a_job(9, per_unit=(2, 1)), ((0, 1),))]
    queue = [a_job(1, units=2, per_unit=(2, 1)), a_job(2, per_unit=(3, 1)), a_job(3, per_unit=(0, 1))]
    snapshot = a_snapshot(capped(CLUSTER, cap_w, cores=8), queue, running)
    draws_w = {1: 32, 2: 24}
    assert faults({0: ((1, 2),), 1: ((2, 1),), 2: ((2, 1),)}, snapshot) == [
        f"job {id}: draws {draws_w[id]} W, but only {left} W remain of the {cap_w} W power cap"
        for id, left in left_w.items()
    ]


def test_job_above_power_cap_is_infeasible():
    cluster = capped(Cluster.of([[8, 2]], ["cores", "gpus"]), 96, cores=8, gpus=40)
    requests = (Request(2, (2, 0)), Request(1, (2, 2)), Request(2, (2, 1)))
    reasons = [None, None, "draws 112 W, but the power cap is 96 W"]
    assert [why_infeasible(request, cluster) for request in requests] == reasons


@pytest.mark.parametrize(
    ("cap_w", "watts", "rule"),
    [
        (0, {"cores": 8}, "power.cap_w=0: must be positive"),
        (9, {}, "power.watts=: must contain at least one resource"),
        (9, {"cores": -1}, "power.watts.cores=-1: must not be negative"),
        (9, {"gpus": 1}, "power.watts=gpus: must be one of cores, memory"),
    ],
)
def test_rejects_invalid_power_cap(cap_w, watts, rule):
    with pytest.raises(InvalidValue, match=rule):
        capped(CLUSTER, cap_w, **watts)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (Request(1, (1,)), "requests 1 resources, but the cluster has 2"),
        (Request(1, (1, 1, 1)), "requests 3 resources, but the cluster has 2"),
        (Request(1, (1, 1), node_set=1), None),
        (Request(1, (1, 1), node_set=2), "node set 2 does not exist"),
        (Request(1, (8, 8)), None),
        (Request(1, (9, 1)), "no node can hold even one unit"),
        (Request(1, (1, 9)), "no node can hold even one unit"),
        (Request(16, (1, 1)), None),
        (Request(17, (1, 1)), "requests 17 units, but the empty cluster holds only 16"),
        (Request(4, (1, 8)), "requests 4 units, but the empty cluster holds only 3"),
        (Request(3, (1, 1), distinct=True), None),
        (Request(4, (1, 1), distinct=True), "requests 4 units on distinct nodes, but the empty cluster holds only 3"),
        (Request(8, (1, 1), node_set=1), None),
        (Request(9, (1, 1), node_set=1), "requests 9 units, but the empty cluster holds only 8"),
    ],
)
def test_infeasible_request_has_reason(request_, why):
    """Nodes of 4, 4 and 8 cores, each with 8 GiB; node set 1 holds the first two."""
    cluster = Cluster.of([[4, 8], [4, 8], [8, 8]], ["cores", "memory"], node_sets={"small": [0, 1]})
    assert why_infeasible(request_, cluster) == why


@pytest.mark.parametrize(
    ("asked", "by_node", "empty"),
    [
        (Request(9, (1,), node_set=1), [3, 4, 0], 8),
        (Request(9, (2,), node_set=1), [1, 2, 0], 4),
        (Request(9, (1,), distinct=True, node_set=1), [1, 1, 0], 2),
        (Request(9, (1,), exclusive=True, node_set=1), [0, 4, 0], 8),
        (Request(9, (5,)), [0, 0, 1], 1),
    ],
)
def test_counts_units_in_node_set_and_on_idle_whole_nodes(asked, by_node, empty):
    """Three nodes, of which a core of the first is in use; node set 1 holds the first two."""
    cluster = Cluster.of([[4], [4], [8]], ["cores"], node_sets={"small": [0, 1]})
    assert units_fitting_by_node(asked, cluster, np.array([[3], [4], [8]])).tolist() == by_node
    assert units_fitting_on_empty_cluster(asked, cluster) == empty


def test_free_amounts_follow_jobs_that_start_end_and_replace_others():
    """Job 2 takes a whole node, job 3 shares one with job 1. The job that replaces job 1 gets less than job 1 uses."""
    cluster = Cluster.of([[4, 8]] * 3, ["cores", "memory"])
    shared = a_running(a_job(1, units=3, per_unit=(1, 2)), ((0, 2), (1, 1)))
    whole = a_running(a_job(2, per_unit=(1, 1), exclusive=True), ((2, 1),))
    beside = a_running(a_job(3, per_unit=(1, 1)), ((0, 1),))
    free = FreeAmounts(cluster, cluster.capacity)
    for each in (shared, whole, beside):
        free.take(each.job.request, each.placement)
    assert free.free.tolist() == [[1, 3], [3, 6], [0, 0]]

    later = free.copy()
    later.take_after_stops(Request(2, (3, 1)), ((0, 1), (1, 1)), [shared])
    assert later.free.tolist() == [[0, 3], [1, 6], [0, 0]]
    later.release_all([])
    later.release(whole.job.request, whole.placement)
    assert later.free.tolist() == [[0, 3], [1, 6], [4, 8]]

    assert free.free.tolist() == [[1, 3], [3, 6], [0, 0]]
    free.release_all([whole, shared, beside])
    assert (free.free == cluster.capacity).all()


@pytest.mark.parametrize(("free", "units"), [((4, 8), 4), ((3, 8), 0), ((4, 7), 0), ((0, 8), 0), ((4, 0), 0)])
def test_exclusive_job_needs_node_without_any_use(free, units):
    cluster = Cluster.of([[4, 8]], ["cores", "memory"])
    assert units_fitting_by_node(Request(9, (1, 1), exclusive=True), cluster, np.array([free])).tolist() == [units]


def columns(slots=(0,), offsets=(0, 1), nodes=(0,), units=(1,), plan_s=None, dtype=np.int64):
    """A decision of whatever columns: none of the checks that `Starts` and `Decision` make on the way."""
    found = Decision(Starts.of({}), Effort("test"))
    for name, column in {"slots": slots, "offsets": offsets, "nodes": nodes, "units": units}.items():
        value = column if isinstance(column, str) else np.array(column, dtype=dtype)
        object.__setattr__(found.starts, name, value)
    object.__setattr__(found, "plan_s", None if plan_s is None else np.array(plan_s))
    return found


def rules(decided, snapshot):
    return [violation.rule for violation in verify(decided, snapshot)]


SHAPES = {
    "right": (columns(), []),
    "right, of small integers": (columns(dtype=np.int8), []),
    "a plan for each": (columns(plan_s=[0, 5]), []),
    "no arrays": (
        columns(slots="abc", units="x"),
        ["starts.slots is a str, not an array", "starts.units is a str, not an array"],
    ),
    "floats": (
        columns(dtype=np.float64),
        [f"starts.{name} holds float64, not 64-bit integers" for name in ("slots", "offsets", "nodes", "units")],
    ),
    "truths": (
        columns(dtype=np.bool_),
        [f"starts.{name} holds bool, not 64-bit integers" for name in ("slots", "offsets", "nodes", "units")],
    ),
    "unsigned beyond": (
        columns(dtype=np.uint64),
        [f"starts.{name} holds uint64, not 64-bit integers" for name in ("slots", "offsets", "nodes", "units")],
    ),
    "two axes": (columns(slots=[[0]]), ["starts.slots has 2 axes instead of one"]),
    "offsets too few": (columns(offsets=(0,)), ["has 1 offsets for 1 starts; must have one more"]),
    "offsets too many": (columns(offsets=(0, 1, 1)), ["has 3 offsets for 1 starts; must have one more"]),
    "units too few": (columns(nodes=(0, 1)), ["starts.nodes has 2 entries, but starts.units has 1"]),
    "a plan too short": (columns(plan_s=[0]), ["plan_s has 1 entries for a queue of 2"]),
    "a plan too long": (columns(plan_s=[0, 1, 2]), ["plan_s has 3 entries for a queue of 2"]),
    "a plan of floats": (columns(plan_s=[0.0, 1.0]), ["plan_s holds float64, not 64-bit integers"]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_both_checks_reject_invalid_decision(name):
    decided, expected = SHAPES[name]
    snapshot = a_snapshot(a_cluster(), [a_job(1), a_job(2)])
    assert rules(decided, snapshot) == expected
    assert is_feasible(decided, snapshot) == (not expected)


@pytest.mark.parametrize(
    ("per_unit", "running", "expected"),
    [
        (4, [a_running(a_job(2), ((0, 1),))], ["requests node n0 exclusively, but it is in use"]),
        (5, [], ["n0 lacks cores"]),
    ],
)
def test_busy_node_does_not_lack_cores_for_exclusive_job(per_unit, running, expected):
    snapshot = a_snapshot(a_cluster(2, 4), [a_job(1, per_unit=per_unit, exclusive=True)], running)
    assert rules(decision({0: ((0, 1),)}), snapshot) == expected


def test_violation_names_job():
    snapshot = a_snapshot(a_cluster(), [a_job(7)])
    for slot in (9, 1, -1):
        (unknown,) = verify(columns(slots=(slot,)), replace(snapshot, cluster=capped(a_cluster(), 1, cores=0)))
        assert (unknown.job_id, str(unknown)) == (None, f"decision: slot {slot}: is not in the queue")
    (wrong,) = verify(decision({0: ((0, 2),)}), snapshot)
    assert (wrong.job_id, str(wrong)) == (7, "job 7: the number of placed units differs from the 1 requested")
