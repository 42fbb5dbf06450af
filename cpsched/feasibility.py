"""The fit rule: whether a decision fits its snapshot, by node and resource.

The bridge verifies each decision before applying it; the simulator verifies every round. `cpsched.kernels.fit_rules`
defines the rule once. It is compiled in the simulator and plain Python here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cpsched.kernels import fit_rules
from cpsched.kernels.block_selection import block_quotas
from cpsched.kernels.fragmentation import stranded_growth_by_node
from cpsched.kernels.node_selection import is_better_leaf
from cpsched.model import EXCLUSIVE, Cluster, Decision, IntArray, Placement, Request, RunningJob, Snapshot, Starts
from cpsched.model.blocks import TOPOLOGY
from cpsched.model.gpu_parts import GpuUse


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a decision violates. `job_id` is None if no known job is at fault."""

    job_id: int | None
    rule: str

    def __str__(self) -> str:
        return f"job {self.job_id}: {self.rule}" if self.job_id is not None else f"decision: {self.rule}"


def verify(decision: Decision, snapshot: Snapshot) -> list[Violation]:
    """Return the rules that `decision` violates, or an empty list if it is valid.

    Raise no exception for any decision of a plug-in.
    """
    faults = find_format_faults(decision, snapshot)
    if faults:
        return [Violation(None, fault) for fault in faults]
    slots, offsets, nodes, units = start_columns(decision)
    cluster, table, free = snapshot.cluster, snapshot.table, snapshot.free.copy()
    total_free, phase = free.sum(axis=0), _job_phases_by_slot(snapshot)
    gpu_use = GpuUse(cluster, snapshot.free)
    found: list[Violation] = []
    for i, slot in enumerate(slots.tolist()):
        broken = fit_rules.start_faults(i, slots, offsets, nodes, units, phase, free, cluster, table)
        known = 0 <= slot < len(table.jobs)
        id = table.jobs[slot].id if known else None
        if broken:
            where = "" if known else f"slot {slot}: "
            found += (Violation(id, where + rule) for rule in _describe_violations(broken, i, decision, snapshot, free))
        if broken & (fit_rules.NOT_QUEUED | fit_rules.NO_PLACEMENT | fit_rules.NO_NODE | fit_rules.WRONG_UNITS):
            continue
        part = slice(int(offsets[i]), int(offsets[i + 1]))
        full = gpu_use.add_start(table.per_unit[slot], nodes[part], units[part]) if gpu_use.limits_starts else ()
        for node in full:
            found.append(
                Violation(id, f"{cluster.node_names[node]} may lack free GPUs of the type or with enough parts")
            )
        fit_rules.add_to_free(table, slot, cluster, nodes[part], units[part], free, total_free, -1)
        phase[slot] = fit_rules.STARTED
    return found + _power_cap_violations(slots, snapshot)


def _power_cap_violations(slots: IntArray, snapshot: Snapshot) -> list[Violation]:
    """Return a violation for each start that exceeds the power left under the cap."""
    cluster, jobs, found = snapshot.cluster, snapshot.table.jobs, []
    if cluster.power is None:
        return []
    left_w = cluster.power.cap_w - power_draw_w(snapshot)
    for job in (jobs[slot] for slot in slots.tolist() if 0 <= slot < len(jobs)):
        watts = cluster.power.draw_w(job.request, cluster.resources)
        if watts > max(0, left_w):
            rule = f"draws {watts:,} W, but only {max(0, left_w):,} W remain of the {cluster.power.cap_w:,} W power cap"
            found.append(Violation(job.id, rule))
        left_w -= watts
    return found


def power_draw_w(snapshot: Snapshot) -> int:
    """Return the power draw of the running jobs in watts, or 0 without a power cap."""
    power, resources, jobs = snapshot.cluster.power, snapshot.cluster.resources, snapshot.table.jobs
    return 0 if power is None else sum(power.draw_w(jobs[s].request, resources) for s in snapshot.running.tolist())


