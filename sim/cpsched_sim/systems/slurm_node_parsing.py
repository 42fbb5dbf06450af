"""Parse a Slurm cluster's nodes from `scontrol show node` or `sinfo`.

The format is detected from the text. All forms of scontrol's output are accepted, with and without `-o`. For sinfo, the
table must have a header line with node names (NODELIST, HOSTNAMES), CPUS and MEMORY. `sinfo -N -l` prints such a table,
and so does any `-o` with these columns. Another header line sets the columns for the lines that follow. The default
output of sinfo lacks CPUs and is rejected, as are nodes from several clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from cpsched.slurm_text.gres import NO_CONSUME
from cpsched.slurm_text.hostlist import expand_hostlist
from cpsched.slurm_text.object_parsing import list_printed_objects, parse_node
from cpsched.slurm_text.objects import SlurmNode
from cpsched.slurm_text.output_values import parse_gres_counts
from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.input.input_limits import MAX_AMOUNT

SCONTROL_COMMAND = "scontrol -o show node"
SINFO_COMMAND = "sinfo -N -o '%N|%P|%c|%m|%f|%G|%t'"
_NO_CONSUME_SUFFIX = f":{NO_CONSUME}"
_EMPTY_VALUES = ("", "(null)", "N/A", "n/a")
_USABLE_STATES = frozenset(
    ("IDLE", "MIX", "MIXED", "ALLOC", "ALLOCATED", "COMP", "COMPLETING", "PLND", "PLANNED", "BLOCK", "BLOCKED", "CLOUD",
     "DYNAMIC_NORM", "REBOOT_REQUESTED", "REBOOT_CANCEL", "CANCEL_REBOOT", "CANC_R", "UNDRAIN", "RESUME")
)  # fmt: skip
"""The long and short states of a usable node. Any other state makes the node unavailable."""
_STATE_SUFFIXES = "*~#!%$@^-"
_UNAVAILABLE_SUFFIXES = frozenset("*~#!%$^")
"""State suffixes: not responding, powered down, powering up, pending power-down, powering down, in maintenance,
rebooting.
"""
_SINFO_HEADINGS = {
    "NODELIST": "nodes", "HOSTNAMES": "nodes", "PARTITION": "partitions", "CPUS": "cores", "CPUS(A/I/O/T)": "usage",
    "MEMORY": "memory", "AVAIL_FEATURES": "features", "GRES": "gres", "STATE": "state", "STATECOMPLETE": "state",
    "WEIGHT": "weight", "CLUSTER": "cluster",
}  # fmt: skip
"""The sinfo headings that are read, by the name of the value."""
_RECOMMENDED_COLUMNS = {"partitions": "PARTITION", "gres": "GRES"}
"""The headings that are recommended, but not required."""
_NODE_NAME_HEADINGS = {"NODELIST", "HOSTNAMES"}
_HEADING_WITH_BLANKS = "REASON"
_CLUSTER_PREFIX = "CLUSTER: "


class NodeAmounts(NamedTuple):
    """What jobs may use of a node, without the operating system's resources."""

    cores: int
    memory_mib: int
    gpus: int


def get_node_amounts(node: SlurmNode) -> NodeAmounts:
    """Return what jobs may use of a node."""
    gpus = sum(count for name, count in (node.configured_gres or {}).items() if _is_gpu(name))
    return NodeAmounts(node.effective_cpus or 0, max(0, node.usable_memory), gpus)


def _is_gpu(name: str) -> bool:
    return name.partition(":")[0] == "gpu" and not name.endswith(_NO_CONSUME_SUFFIX)


def list_other_gres(node: SlurmNode) -> list[str]:
    """Return the generic resources that jobs use up, except GPUs, such as `mps:400`."""
    gres = node.configured_gres or {}
    return [
        f"{name}:{count}" for name, count in gres.items() if not _is_gpu(name) and not name.endswith(_NO_CONSUME_SUFFIX)
    ]


def list_shared_gres(node: SlurmNode) -> list[str]:
    """Return the generic resources that any number of jobs can share (`no_consume`), such as `scratch:1`."""
    gres = node.configured_gres or {}
    return [
        f"{name.removesuffix(_NO_CONSUME_SUFFIX)}:{count}"
        for name, count in gres.items()
        if name.endswith(_NO_CONSUME_SUFFIX)
    ]


