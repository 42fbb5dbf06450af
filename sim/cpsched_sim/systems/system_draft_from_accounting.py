"""Estimate a cluster's size from its accounting data. Peak usage is a lower bound.

If the file contains the nodes of jobs (NodeList), each node is examined:

- Nodes form a group if the same partitions used them, and either all or none of them had GPUs in use.
- The group's amount of each resource is the largest amount in use on one of its nodes: the sum over simultaneous
  single-node jobs, or the share of a multi-node job.

Otherwise, all nodes are assumed to be equal. A node has the largest per-node share of any job. The
number of nodes covers the peak usage. Traces with only processors become one pool.

Every job in the file fits on the resulting system.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.formatting import format_count
from cpsched.metrics import count_overlapping_intervals
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched_sim.errors import InputError
from cpsched_sim.systems.system_draft import DraftNodeType, SystemDraft, abbreviate_name_list, node_name_prefix
from cpsched_sim.traces.trace_record import ProcessorCountRequest, TraceRecord, UnitsRequest

MAX_JOB_SUM = 1 << 53
"""Maximum sum over all jobs. Larger sums would lose precision."""
GUESSED_WARNING = "Guessed from peak use by the jobs in the file. Check every number: idle nodes are not in the file."


def draft_system_from_records(every: Iterable[TraceRecord], resources: Sequence[str], name: str) -> SystemDraft:
    """Draft a system on which all requests fit, from the jobs' usage of `resources`.

    Raise `InputError` if no start is recorded.
    """
    records = [record for record in every if record.start_s is not None]
    if not records:
        raise InputError("the trace has no job starts, so the peak use is unknown")
    asks = [record.ask for record in records]
    if any(isinstance(ask, ProcessorCountRequest) for ask in asks):
        return _draft_pool(records, name)
    placed = [record for record in records if len(expand_hostlist_or_empty(record.nodes)) == record.ask.units]  # type: ignore[union-attr]
    if len(placed) == len(records):
        return _draft_by_node(records, name)
    return _draft_equal_nodes(records, name, resources)


def _draft_pool(records: Sequence[TraceRecord], name: str) -> SystemDraft:
    widths = [r.ask.processors if isinstance(r.ask, ProcessorCountRequest) else r.ask.units for r in records]
    count = max(_peak_simultaneous_total(records, widths), *widths)
    notes = [GUESSED_WARNING, "The trace has processors but no nodes: all processors form one pool."]
    kind = DraftNodeType(1, {"processors": count}, prefix="pool")
    return SystemDraft(name, f"{count:,} processors", [kind], notes, (), ("processors",), "{ rule: pool }")


def _peak_simultaneous_total(records: Sequence[TraceRecord], weights: Sequence[int]) -> int:
    """Return the maximum total weight of simultaneous jobs. Ends precede starts."""
    if sum(weights) > MAX_JOB_SUM:
        raise InputError(f"the jobs in the trace use {sum(weights):,} units of a resource, more than any machine has")
    start_s = np.array([record.start_s for record in records], np.int64)
    end_s = start_s + np.array([record.run_s for record in records], np.int64)
    return int(count_overlapping_intervals(start_s, end_s, np.array(weights, np.int64))[1].max())


# ------------------------------------------------------------------------------------------ node by node


@dataclass(slots=True)
class _NodeUsage:
    """Observations of one node.

    `most` has the largest share of any job by resource, and `own` the single-node jobs.
    """

    partitions: set[str] = field(default_factory=set)
    most: dict[str, int] = field(default_factory=dict)
    own: list[TraceRecord] = field(default_factory=list)

    def add(self, record: TraceRecord) -> None:
        ask = _require_units_request(record)
        if ask.partition:
            self.partitions.add(ask.partition)
        for resource, amount in ask.each:
            self.most[resource] = max(amount, self.most.get(resource, 0))
        if ask.units == 1:
            self.own.append(record)

    def minimum_amounts(self) -> dict[str, int]:
        """Return a lower bound on the node's amount of each resource."""
        found = dict(self.most)
        for resource in found if self.own else ():
            weights = [dict(_require_units_request(record).each).get(resource, 0) for record in self.own]
            found[resource] = max(found[resource], _peak_simultaneous_total(self.own, weights))
        return found


def _draft_by_node(records: Sequence[TraceRecord], name: str) -> SystemDraft:
    seen: dict[str, _NodeUsage] = defaultdict(_NodeUsage)
    for record in records:
        for node in expand_hostlist_or_empty(record.nodes):
            seen[node].add(record)
    alike: dict[tuple[frozenset[str], bool], list[str]] = defaultdict(list)
    amounts = {node: each.minimum_amounts() for node, each in seen.items()}
    for node in sorted(seen):
        alike[frozenset(seen[node].partitions), amounts[node].get("gpus", 0) > 0].append(node)
    kinds = [
        DraftNodeType(
            len(nodes),
            _largest_amounts(amounts[node] for node in nodes),
            key[0],
            node_name_prefix(nodes),
            abbreviate_name_list(nodes, 4),
        )
        for key, nodes in sorted(alike.items(), key=lambda item: (item[0][1], item[1]))
    ]
    notes = [
        GUESSED_WARNING,
        f"Nodes: the {len(seen):,} that jobs ran on. Nodes with jobs from the same partitions, with or without GPUs, "
        "form a group; nodes without GPUs are filled first.",
        "Amounts per node: the peak use on any node in its group.",
    ]
    cores = [
        _require_units_request(record).units * dict(_require_units_request(record).each).get("cores", 0)
        for record in records
    ]
    there = sum(kind.count * kind.each["cores"] for kind in kinds)
    notes.append(f"Peak use: {_peak_simultaneous_total(records, cores):,} of these {there:,} cores.")
    partitions = sorted({part for each in seen.values() for part in each.partitions})
    return SystemDraft(name, f"{format_count(len(seen), 'node')} that jobs ran on", kinds, notes, partitions)


def _largest_amounts(every: Iterable[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for amounts in every:
        for resource in ("cores", "memory_mib", "gpus"):
            found[resource] = max(found.get(resource, 0), amounts.get(resource, 0))
    return found


# ------------------------------------------------------------------------------------------ without nodes


def _draft_equal_nodes(records: Sequence[TraceRecord], name: str, resources: Sequence[str]) -> SystemDraft:
    asks = [_require_units_request(record) for record in records]
    amounts = [dict(ask.each) for ask in asks]
    each = {r: max(part.get(r, 0) for part in amounts) for r in resources}
    totals = {r: [ask.units * part.get(r, 0) for ask, part in zip(asks, amounts, strict=True)] for r in resources}
    at_once = {r: _peak_simultaneous_total(records, totals[r]) for r in resources if each[r]}
    widest = max(ask.units for ask in asks)
    count = max(widest, *(-(-at_once[r] // each[r]) for r in at_once))
    used = ", ".join(f"{amount:,} {r}" for r, amount in at_once.items())
    notes = [
        GUESSED_WARNING,
        f"Peak use: {used}; the widest job had {format_count(widest, 'node')}.",
        "The file does not list the jobs' nodes (NodeList): all nodes are assumed to be equal and in every partition.",
        "Amounts per node: the largest per-node share of any job. Number of nodes: enough for the peak use.",
    ]
    kind = DraftNodeType(count, each, prefix="n")
    return SystemDraft(
        name, f"{format_count(count, 'node is', 'nodes are')} enough for the peak use", [kind], notes, (), resources
    )


def _require_units_request(record: TraceRecord) -> UnitsRequest:
    assert isinstance(record.ask, UnitsRequest), "pools are handled above"
    return record.ask
