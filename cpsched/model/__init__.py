"""Define the data types that all parts of cpsched share.

- `cluster`: nodes, resources, capacities and node sets.
- `typical_requests`: the most frequent requests for GPUs, by which fragmentation is measured.
- `blocks`: the blocks of topology/block, and the rule by which jobs fill them.
- `power`: the cap on the total power draw of running jobs.
- `job`: a job's request, and pending, running and ended jobs.
- `snapshot`: `ClusterState`, a cluster at one instant as read by an adapter, and `Snapshot`, the input to a dispatcher
  with an estimate for every job.
- `value_bounds`: special values in columns, and bounds on times and amounts.
- `job_table`: jobs as columns of numbers, for kernels that loop over thousands of jobs.
- `decision`: which jobs start now and where, when the other jobs are expected to start, and why they wait.
"""

from cpsched.model.blocks import BlockRule, BlockTopology
from cpsched.model.cluster import BoolArray, Cluster, IntArray, NodeSetCondition, frozen_array
from cpsched.model.decision import NO_STARTS, Decision, Effort, Need, Starts, Wait
from cpsched.model.job import EndedJob, Job, Placement, Request, RunningJob
from cpsched.model.job_table import JobTable, PlacementPool
from cpsched.model.power import PowerCap
from cpsched.model.reason import PendingCode, PendingReason, to_pending_reason
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