def is_unavailable_state(state: str) -> bool:
    """Return whether a state means an unavailable node.

    All of Slurm's spellings are accepted, such as `drng` or `idle~`.
    """
    if not _UNAVAILABLE_SUFFIXES.isdisjoint(state):
        return True
    words = (word.strip().rstrip(_STATE_SUFFIXES).upper() for word in state.split("+"))
    return any(word and word not in _USABLE_STATES for word in words)


@dataclass(frozen=True, slots=True)
class ParsedSlurmNodes:
    """The printed nodes without duplicates, and the columns missing in sinfo's output."""

    nodes: tuple[SlurmNode, ...]
    lacks: tuple[str, ...] = ()


def looks_like_node_output(line: str) -> bool:
    """Return whether a line looks like scontrol's node output or sinfo's header line."""
    return line.startswith("NodeName=") or _is_sinfo_header(line)


def _is_sinfo_header(line: str) -> bool:
    """Return whether a line is sinfo's header.

    All its words are in capitals, unlike values that users choose.
    """
    words = line.replace("|", " ").split()
    return not _NODE_NAME_HEADINGS.isdisjoint(words) and all(
        word[0].isalpha() and word == word.upper() for word in words
    )


def parse_slurm_nodes(text: str, where: str) -> ParsedSlurmNodes:
    """Parse Slurm's node output. Raise `InputError`, with `where` in its message."""
    found = (
        ParsedSlurmNodes(tuple(_parse_scontrol_nodes(text, where)))
        if any(line.startswith("NodeName=") for line in _split_lines(text))
        else _parse_sinfo_nodes(text, where)
    )
    if not found.nodes:
        raise InputError(f"{where}: contains no nodes; to print nodes, run: {SCONTROL_COMMAND}")
    return found


def _split_lines(text: str) -> list[str]:
    """Split text into lines as Slurm does.

    User text may contain other line separators.
    """
    return text.replace("\r\n", "\n").split("\n")


# ------------------------------------------------------------------------------------------ scontrol


_AMOUNT_FIELDS = ("total_cpus", "effective_cpus", "real_memory", "memory_reserved_for_system", "weight")
"""Whole numbers that a system needs."""


def _parse_scontrol_nodes(text: str, where: str) -> Iterator[SlurmNode]:
    """Yield each node once."""
    names = set[str]()
    for line, printed in list_printed_objects(text.replace("\r\n", "\n"), "NodeName"):
        node = parse_node(printed)
        _require_amounts(node, f"{where}:{line}")
        if node.name not in names:
            names.add(node.name)
            yield node


def _require_amounts(node: SlurmNode, where: str) -> None:
    """Raise `InputError` unless the node's amounts can be read."""
    unreadable = node.unreadable or {}
    for name in (*_AMOUNT_FIELDS, "configured_gres"):
        if name in unreadable:
            raise InputError(f"{where}: {quote_value(unreadable[name])}; to print nodes, run: {SCONTROL_COMMAND}")
    for name in _AMOUNT_FIELDS:
        amount = getattr(node, name) or 0
        if not 0 <= amount <= MAX_AMOUNT:
            raise InputError(f"{where}: {name}: {amount}: must be at most {MAX_AMOUNT:,}")


# ------------------------------------------------------------------------------------------ sinfo


