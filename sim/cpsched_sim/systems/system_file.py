"""A system file: its nodes, and how a trace's requests become units on them.

    name: kit-forhlr2
    summary: one sentence
    resources: [cores, memory_mib, gpus]       # the columns of the cluster; the first is processors
    node_types:                                # in node order; every type is a node set
      thin: { count: 1152, prefix: t, each: { cores: 20, memory_mib: 65536 }, weight: 1 }   # lower weights fill first
    partitions: { "1": [thin] }                # partition in the trace -> node types it may use; others: all nodes
    units: { rule: gcd, cores_per_node: 20 }   # how processors are converted to units
    power: { cap_w: 40000, watts: { cores: 8 } }   # optional cap on the total power, and a job's power per amount

Rules for a job that requests only C processors (`distinct: true`: units on different nodes):

| rule | units |
|---|---|
| `pool` | C units of one processor; without node types, one node with the header's MaxProcs processors |
| `cores` | C units of one core, anywhere |
| `gcd`, `cores_per_node: K` | C < K: one unit of C cores; else units of gcd(C, K) cores (pcp20 for KIT: K = 20) |
| `nodes`, `cores_per_node: K` | ceil(C / K) whole nodes, used by this job alone |

`memory: requested | used` adds the trace's memory per processor to the units (default `none`). Jobs with named amounts
per unit (cpsched's own traces, accounting data) are unchanged; on a `pool`, only their cores count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import resources as package_files
from math import gcd
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from cpsched import feasibility
from cpsched.errors import InvalidValue, UnknownName, require
from cpsched.model import Cluster, PowerCap, Request
from cpsched.model.gpu_parts import GPU_PART_KINDS, GpuPartsColumns, node_amounts, whole_gpus_resource_name
from cpsched_sim.errors import InputError, InvalidSystem, quote_value
from cpsched_sim.input.input_limits import MAX_AMOUNT, MAX_NODE_SETS, MAX_NODES, MAX_RESOURCES, MAX_UNITS
from cpsched_sim.input.yaml_tree import StrictFileSection, YamlTree, parse_yaml_tree, read_yaml_tree
from cpsched_sim.traces.trace_record import ProcessorCountRequest, ResourceRequest, UnitsRequest

Amount = Annotated[int, Field(ge=0, le=MAX_AMOUNT)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class NodeTypeSchema(StrictFileSection):
    """Equal nodes.

    `each` contains a node's amounts, 0 if missing. `weight` is Slurm's node weight.
    """

    count: Annotated[int, Field(gt=0, le=MAX_NODES)]
    each: Mapping[str, Amount]
    prefix: Annotated[str, Field(max_length=200)] = ""
    weight: Amount = 1


class ProcessorUnitRule(StrictFileSection):
    """The rule that converts a job's processors to units."""

    rule: Literal["pool", "cores", "gcd", "nodes"]
    cores_per_node: Annotated[int, Field(gt=0, le=MAX_UNITS)] | None = None
    distinct: bool = False
    memory: Literal["none", "requested", "used"] = "none"

    @model_validator(mode="after")
    def _check_cores_per_node(self) -> ProcessorUnitRule:
        if (self.rule in ("gcd", "nodes")) != (self.cores_per_node is not None):
            raise ValueError("cores_per_node is required by the rules gcd and nodes, and only allowed there")
        return self

    def split(self, processors: int) -> tuple[int, int]:
        """Return the number of units, and the number of cores in each unit."""
        if self.rule in ("pool", "cores") or self.cores_per_node is None:
            return processors, 1
        if self.rule == "nodes":
            return -(-processors // self.cores_per_node), self.cores_per_node
        if processors < self.cores_per_node:
            return 1, processors
        each = gcd(processors, self.cores_per_node)
        return processors // each, each


class PowerCapSchema(StrictFileSection):
    """The cap on the total power of running jobs, in W.

    `watts` is a job's assumed power in W per requested amount of each resource.
    """

    cap_w: Annotated[int, Field(gt=0, le=MAX_AMOUNT)]
    watts: Annotated[Mapping[str, Amount], Field(min_length=1)]


class SystemFile(StrictFileSection):
    """The content of a system file."""

    name: Name
    summary: str = ""
    resources: Annotated[Sequence[Name], Field(min_length=1, max_length=MAX_RESOURCES)]
    node_types: Mapping[Name, NodeTypeSchema] = Field(default_factory=dict)
    partitions: Mapping[Name, Annotated[Sequence[str], Field(min_length=1)]] = Field(default_factory=dict)
    units: ProcessorUnitRule
    power: PowerCapSchema | None = None

    @model_validator(mode="after")
    def _check_references(self) -> SystemFile:
        known = set(self.resources)
        if len(known) < len(self.resources):
            raise ValueError("resources must be different")
        nodes = sum(kind.count for kind in self.node_types.values())
        if nodes > MAX_NODES:
            raise ValueError(f"node_types have {nodes:,} nodes, but at most {MAX_NODES:,} are allowed")
        if len(self.node_types) + len(self.partitions) > MAX_NODE_SETS:
            raise ValueError(f"node_types and partitions must together have at most {MAX_NODE_SETS:,} entries")
        for name, kind in self.node_types.items():
            if unknown := set(kind.each) - known:
                raise ValueError(
                    f"node_types.{name}.each contains names that are not in resources: {', '.join(sorted(unknown))}"
                )
        for name, types in self.partitions.items():
            if missing := set(types) - set(self.node_types):
                raise ValueError(
                    f"partitions.{name} contains names that are not in node_types: {', '.join(sorted(missing))}"
                )
        if self.power is not None and (strange := set(self.power.watts) - known):
            raise ValueError(f"power.watts contains names that are not in resources: {', '.join(sorted(strange))}")
        if not self.node_types and self.units.rule != "pool":
            raise ValueError("node_types may be omitted only if units.rule is pool")
        if self.units.memory != "none" and "memory_mib" not in known:
            raise ValueError("units.memory requires the resource memory_mib")
        return self


class System:
    """A system for one trace: its cluster, and the conversion of requests.

    Equal requests share one object.
    """

    def __init__(self, file: SystemFile, header: Mapping[str, str] | None = None) -> None:
        self.file = file
        power = None if file.power is None else PowerCap.of(file.power.cap_w, file.power.watts)
        self.cluster = replace(_build_cluster(file, header or {}), power=power)
        self._gpu_parts = GpuPartsColumns.of(self.cluster.resources)
        self._requests: dict[ResourceRequest, Request] = {}
        self._interned: dict[Request, Request] = {}

    @property
    def name(self) -> str:
        """Return the name stated in the system file."""
        return self.file.name

    def request(self, ask: ResourceRequest) -> Request:
        """Convert a request.

        Raise `InvalidValue` if it can never fit or contains an unknown resource.
        """
        known = self._requests.get(ask)
        if known is not None:
            return known
        request = self._convert_processors(ask) if isinstance(ask, ProcessorCountRequest) else self._convert_units(ask)
        request = self._interned.setdefault(request, request)
        room = self._units_on_empty_system(request)
        if request.units > room:
            raise InvalidValue(
                "units",
                request.units,
                f"must be at most {room}, the number of units of {self._describe_unit(request)} that fit",
            )
        self._requests[ask] = request
        return request

    def is_unknown_partition(self, partition: str) -> bool:
        """Return whether the system has partitions, but not `partition`."""
        return bool(partition and self.file.partitions) and partition not in self._node_set_by_name

    def _describe_unit(self, request: Request) -> str:
        """Describe a unit of a request and its node set."""
        amounts = zip(self.cluster.resources, request.per_unit, strict=True)
        text = ", ".join(f"{amount} {name}" for name, amount in amounts if amount)
        names = self.cluster.node_set_names
        return text + (f" in {names[request.node_set]}" if request.node_set else "")

    def _convert_processors(self, ask: ProcessorCountRequest) -> Request:
        rule = self.file.units
        require(0 < ask.processors <= MAX_UNITS, "processors", ask.processors, f"must be from 1 to {MAX_UNITS:,}")
        units, cores = rule.split(ask.processors)
        mib = {"none": 0, "requested": ask.requested_mib, "used": ask.used_mib}[rule.memory]
        amounts = {self.file.resources[0]: cores, "memory_mib": mib * cores}
        return Request(
            units,
            self._amounts_in_order(amounts),
            rule.distinct,
            rule.rule == "nodes",
            self._node_set_by_name.get(ask.partition, 0),
        )

    def _convert_units(self, ask: UnitsRequest) -> Request:
        amounts = dict(ask.each)
        require(ask.units <= MAX_UNITS, "units", ask.units, f"must be at most {MAX_UNITS:,}")
        if self.file.units.rule == "pool":
            cores = ask.units * amounts.get("cores", 1)
            require(cores <= MAX_UNITS, "cores", cores, f"must be at most {MAX_UNITS:,} in total")
            return Request(cores, self._amounts_in_order({self.file.resources[0]: 1}))
        for name, amount in amounts.items():
            require(name in self.file.resources, name, amount, f"{self.name} has {', '.join(self.file.resources)}")
        return Request(
            ask.units,
            self._amounts_in_order(amounts),
            ask.distinct,
            ask.exclusive,
            self._node_set_by_name.get(ask.partition, 0),
        )

    def _amounts_in_order(self, amounts: Mapping[str, int]) -> tuple[int, ...]:
        for name, amount in amounts.items():
            require(amount <= MAX_AMOUNT, name, amount, f"must be at most {MAX_AMOUNT:,}")
        found = dict(amounts)
        for columns in self._gpu_parts:
            parts = int(self.cluster.capacity[:, columns.gpus[0]].max())
            require(found.get(columns.kind, 0) <= parts, columns.kind, found.get(columns.kind, 0), "exceeds a GPU's")
            whole = whole_gpus_resource_name(columns.kind)
            found[whole] = found.get("gpu", 0) * parts + found.get(columns.kind, 0)
        return tuple(found.get(name, 0) for name in self.cluster.resources)

    @cached_property
    def _node_set_by_name(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.cluster.node_set_names) if row > 0}

    def _units_on_empty_system(self, request: Request) -> int:
        """Return the number of the request's units that fit on the empty system."""
        return feasibility.units_fitting_on_empty_cluster(request, self.cluster)


