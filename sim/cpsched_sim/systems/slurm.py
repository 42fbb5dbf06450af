"""The nodes of a Slurm cluster, as `scontrol show node` and `sinfo` print them.

Both are told apart by their text. Of scontrol any form is read, with `-o` and without. Of sinfo what is read is a table
with a header line that has NODELIST, CPUS and MEMORY: `sinfo -N -l`, or any `-o` with these columns. What sinfo prints
when it is asked for nothing has no CPUs, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cpsched.spelling.amounts import pairs_of
from cpsched.spelling.node_lists import expand
from cpsched_sim.errors import Unusable, shown

SCONTROL = "scontrol -o show node"
SINFO = "sinfo -N -o '%N|%P|%c|%m|%f|%G|%t'"
_NOTHING = ("", "(null)", "N/A", "n/a")
_GRES = re.compile(r"gpu(?::[^:,()]*?)??(?::(\d{1,6}))?(?:\([^)]*\))?$")
AWAY = ("DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "POWERING", "MAINT", "INVAL", "RESERVED")
"""Words in the state of a node that cannot be used."""
_NAMES = {
    "NODELIST": "nodes", "PARTITION": "partitions", "CPUS": "cores", "MEMORY": "memory",
    "AVAIL_FEATURES": "features", "GRES": "gres", "STATE": "state", "WEIGHT": "weight",
}  # fmt: skip
"""Headings of sinfo that are read."""
_USEFUL = {"partitions": "PARTITION", "gres": "GRES"}
"""Those without which a system lacks something."""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as Slurm has it configured; what is set aside for the system itself is taken off."""

    name: str
    cores: int
    memory_mib: int
    gpus: int = 0
    other_gres: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    state: str = ""
    weight: int = 1
    """Slurm fills nodes of a low weight first."""

    @property
    def is_away(self) -> bool:
        """Whether it could not be used when this was printed: down, drained, reserved and the like."""
        return any(word in self.state.upper() for word in AWAY) or self.state.endswith("*")


@dataclass(frozen=True, slots=True)
class Printed:
    """The nodes that were printed, each once, in their order; and the columns of sinfo that would have told more."""

    nodes: tuple[SlurmNode, ...]
    lacks: tuple[str, ...] = ()


def nodes_of(text: str, where: str) -> Printed:
    """What Slurm printed of nodes; `where` is what messages name. Raises `Unusable`."""
    found = Printed(tuple(_of_scontrol(text, where))) if "NodeName=" in text else _of_sinfo(text, where)
    if not found.nodes:
        raise Unusable(f"{where}: holds no node; print it with: {SCONTROL}")
    return found


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
    for number, line in enumerate(text.splitlines(), start=1):
        pairs = list(pairs_of(line))
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
    gpus, others = _gres(record.get("Gres", ""))
    return SlurmNode(
        record["NodeName"],
        cores,
        max(0, _whole(record, "RealMemory", where) - aside_mib),
        gpus,
        others,
        _words(record.get("AvailableFeatures", "")),
        _words(record.get("Partitions", "")),
        record.get("State", ""),
        _whole(record, "Weight", where) if "Weight" in record else 1,
    )


def _whole(record: Mapping[str, str], name: str, where: str) -> int:
    text = record.get(name, "")
    if not text.isdecimal() or len(text) > 18:
        raise Unusable(f"{where}: {name}: {shown(text) or 'nothing'}: must be a whole number; print with: {SCONTROL}")
    return int(text)


# ------------------------------------------------------------------------------------------ sinfo


def _of_sinfo(text: str, where: str) -> Printed:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    at = next((at for at, (_, line) in enumerate(lines) if "NODELIST" in line), None)
    if at is None:
        raise Unusable(f"{where}: is neither what scontrol nor what sinfo prints of nodes; print with: {SCONTROL}")
    separator = "|" if "|" in lines[at][1] else None
    names = [_NAMES.get(name.strip(), "") for name in lines[at][1].split(separator)]
    if missing := {"nodes", "cores", "memory"} - set(names):
        absent = ", ".join(sorted(missing))
        raise Unusable(f"{where}:{lines[at][0]}: the columns of sinfo lack {absent}; print with: {SINFO}")
    nodes: dict[str, SlurmNode] = {}
    for number, line in lines[at + 1 :]:
        row = dict(zip(names, (cell.strip() for cell in line.split(separator)), strict=False))
        for node in _row(row, f"{where}:{number}"):
            before = nodes.get(node.name)
            nodes[node.name] = node if before is None else replace(before, partitions=_both(before, node))
    return Printed(tuple(nodes.values()), tuple(column for key, column in _USEFUL.items() if key not in names))


def _both(before: SlurmNode, node: SlurmNode) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*before.partitions, *node.partitions)))


def _row(row: Mapping[str, str], where: str) -> Iterator[SlurmNode]:
    """The nodes of a line, which are alike."""
    try:
        names = expand(row.get("nodes"))
    except ValueError as error:
        raise Unusable(f"{where}: {error}") from error
    gpus, others = _gres(row.get("gres", ""))
    features = _words(row.get("features", ""))
    for name in names:
        yield SlurmNode(
            name,
            _of_at_least(row, "cores", where),
            _of_at_least(row, "memory", where),
            gpus,
            others,
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


def _gres(text: str) -> tuple[int, tuple[str, ...]]:
    """(GPUs of whatever type, the other generic resources): `gpu:a100:4(S:0-1),mps:400` are 4 and ("mps:400",)."""
    items = () if text in _NOTHING else re.split(r",(?![^(]*\))", text)
    gpus, others = 0, []
    for item in items:
        if match := _GRES.match(item):
            gpus += int(match[1] or 1)
        else:
            others.append(item)
    return gpus, tuple(others)
