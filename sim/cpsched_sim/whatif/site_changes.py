"""List changes at a site between two collections: Slurm parameters, partitions, QOS, licences and nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from cpsched.formatting import format_count
from cpsched.parsing.slurm_limits import parse_key_values
from cpsched_sim.errors import quote_value
from cpsched_sim.input.text_lines import lines_of
from cpsched_sim.systems.slurm_node_parsing import SlurmNode, parse_nodes
from cpsched_sim.whatif.licences import read_totals
from cpsched_sim.whatif.slurm_collection import CONFIG, KEPT_OF_CONFIG, LICENSES, NODES, PARTITIONS, QOS, rows_of

OF_A_PARTITION = (
    "Nodes", "MaxTime", "MaxNodes", "PriorityTier", "PriorityJobFactor", "QoS", "State", "OverSubscribe", "AllowQos",
)  # fmt: skip
"""The fields of `scontrol show partition` that affect starts."""
BOOT = "BOOT_TIME"
MOST_NAMED = 5

Facts = Mapping[str, str]


def list_changes(earlier: Path, later: Path) -> list[str]:
    """Return a sentence for each change. Skip files that are missing from one of the folders."""
    before, after = nodes_in(earlier), nodes_in(later)
    return [
        *_differences("slurm.conf", {"": parameters(earlier)}, {"": parameters(later)}),
        *_differences("partition", _partitions(earlier), _partitions(later)),
        *_differences("QOS", _qos(earlier), _qos(later)),
        *_differences("licence", _licences(earlier), _licences(later)),
        *_listed("new: unavailable until the first job ran there", after.keys() - before.keys()),
        *_listed("gone and not in the replay", before.keys() - after.keys()),
        *_listed(
            "with changed amounts; the replay uses the later ones",
            {name for name in before.keys() & after.keys() if _amounts(before[name]) != _amounts(after[name])},
        ),
    ]


def parameters(folder: Path) -> dict[str, str]:
    """Return the priority and scheduling parameters from `scontrol show config`, without slurmctld's start time."""
    pairs = (line.partition("=") for _, line in _lines(folder / CONFIG) if KEPT_OF_CONFIG.match(line))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip() != BOOT}


def read_boot_time(folder: Path) -> str:
    """Return slurmctld's start time from its configuration, or ""."""
    found = (re.match(rf"\s*{BOOT}\s*=\s*(\S+)", line) for _, line in _lines(folder / CONFIG))
    return next((match[1] for match in found if match), "")


def nodes_in(folder: Path) -> dict[str, SlurmNode]:
    """Return the nodes in a folder by name. Raise `UnusableObject` if they cannot be read."""
    text = "".join(line for _, line in lines_of(folder / NODES))
    return {node.name: node for node in parse_nodes(text, NODES).nodes}


def _amounts(node: SlurmNode) -> tuple[int, int, int]:
    return node.cores, node.memory_mib, node.gpus


def _partitions(folder: Path) -> dict[str, Facts]:
    found: dict[str, Facts] = {}
    for _, line in _lines(folder / PARTITIONS):
        words = dict(parse_key_values(line))
        if name := words.get("PartitionName"):
            found[name] = {key: words.get(key, "") for key in OF_A_PARTITION}
    return found


def _qos(folder: Path) -> dict[str, Facts]:
    rows = rows_of(folder / QOS)
    return {row.get("Name") or "": {key: value or "" for key, value in row.items() if key} for row in rows}


def _licences(folder: Path) -> dict[str, Facts]:
    path = folder / LICENSES
    return {name: {"Total": str(total)} for name, total in read_totals(path).items()} if path.exists() else {}


def _differences(what: str, before: Mapping[str, Facts], after: Mapping[str, Facts]) -> Iterator[str]:
    """Yield a sentence for each difference and for each item added or removed; nothing if one side has no data."""
    if not any(before.values()) or not any(after.values()):
        return
    for name in sorted(before.keys() | after.keys()):
        called = f"{what} {quote_value(name)}".rstrip() if name else what
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield f"{called} {'was added' if old is None else 'was removed'}"
            continue
        for key in sorted(old.keys() & new.keys()):
            if old[key] != new[key]:
                yield f"{called}: {key} was {quote_value(old[key]) or 'not set'}, is {quote_value(new[key]) or 'not set'}"  # noqa: E501
        for key in sorted(old.keys() ^ new.keys()):
            yield f"{called}: {key} {'was added' if key in new else 'was removed'}"


def _listed(what: str, names: set[str]) -> Iterator[str]:
    if names:
        some = ", ".join(sorted(names)[:MOST_NAMED])
        more = ", ..." if len(names) > MOST_NAMED else ""
        yield f"{format_count(len(names), 'node is', 'nodes are')} {what}: {quote_value(some)}{more}"


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return lines_of(path) if path.exists() else iter(())
