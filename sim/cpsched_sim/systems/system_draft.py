"""Draft a system file from known facts about a cluster, with notes on guesses.

All names come from other programs, so each is escaped and quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from cpsched.errors import join_abbreviated
from cpsched.formatting import format_count
from cpsched.slurm_text.objects import SlurmNode
from cpsched_sim.errors import quote_value
from cpsched_sim.systems.slurm_node_parsing import (
    SINFO_COMMAND,
    ParsedSlurmNodes,
    get_node_amounts,
    is_unavailable_state,
    list_other_gres,
    list_shared_gres,
)
from cpsched_sim.systems.system_file import SystemFile, parse_system

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
        alike.setdefault(_node_type_key(node), []).append(node)
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


def _node_type_key(node: SlurmNode) -> tuple[object, ...]:
    return frozenset(node.partitions or ()), get_node_amounts(node), _get_weight(node)


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