def drop_starts_without_gpus(decision: Decision, snapshot: Snapshot) -> Decision:
    """Return the decision without the starts that may not find their GPUs. The next decision is then due at once.

    Dispatchers plan with amounts, by which each start on its own fits.
    """
    cluster, starts, jobs = snapshot.cluster, decision.starts, len(snapshot.table.jobs)
    use = GpuUse(cluster, snapshot.free)
    if not use.limits_starts:
        return decision
    placements = starts.placements()
    is_known = all(0 <= slot < jobs for slot in placements) and bool(
        ((starts.nodes >= 0) & (starts.nodes < cluster.size)).all()
    )
    if not is_known or len(placements) < len(starts):
        return decision  # `verify` reports it
    kept = {
        slot: placement
        for slot, placement in placements.items()
        if not use.add_start(snapshot.table.per_unit[slot], *np.array(placement, np.int64).reshape(-1, 2).T)
    }
    if len(kept) == len(placements):
        return decision
    soon_s = snapshot.now_s + 1
    again_s = soon_s if decision.again_s is None else min(soon_s, decision.again_s)
    return replace(decision, starts=Starts.of(kept), again_s=again_s)


# ------------------------------------------------------------------------------------------------- decision format


def start_columns(decision: Decision) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return the starts' slots, offsets, nodes and units, as contiguous int64."""
    starts = decision.starts
    slots, offsets, nodes, units = (
        np.ascontiguousarray(column, np.int64) for column in (starts.slots, starts.offsets, starts.nodes, starts.units)
    )
    return slots, offsets, nodes, units


def find_format_faults(decision: object, snapshot: Snapshot) -> list[str]:
    """Return why a decision is malformed: a missing column, a wrong type or length."""
    if not isinstance(decision, Decision):
        return [f"is a {type(decision).__name__}, not a decision"]
    found, lengths = [], {}
    for name in ("slots", "offsets", "nodes", "units"):
        column = getattr(decision.starts, name, None)
        fault = _why_invalid_column(column)
        if fault is None and isinstance(column, np.ndarray):
            lengths[name] = len(column)
        else:
            found.append(f"starts.{name} {fault}")
    if len(lengths) == 4:
        if lengths["offsets"] != lengths["slots"] + 1:
            found.append(f"has {lengths['offsets']} offsets for {lengths['slots']} starts; must have one more")
        if lengths["nodes"] != lengths["units"]:
            found.append(f"starts.nodes has {lengths['nodes']} entries, but starts.units has {lengths['units']}")
    if decision.plan_s is not None:
        fault = _why_invalid_column(decision.plan_s)
        if fault is not None:
            found.append(f"plan_s {fault}")
        elif len(decision.plan_s) != len(snapshot.queue):
            found.append(f"plan_s has {len(decision.plan_s)} entries for a queue of {len(snapshot.queue)}")
    return found


def _why_invalid_column(column: object) -> str | None:
    """Return why `column` is not a valid integer column, or None if it is valid."""
    if not isinstance(column, np.ndarray):
        return f"is a {type(column).__name__}, not an array"
    if column.ndim != 1:
        return f"has {column.ndim} axes instead of one"
    if column.dtype.kind not in "iu" or not np.can_cast(column.dtype, np.int64):
        return f"holds {column.dtype}, not 64-bit integers"
    return None


# ------------------------------------------------------------------------------------------------- violations as text

_START_RULE_TEXTS = {
    fit_rules.NOT_QUEUED: "is not in the queue",
    fit_rules.TWICE: "is started twice",
    fit_rules.NO_PLACEMENT: "its placement is outside the decision's entries",
    fit_rules.NO_NODE: "is placed on a node that does not exist",
    fit_rules.OUT_OF_ORDER: "its nodes are not in ascending order",
    fit_rules.LISTED_TWICE: "lists a node twice",
    fit_rules.SPLIT: "its nodes do not fill blocks as the topology requires",
    fit_rules.SHARED: "units that must be on distinct nodes share a node",
}


