"""Write a system file from what is known about a cluster, with guesses marked in comments.

All names come from outside, so each is made printable and quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from cpsched.errors import abbreviate
from cpsched.formatting import format_count
from cpsched_sim.errors import quote_value
from cpsched_sim.systems.slurm_node_parsing import SINFO, ParsedSlurmNodes, SlurmNode
from cpsched_sim.systems.system_file import SystemFile, parse_system

NAME_CHARS = 150
"""Maximum length of a name."""
_MOST_WORDS = 12
"""Maximum number of features in a comment."""
_KEPT = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class DraftNodeType:
    """Equal nodes of a draft."""

    count: int
    each: Mapping[str, int]
    partitions: frozenset[str] = frozenset()
    prefix: str = ""
    comment: str = ""

    @property
    def label(self) -> str:
        """Return a label such as cpu64-250g-gpu4; nodes without cores are a pool."""
        if "cores" not in self.each:
            return "pool"
        memory = self.each.get("memory_mib", 0)
        size = f"-{memory / 1024:.0f}g" if memory >= 1024 else ""
        return f"cpu{self.each['cores']}{size}" + (f"-gpu{self.each['gpus']}" if self.each.get("gpus") else "")


@dataclass(frozen=True, slots=True)
class SystemDraft:
    """A system as far as it is known. `notes` are sentences for its owner to check."""

    name: str
    summary: str
    kinds: Sequence[DraftNodeType]
    notes: Sequence[str]
    partitions: Sequence[str] = ()
    resources: Sequence[str] = ("cores", "memory_mib", "gpus")
    units: str = "{ rule: cores }"


def draft_from_nodes(printed: ParsedSlurmNodes, name: str, source: str) -> SystemDraft:
    """Draft a system from Slurm's configuration, with nodes in the order in which Slurm fills them."""
    nodes = printed.nodes
    alike: dict[tuple[object, ...], list[SlurmNode]] = {}
    for node in sorted(nodes, key=lambda node: node.weight):
        alike.setdefault(_alike(node), []).append(node)
    kinds = [_kind(each) for each in alike.values()]
    away = [node.name for node in nodes if node.is_away]
    others = sorted({gres for node in nodes for gres in node.other_gres})
    notes = [
        "Cores are CPUs as Slurm counts them (threads, if Slurm allocates threads), without those of the system "
        "(CoreSpec, MemSpecLimit).",
        "Nodes are those configured in Slurm. The replay has no outages: remove nodes that are never available.",
    ]
    if printed.lacks:
        notes.append(f"Missing, and therefore left out: {abbreviated_names(printed.lacks)}. For all, use: {SINFO}.")
    if away:
        notes.append(
            f"{len(away)} were down, drained or reserved when printed, but are included: {abbreviated_names(away)}."
        )
    if others:
        notes.append(f"Left out, since no trace requests them: {abbreviated_names(others)}.")
    if shared := sorted({gres for node in nodes for gres in node.shared_gres}):
        notes.append(f"Left out, since any number of jobs share them (no_consume): {abbreviated_names(shared)}.")
    if bare := [node.name for node in nodes if node.memory_mib <= 1]:
        notes.append(
            f"{len(bare)} have no memory configured, so no job that requests memory fits: {abbreviated_names(bare)}."
        )
    if lone := [node.name for node in nodes if not node.partitions]:
        notes.append(f"{len(lone)} are in none of the printed partitions: {abbreviated_names(lone)}.")
    partitions = sorted({part for node in nodes for part in node.partitions})
    return SystemDraft(name, f"{format_count(len(nodes), 'node')}, from {source}", kinds, notes, partitions)


def _alike(node: SlurmNode) -> tuple[object, ...]:
    return frozenset(node.partitions), node.gpus, node.cores, node.memory_mib, node.weight


def _kind(nodes: Sequence[SlurmNode]) -> DraftNodeType:
    first = nodes[0]
    each = {"cores": first.cores, "memory_mib": first.memory_mib, "gpus": first.gpus}
    known = sorted({feature for node in nodes for feature in node.features})
    features = f"; features: {abbreviated_names(known)}" if known else ""
    names = abbreviated_names([node.name for node in nodes], 4)
    return DraftNodeType(
        len(nodes), each, frozenset(first.partitions), prefix_of([n.name for n in nodes]), f"{names}{features}"
    )


def prefix_of(names: Sequence[str]) -> str:
    """Return the common prefix of node names without the number: node for node017 and node018."""
    common = takewhile(lambda pair: pair[0] == pair[1], zip(min(names), max(names), strict=False))
    text = "".join(letter for letter, _ in common)
    return _KEPT.sub("", text.rstrip("0123456789"))[:NAME_CHARS] or "n"


def abbreviated_names(words: Iterable[str], most: int = _MOST_WORDS) -> str:
    """Return the first names for a comment, and the number of omitted ones."""
    return abbreviate(list(words), most, text=lambda word: quote_value(word, NAME_CHARS))


def draft_as_yaml(draft: SystemDraft) -> str:
    """Return the draft as a valid system file. Raise `InvalidSystem` if it is too large."""
    labels = _labels(draft)
    lines = [f"# {note}" for note in draft.notes]
    lines += [
        f"name: {_quoted(draft.name)}",
        f"summary: {_quoted(draft.summary)}",
        f"resources: [{', '.join(draft.resources)}]",
        "node_types:",
    ]
    for kind, label in zip(draft.kinds, labels, strict=True):
        each = ", ".join(f"{name}: {amount}" for name, amount in kind.each.items() if amount)
        prefix = f"prefix: {_quoted(kind.prefix)}, " if kind.prefix else ""
        comment = f"  # {kind.comment}" if kind.comment else ""
        lines.append(f"  {label}: {{ count: {kind.count}, {prefix}each: {{ {each} }} }}{comment}")
    lines += ["partitions:"] if draft.partitions else []
    lines += [f"  {name}: [{', '.join(types)}]" for name, types in _types_of(draft, labels).items()]
    return "\n".join([*lines, f"units: {draft.units}", ""])


def _types_of(draft: SystemDraft, labels: Sequence[str]) -> dict[str, list[str]]:
    """Return the node types of each partition; partitions with equal printable names are merged."""
    found: dict[str, list[str]] = {}
    for partition in draft.partitions:
        types = found.setdefault(_quoted(partition), [])
        mine = (label for kind, label in zip(draft.kinds, labels, strict=True) if partition in kind.partitions)
        types += [label for label in mine if label not in types]
    return found


def checked_draft(draft: SystemDraft) -> tuple[str, SystemFile]:
    """Return the text of the system file and its parsed content. Raise `InvalidSystem`."""
    text = draft_as_yaml(draft)
    return text, parse_system(Path("draft"), text)


def _labels(draft: SystemDraft) -> list[str]:
    """Return a unique label for each node type; no partition has the same name."""
    taken, found = set(draft.partitions), []
    for kind in draft.kinds:
        label, number = kind.label, 1
        while label in taken:
            number += 1
            label = f"{kind.label}-{number}"
        taken.add(label)
        found.append(label)
    return found


def _quoted(text: str) -> str:
    return json.dumps(quote_value(text, NAME_CHARS), ensure_ascii=False)
