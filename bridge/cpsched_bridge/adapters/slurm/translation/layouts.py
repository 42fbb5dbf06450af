"""What a placed job has on each of its nodes, and that as a request with its placement."""

from __future__ import annotations

import numpy as np

from cpsched.fit import units_by_node, used_by
from cpsched.model import Placement, Request
from cpsched_bridge.adapters.shared.allocation import Amounts
from cpsched_bridge.adapters.shared.machine import CORES
from cpsched_bridge.adapters.slurm.records import Layout, Record
from cpsched_bridge.adapters.slurm.translation import hostlist
from cpsched_bridge.adapters.slurm.translation.gres import gres_amounts
from cpsched_bridge.adapters.slurm.translation.machine import Machine
from cpsched_bridge.adapters.slurm.translation.shares import share_allocated
from cpsched_bridge.adapters.slurm.translation.splits import split, splits_by_itself


def amounts_on(record: Record, nodes: list[int], layout: Layout | None, machine: Machine) -> Amounts | None:
    """What a placed job has on its nodes; None where Slurm tells only what it has in all, on several of them."""
    if len(nodes) == 1:
        return {nodes[0]: share_allocated(record, machine, 1)}
    found: Amounts = {}
    for names, cpus, memory_mib, gres in layout or ():
        known = {name: count for name, count in gres_amounts(gres).items() if name in machine.resources}
        amounts = machine.vector(cpus, memory_mib, known)
        assert amounts is not None
        found |= {machine.index[name]: amounts for name in hostlist.known(names) if name in machine.index}
    return found if sorted(found) == nodes else None


def as_asked(request: Request, amounts: Amounts, machine: Machine) -> Placement | None:
    """Where the units of a job are that has exactly what it asked for; None where it has something else.

    A job with whole nodes has what it asked for on as many nodes. A type of generic resource that was not asked for
    counts as its general name.
    """
    nodes = sorted(amounts)
    if request.exclusive:
        room = units_by_node(request, machine.capacity[nodes]).tolist()
        tasks = split(request.units, room) if splits_by_itself(request) else [1] * len(nodes)
        return tuple(zip(nodes, tasks, strict=True)) if tasks and sum(tasks) == request.units else None
    units = {node: _units(request, amounts[node]) for node in nodes}
    placement = tuple(units.items())
    if sum(units.values()) != request.units or (request.distinct and max(units.values()) > 1):
        return None
    used = used_by(request, placement, machine.capacity)
    asked = _asked_columns(request, machine)
    exact = all((used[node][asked] == np.array(amounts[node])[asked]).all() for node in nodes)
    return placement if exact else None


def _units(request: Request, amounts: tuple[int, ...]) -> int:
    return amounts[CORES] // request.per_unit[CORES] if request.per_unit[CORES] else 1


def _asked_columns(request: Request, machine: Machine) -> list[int]:
    """The columns that count: all but types of generic resources that the request does not name."""
    columns = enumerate(zip(machine.resources, request.per_unit, strict=True))
    return [at for at, (name, amount) in columns if amount or ":" not in name]
