"""What a placed job has on each of its nodes, and that as a request with its placement."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cpsched.fit import units_by_node, used_by
from cpsched.model import Placement, Request
from cpsched_bridge.adapters.slurm.records import Layout, Record
from cpsched_bridge.adapters.slurm.translation import hostlist
from cpsched_bridge.adapters.slurm.translation.gres import gres_amounts
from cpsched_bridge.adapters.slurm.translation.machine import CORES, FIRST_GRES, MEMORY, Machine
from cpsched_bridge.adapters.slurm.translation.shares import share_allocated
from cpsched_bridge.adapters.slurm.translation.splits import split, splits_by_itself

Amounts = dict[int, tuple[int, ...]]
"""By node, what a job has there, in the order of the machine's resources."""


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


def as_allocated(amounts: Amounts, exclusive: bool) -> tuple[Request, Placement]:
    """What a job has as a request: in equal shares, or in equal units, or as little as it surely gives back.

    Where no equal units come to exactly what the job has, each node counts for the least that the job has on any of
    its nodes: nobody then plans with more than comes free. Of generic resources the most counts, since nobody else may
    know that they are in use.
    """
    nodes, table = sorted(amounts), np.array([amounts[node] for node in sorted(amounts)])
    cores = table[:, CORES]
    if (table == table[0]).all() or not cores.all():
        return _one_each(nodes, table, exclusive)
    units = cores // math.gcd(*cores.tolist())
    if (table % units[:, None]).any() or (table // units[:, None] != table[0] // units[0]).any():
        return _one_each(nodes, table, exclusive)
    request = Request(int(units.sum()), tuple((table[0] // units[0]).tolist()), exclusive=exclusive)
    return request, tuple(zip(nodes, units.tolist(), strict=True))


def _one_each(nodes: list[int], table: np.ndarray, exclusive: bool) -> tuple[Request, Placement]:
    least = np.concatenate((table[:, :FIRST_GRES].min(axis=0), table[:, FIRST_GRES:].max(axis=0)))
    request = Request(len(nodes), tuple(least.tolist()), len(nodes) > 1, exclusive)
    return request, tuple((node, 1) for node in nodes)


def in_words(amounts: Mapping[int, tuple[int, ...]], machine: Machine) -> str:
    """What a job has, node by node, for people."""
    parts = []
    for node in sorted(amounts):
        cores, memory_mib = amounts[node][CORES], amounts[node][MEMORY]
        named = zip(machine.resources[FIRST_GRES:], amounts[node][FIRST_GRES:], strict=True)
        gres = "".join(f", {count} {name}" for name, count in named if count)
        parts.append(f"{machine.names[node]}: {cores} cores, {memory_mib} MiB{gres}")
    return "; ".join(parts)
