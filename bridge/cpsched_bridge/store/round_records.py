"""Convert rounds to and from JSON, to record and repeat their decisions.

A round consists of two JSON values:

- facts: the snapshot, the dispatcher's memory, the starts and the commands.
- explanations: each job's expected start and pending reason. Repeating the decision yields the same values, so they are
  stored only for the newest rounds. A digest of the plan is always stored.

Both are written as changes since the previous round (see `json_deltas`), so rounds with few changes need little space.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cpsched.model import (
    NEVER,
    BlockRule,
    BlockTopology,
    Cluster,
    Decision,
    Effort,
    Job,
    PendingCode,
    PendingReason,
    Placement,
    Request,
    RunningJob,
    Snapshot,
    TypicalRequests,
    Wait,
)
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.ports import Outcome

if TYPE_CHECKING:
    from cpsched_bridge.cycle_report import CycleReport

Json = Any


def hash_content(data: bytes) -> str:
    """Return a hash of `data`."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def round_trip_json(value: Any) -> Json:
    """Return `value` as read back from JSON. Raise `TypeError` or `ValueError`."""
    return None if value is None else json.loads(json.dumps(value, sort_keys=True))


def job_to_json(job: Job) -> Json:
    """Return a job as a list of its fields."""
    r = job.request
    request = [r.units, list(r.per_unit), r.distinct, r.exclusive, r.node_set]
    ineligible = None if job.ineligible is None else _reason_to_json(job.ineligible)
    return [job.id, job.submit_s, job.walltime_s, request, job.user, job.name, job.queue, job.account, ineligible,
            job.qos, job.priority, job.tier]  # fmt: skip


def job_from_json(value: Json) -> Job:
    """Return the job that `job_to_json` converted to `value`."""
    id, submit_s, walltime_s, (units, per_unit, distinct, exclusive, node_set), *names = value
    names[4] = _parse_reason(json.dumps(names[4])) if isinstance(names[4], list) else names[4]
    return Job(id, submit_s, walltime_s, Request(units, tuple(per_unit), distinct, exclusive, node_set), *names)


def _reason_to_json(reason: PendingReason) -> Json:
    return [reason.code, *reason.arguments]


NODE_COLUMNS = ("weights", "leaf_switches")
"""Columns of a cluster that are None if all nodes have the same value."""


def cluster_to_json(cluster: Cluster) -> Json:
    """Return a cluster as plain data: names, and rows of numbers."""
    typical = cluster.typical
    return {
        "nodes": list(cluster.node_names),
        "resources": list(cluster.resources),
        "capacity": cluster.capacity.tolist(),
        "sets": [np.flatnonzero(row).tolist() for row in cluster.node_sets[1:]],
        "set_names": list(cluster.node_set_names[1:]),
        **({"epoch_s": cluster.epoch_s} if cluster.epoch_s else {}),
        **{name: values.tolist() for name in NODE_COLUMNS if (values := getattr(cluster, name)) is not None},
        **({} if typical is None else {"typical": [typical.gpu, typical.amounts.tolist(), typical.shares.tolist()]}),
        **(_blocks_to_json(cluster) if cluster.block_topologies else {}),
    }


def _blocks_to_json(cluster: Cluster) -> Json:
    rules = [None if rule is None else list(rule) for rule in cluster.node_set_blocks]
    return {"block_topologies": [list(astuple(each)) for each in cluster.block_topologies], "node_set_blocks": rules}


def cluster_from_json(value: Json) -> Cluster:
    """Return the cluster that `cluster_to_json` converted to `value`."""
    node_sets = np.zeros((1 + len(value["sets"]), len(value["nodes"])), dtype=np.bool_)
    node_sets[0] = True
    for row, members in enumerate(value["sets"], start=1):
        node_sets[row, members] = True
    capacity = np.array(value["capacity"], dtype=np.int64)
    names = ("all", *value["set_names"])
    nodes, resources, epoch_s = tuple(value["nodes"]), tuple(value["resources"]), value.get("epoch_s", 0)
    weights, leaves = (np.array(value[name], np.int64) if name in value else None for name in NODE_COLUMNS)
    typical = _typical_from_json(value["typical"]) if "typical" in value else None
    topologies = tuple(BlockTopology(tuple(blocks), *facts) for blocks, *facts in value.get("block_topologies", ()))
    rules = tuple(None if rule is None else BlockRule(*rule) for rule in value.get("node_set_blocks", ()))
    return Cluster(
        nodes, resources, capacity, node_sets, names, epoch_s=epoch_s, weights=weights, leaf_switches=leaves,
        typical=typical, block_topologies=topologies, node_set_blocks=rules,
    )  # fmt: skip


