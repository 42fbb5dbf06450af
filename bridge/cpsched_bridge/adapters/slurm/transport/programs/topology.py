"""Parse from `scontrol show topology` which nodes share a switch or block."""

from __future__ import annotations

import re

from cpsched.parsing.hostlist import expand_if_valid

COMMAND = ("scontrol", "show", "topology")
PERIOD_S = 60.0
"""Interval between queries with a topology plugin."""

_UNIT = re.compile(r"^(SwitchName|BlockName)=(\S+)((?: \S+=\S*)*) *$", re.MULTILINE)
_LIST = re.compile(r" (Nodes|Switches)=(\S+)")


def parse_topology(printed: str) -> dict[str, str]:
    """Return by node the highest switch above it, or its block.

    A node below several of them is left out.
    """
    units = {(kind, name): dict(_LIST.findall(rest)) for kind, name, rest in _UNIT.findall(printed)}
    below = {name for lists in units.values() for name in expand_if_valid(lists.get("Switches", ""))}
    found: dict[str, str] = {}
    for (kind, name), lists in units.items():
        if kind == "BlockName" or name not in below:
            for node in expand_if_valid(lists.get("Nodes", "")):
                found[node] = "" if node in found else name
    return {node: name for node, name in found.items() if name}
