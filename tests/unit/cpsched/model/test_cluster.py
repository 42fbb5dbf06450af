"""Node weights as values of a cluster."""

import dataclasses
import pickle

import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.model import Cluster
from cpsched.model.cluster import NodeSetCondition, PowerCap


def of(weights, capacity=((4, 1),) * 3):
    return Cluster.of(capacity, ["cores", "gpus"], weights=weights)


def test_equal_weights_are_none_and_change_no_kind():
    assert (of([7, 7, 7]).weights, of([7, 7, 7]).kind_of.tolist(), of(None).kind_of.tolist()) == (
        None,
        [0] * 3,
        [0] * 3,
    )


def test_different_weight_makes_another_node_kind():
    cluster = of([3, 1, 3])
    assert (cluster.kind_of.tolist(), cluster.weights.flags.writeable) == ([1, 0, 1], False)


@pytest.mark.parametrize("weights", [[1, 2], [1, 2, -1], [1, 2, 1 << 40]])
def test_rejects_invalid_weights(weights):
    with pytest.raises(InvalidValue, match="weights"):
        of(np.array(weights))


def test_nodes_of_several_weights_are_no_counted_pool():
    """A count of units does not show which nodes a job gets."""
    pools = [Cluster.of([[1], [1]], ["cores"], weights=weights) for weights in ([1, 1], [1, 2])]
    assert [pool.counted for pool in pools] == [True, False]


def test_pickled_cluster_has_equal_fields():
    """The constructor computes the derived fields again, and freezes the arrays."""
    cluster = dataclasses.replace(
        Cluster.of([[4, 0], [4, 2]], ["cores", "gpus"], ["a", "b"], {"gpu": [1]}, weights=[2, 1], leaf_switches=[0, 1]),
        epoch_s=7,
        power=PowerCap(900, (("cores", 5),)),
        node_set_parts=((NodeSetCondition("all", "all"),), (NodeSetCondition("feature", "gpu"),)),
    )
    copy = pickle.loads(pickle.dumps(cluster))
    for field in dataclasses.fields(Cluster):
        assert np.array_equal(getattr(copy, field.name), getattr(cluster, field.name)), field.name
    assert not copy.capacity.flags.writeable