def _parse_sinfo_nodes(text: str, where: str) -> ParsedSlurmNodes:
    nodes: dict[str, SlurmNode] = {}
    columns: _SinfoColumns | None = None
    cluster = ""
    for number, line in enumerate(_split_lines(text), start=1):
        at = f"{where}:{number}"
        if _is_sinfo_header(line):
            columns = _SinfoColumns.of(line, at)
            continue
        printed = line.removeprefix(_CLUSTER_PREFIX) if line.startswith(_CLUSTER_PREFIX) else ""
        row = columns.row(line, at) if columns is not None and line.strip() and not printed else {}
        printed = printed.strip() or row.get("cluster", "")
        if printed and cluster not in ("", printed):
            rule = f"must be {quote_value(cluster)}, as before; to print one cluster's nodes, run: {SCONTROL_COMMAND}"
            raise InputError(f"{at}: CLUSTER: {quote_value(printed)}: {rule}")
        cluster = printed or cluster
        for node in _parse_sinfo_line_nodes(row, at):
            before = nodes.get(node.name)
            nodes[node.name] = node if before is None else replace(before, partitions=_merge_partitions(before, node))
    if columns is None:
        raise InputError(
            f"{where}: is not the output of scontrol or sinfo; to print nodes, run: "
            f"{SCONTROL_COMMAND}, or: {SINFO_COMMAND}"
        )
    return ParsedSlurmNodes(
        tuple(nodes.values()), tuple(name for key, name in _RECOMMENDED_COLUMNS.items() if key not in columns.names)
    )


@dataclass(frozen=True, slots=True)
class _SinfoColumns:
    """The columns in sinfo's header line. The name of an ignored column is ""."""

    separator: str | None
    names: tuple[str, ...]
    last: str

    @classmethod
    def of(cls, line: str, where: str) -> _SinfoColumns:
        separator = "|" if "|" in line else None
        words = [word.strip() for word in line.split(separator)]
        names = tuple(_SINFO_HEADINGS.get(word, "") for word in words)
        missing = {"nodes", "cores", "memory"} - set(names) - ({"cores"} if "usage" in names else set())
        if missing:
            rule = f"must include {', '.join(sorted(missing))}; to print nodes, run: {SINFO_COMMAND}"
            raise InputError(f"{where}: {rule}")
        return cls(separator, names, words[-1])

    def row(self, line: str, where: str) -> Mapping[str, str]:
        """Return a line's values by name. If a name occurs twice, the first column counts."""
        cells = [cell.strip() for cell in line.split(self.separator)]
        if len(cells) > len(self.names) and self.last != _HEADING_WITH_BLANKS:
            rule = f"must be {len(self.names)}, as in the header line; to print nodes, run: {SINFO_COMMAND}"
            raise InputError(f"{where}: fields: {len(cells)}: {rule}")
        found: dict[str, str] = {}
        for name, cell in zip(self.names, cells, strict=False):
            found.setdefault(name, cell)
        if "cores" not in found and "usage" in found:
            found["cores"] = found["usage"].rpartition("/")[2]
        return found


def _merge_partitions(before: SlurmNode, node: SlurmNode) -> list[str]:
    return list(dict.fromkeys((*(before.partitions or ()), *(node.partitions or ()))))


def _parse_sinfo_line_nodes(row: Mapping[str, str], where: str) -> Iterator[SlurmNode]:
    """Yield the nodes of a line. All have the line's minimum amounts."""
    try:
        names = expand_hostlist(row.get("nodes"))
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    try:
        gres = parse_gres_counts(row.get("gres", "").replace("N/A", "").replace("n/a", ""))
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    for name in names:
        cpus = _parse_minimum_amount(row, "cores", where)
        yield SlurmNode(
            name=name,
            total_cpus=cpus,
            effective_cpus=cpus,
            real_memory=_parse_minimum_amount(row, "memory", where),
            configured_gres=gres,
            available_features=_split_comma_list(row.get("features", "")),
            partitions=[word.rstrip("*") for word in _split_comma_list(row.get("partitions", ""))],
            state=row.get("state", ""),
            weight=_parse_minimum_amount(row, "weight", where) if "weight" in row else None,
        )


def _parse_minimum_amount(row: Mapping[str, str], name: str, where: str) -> int:
    """Return a number. "16+" means that the line's nodes differ and have at least 16."""
    text = row.get(name, "").rstrip("+")
    if not text.isdecimal() or len(text) > 18:
        rule = f"must be a whole number; to print nodes, run: {SCONTROL_COMMAND}"
        raise InputError(f"{where}: {name}: {quote_value(text) or 'nothing'}: {rule}")
    return int(text)


def _split_comma_list(text: str) -> list[str]:
    return [] if text in _EMPTY_VALUES else [word for word in text.split(",") if word]
