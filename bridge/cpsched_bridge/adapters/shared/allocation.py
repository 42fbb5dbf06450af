"""Translate an allocation into a request and a placement, and into text."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cpsched.formatting import format_count
from cpsched.model import Placement, Request
from cpsched_bridge.adapters.shared.node_table import CORES, FIRST_OTHER_RESOURCE, MEMORY, ConfiguredNodeTable

Amounts = dict[int, tuple[int, ...]]
"""A job's amounts by node, in the order of the cluster's resources."""


def request_from_allocation(amounts: Amounts, exclusive: bool) -> tuple[Request, Placement]:
    """Return an allocation as a request and a placement.

    If equal units cannot add up to the allocation, each node counts with the job's smallest amounts of processors and
    memory on any node. A plan then never overestimates what the job will release. Other resources count with their
    largest amounts, because node records may not show that they are in use.
    """
    nodes, table = sorted(amounts), np.array([amounts[node] for node in sorted(amounts)])
    cores = table[:, CORES]
    if (table == table[0]).all() or not cores.all():
        return _request_one_unit_per_node(nodes, table, exclusive)
    units = cores // math.gcd(*cores.tolist())
    if (table % units[:, None]).any() or (table // units[:, None] != table[0] // units[0]).any():
        return _request_one_unit_per_node(nodes, table, exclusive)
    request = Request(int(units.sum()), tuple((table[0] // units[0]).tolist()), exclusive=exclusive)
    return request, tuple(zip(nodes, units.tolist(), strict=True))


def _request_one_unit_per_node(nodes: list[int], table: np.ndarray, exclusive: bool) -> tuple[Request, Placement]:
    least = np.concatenate((table[:, :FIRST_OTHER_RESOURCE].min(axis=0), table[:, FIRST_OTHER_RESOURCE:].max(axis=0)))
    request = Request(len(nodes), tuple(least.tolist()), len(nodes) > 1, exclusive)
    return request, tuple((node, 1) for node in nodes)


def describe_allocation(amounts: Mapping[int, tuple[int, ...]], machine: ConfiguredNodeTable) -> str:
    """Return a job's amounts on each node as text."""
    parts = []
    for node in sorted(amounts):
        cores, memory_mib = amounts[node][CORES], amounts[node][MEMORY]
        named = zip(machine.resources[FIRST_OTHER_RESOURCE:], amounts[node][FIRST_OTHER_RESOURCE:], strict=True)
        gres = "".join(f", {count} {name}" for name, count in named if count)
        parts.append(f"{machine.names[node]}: {format_count(cores, 'core')}, {memory_mib} MiB{gres}")
    return "; ".join(parts)
