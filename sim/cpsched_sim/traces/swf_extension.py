"""The three fields that the traces of Frontier add to the Standard Workload Format (JSSPP 2026).

Maheshwari, Klusáček, Suter, Brewer, "Workload Traces from the Frontier Exascale Supercomputer"; the fields as the
simulator RAPS (ExaDigiT) describes them, which counts them from 0: its unreliable field 4 is field 5 here.

| field | here | where it is missing or odd |
|---|---|---|
| 19 GPUs used | gpus of each unit: its share, rounded up | -1: none |
| 20 soft walltime | soft_walltime_s | below 1: not told |
| 21 nodes, `frontier:excl:2500x112` | 2500 units of 112 cores on nodes of their own; `excl`: exclusive | must have this form |

Fields 5 and 8 do not count: they are nodes in one job and cores in the next (in field 5 up to 589,824, on a machine of
9,408 nodes). The nodes of field 21 divide the GPUs of field 19.
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

FIELDS = 21
_NODES = re.compile(r"[^:\s]+:([^:\s]+):(\d{1,9})x(\d{1,9})$", re.ASCII)


class NodeField(NamedTuple):
    """What field 21 tells of a job's nodes; `each_cores` are those that a node has, or that the job has of it."""

    nodes: int
    each_cores: int
    exclusive: bool


def nodes_of(text: str) -> NodeField | None:
    """What a text says of nodes; None where it is no description of any, or of none."""
    match = _NODES.match(text)
    if match is None or not int(match[2]) or not int(match[3]):
        return None
    return NodeField(int(match[2]), int(match[3]), match[1] == "excl")


def is_extended(fields: Sequence[str]) -> bool:
    """Whether a line has these fields."""
    return len(fields) == FIELDS and nodes_of(fields[FIELDS - 1]) is not None
