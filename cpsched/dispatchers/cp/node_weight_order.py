"""Apply node weights, topologies and typical requests to models that fill nodes from the last.

The papers' models and searches prefer the last node. With the heaviest nodes first and the lightest nodes last, they
prefer light nodes, so no model needs a rule for weights. Leaf switches, blocks, and nodes on which few GPUs become
stranded, are chosen after the model's decision.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from cpsched.feasibility import FreeAmounts
from cpsched.model import Cluster, Decision, IntArray, Snapshot, Starts
from cpsched.model.job_table import COLUMNS, JobTable, PlacementPool


@lru_cache(maxsize=1)
def cluster_by_descending_weight(cluster: Cluster) -> tuple[IntArray, Cluster]:
    """Return node indices by descending weight, and the cluster in that order."""
    assert cluster.weights is not None
    order = np.argsort(-cluster.weights, kind="stable")
    names = tuple(cluster.node_names[node] for node in order.tolist())
    rows, sets = cluster.capacity[order], np.ascontiguousarray(cluster.node_sets[:, order])
    leaves = None if cluster.leaf_switches is None else cluster.leaf_switches[order]
    weights = cluster.weights[order]
    topologies = tuple(
        replace(each, blocks=tuple(each.blocks[node] for node in order.tolist())) for each in cluster.block_topologies
    )
    return order, replace(
        cluster, node_names=names, capacity=rows, node_sets=sets, weights=weights, leaf_switches=leaves,
        block_topologies=topologies,
    )  # fmt: skip


def order_nodes_lightest_last(snapshot: Snapshot) -> tuple[IntArray, Snapshot]:
    """Return the node order, and a copy of the snapshot with its nodes in that order."""
    order, cluster = cluster_by_descending_weight(snapshot.cluster)
    table, place = snapshot.table, np.argsort(order)
    nodes, columns = place[table.place_node], {name: getattr(table, name).copy() for name in COLUMNS}
    pool = PlacementPool(len(nodes), nodes, table.place_units.copy())
    copied = JobTable(jobs=table.jobs, places=pool, **columns).read_only()
    free = np.ascontiguousarray(snapshot.free[order])
    return order, replace(snapshot, cluster=cluster, free=free, table=copied, by_construction=True, carry=None)


def restore_node_order(decision: Decision, order: IntArray) -> Decision:
    """Translate a decision on reordered nodes to the cluster's own node indices."""
    starts = decision.starts
    nodes, job = order[starts.nodes], np.repeat(np.arange(len(starts)), np.diff(starts.offsets))
    sort = np.lexsort((nodes, job))
    return replace(decision, starts=Starts(starts.slots, starts.offsets, nodes[sort], starts.units[sort]))


def with_chosen_nodes(decision: Decision, snapshot: Snapshot) -> Decision:
    """Return the decision with nodes chosen by `choose_nodes`, if all jobs still fit.

    With blocks, jobs that do not fit are not started.
    """
    free, placements = FreeAmounts(snapshot.cluster, snapshot.free), {}
    for slot in decision.starts.slots.tolist():
        request = snapshot.table.jobs[slot].request
        placement = free.find_placement(request)
        if placement:
            placements[slot] = placement
            free.take(request, placement)
        elif not snapshot.cluster.block_topologies:
            return decision
    return replace(decision, starts=Starts.of(placements))
