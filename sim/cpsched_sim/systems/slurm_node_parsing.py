"""Parse a Slurm cluster's nodes from `scontrol show node` or `sinfo`.

The format is detected from the text. All forms of scontrol's output are accepted, with and without `-o`. For sinfo, the
table must have a header line with node names (NODELIST, HOSTNAMES), CPUS and MEMORY. `sinfo -N -l` prints such a table,
and so does any `-o` with these columns. Another header line sets the columns for the lines that follow. The default
output of sinfo lacks CPUs and is rejected, as are nodes from several clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cpsched.slurm_text.gres import parse_gres
from cpsched.slurm_text.hostlist import expand_hostlist
from cpsched.slurm_text.tables import parse_name_values
from cpsched_sim.errors import InputError, quote_value

SCONTROL_COMMAND = "scontrol -o show node"
SINFO_COMMAND = "sinfo -N -o '%N|%P|%c|%m|%f|%G|%t'"
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


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as configured in Slurm, without the operating system's resources."""

    name: str
    cores: int
    memory_mib: int
    gpus: int = 0
    other_gres: tuple[str, ...] = ()
    shared_gres: tuple[str, ...] = ()
    """Resources that any number of jobs can share (`no_consume`)."""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    state: str = ""
    weight: int = 1
    """Slurm's node weight. Slurm fills nodes with low weights first."""

    @property
    def is_unavailable_state(self) -> bool:
        """Return whether the node was unavailable: down, drained or reserved, for example."""
        return is_unavailable_state(self.state)


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


def _parse_scontrol_nodes(text: str, where: str) -> Iterator[SlurmNode]:
    seen = set[str]()
    for number, record in _split_node_records(text):
        node = _parse_scontrol_node(record, f"{where}:{number}")
        if node.name not in seen:
            seen.add(node.name)
            yield node


def _split_node_records(text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield (line number, pairs) for each node.

    The first value of a key is used, because comments come last and may look like keys.
    """
    record: dict[str, str] = {}
    began = 0
    for number, line in enumerate(_split_lines(text), start=1):
        values = parse_name_values(line)
        if next(iter(values), "") == "NodeName":
            if record:
                yield began, record
            record, began = {}, number
        record = values | record if began else record
    if record:
        yield began, record


def _parse_scontrol_node(record: Mapping[str, str], where: str) -> SlurmNode:
    cores = (
        _parse_whole_number(record, "CPUEfctv", where)
        if "CPUEfctv" in record
        else _parse_whole_number(record, "CPUTot", where)
    )
    aside_mib = _parse_whole_number(record, "MemSpecLimit", where) if "MemSpecLimit" in record else 0
    return SlurmNode(
        record["NodeName"],
        cores,
        max(0, _parse_whole_number(record, "RealMemory", where) - aside_mib),
        *_parse_node_gres(record.get("Gres", ""), where),
        _split_comma_list(record.get("AvailableFeatures", "")),
        _split_comma_list(record.get("Partitions", "")),
        record.get("State", ""),
        _parse_whole_number(record, "Weight", where) if "Weight" in record else 1,
    )


def _parse_whole_number(record: Mapping[str, str], name: str, where: str) -> int:
    text = record.get(name, "")
    if not text.isdecimal() or len(text) > 18:
        raise InputError(
            f"{where}: {name}: {quote_value(text) or 'nothing'}: must be a whole number; to print nodes, run: "
            f"{SCONTROL_COMMAND}"
        )
    return int(text)


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


def _merge_partitions(before: SlurmNode, node: SlurmNode) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*before.partitions, *node.partitions)))


def _parse_sinfo_line_nodes(row: Mapping[str, str], where: str) -> Iterator[SlurmNode]:
    """Yield the nodes of a line. All have the line's minimum amounts."""
    try:
        names = expand_hostlist(row.get("nodes"))
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    gpus, others, shared = _parse_node_gres(row.get("gres", ""), where)
    features = _split_comma_list(row.get("features", ""))
    for name in names:
        yield SlurmNode(
            name,
            _parse_minimum_amount(row, "cores", where),
            _parse_minimum_amount(row, "memory", where),
            gpus,
            others,
            shared,
            features,
            tuple(word.rstrip("*") for word in _split_comma_list(row.get("partitions", ""))),
            row.get("state", ""),
            _parse_minimum_amount(row, "weight", where) if "weight" in row else 1,
        )


def _parse_minimum_amount(row: Mapping[str, str], name: str, where: str) -> int:
    """Return a number. "16+" means that the line's nodes differ and have at least 16."""
    return _parse_whole_number({name: row.get(name, "").rstrip("+")}, name, where)


# ------------------------------------------------------------------------------------------ words


def _split_comma_list(text: str) -> tuple[str, ...]:
    return () if text in _EMPTY_VALUES else tuple(word for word in text.split(",") if word)


def _parse_node_gres(text: str, where: str) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Return the number of GPUs, other generic resources, and shared ones.

    `gpu:a100:4(S:0-1),mps:400,scratch:no_consume:1` gives 4, ("mps:400",) and ("scratch:1",).
    """
    try:
        found = parse_gres("" if text in _EMPTY_VALUES else text)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    others = tuple(f"{each.key}:{each.count}" for each in found if each.is_consumable and each.name != "gpu")
    shared = tuple(f"{each.key}:{each.count}" for each in found if not each.is_consumable)
    return sum(each.count for each in found if each.is_consumable and each.name == "gpu"), others, shared
