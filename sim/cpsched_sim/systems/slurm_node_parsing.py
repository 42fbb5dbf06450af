"""Parse the nodes of a Slurm cluster from the output of `scontrol show node` or `sinfo`.

The format is detected from the text. All forms of scontrol's output are accepted, with and without `-o`. For sinfo, a
table with a header line is required that includes node names (NODELIST, HOSTNAMES), CPUS and MEMORY: `sinfo -N -l`, or
any `-o` with these columns. Another header line sets the columns of the lines below it. The default output of sinfo
lacks CPUs and is rejected, as are the nodes of several clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cpsched.parsing.gres import parse_gres
from cpsched.parsing.hostlist import expand_hostlist
from cpsched.parsing.slurm_limits import parse_key_values
from cpsched_sim.errors import InputError, quote_value

SCONTROL = "scontrol -o show node"
SINFO = "sinfo -N -o '%N|%P|%c|%m|%f|%G|%t'"
_NOTHING = ("", "(null)", "N/A", "n/a")
_USABLE = frozenset(
    ("IDLE", "MIX", "MIXED", "ALLOC", "ALLOCATED", "COMP", "COMPLETING", "PLND", "PLANNED", "BLOCK", "BLOCKED", "CLOUD",
     "DYNAMIC_NORM", "REBOOT_REQUESTED", "REBOOT_CANCEL", "CANCEL_REBOOT", "CANC_R", "UNDRAIN", "RESUME")
)  # fmt: skip
"""The long and short state words of a usable node; any other word makes the node unavailable."""
_SIGNS = "*~#!%$@^-"
_AWAY_SIGNS = frozenset("*~#!%$^")
"""Not responding, powered down, powering up, pending power-down, powering down, in maintenance, rebooting."""
_NAMES = {
    "NODELIST": "nodes", "HOSTNAMES": "nodes", "PARTITION": "partitions", "CPUS": "cores", "CPUS(A/I/O/T)": "usage",
    "MEMORY": "memory", "AVAIL_FEATURES": "features", "GRES": "gres", "STATE": "state", "STATECOMPLETE": "state",
    "WEIGHT": "weight", "CLUSTER": "cluster",
}  # fmt: skip
"""The sinfo headings that are read."""
_USEFUL = {"partitions": "PARTITION", "gres": "GRES"}
"""The required headings."""
_OF_NODES = {"NODELIST", "HOSTNAMES"}
_MAY_HOLD_BLANKS = "REASON"
_CLUSTER = "CLUSTER: "


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as configured in Slurm, without the resources reserved for the operating system."""

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
    """Slurm fills nodes with low weight first."""

    @property
    def is_away(self) -> bool:
        """Return whether the node was unavailable when the output was printed: down, drained, reserved and so on."""
        return is_away(self.state)


def is_away(state: str) -> bool:
    """Return whether a state in any of Slurm's spellings means unavailable: `drng`, `idle~`, `DOWN*+CLOUD`."""
    if not _AWAY_SIGNS.isdisjoint(state):
        return True
    words = (word.strip().rstrip(_SIGNS).upper() for word in state.split("+"))
    return any(word and word not in _USABLE for word in words)


@dataclass(frozen=True, slots=True)
class ParsedSlurmNodes:
    """The printed nodes in order, without duplicates, and the missing columns of sinfo."""

    nodes: tuple[SlurmNode, ...]
    lacks: tuple[str, ...] = ()


def begins_nodes(line: str) -> bool:
    """Return whether a line looks like scontrol's output for a node, or like a header line of sinfo."""
    return line.startswith("NodeName=") or _is_header(line)


def _is_header(line: str) -> bool:
    """Return whether all words are in capitals, as in sinfo's header, unlike values chosen by users."""
    words = line.replace("|", " ").split()
    return not _OF_NODES.isdisjoint(words) and all(word[0].isalpha() and word == word.upper() for word in words)


def parse_nodes(text: str, where: str) -> ParsedSlurmNodes:
    """Parse Slurm's output on nodes; `where` appears in messages. Raise `InputError`."""
    found = (
        ParsedSlurmNodes(tuple(_of_scontrol(text, where)))
        if any(line.startswith("NodeName=") for line in _lines(text))
        else _of_sinfo(text, where)
    )
    if not found.nodes:
        raise InputError(f"{where}: contains no nodes; print the nodes with: {SCONTROL}")
    return found


def _lines(text: str) -> list[str]:
    """Split lines only where Slurm does, because users' text may contain other line separators."""
    return text.replace("\r\n", "\n").split("\n")


# ------------------------------------------------------------------------------------------ scontrol


def _of_scontrol(text: str, where: str) -> Iterator[SlurmNode]:
    seen = set[str]()
    for number, record in _records(text):
        node = _node(record, f"{where}:{number}")
        if node.name not in seen:
            seen.add(node.name)
            yield node