def _describe_violations(broken: int, i: int, decision: Decision, snapshot: Snapshot, free: IntArray) -> Iterator[str]:
    """Yield the rules that the `i`-th start violates, as text.

    `free` contains the amounts that are free after earlier starts.
    """
    cluster, table = snapshot.cluster, snapshot.table
    slots, offsets, nodes, units = start_columns(decision)
    slot = int(slots[i])
    yield from (rule for bit, rule in _START_RULE_TEXTS.items() if broken & bit)
    if broken & fit_rules.WRONG_UNITS:
        yield f"the number of placed units differs from the {int(table.units[slot])} requested"
    if broken & fit_rules.OUTSIDE:
        yield f"is placed on a node outside {cluster.node_set_names[int(table.node_set[slot])]}"
    if not broken & (fit_rules.IN_USE | fit_rules.LACKS):
        return
    whole = int(table.sharing[slot]) & EXCLUSIVE
    for node, count in zip(
        nodes[offsets[i] : offsets[i + 1]].tolist(), units[offsets[i] : offsets[i + 1]].tolist(), strict=True
    ):
        if not 0 <= node < cluster.size:
            continue
        name = cluster.node_names[node]
        fault = fit_rules.placement_entry_faults(table, slot, cluster, free, -1, node, count)
        if fault & fit_rules.IN_USE:
            yield f"requests node {name} exclusively, but it is in use"
        if fault & fit_rules.LACKS:
            room = cluster.capacity[node] if whole else free[node]
            short = [
                resource
                for resource, amount, left in zip(
                    cluster.resources, table.per_unit[slot].tolist(), room.tolist(), strict=True
                )
                if fit_rules.units_that_fit(count, amount, 0, left, left) < count
            ]
            yield f"{name} lacks {', '.join(short)}"


def _job_phases_by_slot(snapshot: Snapshot) -> IntArray:
    """Return the phase of each slot: `QUEUED` if its job is in the queue, else 0."""
    phase = np.zeros(len(snapshot.table.units), dtype=np.int64)
    phase[snapshot.queue] = fit_rules.QUEUED
    return phase


# ---------------------------------------------------------------------------------------------- requests


def placement_amount_arrays(request: Request, placement: Placement, capacity: IntArray) -> tuple[IntArray, IntArray]:
    """Return the nodes of `placement` and the amounts used there, [K] and [K, R].

    This function is faster than `amounts_by_node` on many nodes, but slower on a few.
    """
    nodes, units = np.array(placement, np.int64).reshape(-1, 2).T
    return nodes, capacity[nodes] if request.exclusive else units[:, None] * np.array(request.per_unit, np.int64)


