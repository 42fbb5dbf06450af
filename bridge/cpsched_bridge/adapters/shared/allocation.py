"""What a placed job has on each of its nodes, as a request with its placement, and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cpsched.formatting import many
from cpsched.model import Placement, Request
from cpsched_bridge.adapters.shared.node_table import CORES, FIRST_OTHER, MEMORY, NodeTable

Amounts = dict[int, tuple[int, ...]]
"""By node, what a job has there, in the order of the machine's resources."""


def allocation_request(amounts: Amounts, exclusive: bool) -> tuple[Request, Placement]:
    """What a job has as a request: in equal shares, or in equal units, or as little as it surely gives back.

    Where no equal units come to exactly what the job has, each node counts for the least that the job has on any of
    its nodes: nobody then plans with more than comes free. Of other resources than processors and memory the most
    counts, since nobody else may know that they are in use.
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
    least = np.concatenate((table[:, :FIRST_OTHER].min(axis=0), table[:, FIRST_OTHER:].max(axis=0)))
    request = Request(len(nodes), tuple(least.tolist()), len(nodes) > 1, exclusive)
    return request, tuple((node, 1) for node in nodes)


def describe_allocation(amounts: Mapping[int, tuple[int, ...]], machine: NodeTable) -> str:
    """What a job has, node by node, for people."""
    parts = []
    for node in sorted(amounts):
        cores, memory_mib = amounts[node][CORES], amounts[node][MEMORY]
        named = zip(machine.resources[FIRST_OTHER:], amounts[node][FIRST_OTHER:], strict=True)
        gres = "".join(f", {count} {name}" for name, count in named if count)
        parts.append(f"{machine.names[node]}: {many(cores, 'core')}, {memory_mib} MiB{gres}")
    return "; ".join(parts)