class InfiniteCapacitySystem(System):
    """A system with unlimited capacity, for studies without placement."""

    def __init__(self, resources: Sequence[str]) -> None:
        everything = NodeTypeSchema(count=1, each=dict.fromkeys(resources, MAX_AMOUNT))
        units = ProcessorUnitRule(rule="cores")
        super().__init__(SystemFile(name="boundless", resources=resources, node_types={"all": everything}, units=units))

    def _units_on_empty_system(self, request: Request) -> int:
        return MAX_UNITS


def _build_cluster(file: SystemFile, header: Mapping[str, str]) -> Cluster:
    if not file.node_types:
        return Cluster.of([[_processors_from_header(file, header)]], file.resources, ["pool"])
    rows: list[dict[str, int]] = []
    parts_of_gpu = _get_parts_of_gpu(file)
    names: list[str] = []
    of_type: dict[str, list[int]] = {}
    numbers: dict[str, int] = {}
    total_of = _node_counts_by_prefix(file)
    for type_name, kind in file.node_types.items():
        prefix = kind.prefix or type_name
        for _ in range(kind.count):
            numbers[prefix] = numbers.get(prefix, 0) + 1
            of_type.setdefault(type_name, []).append(len(rows))
            rows.append(_add_gpu_parts(kind.each, parts_of_gpu))
            names.append(f"{prefix}{numbers[prefix]:0{len(str(total_of[prefix]))}d}")
    partitions = {name: [node for kind in types for node in of_type[kind]] for name, types in file.partitions.items()}
    weights = [kind.weight for kind in file.node_types.values() for _ in range(kind.count)]
    resources = tuple(dict.fromkeys((*file.resources, *(name for row in rows for name in row))))
    amounts = [[row.get(name, 0) for name in resources] for row in rows]
    return Cluster.of(amounts, resources, names, of_type | partitions, weights)


