"""Define the data types that all parts of cpsched share.

- `cluster`: nodes, resources, capacities, node sets and the power cap.
- `typical_requests`: the most frequent requests for GPUs, by which fragmentation is measured.
- `blocks`: the blocks of topology/block, and the rule by which jobs fill them.
- `job`: a job's request, pending, running and ended jobs, and the reasons why a job is pending.
- `snapshot`: `ClusterState`, a cluster at one instant as read by an adapter, and `Snapshot`, the input to a dispatcher
  with an estimate for every job.
- `value_bounds`: special values in columns, and bounds on times and amounts.
- `job_table`: jobs as columns of numbers, for kernels that loop over thousands of jobs.
- `decision`: which jobs start now and where, when the other jobs are expected to start, and why they wait.
"""

from cpsched.model.blocks import BlockRule, BlockTopology
from cpsched.model.cluster import BoolArray, Cluster, IntArray, NodeSetCondition, PowerCap, frozen_array
from cpsched.model.decision import NO_STARTS, Decision, Effort, Need, Starts, Wait
from cpsched.model.job import (
    EndedJob,
    Job,
    PendingCode,
    PendingReason,
    Placement,
    Request,
    RunningJob,
    to_pending_reason,
)
from cpsched.model.job_table import JobTable, PlacementPool
from cpsched.model.snapshot import ClusterState, Snapshot
from cpsched.model.typical_requests import TypicalRequests
from cpsched.model.value_bounds import BSLD_BOUND_S, DISTINCT, EXCLUSIVE, NEVER

__all__ = [
    "BSLD_BOUND_S",
    "DISTINCT",
    "EXCLUSIVE",
    "NEVER",
    "NO_STARTS",
    "BlockRule",
    "BlockTopology",
    "BoolArray",
    "Cluster",
    "ClusterState",
    "Decision",
    "Effort",
    "EndedJob",
    "IntArray",
    "Job",
    "JobTable",
    "Need",
    "NodeSetCondition",
    "PendingCode",
    "PendingReason",
    "Placement",
    "PlacementPool",
    "PowerCap",
    "Request",
    "RunningJob",
    "Snapshot",
    "Starts",
    "TypicalRequests",
    "Wait",
    "frozen_array",
    "to_pending_reason",
]