def _typical_from_json(value: Json) -> TypicalRequests:
    gpu, amounts, shares = value
    return TypicalRequests(gpu, np.array(amounts, np.int64), np.array(shares, np.int64))


def placement_from_json(value: Json) -> Placement:
    """Return the placement for a list of (node, units) pairs."""
    return tuple((node, units) for node, units in value)


@dataclass(frozen=True, slots=True, eq=False)
class RoundRecord:
    """A recorded decision, with everything needed to repeat it."""

    number: int
    now_s: int
    policy: PolicySpec
    cluster: Cluster
    free: np.ndarray
    queue: tuple[Job, ...]
    running: tuple[RunningJob, ...]
    estimates: Mapping[int, int]
    """Predicted run time in seconds by job id, so that a replay needs no history."""
    starts: Mapping[int, Placement]
    effort: Effort
    explained: bool = True
    """Whether `plan` and `waits` are still stored."""
    plan: Mapping[int, int] = field(default_factory=dict)
    waits: Mapping[int, Wait] = field(default_factory=dict)
    plan_digest: str = ""
    """Digest of the plan, computed by `plan_digest`."""
    memory: Json = None
    """The dispatcher's memory before the decision, or None if the dispatcher exports no memory."""
    replayable: bool = True
    """Whether the record contains all inputs of the decision."""
    mode: str = ""
    at_unix_s: float = 0.0
    failure: str = ""
    """The policy failure's name in snake case, or "" if this round has a decision."""
    labels: Mapping[int, str] = field(default_factory=dict)
    """Labels of jobs as shown to users, by id, where they differ from the id."""
    outcomes: Sequence[tuple[str, Outcome]] = ()
    """Kind and outcome of each command."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Duration in seconds of each phase of the cycle."""

    def get_job_name(self, job_id: int) -> str:
        """Return the job's label as shown to users."""
        return self.labels.get(job_id) or str(job_id)


class CachingJobRowEncoder:
    """An encoder of jobs as rows `[estimate_s, *job_to_json]`.

    It reuses the rows of unchanged jobs.
    """

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Job, int, str, Json]] = {}

    def encode_rows(self, snapshot: Snapshot) -> dict[str, Json]:
        """Return the rows of the snapshot's queued and running jobs, by job id."""
        slots = np.append(snapshot.queue, snapshot.running)
        jobs, before = snapshot.table.jobs, self._rows
        self._rows = rows = {}
        for slot, estimate_s in zip(slots.tolist(), snapshot.table.estimate_s[slots].tolist(), strict=True):
            job = jobs[slot]
            row = before.get(job.id)
            if row is None or row[1] != estimate_s or (row[0] is not job and row[0] != job):
                row = (job, estimate_s, str(job.id), [estimate_s, *job_to_json(job)])
            rows[job.id] = row
        return {row[2]: row[3] for row in rows.values()}


def round_to_json(report: CycleReport, jobs: dict[str, Json], labels: Mapping[int, str]) -> Json:
    """Return the facts of a cycle that has a snapshot.

    `jobs` contains the rows of its jobs by id.
    """
    decided, snapshot = report.decided, report.decided.snapshot
    assert snapshot is not None
    table = snapshot.table
    recorded = decided.recorded or failed_decision_to_json(decided.policy_failure)
    return {
        "now": snapshot.now_s,
        "jobs": jobs,
        "labels": {str(id): label for id, label in labels.items()},
        "queue": [table.jobs[slot].id for slot in snapshot.queue.tolist()],
        "running": _running_to_json(snapshot),
        "free": snapshot.free.ravel().tolist(),
        "memory": decided.memory,
        "replayable": decided.replayable,
        "decided": recorded["decided"],
        "sent": [[kind, o.job_id, o.result, o.detail] for kind, o in report.outcomes],
        "phases": list(report.seconds),
        "us": [round(1e6 * seconds) for seconds in report.seconds.values()],
    }


def _running_to_json(snapshot: Snapshot) -> Json:
    """Return `[start_s, *nodes, *units]` by job id.

    Flat lists are faster to compare than nested lists.
    """
    table = snapshot.table
    nodes, units = table.place_node.tolist(), table.place_units.tolist()
    columns = (table.start_s, table.place_at, table.place_count)
    found = {}
    for slot, *at in zip(snapshot.running.tolist(), *(c[snapshot.running].tolist() for c in columns), strict=True):
        start_s, begin, count = at
        part = slice(begin, begin + count)
        found[str(table.jobs[slot].id)] = [start_s, *nodes[part], *units[part]]
    return found