def _add_gpu_parts(each: Mapping[str, int], parts_of_gpu: Mapping[str, int]) -> dict[str, int]:
    """Return a node's amounts with those of its GPUs' parts."""
    found, gpus = dict(each), each.get("gpu", 0)
    for kind, parts in parts_of_gpu.items():
        found |= node_amounts(kind, gpus, parts if each.get(kind) else 0, parts)
    return found


def _get_parts_of_gpu(file: SystemFile) -> dict[str, int]:
    """Return how many parts the GPUs have, by kind. All GPUs that jobs share have equally many."""
    found: dict[str, int] = {}
    for name, kind in file.node_types.items():
        for shared in (shared for shared in GPU_PART_KINDS if kind.each.get(shared)):
            parts, rest = divmod(kind.each[shared], kind.each.get("gpu", 0) or 1)
            right = "gpu" in kind.each and not rest and found.setdefault(shared, parts) == parts
            rule = "must be the number of gpu times the parts of a GPU, which must be equal for all nodes"
            require(right, f"node_types.{name}.each.{shared}", kind.each[shared], rule)
    return found


def _node_counts_by_prefix(file: SystemFile) -> dict[str, int]:
    totals: dict[str, int] = {}
    for name, kind in file.node_types.items():
        totals[kind.prefix or name] = totals.get(kind.prefix or name, 0) + kind.count
    return totals


