"""Find pending jobs whose node lists contain nodes that no longer exist.

Measured on Slurm 26.05, and read in the source of 24.11 (`_update_job`, `_sync_detail_bitmaps`):

- Slurm rejects every change to such a job: hold, release, another list, an empty list. Once the node is back, the job
  can be changed again.
- If `ReqNodeList` contains the node, slurmctld ends the job as NODE_FAIL when it restarts.
"""

from __future__ import annotations

from cpsched.errors import join_abbreviated
from cpsched_bridge.adapters.slurm.translation import node_and_task_lists
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable

MAX_LISTED_NODES = 3


def describe_unknown_nodes(verb: str, nodes: str, machine: SlurmNodeTable) -> str | None:
    """Describe the unknown nodes in a list that a job requests or excludes, or return None if all nodes exist.

    Raise `ValueError` if the list cannot be read.
    """
    names = [name for name in node_and_task_lists.expand_hostlist(nodes) if name not in machine.index]
    return f"{verb} {join_abbreviated(names, MAX_LISTED_NODES)}, which the cluster does not have" if names else None