def _running_from_json(job: Job, numbers: list[int]) -> RunningJob:
    half = 1 + len(numbers) // 2
    return RunningJob(job, numbers[0], tuple(zip(numbers[1:half], numbers[half:], strict=True)))


def round_from_json(
    number: int, value: Json, explained: Json, policy: Json, cluster: Cluster, **facts: Any
) -> RoundRecord:
    """Return the round that `round_to_json` converted.

    `explained` is None if the explanations are no longer stored.
    """
    decided, rows = value["decided"], value["jobs"]
    jobs = {id: job_from_json(row[1:]) for id, row in rows.items()}
    running = (_running_from_json(jobs[id], numbers) for id, numbers in value["running"].items())
    explanation = explained or {"plan": {}, "waits": {}}
    return RoundRecord(
        number=number,
        now_s=value["now"],
        policy=PolicySpec(**policy),
        cluster=cluster,
        free=np.array(value["free"], dtype=np.int64).reshape(cluster.capacity.shape),
        queue=tuple(jobs[str(id)] for id in value["queue"]),
        running=tuple(sorted(running, key=lambda each: each.job.id)),
        estimates={int(id): row[0] for id, row in rows.items()},
        starts={int(id): placement_from_json(p) for id, p in decided["starts"].items()},
        effort=Effort(**decided["effort"]),
        explained=explained is not None,
        plan={int(id): start_s for id, start_s in explanation["plan"].items()},
        waits={int(id): parse_wait(text) for id, text in explanation["waits"].items()},
        plan_digest=decided["plan"],
        memory=value["memory"],
        replayable=value["replayable"],
        failure=decided.get("failure", ""),
        labels={int(id): label for id, label in value["labels"].items()},
        outcomes=[(kind, Outcome(*fields)) for kind, *fields in value["sent"]],
        seconds=dict(zip(value["phases"], (1e-6 * us for us in value["us"]), strict=True)),
        **facts,
    )


def failed_decision_to_json(kind: str) -> Json:
    """Return the equivalent of `decision_to_json` for a decision that failed."""
    decided = {"starts": {}, "effort": asdict(Effort(kind)), "plan": "", "failure": kind}
    return {"decided": decided, "explained": {"plan": {}, "waits": {}}}


def decision_to_json(decision: Decision, snapshot: Snapshot) -> Json:
    """Return a decision's facts and explanations by job id.

    Raise `TypeError` or `ValueError` if a value is not JSON.
    """
    job_ids: dict[tuple[int, ...], str] = {}  # many jobs wait for the same jobs or for the same reason
    reasons: dict[int, str] = {}
    for wait in decision.waits.values():
        if wait.waits_for not in job_ids:
            job_ids[wait.waits_for] = ",".join(str(int(id)) for id in wait.waits_for)
        if id(wait.reason) not in reasons:
            reasons[id(wait.reason)] = json.dumps(_reason_to_json(wait.reason))
    waits = {str(int(job)): f"{job_ids[w.waits_for]} {reasons[id(w.reason)]}" for job, w in decision.waits.items()}
    recorded = {
        "decided": {
            "starts": {str(id): placement for id, placement in decision.starts_by_job(snapshot).items()},
            "effort": asdict(decision.effort) | {"solver_s": round(decision.effort.solver_s, 6)},
            "plan": compute_plan_digest(decision),
        },
        "explained": {
            "plan": {str(id): start_s for id, start_s in decision.plan_by_job(snapshot).items()},
            "waits": waits,
        },
    }
    recorded["decided"] = round_trip_json(recorded["decided"])
    return recorded


def parse_wait(text: str) -> Wait:
    """Parse a wait: ids, a space, and the reason.

    The ids are separated by commas. The reason is a JSON list of its code and arguments.
    """
    job_ids, reason = text.split(" ", 1)
    return Wait(_parse_reason(reason), tuple(map(int, job_ids.split(","))) if job_ids else ())


@lru_cache(maxsize=4096)
def _parse_reason(text: str) -> PendingReason | str:
    """Parse the reason for a wait.

    Earlier versions wrote sentences. An unknown sentence comes from a plug-in.
    """
    if text.startswith("["):
        with suppress(ValueError):
            code, *arguments = json.loads(text)
            return PendingReason(PendingCode(code), tuple(arguments))
    return text


def compute_plan_digest(decision: Decision) -> str:
    """Return a short digest of a decision's plan, or "" if no start is planned."""
    plan_s = decision.plan_s
    if plan_s is None or (plan_s == NEVER).all():
        return ""
    return hashlib.blake2b(plan_s.tobytes(), digest_size=8).hexdigest()
