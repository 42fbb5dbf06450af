"""Find pending jobs that name nodes deleted or removed from slurm.conf.

Measured on Slurm 26.05, and read in the source of 24.11 (`_update_job`, `_sync_detail_bitmaps`):

- Slurm rejects every change to such a job: hold, release, another list, an empty list. Once the node is back, the job
  can be changed again.
- If `ReqNodeList` names the node, slurmctld ends the job as NODE_FAIL when it restarts.
"""

from __future__ import annotations

from cpsched.errors import abbreviate
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import task_ranges
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable

LISTS = {"required_nodes": "asks for", "excluded_nodes": "excludes"}
MOST_NAMED = 3


def describe_unknown_nodes(field: str, record: Record, machine: SlurmNodeTable) -> str | None:
    """Return a description of the unknown nodes in one of a record's `LISTS`, or None if all nodes exist.

    Raise `ValueError` if the list cannot be read.
    """
    if not record[field]:
        return None
    names = [name for name in task_ranges.expand_hostlist(record[field]) if name not in machine.index]
    return f"{LISTS[field]} {abbreviate(names, MOST_NAMED)}, which the cluster does not know" if names else None
