"""The nodes of a Slurm cluster, as `scontrol show node` and `sinfo` print them.

Both are told apart by their text. Of scontrol any form is read, with `-o` and without. Of sinfo what is read is a table
with a header line that has the names of nodes (NODELIST, HOSTNAMES), CPUS and MEMORY: `sinfo -N -l`, or any `-o` with
these columns. A further header line sets the columns of the lines below it. What sinfo prints when it is asked for
nothing has no CPUs, and is refused; so are the nodes of several clusters.
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
"""The words, long and short, in the state of a node that runs jobs, or would; every other word is a way to be away."""
_SIGNS = "*~#!%$@^-"
_AWAY_SIGNS = frozenset("*~#!%$^")
"""Not responding, asleep, waking, about to sleep, falling asleep, in maintenance, rebooting."""
_NAMES = {
    "NODELIST": "nodes", "HOSTNAMES": "nodes", "PARTITION": "partitions", "CPUS": "cores", "CPUS(A/I/O/T)": "usage",
    "MEMORY": "memory", "AVAIL_FEATURES": "features", "GRES": "gres", "STATE": "state", "STATECOMPLETE": "state",
    "WEIGHT": "weight", "CLUSTER": "cluster",
}  # fmt: skip
"""Headings of sinfo that are read."""
_USEFUL = {"partitions": "PARTITION", "gres": "GRES"}
"""Those without which a system lacks something."""
_OF_NODES = {"NODELIST", "HOSTNAMES"}
_MAY_HOLD_BLANKS = "REASON"
_CLUSTER = "CLUSTER: "


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as Slurm has it configured; what is set aside for the system itself is taken off."""

    name: str
    cores: int
    memory_mib: int
    gpus: int = 0
    other_gres: tuple[str, ...] = ()
    shared_gres: tuple[str, ...] = ()
    """What any number of jobs use at once (`no_consume`)."""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    state: str = ""
    weight: int = 1
    """Slurm fills nodes of a low weight first."""

    @property
    def is_away(self) -> bool:
        """Whether it could not be used when this was printed: down, drained, reserved and the like."""
        return is_away(self.state)


def is_away(state: str) -> bool:
    """Whether a node in a state could not be used, in any of Slurm's spellings: `drng`, `idle~`, `DOWN*+CLOUD`."""
    if not _AWAY_SIGNS.isdisjoint(state):
        return True
    words = (word.strip().rstrip(_SIGNS).upper() for word in state.split("+"))
    return any(word and word not in _USABLE for word in words)


@dataclass(frozen=True, slots=True)
class ParsedNodes:
    """The nodes that were printed, each once, in their order; and the columns of sinfo that would have told more."""

    nodes: tuple[SlurmNode, ...]
    lacks: tuple[str, ...] = ()


def begins_nodes(line: str) -> bool:
    """Whether a line looks like scontrol's of a node, or like a header line of sinfo's."""
    return line.startswith("NodeName=") or _is_header(line)


def _is_header(line: str) -> bool:
    """A value of a user's is no header line: each of its words is in capital letters, as sinfo's are."""
    words = line.replace("|", " ").split()
    return not _OF_NODES.isdisjoint(words) and all(word[0].isalpha() and word == word.upper() for word in words)


def parse_nodes(text: str, where: str) -> ParsedNodes:
    """What Slurm printed of nodes; `where` is what messages name. Raises `InputError`."""
    found = (
        ParsedNodes(tuple(_of_scontrol(text, where)))
        if any(line.startswith("NodeName=") for line in _lines(text))
        else _of_sinfo(text, where)
    )
    if not found.nodes:
        raise InputError(f"{where}: holds no node; print it with: {SCONTROL}")
    return found


def _lines(text: str) -> list[str]:
    """Lines as Slurm ends them; other signs that could end one may be in what people wrote."""
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
    """(line, pairs) of each node. Of a key that comes twice the first counts: comments, which stand last, may lie."""
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


def _of_sinfo(text: str, where: str) -> ParsedNodes:
    nodes: dict[str, SlurmNode] = {}
    columns: _SinfoColumns | None = None
    cluster = ""
    for number, line in enumerate(_lines(text), start=1):
        at = f"{where}:{number}"
        if _is_header(line):
            columns = _SinfoColumns.of(line, at)
            continue
        told = line.removeprefix(_CLUSTER) if line.startswith(_CLUSTER) else ""
        row = columns.row(line, at) if columns is not None and line.strip() and not told else {}
        told = told.strip() or row.get("cluster", "")
        if told and cluster not in ("", told):
            rule = f"must be {quote_value(cluster)}, as above: print the nodes of one cluster, with: {SCONTROL}"
            raise InputError(f"{at}: CLUSTER: {quote_value(told)}: {rule}")
        cluster = told or cluster
        for node in _row(row, at):
            before = nodes.get(node.name)
            nodes[node.name] = node if before is None else replace(before, partitions=_both(before, node))
    if columns is None:
        raise InputError(
            f"{where}: is neither what scontrol nor what sinfo prints of nodes; print with: {SCONTROL}, or: {SINFO}"
        )
    return ParsedNodes(tuple(nodes.values()), tuple(name for key, name in _USEFUL.items() if key not in columns.names))


@dataclass(frozen=True, slots=True)
class _SinfoColumns:
    """The columns of a header line of sinfo; `names` are ours, "" for one that is not read."""

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
            rule = f"the columns of sinfo lack {', '.join(sorted(missing))}; print with: {SINFO}"
            raise InputError(f"{where}: {rule}")
        return cls(separator, names, words[-1])

    def row(self, line: str, where: str) -> Mapping[str, str]:
        """The values of a line by column; of a column that comes twice the first counts."""
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
    """The nodes of a line, which are alike."""
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
    """A number; "16+" where the nodes of the line differ, and the least of them has 16."""
    return _whole({name: row.get(name, "").rstrip("+")}, name, where)


# ------------------------------------------------------------------------------------------ words


def _words(text: str) -> tuple[str, ...]:
    return () if text in _NOTHING else tuple(word for word in text.split(",") if word)


def _gres(text: str, where: str) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """GPUs of whatever type, the other generic resources, and those of which any number of jobs have a part.

    `gpu:a100:4(S:0-1),mps:400,scratch:no_consume:1` are 4, ("mps:400",) and ("scratch:1",).
    """
    try:
        found = parse_gres("" if text in _NOTHING else text)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    others = tuple(f"{each.key}:{each.count}" for each in found if each.is_consumable and each.name != "gpu")
    shared = tuple(f"{each.key}:{each.count}" for each in found if not each.is_consumable)
    return sum(each.count for each in found if each.is_consumable and each.name == "gpu"), others, shared