def stack_placement_amounts(jobs: Sequence[RunningJob], capacity: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return positions in `jobs`, nodes, and amounts used: [K], [K] and [K, R]."""
    owner = np.repeat(np.arange(len(jobs)), [len(each.placement) for each in jobs])
    places = np.array([place for each in jobs for place in each.placement], np.int64).reshape(-1, 2)
    per_unit = np.array([each.job.request.per_unit for each in jobs], np.int64).reshape(len(jobs), -1)
    whole = np.array([each.job.request.exclusive for each in jobs], bool)[owner, None]
    nodes, units = places.T
    return owner, nodes, np.where(whole, capacity[nodes], units[:, None] * per_unit[owner])


def amounts_by_node(request: Request, placement: Placement, capacity: np.ndarray) -> dict[int, np.ndarray]:
    """Return the amounts [R] that `request` uses on each node of `placement`.

    An exclusive request uses the whole node.
    """
    return {
        node: np.array(
            [
                fit_rules.amount_taken(units, amount, request.exclusive, int(most))
                for amount, most in zip(request.per_unit, capacity[node], strict=True)
            ],
            dtype=np.int64,
        )
        for node, units in placement
    }


def units_fitting_by_row(request: Request, capacity: np.ndarray) -> IntArray:
    """Return how many units of `request` fit in each row of `capacity`, int64[N].

    `capacity` is int64[N, R]. Node sets are ignored.
    """
    most = 1 if request.distinct else request.units
    rows = np.ascontiguousarray(capacity, dtype=np.int64)
    return fit_rules.units_fitting_in_rows(np.array(request.per_unit, dtype=np.int64), most, rows)


def units_fitting_by_node(
    request: Request, cluster: Cluster, free: IntArray, nodes: IntArray | slice = slice(None)
) -> IntArray:
    """Return how many units of `request` fit on each of `nodes`, given `free`.

    `free` is int64[N, R]. The number is 0 outside the request's node set. Node sets and exclusive use are checked with
    array operations, because a queue has hundreds of requests. In plain Python, a call of `units_that_fit` per node
    takes 2.6 ms for 1,500 nodes instead of 0.02 ms.
    """
    return units_fitting_given_amounts(request, cluster, free[nodes], nodes)


def units_fitting_given_amounts(
    request: Request, cluster: Cluster, amounts: IntArray, nodes: IntArray | slice
) -> IntArray:
    """Return how many units of `request` fit on each of `nodes`, given `amounts`.

    `amounts` is int64[K, R], the free amounts on these nodes.
    """
    found = units_fitting_by_row(request, amounts)
    found[~cluster.node_sets[request.node_set, nodes]] = 0
    if request.exclusive:
        found[(amounts != cluster.capacity[nodes]).any(axis=1)] = 0
    return found


def choose_nodes(
    room: IntArray, units: int, cluster: Cluster, node_set: int = 0, growth: IntArray | None = None
) -> Placement:
    """Return a placement of `units` units, as `cpsched.kernels.node_selection` does, or () if they do not fit.

    `room` contains the number of units that fit on each node. `growth` contains a last key before the index, lowest
    first. It is ignored for several units below leaf switches.
    """
    if int(room.sum()) < units:
        return ()
    rule = cluster.block_rules[node_set]
    if rule[TOPOLOGY] >= 0:
        return choose_nodes_in_blocks(room, units, cluster.weights, cluster.block_of[rule[TOPOLOGY]], rule)
    order = np.arange(len(room)) if cluster.weights is None else np.argsort(cluster.weights, kind="stable")
    if cluster.leaf_switches is not None and units > 1:
        order = _sort_by_leaf_switch(order, room, units, cluster)
    elif growth is not None:
        order = np.lexsort((growth,) if cluster.weights is None else (growth, cluster.weights))
    counts = np.zeros(len(room), np.int64)
    counts[order] = np.diff(np.minimum(np.cumsum(room[order]), units), prepend=0)
    nodes = np.flatnonzero(counts)
    return tuple(zip(nodes.tolist(), counts[nodes].tolist(), strict=True))


def choose_nodes_in_blocks(
    room: IntArray, units: int, weights: IntArray | None, blocks: IntArray, rule: IntArray
) -> Placement:
    """Return a placement of one unit on each of `units` nodes that fills blocks, or ().

    `blocks` contains the base block of each node, and `rule` is a row of `Cluster.block_rules`.
    """
    if weights is None:
        weights = np.zeros(len(room), np.int64)
    nodes = np.flatnonzero(room)
    nodes = nodes[np.lexsort((weights[nodes], blocks[nodes]))]
    items, size = np.unique(np.stack((blocks[nodes], weights[nodes])), axis=1, return_counts=True)
    quotas = block_quotas(rule, np.column_stack((*items, size)), units)
    places_in_block = np.arange(len(nodes)) - np.searchsorted(blocks[nodes], blocks[nodes])
    chosen = np.sort(nodes[places_in_block < quotas[blocks[nodes]]])
    return tuple((node, 1) for node in chosen.tolist())


def _sort_by_leaf_switch(order: IntArray, room: IntArray, units: int, cluster: Cluster) -> IntArray:
    """Return `order`, sorted by leaf switch within the last weight that is needed."""
    assert cluster.leaf_switches is not None
    weights = np.zeros(len(room), np.int64) if cluster.weights is None else cluster.weights
    at = min(int(np.searchsorted(np.cumsum(room[order]), units)), len(order) - 1)
    lighter, level = order[weights[order] < weights[order[at]]], order[weights[order] == weights[order[at]]]
    level, need = level[room[level] > 0], units - int(room[lighter].sum())
    used = set(cluster.leaf_switches[lighter[room[lighter] > 0]].tolist())
    found = [lighter]
    while need > 0 and len(level):
        leaves = {
            leaf: level[cluster.leaf_switches[level] == leaf]
            for leaf in np.unique(cluster.leaf_switches[level]).tolist()
        }
        facts = {leaf: (int(leaf in used), len(nodes), int(room[nodes].sum())) for leaf, nodes in leaves.items()}
        best = next(iter(leaves))
        for leaf in leaves:
            best = leaf if is_better_leaf(*facts[leaf], *facts[best], need) else best
        found.append(leaves[best])
        level, need = level[cluster.leaf_switches[level] != best], need - facts[best][2]
    return np.concatenate(found)


def fills_blocks(room: IntArray, request: Request, cluster: Cluster) -> bool:
    """Return whether nodes that hold a request's units can also fill its blocks, if it must fill any."""
    if cluster.block_rules[request.node_set, TOPOLOGY] < 0:
        return True
    return bool(choose_nodes(room, request.units, cluster, request.node_set))


class FreeAmounts:
    """The free amounts of a cluster's nodes, int64[N, R], for tentative changes."""

    def __init__(self, cluster: Cluster, free: IntArray) -> None:
        self.cluster, self.free = cluster, free.copy()

    def copy(self) -> FreeAmounts:
        """Return an independent copy."""
        return FreeAmounts(self.cluster, self.free)

    def units_fitting(self, request: Request, nodes: IntArray | slice = slice(None)) -> IntArray:
        """Return how many units of a request fit on each of `nodes`."""
        return units_fitting_by_node(request, self.cluster, self.free, nodes)

    def find_placement(self, request: Request) -> Placement:
        """Return a placement on the nodes of lowest weight, or () if none fits."""
        room, typical, growth = self.units_fitting(request), self.cluster.typical, None
        if typical is not None:
            per_unit, units = np.array(request.per_unit, np.int64), np.minimum(room, request.units)
            growth = stranded_growth_by_node(typical, self.free, per_unit, units, int(request.exclusive))
        return choose_nodes(room, request.units, self.cluster, request.node_set, growth)

    def take_after_stops(self, request: Request, placement: Placement, stopped: Sequence[RunningJob]) -> None:
        """Subtract the amounts of a job that starts once `stopped` have ended. Until then, these still use theirs."""
        before = self.free.copy()
        self.release_all(stopped)
        self.take(request, placement)
        np.minimum(self.free, before, out=self.free)

    def release(self, request: Request, placement: Placement) -> None:
        """Add the amounts of a job that stops."""
        nodes, amounts = placement_amount_arrays(request, placement, self.cluster.capacity)
        self.free[nodes] += amounts

    def release_all(self, jobs: Sequence[RunningJob]) -> None:
        """Add the amounts of several jobs that stop."""
        if jobs:
            _, nodes, amounts = stack_placement_amounts(jobs, self.cluster.capacity)
            np.add.at(self.free, nodes, amounts)

    def take(self, request: Request, placement: Placement) -> None:
        """Subtract the amounts of a job that starts."""
        nodes, amounts = placement_amount_arrays(request, placement, self.cluster.capacity)
        self.free[nodes] -= amounts


def units_fitting_on_empty_cluster(request: Request, cluster: Cluster) -> int:
    """Return how many units of `request` fit on the empty cluster.

    Each node counts for at most the requested number of units, or for one if the units need distinct nodes.
    """
    total = 0
    for node, nodes in zip(cluster.kind_node.tolist(), np.bincount(cluster.kind_of).tolist(), strict=True):
        most = 1 if request.distinct else request.units
        for amount, capacity in zip(request.per_unit, cluster.capacity[node].tolist(), strict=True):
            most = fit_rules.units_that_fit(most, amount, request.exclusive, capacity, capacity)
        if cluster.node_sets[request.node_set, node]:
            total += nodes * most
    return total


def why_infeasible(request: Request, cluster: Cluster) -> str | None:
    """Return why a job with this request can never run, or None if it can.

    Such a job does not fit even on the empty cluster.
    """
    if len(request.per_unit) != len(cluster.resources):
        return f"requests {len(request.per_unit)} resources, but the cluster has {len(cluster.resources)}"
    if request.node_set >= len(cluster.node_sets):
        return f"node set {request.node_set} does not exist"
    total = units_fitting_on_empty_cluster(request, cluster)
    if not total:
        return "no node can hold even one unit"
    if total < request.units:
        kind = "units on distinct nodes" if request.distinct else "units"
        return f"requests {request.units} {kind}, but the empty cluster holds only {total}"
    if not fills_blocks(units_fitting_by_node(request, cluster, cluster.capacity), request, cluster):
        return f"requests {request.units} nodes, but not even the empty cluster's blocks hold them together"
    watts = 0 if cluster.power is None else cluster.power.draw_w(request, cluster.resources)
    if cluster.power is not None and watts > cluster.power.cap_w:
        return f"draws {watts:,} W, but the power cap is {cluster.power.cap_w:,} W"
    return None