def _records(text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield (line, pairs) for each node.

    The first value of a key counts, because comments come last and may imitate keys.
    """
    record: dict[str, str] = {}
    began = 0
    for number, line in enumerate(_lines(text), start=1):
        pairs = list(parse_key_values(line))
        if pairs and pairs[0][0] == "NodeName":
            if record:
                yield began, record
            record, began = {}, number
        for name, value in pairs if began else ():
            record.setdefault(name, value)
    if record:
        yield began, record


def _node(record: Mapping[str, str], where: str) -> SlurmNode:
    cores = _whole(record, "CPUEfctv", where) if "CPUEfctv" in record else _whole(record, "CPUTot", where)
    aside_mib = _whole(record, "MemSpecLimit", where) if "MemSpecLimit" in record else 0
    return SlurmNode(
        record["NodeName"],
        cores,
        max(0, _whole(record, "RealMemory", where) - aside_mib),
        *_gres(record.get("Gres", ""), where),
        _words(record.get("AvailableFeatures", "")),
        _words(record.get("Partitions", "")),
        record.get("State", ""),
        _whole(record, "Weight", where) if "Weight" in record else 1,
    )


def _whole(record: Mapping[str, str], name: str, where: str) -> int:
    text = record.get(name, "")
    if not text.isdecimal() or len(text) > 18:
        raise InputError(
            f"{where}: {name}: {quote_value(text) or 'nothing'}: must be a whole number; print with: {SCONTROL}"
        )
    return int(text)


# ------------------------------------------------------------------------------------------ sinfo


def _of_sinfo(text: str, where: str) -> ParsedSlurmNodes:
    nodes: dict[str, SlurmNode] = {}
    columns: _SinfoColumns | None = None
    cluster = ""
    for number, line in enumerate(_lines(text), start=1):
        at = f"{where}:{number}"
        if _is_header(line):
            columns = _SinfoColumns.of(line, at)
            continue
        printed = line.removeprefix(_CLUSTER) if line.startswith(_CLUSTER) else ""
        row = columns.row(line, at) if columns is not None and line.strip() and not printed else {}
        printed = printed.strip() or row.get("cluster", "")
        if printed and cluster not in ("", printed):
            rule = f"must be {quote_value(cluster)}, as above: print the nodes of one cluster, with: {SCONTROL}"
            raise InputError(f"{at}: CLUSTER: {quote_value(printed)}: {rule}")
        cluster = printed or cluster
        for node in _row(row, at):
            before = nodes.get(node.name)
            nodes[node.name] = node if before is None else replace(before, partitions=_both(before, node))
    if columns is None:
        raise InputError(
            f"{where}: is not the output of scontrol or sinfo; print the nodes with: {SCONTROL}, or: {SINFO}"
        )
    return ParsedSlurmNodes(
        tuple(nodes.values()), tuple(name for key, name in _USEFUL.items() if key not in columns.names)
    )


@dataclass(frozen=True, slots=True)
class _SinfoColumns:
    """The columns in a header line of sinfo; `names` are this module's names, "" for an ignored column."""

    separator: str | None
    names: tuple[str, ...]
    last: str

    @classmethod
    def of(cls, line: str, where: str) -> _SinfoColumns:
        separator = "|" if "|" in line else None
        words = [word.strip() for word in line.split(separator)]
        names = tuple(_NAMES.get(word, "") for word in words)
        missing = {"nodes", "cores", "memory"} - set(names) - ({"cores"} if "usage" in names else set())
        if missing:
            rule = f"must include {', '.join(sorted(missing))}; print with: {SINFO}"
            raise InputError(f"{where}: {rule}")
        return cls(separator, names, words[-1])

    def row(self, line: str, where: str) -> Mapping[str, str]:
        """Return the values of a line by column; if a name occurs twice, the first column counts."""
        cells = [cell.strip() for cell in line.split(self.separator)]
        if len(cells) > len(self.names) and self.last != _MAY_HOLD_BLANKS:
            rule = f"must be {len(self.names)}, as in the header line; print with: {SINFO}"
            raise InputError(f"{where}: fields: {len(cells)}: {rule}")
        found: dict[str, str] = {}
        for name, cell in zip(self.names, cells, strict=False):
            found.setdefault(name, cell)
        if "cores" not in found and "usage" in found:
            found["cores"] = found["usage"].rpartition("/")[2]
        return found


def _both(before: SlurmNode, node: SlurmNode) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*before.partitions, *node.partitions)))


def _row(row: Mapping[str, str], where: str) -> Iterator[SlurmNode]:
    """Yield the nodes of a line, which are all equal."""
    try:
        names = expand_hostlist(row.get("nodes"))
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    gpus, others, shared = _gres(row.get("gres", ""), where)
    features = _words(row.get("features", ""))
    for name in names:
        yield SlurmNode(
            name,
            _of_at_least(row, "cores", where),
            _of_at_least(row, "memory", where),
            gpus,
            others,
            shared,
            features,
            tuple(word.rstrip("*") for word in _words(row.get("partitions", ""))),
            row.get("state", ""),
            _of_at_least(row, "weight", where) if "weight" in row else 1,
        )


def _of_at_least(row: Mapping[str, str], name: str, where: str) -> int:
    """Return a number; "16+" means that the nodes of the line differ and have at least 16."""
    return _whole({name: row.get(name, "").rstrip("+")}, name, where)


# ------------------------------------------------------------------------------------------ words


def _words(text: str) -> tuple[str, ...]:
    return () if text in _NOTHING else tuple(word for word in text.split(",") if word)


def _gres(text: str, where: str) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Return the number of GPUs of any type, the other generic resources, and the shared ones.

    `gpu:a100:4(S:0-1),mps:400,scratch:no_consume:1` gives 4, ("mps:400",) and ("scratch:1",).
    """
    try:
        found = parse_gres("" if text in _NOTHING else text)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    others = tuple(f"{each.key}:{each.count}" for each in found if each.is_consumable and each.name != "gpu")
    shared = tuple(f"{each.key}:{each.count}" for each in found if not each.is_consumable)
    return sum(each.count for each in found if each.is_consumable and each.name == "gpu"), others, shared
