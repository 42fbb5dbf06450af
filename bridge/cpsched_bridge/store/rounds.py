"""Rounds as plain data: what a decision depended on and what it was, to be written down and decided again.

Jobs and clusters are written once and named by a hash of their content from then on. So a quiet hour of identical
rounds costs next to nothing.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cpsched.model import Cluster, Decision, Effort, Job, Placement, Request, RunningJob, Snapshot, Wait
from cpsched.policy_spec import PolicySpec

Json = Any


def pack(value: Json) -> bytes:
    """Compressed JSON, the same bytes for the same value."""
    return zlib.compress(json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), 1)


def unpack(data: bytes) -> Json:
    """The value of `pack`."""
    return json.loads(zlib.decompress(data))


def key_of(data: bytes) -> bytes:
    """A content address: the same bytes, the same key."""
    return hashlib.blake2b(data, digest_size=12).digest()


def job_to_json(job: Job) -> Json:
    """A job as a list of its fields."""
    r = job.request
    request = [r.units, list(r.per_unit), r.distinct, r.exclusive, r.node_set]
    return [job.id, job.submit_s, job.walltime_s, request, job.user, job.name, job.queue, job.account, job.ineligible]


def job_from_json(value: Json) -> Job:
    """The job of `job_to_json`."""
    id, submit_s, walltime_s, (units, per_unit, distinct, exclusive, node_set), *names = value
    return Job(id, submit_s, walltime_s, Request(units, tuple(per_unit), distinct, exclusive, node_set), *names)


def cluster_to_json(cluster: Cluster) -> Json:
    """A cluster as names and rows."""
    return {
        "nodes": list(cluster.node_names),
        "resources": list(cluster.resources),
        "capacity": cluster.capacity.tolist(),
        "sets": [np.flatnonzero(row).tolist() for row in cluster.node_sets[1:]],
        "set_names": list(cluster.node_set_names[1:]),
    }


def cluster_from_json(value: Json) -> Cluster:
    """The cluster of `cluster_to_json`."""
    node_sets = np.zeros((1 + len(value["sets"]), len(value["nodes"])), dtype=np.bool_)
    node_sets[0] = True
    for row, members in enumerate(value["sets"], start=1):
        node_sets[row, members] = True
    capacity = np.array(value["capacity"], dtype=np.int64)
    names = ("all", *value["set_names"])
    return Cluster(tuple(value["nodes"]), tuple(value["resources"]), capacity, node_sets, names)


def placement_from_json(value: Json) -> Placement:
    """Pairs as a placement."""
    return tuple((node, units) for node, units in value)


@dataclass(frozen=True, slots=True, eq=False)
class RoundRecord:
    """All that is needed to take one decision again, and what the decision was."""

    number: int
    now_s: int
    policy: PolicySpec
    cluster: Cluster
    free: np.ndarray
    queue: tuple[Job, ...]
    running: tuple[RunningJob, ...]
    estimates: Mapping[int, int]
    """Seconds by job id, as predicted when the job was first seen, so that deciding again needs no history."""
    starts: Mapping[int, Placement]
    plan: Mapping[int, int]
    waits: Mapping[int, Wait]
    effort: Effort
    memory: Json = None
    """What the dispatcher had learned; None if it learns nothing or does not tell."""
    replayable: bool = True
    """Whether the record holds all that the decision depended on."""
    mode: str = ""
    at_unix_s: float = 0.0
    failure: str = ""
    """Why this round has no decision, if so: the snake-case name of what the policy did wrong."""


def state_to_json(snapshot: Snapshot, job_keys: Mapping[int, str]) -> Json:
    """What a snapshot holds beside its time, its cluster and its jobs (named by `job_keys`)."""
    jobs, estimate_s = snapshot.table.jobs, snapshot.table.estimate_s
    return {
        "free": snapshot.free.tolist(),
        "queue": [job_keys[jobs[slot].id] for slot in snapshot.queue.tolist()],
        "running": [
            [job_keys[jobs[slot].id], int(snapshot.table.start_s[slot]), snapshot.placement_of(slot)]
            for slot in sorted(snapshot.running.tolist(), key=lambda slot: jobs[slot].id)
        ],
        "estimates": {
            str(jobs[slot].id): int(estimate_s[slot]) for slot in (*snapshot.queue.tolist(), *snapshot.running.tolist())
        },
    }


def failure_to_json(kind: str) -> Json:
    """A round whose decision failed, in place of a decision; `kind` says how."""
    return {"starts": {}, "plan": {}, "waits": {}, "effort": asdict(Effort(kind)), "failure": kind}


def decision_to_json(decision: Decision, snapshot: Snapshot) -> Json:
    """A decision by job ids."""
    return {
        "starts": {str(id): placement for id, placement in decision.starts_by_job(snapshot).items()},
        "plan": {str(id): start_s for id, start_s in decision.plan_by_job(snapshot).items()},
        "waits": {str(id): [wait.reason, list(wait.behind)] for id, wait in decision.waits.items()},
        "effort": asdict(decision.effort),
    }
