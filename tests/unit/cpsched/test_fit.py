import numpy as np
import pytest

from cpsched.fit import room, room_by_node, verify
from cpsched.model import Cluster, Decision, Effort, Request, Starts
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def decision(placements):
    return Decision(Starts.of(placements), Effort("test"))


def test_verify_accepts_what_fits():
    snapshot = a_snapshot(a_cluster(nodes=2, cores=4), [a_job(units=4, per_unit=2)])
    assert verify(decision({0: ((0, 2), (1, 2))}), snapshot) == []


def test_verify_names_each_broken_rule():
    cluster = a_cluster(nodes=2, cores=4)
    queue = [a_job(1, units=2, per_unit=3), a_job(2, units=2, distinct=True), a_job(3, exclusive=True)]
    snapshot = a_snapshot(cluster, queue, [a_running(a_job(4), ((1, 1),))])
    found = verify(decision({0: ((0, 2),), 1: ((1, 2),), 2: ((1, 1),)}), snapshot)
    rules = " | ".join(map(str, found))
    assert "job 1: n0 lacks cores" in rules
    assert "job 2: units that must be on distinct nodes share one" in rules
    assert "job 3: wants node n1 for itself" in rules


def test_verify_refuses_wrong_unit_counts_and_double_starts():
    snapshot = a_snapshot(a_cluster(), [a_job(1, units=2)])
    assert "differ from the 2" in str(verify(decision({0: ((0, 1),)}), snapshot)[0])


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
def test_room_is_in_the_node_set_and_whole_nodes_must_be_free(asked, by_node, empty):
    """Three nodes, of which a core of the first is in use; node set 1 holds the first two."""
    cluster = Cluster.of([[4], [4], [8]], ["cores"], node_sets={"small": [0, 1]})
    assert room_by_node(asked, cluster, np.array([[3], [4], [8]])).tolist() == by_node
    assert room(asked, cluster) == empty
