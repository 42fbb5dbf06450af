"""Draft a system file from known facts about a cluster, with notes on guesses.

All names come from other programs, so each is escaped and quoted.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import numpy as np

from cpsched.errors import join_abbreviated
from cpsched.formatting import format_count
from cpsched.metrics import count_overlapping_intervals
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.objects import SlurmNode
from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.systems.slurm_node_parsing import (
    SINFO_COMMAND,
    ParsedSlurmNodes,
    get_node_amounts,
    is_unavailable_state,
    list_other_gres,
    list_shared_gres,
)
from cpsched_sim.systems.system_file import SystemFile, parse_system
from cpsched_sim.traces.trace_record import ProcessorCountRequest, TraceRecord, UnitsRequest

MAX_NAME_CHARS = 150
"""Maximum number of characters in a name."""
_MAX_NAMES = 12
"""Maximum number of names in a comment."""
_UNSAFE_NAME_CHARS = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class DraftNodeType:
    """A group of equal nodes in a draft."""

    count: int
    each: Mapping[str, int]
    partitions: frozenset[str] = frozenset()
    prefix: str = ""
    comment: str = ""

    @property
    def label(self) -> str:
        """Return a label such as cpu64-250g-gpu4, or "pool" for nodes without cores."""
        if "cores" not in self.each:
            return "pool"
        memory = self.each.get("memory_mib", 0)
        size = f"-{memory / 1024:.0f}g" if memory >= 1024 else ""
        return f"cpu{self.each['cores']}{size}" + (f"-gpu{self.each['gpus']}" if self.each.get("gpus") else "")


@dataclass(frozen=True, slots=True)
class SystemDraft:
    """The known facts about a system. `notes` are sentences that the user must check."""

    name: str
    summary: str
    kinds: Sequence[DraftNodeType]
    notes: Sequence[str]
    partitions: Sequence[str] = ()
    resources: Sequence[str] = ("cores", "memory_mib", "gpus")
    units: str = "{ rule: cores }"


def draft_system_from_nodes(printed: ParsedSlurmNodes, name: str, source: str) -> SystemDraft:
    """Draft a system from Slurm's configuration.

    Nodes are in the order in which Slurm fills them.
    """
    nodes = printed.nodes
    alike: dict[tuple[object, ...], list[SlurmNode]] = {}
    for node in sorted(nodes, key=_get_weight):
        key = frozenset(node.partitions or ()), get_node_amounts(node), _get_weight(node)
        alike.setdefault(key, []).append(node)
    kinds = [_draft_node_type(each) for each in alike.values()]
    away = [node.name for node in nodes if is_unavailable_state(node.state)]
    others = sorted({gres for node in nodes for gres in list_other_gres(node)})
    notes = [
        "Cores are CPUs as Slurm counts them (threads, if Slurm allocates threads), except those of the system "
        "(CoreSpec, MemSpecLimit).",
        "Nodes are those configured in Slurm. The replay has no outages: remove nodes that are never available.",
    ]
    if printed.lacks:
        notes.append(
            f"Missing and therefore omitted: {abbreviate_name_list(printed.lacks)}. For all, use: {SINFO_COMMAND}."
        )
    if away:
        notes.append(
            f"{len(away)} were down, drained or reserved when printed, but are included: {abbreviate_name_list(away)}."
        )
    if others:
        notes.append(f"Omitted, because no trace requests them: {abbreviate_name_list(others)}.")
    if shared := sorted({gres for node in nodes for gres in list_shared_gres(node)}):
        notes.append(f"Omitted, because any number of jobs share them (no_consume): {abbreviate_name_list(shared)}.")
    if bare := [node.name for node in nodes if node.usable_memory <= 1]:
        notes.append(
            f"{len(bare)} have no memory configured, so no job that requests memory fits: {abbreviate_name_list(bare)}."
        )
    if lone := [node.name for node in nodes if not node.partitions]:
        notes.append(f"{len(lone)} are in none of the printed partitions: {abbreviate_name_list(lone)}.")
    partitions = sorted({part for node in nodes for part in node.partitions or ()})
    return SystemDraft(name, f"{format_count(len(nodes), 'node')}, from {source}", kinds, notes, partitions)


def _get_weight(node: SlurmNode) -> int:
    """Return the node's weight. Slurm fills nodes with low weights first."""
    return 1 if node.weight is None else node.weight


