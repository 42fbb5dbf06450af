"""Test the verifier on valid, invalid and nonsensical decisions: it reports faults, never raises an error, and equals
its compiled version.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cpsched.feasibility import amounts_by_node, units_fitting_by_row, verify, why_infeasible
from cpsched.model import Decision, Effort, Starts
from cpsched.planning import GREEDY, plan
from cpsched_sim.testing.hypothesis_strategies import clusters, requests, scaled_example_settings, snapshots
from tests.builders import a_cluster, a_job, a_snapshot
from tests.compiled_fit import is_feasible

EXTREMES = [-(2**63), -(2**53), -1, 0, 1, 2, 3, 2**31, 2**53, 2**62, 2**63 - 1]


def decision_of(*columns, plan_s=None):
    """Return a decision that was not checked on creation."""
    made = object.__new__(Decision)
    starts = Starts(*columns, by_construction=True)
    for name, value in (("starts", starts), ("effort", Effort("test")), ("plan_s", plan_s), ("waits", {})):
        object.__setattr__(made, name, value)
    return made


@st.composite
def nearly(draw, snapshot):
    """Draw the columns of starts that fit, sometimes with a few changed entries so that they do not fit."""
    fitting = plan(snapshot, reservations=GREEDY, need="starts").starts
    columns = [column.copy() for column in (fitting.slots, fitting.offsets, fitting.nodes, fitting.units)]
    for _ in range(draw(st.integers(0, 2))):
        column = draw(st.sampled_from(columns))
        if len(column):
            value = draw(st.one_of(st.integers(-1, 6), st.sampled_from(EXTREMES)))
            column[draw(st.integers(0, len(column) - 1))] = value
    if len(columns[0]) and draw(st.booleans()):
        again = draw(st.integers(0, len(columns[0]) - 1))
        a, b = fitting.offsets[again : again + 2].tolist()
        columns[0] = np.append(columns[0], fitting.slots[again])
        columns[1] = np.append(columns[1], columns[1][-1] + b - a)
        columns[2], columns[3] = (
            np.append(c, old[a:b]) for c, old in zip(columns[2:], (fitting.nodes, fitting.units), strict=True)
        )
    return columns


@scaled_example_settings(400)
@given(snapshots(), st.data())
def test_compiled_check_agrees_on_every_decision(snapshot, data):
    decision = decision_of(*data.draw(nearly(snapshot)))
    before = snapshot.free.copy()
    found = verify(decision, snapshot)
    assert is_feasible(decision, snapshot) == (found == [])
    assert np.array_equal(snapshot.free, before)
    assert all(str(violation) for violation in found)


NONSENSE = st.one_of(
    st.none(),
    st.just("text"),
    st.just([1, 2]),
    st.just(np.array([[0]], np.int64)),
    st.just(np.array([np.nan, 1.0])),
    st.just(np.array([2**64 - 1], np.uint64)),
    st.just(np.array([None], object)),
    st.just(np.array(["1"])),
    st.just(np.int64(3)),
    st.lists(st.sampled_from(EXTREMES), max_size=3).map(lambda values: np.array(values, np.int64)),
    st.lists(st.integers(-2, 4), max_size=3).map(lambda values: np.array(values, np.int32)),
    st.lists(st.integers(-2, 4), max_size=6).map(lambda values: np.array(values, np.int64)[::2]),
)


@scaled_example_settings(400)
@given(snapshots(most=3), st.tuples(NONSENSE, NONSENSE, NONSENSE, NONSENSE), NONSENSE)
def test_no_decision_content_makes_check_raise(snapshot, columns, plan_s):
    decision = decision_of(*columns, plan_s=plan_s)
    assert is_feasible(decision, snapshot) == (verify(decision, snapshot) == [])


def test_invalid_decision_is_error_without_job():
    snapshot = a_snapshot(a_cluster(), [a_job(1)])
    for nothing in (None, 3, "start all", object()):
        (found,) = verify(nothing, snapshot)
        assert (found.job_id, is_feasible(nothing, snapshot)) == (None, False)


@settings(max_examples=100)  # 25 examples missed faults that 100 find
@given(st.data())
def test_infeasible_is_what_empty_cluster_cannot_hold(data):
    """`why_infeasible` counts by kind of node and `units_fitting_by_row` by node, but both use the same fit rule."""
    cluster = data.draw(clusters())
    request = data.draw(requests(cluster))
    room = units_fitting_by_row(request, cluster.capacity)[cluster.node_sets[request.node_set]].sum()
    assert (why_infeasible(request, cluster) is None) == (room >= request.units)
    for node in range(cluster.size):
        taken = amounts_by_node(request, ((node, 2),), cluster.capacity)[node]
        whole = cluster.capacity[node].tolist()
        assert taken.tolist() == (whole if request.exclusive else [2 * amount for amount in request.per_unit])