def _processors_from_header(file: SystemFile, header: Mapping[str, str]) -> int:
    for key in ("MaxProcs", "MaxNodes"):
        words = header.get(key, "").split()
        if words and words[0].isascii() and words[0].isdigit() and words[0].strip("0"):
            require(
                len(words[0]) < 20 and int(words[0]) <= MAX_UNITS, key, words[0], f"must be from 1 to {MAX_UNITS:,}"
            )
            return int(words[0])
    raise InputError(f"system {file.name}: the header of the trace has no MaxProcs; choose a system with nodes")


def bundled_system_names() -> list[str]:
    """Return the names of the bundled systems."""
    folder = package_files.files("cpsched_sim") / "systems"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_bundled_system(name: str) -> SystemFile:
    """Return a bundled system. Do not open any other file. Raise `UnknownName`."""
    if name not in bundled_system_names():
        raise UnknownName("system", quote_value(name), bundled_system_names())
    return load_system(name)


def load_system(name_or_path: str) -> SystemFile:
    """Load a system by name or from a file.

    Raise `UnknownName`, `InvalidSystem` or `InputError`.
    """
    if name_or_path in bundled_system_names():
        path = Path(str(package_files.files("cpsched_sim") / "systems" / f"{name_or_path}.yaml"))
    else:
        path = Path(name_or_path)
        if not path.suffix and not path.exists():
            raise UnknownName("system", quote_value(name_or_path), bundled_system_names())
    return _to_system_file(read_yaml_tree(path, InvalidSystem))


def parse_system(path: Path, text: str) -> SystemFile:
    """Parse a system file. `path` appears in error messages."""
    return _to_system_file(parse_yaml_tree(path, text, InvalidSystem))


def _to_system_file(tree: YamlTree) -> SystemFile:
    if tree.content is None:
        raise tree.make_error((), "empty", "must describe a system")
    return tree.to_model(SystemFile)