def _draft_node_type(nodes: Sequence[SlurmNode]) -> DraftNodeType:
    first = nodes[0]
    known = sorted({feature for node in nodes for feature in node.available_features or ()})
    features = f"; features: {abbreviate_name_list(known)}" if known else ""
    names = abbreviate_name_list([node.name for node in nodes], 4)
    return DraftNodeType(
        len(nodes),
        get_node_amounts(first)._asdict(),
        frozenset(first.partitions or ()),
        node_name_prefix([node.name for node in nodes]),
        f"{names}{features}",
    )


def node_name_prefix(names: Sequence[str]) -> str:
    """Return the common prefix of node names, without trailing digits.

    It is `node` for node017 and node018.
    """
    common = takewhile(lambda pair: pair[0] == pair[1], zip(min(names), max(names), strict=False))
    text = "".join(letter for letter, _ in common)
    return _UNSAFE_NAME_CHARS.sub("", text.rstrip("0123456789"))[:MAX_NAME_CHARS] or "n"


def abbreviate_name_list(words: Iterable[str], most: int = _MAX_NAMES) -> str:
    """Return the first names and the number of omitted names as text for a comment."""
    return join_abbreviated(list(words), most, text=lambda word: quote_value(word, MAX_NAME_CHARS))


def draft_as_yaml(draft: SystemDraft) -> str:
    """Return the draft as a system file. Raise `InvalidSystem` if it is too large."""
    labels = _make_node_type_labels(draft)
    lines = [f"# {note}" for note in draft.notes]
    lines += [
        f"name: {_quote_yaml_text(draft.name)}",
        f"summary: {_quote_yaml_text(draft.summary)}",
        f"resources: [{', '.join(draft.resources)}]",
        "node_types:",
    ]
    for kind, label in zip(draft.kinds, labels, strict=True):
        each = ", ".join(f"{name}: {amount}" for name, amount in kind.each.items() if amount)
        prefix = f"prefix: {_quote_yaml_text(kind.prefix)}, " if kind.prefix else ""
        comment = f"  # {kind.comment}" if kind.comment else ""
        lines.append(f"  {label}: {{ count: {kind.count}, {prefix}each: {{ {each} }} }}{comment}")
    lines += ["partitions:"] if draft.partitions else []
    lines += [f"  {name}: [{', '.join(types)}]" for name, types in _node_types_by_partition(draft, labels).items()]
    return "\n".join([*lines, f"units: {draft.units}", ""])


def _node_types_by_partition(draft: SystemDraft, labels: Sequence[str]) -> dict[str, list[str]]:
    """Return the node types by partition. Merge partitions with equal printed names."""
    found: dict[str, list[str]] = {}
    for partition in draft.partitions:
        types = found.setdefault(_quote_yaml_text(partition), [])
        mine = (label for kind, label in zip(draft.kinds, labels, strict=True) if partition in kind.partitions)
        types += [label for label in mine if label not in types]
    return found


def render_and_parse_draft(draft: SystemDraft) -> tuple[str, SystemFile]:
    """Return the system file's text and parsed content. Raise `InvalidSystem`."""
    text = draft_as_yaml(draft)
    return text, parse_system(Path("draft"), text)


def _make_node_type_labels(draft: SystemDraft) -> list[str]:
    """Return a unique label for each node type. No label equals a partition's name."""
    taken, found = set(draft.partitions), []
    for kind in draft.kinds:
        label, number = kind.label, 1
        while label in taken:
            number += 1
            label = f"{kind.label}-{number}"
        taken.add(label)
        found.append(label)
    return found


def _quote_yaml_text(text: str) -> str:
    return json.dumps(quote_value(text, MAX_NAME_CHARS), ensure_ascii=False)


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
