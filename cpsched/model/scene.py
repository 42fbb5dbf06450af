"""What an adapter sees of a cluster at one instant. No job has an estimate yet."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched.model.cluster import Cluster, IntArray
from cpsched.model.job import Job, RunningJob


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """One instant of a cluster as it is seen from outside, before anybody predicts how long its jobs will run.

    `Policy.estimated` makes a `Snapshot` of it, which is what a dispatcher gets.

    - `now_s`: the instant, in the seconds of the jobs' times: since 1970 (UTC) on a live cluster and in accounting
      data, since the header's UnixStartTime in the Standard Workload Format.
    - `free`: int64[N, R], what is neither in use nor drained.
    - `queue`: the jobs that wait, in order of arrival. Ineligible ones among them are left out of the snapshot.
    - `running`: the jobs that hold nodes.
    """

    now_s: int
    cluster: Cluster
    free: IntArray
    queue: tuple[Job, ...]
    running: tuple[RunningJob, ...] = ()
