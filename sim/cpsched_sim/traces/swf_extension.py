"""The three fields that Frontier's traces (JSSPP 2026) add to SWF.

Maheshwari, Klusáček, Suter, Brewer, "Workload Traces from the Frontier Exascale Supercomputer". The fields follow the
simulator RAPS (ExaDigiT), which counts from 0: its unreliable field 4 is field 5 here.

| field | here | if missing or invalid |
|---|---|---|
| 19 GPUs used | gpus of each unit: its share, rounded up | -1: none |
| 20 soft walltime | soft_walltime_s | below 1: unknown |
| 21 nodes, `frontier:excl:2500x112` | 2500 units of 112 cores, each on its own node; `excl`: exclusive | must have this
form |

Fields 5 and 8 are ignored, because they contain nodes for some jobs and cores for others. Field 5 goes up to 589,824,
on a machine with 9,408 nodes. The GPUs of field 19 are divided by the nodes of field 21.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

EXTENDED_FIELDS = 21
_NODES = re.compile(r"[^:\s]+:([^:\s]+):(\d{1,9})x(\d{1,9})$", re.ASCII)


class SwfNodeField(NamedTuple):
    """The nodes in field 21, and the number of cores that a job has on each node."""

    nodes: int
    each_cores: int
    exclusive: bool


def parse_swf_node_field(text: str) -> SwfNodeField | None:
    """Parse field 21. Return None for any other text, or if it describes no nodes."""
    match = _NODES.match(text)
    if match is None or not int(match[2]) or not int(match[3]):
        return None
    return SwfNodeField(int(match[2]), int(match[3]), match[1] == "excl")


def has_frontier_fields(fields: Sequence[str]) -> bool:
    """Return whether a line has the additional fields."""
    return len(fields) == EXTENDED_FIELDS and parse_swf_node_field(fields[EXTENDED_FIELDS - 1]) is not None
