"""The values every part of cpsched speaks in, each name spelled once.

- `cluster`: nodes, resources, capacities.
- `power`: what all running jobs may draw together.
- `job`: what a job asks for, and what is known of it while it waits, runs, and after it has ended.
- `scene`: what an adapter sees of a cluster at one instant. No job has an estimate yet.
- `numbers`: the numbers with a meaning that stand in those columns.
- `table`: jobs as columns of numbers, for the kernels that loop over thousands of them.
- `snapshot`: what a dispatcher gets. Every job has its estimate.
- `decision`: which jobs start now and where, when the others are expected to, and why they wait.
"""

from cpsched.model.cluster import BoolArray, Cluster, IntArray, NodeSetPart, frozen_array
from cpsched.model.decision import NO_STARTS, Decision, Effort, Need, Starts, Wait
from cpsched.model.job import EndedJob, Job, Placement, Request, RunningJob
from cpsched.model.job_table import JobTable, PlacementPool
from cpsched.model.power import PowerCap
from cpsched.model.reason import PendingCode, PendingReason, reason_from
from cpsched.model.sentinels import BSLD_BOUND_S, DISTINCT, EXCLUSIVE, NEVER
from cpsched.model.snapshot import ClusterState, Snapshot

__all__ = [
    "BSLD_BOUND_S",
    "DISTINCT",
    "EXCLUSIVE",
    "NEVER",
    "NO_STARTS",
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
    "NodeSetPart",
    "PendingCode",
    "PendingReason",
    "Placement",
    "PlacementPool",
    "PowerCap",
    "Request",
    "RunningJob",
    "Snapshot",
    "Starts",
    "Wait",
    "frozen_array",
    "reason_from",
]
