"""Compare the choice of blocks with a plain version of Slurm's rule (topology/block/eval_nodes_block.c)."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cpsched import registry
from cpsched.errors import InvalidValue
from cpsched.feasibility import FreeAmounts, Violation, choose_nodes_in_blocks, verify, why_infeasible
from cpsched.model import BlockRule, BlockTopology, Cluster, Decision, Effort, PendingCode, PendingReason, Starts
from cpsched.wait_reasons import explain_waits
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.builders import a_job, a_running, a_snapshot
from tests.properties.strategies import used_clusters


def block_width(nodes, topology):
    """Return the number of base blocks in the smallest known block that could hold `nodes` nodes."""
    wanted = math.ceil(nodes / topology.block_nodes)
    known = [2**level for level in range(6) if topology.levels >> level & 1 and 2**level >= wanted]
    return known[0] if known else topology.count


def best_of(sizes, need):
    """Return the last of the keys with the lowest sufficient size, else of those with the highest size."""
    enough = [key for key, size in sizes.items() if size >= need]
    best = min(sizes[key] for key in enough) if enough else max(sizes.values())
    return [key for key, size in sizes.items() if size == best][-1]


def take_segment(inside, need, lower_width, most_lower, weights, blocks):
    """Return the nodes of one segment among the nodes `inside` its block, or None."""
    limit = next(w for w in sorted(set(weights)) if sum(weights[n] <= w for n in inside) >= need)
    chosen = [n for n in inside if weights[n] < limit]
    level = [n for n in inside if weights[n] == limit]
    begun = {blocks[n] for n in chosen}
    chosen += sorted((n for n in level if blocks[n] in begun), key=lambda n: blocks[n])[: need - len(chosen)]
    fresh = [n for n in level if blocks[n] not in begun]
    held = {b // lower_width: sum(blocks[n] // lower_width == b // lower_width for n in fresh) for b in blocks}
    while len(chosen) < need:
        able, left = {blocks[n] for n in fresh}, need - len(chosen)
        lower = {b // lower_width for b in able}
        if most_lower:
            used = {blocks[n] // lower_width for n in chosen}
            mine = sorted(lower & used or lower)
            lower = {low for low in mine if held[low] == held[best_of({low: held[low] for low in mine}, left)]}
        sizes = {b: sum(blocks[n] == b for n in fresh) for b in sorted(able)}
        if most_lower:
            # Among equal lower blocks, base blocks are compared in the order of their numbers.
            best = None
            for b in sizes:
                if b // lower_width in lower and (best is None or best_of({best: sizes[best], b: sizes[b]}, left) == b):
                    best = b
        else:
            best = best_of(sizes, left)
        chosen += [n for n in fresh if blocks[n] == best][:left]
        fresh = [n for n in fresh if blocks[n] != best]
    if most_lower and len({blocks[n] // lower_width for n in chosen}) > most_lower:
        return None
    return chosen


def block_choice(able, units, weights, topology, rule):
    """Return the nodes that Slurm chooses among `able`: segment by segment, best block first."""
    need = rule.segment if 0 < rule.segment < units else units
    if units % need:
        return ()
    blocks, width = topology.blocks, block_width(need, topology)
    wanted = math.ceil(need / topology.block_nodes)
    known = [2**level for level in range(1, 6) if topology.levels >> level & 1 and 2**level < wanted]
    lower_width = max(known, default=1)
    most_lower = math.ceil(need / (lower_width * topology.block_nodes))
    most_lower = 0 if width == lower_width * most_lower else most_lower
    group_width = None
    if rule.consolidate and need < units:
        whole = math.ceil(need / topology.block_nodes) * topology.block_nodes * (units // need)
        group_width = block_width(whole if rule.spread else units, topology)
    tried = set()
    while True:
        usable, chosen, group = [n for n in able if not group_width or blocks[n] // group_width not in tried], [], None
        while len(chosen) < units:
            best = None
            for first in range(0, topology.count, width):
                inside = [n for n in usable if first <= blocks[n] < first + width]
                together = [n for n in usable if group_width and blocks[n] // group_width == first // group_width]
                if group_width and group is None and len(together) < units:
                    continue
                lowers = [blocks[n] // lower_width for n in inside]
                most = sorted((lowers.count(low) for low in set(lowers)), reverse=True)
                if sum(most[: most_lower or None]) < need:
                    continue
                key = min(weights[n] for n in inside), len(inside)
                if best is None or key <= best[0]:
                    best = key, first, inside
            if best is None:
                break
            if group_width and group is None:
                group = best[1] // group_width
                usable = [n for n in usable if blocks[n] // group_width == group]
            segment = take_segment(best[2], need, lower_width, most_lower, weights, blocks)
            if segment is None:
                break
            chosen += segment
            touched = {blocks[n] for n in segment} if rule.spread else set()
            usable = [n for n in usable if n not in segment and blocks[n] not in touched]
        if len(chosen) == units:
            return tuple((n, 1) for n in sorted(chosen))
        if group is None or group in tried:
            return ()
        tried.add(group)


@st.composite
def blocks(draw):
    """Draw a snapshot of nodes in blocks with gaps, some in use, with one queued job and the expected placement.

    Sometimes, another topology comes first.
    """
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=7).filter(any))
    order = draw(st.permutations([at for at, size in enumerate(sizes) for _ in range(size)] + [-1]))
    levels = 1 | draw(st.integers(0, 7)) << 1
    topology = BlockTopology(tuple(order), draw(st.integers(1, 4)), levels, len(sizes))
    inside = [n for n, block in enumerate(order) if block >= 0]
    cluster, used, running = draw(
        used_clusters([[4]] * len(order), draw(st.integers(0, 1)), grain=2, node_sets={"blocks": inside})
    )
    able = [n for n in inside if used[n] < 4]
    units = draw(st.integers(1, max(1, len(able))))
    segment = draw(st.sampled_from([0, *(each for each in range(1, units + 2))]))
    before = (BlockTopology((0,) * len(order), len(order), 1, 1),) * draw(st.integers(0, 1))
    rule = BlockRule(len(before), segment, draw(st.booleans()), draw(st.booleans()))
    cluster = dataclasses.replace(
        cluster,
        block_topologies=(*before, topology),
        node_set_blocks=(None, rule),
    )
    weights = np.zeros(len(order)) if cluster.weights is None else cluster.weights
    snapshot = a_snapshot(cluster, [a_job(1, units, 2, distinct=True, node_set=1)], running)
    return snapshot, block_choice(able, units, weights.tolist(), topology, rule)


@scaled_example_settings(500)
@given(blocks())
def test_arrays_choose_like_slurm(drawn):
    snapshot, expected = drawn
    (job,) = snapshot.queued_jobs()
    assert FreeAmounts(snapshot.cluster, snapshot.free).find_placement(job.request) == expected


@pytest.mark.parametrize(
    ("free", "sizes", "units", "rule", "taken"),
    [
        # One block: the fewest nodes that suffice, the last of equal ones, and lower weights first.
        ("11 111 11", (3,), 2, (), "0 0 2"),
        ("11 111 11", (3,), 3, (), "0 3 0"),
        ("00 111 11", (3,), 2, (), "2 0 0"),
        # Base blocks of one block: the fullest, and then the one with the fewest nodes that suffice for the rest.
        ("111 111 1 11", (3, 6), 4, (), "1 3 0 0"),
        ("111 11 1 11", (3, 6), 4, (), "3 1 0 0"),
        ("11 11", (3, 6), 4, (), "2 2"),
        ("1 1 1", (1, 8), 2, (), "0 1 1"),
        # Sizes with gaps: the smallest number of lower blocks, of which used ones come first.
        ("1 - - 1 1", (1,), 3, (), "1 0 0 1 1"),
        ("1 1 1", (2,), 3, (), "0 0 0"),
        ("- 0 1 1 1", (1, 2, 8), 3, (), "0 1 1 1 0"),
        ("- - - - 0 1 1 1", (1, 2, 4), 3, (), "0 0 0 0 1 0 1 1"),
        ("0 - 01 0", (2, 8, 16), 3, (), "0 0 0 0"),
        # Segments, which lie in separate base blocks, in one larger block, or both.
        ("11 111 11", (3,), 4, (2,), "2 0 2"),
        ("11 -", (3, 6), 2, (1, True), "0 0"),
        ("11 1", (2, 4), 2, (1, False, True), "2 0"),
        ("11 11 11", (2, 4, 16), 2, (1, True, True), "1 1 0"),
        ("11 111 11", (3,), 3, (2,), "0 0 0"),
    ],
)
def test_fills_blocks(free, sizes, units, rule, taken):
    """A word is a base block, whose free nodes are shown with their weights."""
    words = [word.replace("-", "") for word in free.split()]
    blocks = np.array([at for at, word in enumerate(words) for _ in word])
    weights, levels = np.array([int(each) for each in "".join(words)]), sum(size // sizes[0] for size in sizes)
    row = BlockRule(0, *rule).to_row(BlockTopology(tuple(blocks.tolist()), sizes[0], levels, len(words)))
    found = choose_nodes_in_blocks(np.ones(len(blocks), np.int64), units, weights, blocks, np.array(row))
    assert " ".join(map(str, np.bincount(blocks[[node for node, _ in found]], minlength=len(words)))) == taken


@scaled_example_settings(300)
@given(blocks(), st.randoms())
def test_verifier_refuses_nodes_in_several_blocks(drawn, draw):
    """Without segments, the nodes must lie in one block, and in few lower blocks."""
    snapshot, _ = drawn
    (job,) = snapshot.queued_jobs()
    topology, rule = snapshot.cluster.block_topologies[-1], snapshot.cluster.node_set_blocks[1]
    assume(not 0 < rule.segment < job.request.units)
    able = np.flatnonzero(FreeAmounts(snapshot.cluster, snapshot.free).units_fitting(job.request)).tolist()
    assume(len(able) >= job.request.units)
    nodes = sorted(draw.sample(able, job.request.units))
    width = block_width(len(nodes), topology)
    wanted = math.ceil(len(nodes) / topology.block_nodes)
    lower_width = max([1] + [2**at for at in range(1, 6) if topology.levels >> at & 1 and 2**at < wanted])
    most_lower = math.ceil(len(nodes) / (lower_width * topology.block_nodes))
    used = {topology.blocks[node] for node in nodes}
    is_whole = len({block // width for block in used}) == 1
    is_few = width == lower_width * most_lower or len({block // lower_width for block in used}) <= most_lower
    decision = Decision(Starts.of({0: tuple((node, 1) for node in nodes)}), Effort("test"))
    rules = [] if is_whole and is_few else [Violation(1, "its nodes do not fill blocks as the topology requires")]
    assert verify(decision, snapshot) == rules


PAIRS = dataclasses.replace(
    Cluster.of([[4]] * 5, ["cores"], ["a", "b", "c", "d", "outside"], {"blocks": [0, 1, 2, 3]}),
    block_topologies=(BlockTopology((0, 0, 2, 2, -1), 2, 1, 3),),
    node_set_blocks=(None, BlockRule(0)),
)
"""Base blocks of two nodes with an empty one between them, and a node in no block."""


def test_waiting_job_is_planned_when_a_block_is_free():
    """Two of the four nodes are free, but in different blocks."""
    running = [a_running(a_job(7, walltime_s=50), ((0, 1),)), a_running(a_job(8, walltime_s=90), ((2, 1),))]
    snapshot = a_snapshot(PAIRS, [a_job(1, 2, 4, distinct=True, node_set=1)], running)
    decision = registry.DISPATCHERS.build("easy").decide(snapshot, "plan")
    assert (decision.plan_by_job(snapshot), len(decision.starts)) == ({1: 50}, 0)
    (wait,) = explain_waits(snapshot, decision.starts, decision.plan_s).values()
    assert wait.reason == PendingReason(PendingCode.BLOCKS, (2,))


def test_job_that_no_block_holds_never_fits():
    narrow = dataclasses.replace(PAIRS, block_topologies=(BlockTopology((0, 1, 2, 3, -1), 2, 1, 4),))
    request = a_job(1, 2, 4, distinct=True, node_set=1).request
    assert why_infeasible(request, PAIRS) is None
    rule = "requests 2 nodes, but not even the empty cluster's blocks hold them together"
    both = PAIRS.block_topologies + narrow.block_topologies
    second = dataclasses.replace(PAIRS, block_topologies=both, node_set_blocks=(None, BlockRule(1)))
    assert why_infeasible(request, narrow) == why_infeasible(request, second) == rule


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"block_topologies": (BlockTopology((0, 0, 1, 1), 2, 1, 2),)}, "block_topologies"),
        ({"node_set_blocks": (None,)}, "node_set_blocks"),
        ({"node_set_blocks": (None, BlockRule(1))}, "node_set_blocks"),
        ({"node_set_blocks": (BlockRule(0), None)}, "node_set_blocks"),
    ],
)
def test_cluster_refuses_inconsistent_blocks(facts, field):
    with pytest.raises(InvalidValue, match=field):
        dataclasses.replace(PAIRS, **facts)


def test_units_that_may_share_nodes_cannot_fill_blocks():
    with pytest.raises(InvalidValue, match="distinct"):
        a_snapshot(PAIRS, [a_job(1, 2, 4, node_set=1)])
