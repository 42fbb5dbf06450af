"""Instances: the rounds of a replay, written down so that dispatchers, and other people's solvers, can be compared.

A file is JSON lines, gzipped where its name ends in `.gz`. The first line is the header, each further one an instance;
`docs/instances.md` describes every field. After pcp20 section 5.3, which saved 624,564 instances of Eurora.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import CpschedError, require
from cpsched.fit import used_by
from cpsched.model import Cluster, Decision, EndedJob, Job, Need, Request, RunningJob, Snapshot
from cpsched_sim.errors import InvalidFile, Unusable
from cpsched_sim.files import write_whole
from cpsched_sim.reading.bounds import MAX_INSTANCES_RATIO
from cpsched_sim.reading.lines import open_text

FORMAT, VERSION = "cpsched-instances", 1
MOST_CHARS = 100_000_000
"""Characters of a line; the cluster of KIT ForHLR II takes 30,000, a job some 200."""
CERTAIN = frozenset({"empty-queue", "nothing-fits", "single", "all-fit"})
"""Paths of rounds in which there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One round: its number in the run, and all that a decision may depend on."""

    number: int
    snapshot: Snapshot


class Recording(Dispatcher):
    """Another dispatcher, whose rounds are kept as lines of a file: every `every`-th, contended ones only if asked."""

    def __init__(self, dispatcher: Dispatcher, contended: bool, every: int, most: int | None) -> None:
        self._contended, self._every, self._most = contended, every, most
        self.stands_for = dispatcher
        """Whose faults are told."""
        self.learns = dispatcher.learns
        self.lines: list[str] = []
        self._round = self._eligible = 0

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """What the other dispatcher decides."""
        decision = self.stands_for.decide(snapshot, need)
        if type(decision) is not Decision:
            return decision  # whoever asked says what is wrong with it
        self._round += 1
        if self._contended and decision.effort.path in CERTAIN:
            return decision
        self._eligible += 1
        room = self._most is None or len(self.lines) < self._most
        if room and (self._eligible - 1) % self._every == 0:
            self.lines.append(json.dumps(instance_to_json(self._round, snapshot), separators=(",", ":")))
        return decision

    def learn(self, ended: EndedJob) -> None:
        """Tell the other dispatcher."""
        self.stands_for.learn(ended)


# ------------------------------------------------------------------------------------------------------ the format


def header_to_json(cluster: Cluster, origin: Mapping[str, object]) -> dict[str, Any]:
    """The first line: format, version, the cluster, and where the instances come from."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "origin": dict(origin),
        "cluster": {
            "nodes": list(cluster.node_names),
            "resources": list(cluster.resources),
            "capacity": cluster.capacity.tolist(),
            "node_sets": {
                name: np.flatnonzero(row).tolist()
                for name, row in zip(cluster.node_set_names[1:], cluster.node_sets[1:], strict=True)
            },
        },
    }


def instance_to_json(number: int, snapshot: Snapshot) -> dict[str, Any]:
    """One line: time, queue, running jobs with their placements, and amounts that are out of service."""
    table = snapshot.table
    running = snapshot.running_jobs()
    missing = snapshot.cluster.capacity - snapshot.free
    for each in running:
        for node, amounts in used_by(each.job.request, each.placement, snapshot.cluster.capacity).items():
            missing[node] -= amounts
    return {
        "number": number,
        "now_s": int(snapshot.now_s),
        "queue": [_job(table.jobs[slot], int(table.estimate_s[slot])) for slot in snapshot.queue.tolist()],
        "running": [
            _job(each.job, int(table.estimate_s[slot]))
            | {"start_s": each.start_s, "end_s": int(table.end_s[slot]), "placement": each.placement}
            for slot, each in zip(snapshot.running.tolist(), running, strict=True)
        ],
        "out_of_service": {str(node): missing[node].tolist() for node in np.flatnonzero(missing.any(axis=1)).tolist()},
    }


def _job(job: Job, estimate_s: int) -> dict[str, Any]:
    request = job.request
    found: dict[str, Any] = {
        "id": job.id,
        "submit_s": job.submit_s,
        "walltime_s": job.walltime_s,
        "estimate_s": estimate_s,
        "units": request.units,
        "per_unit": list(request.per_unit),
    }
    extra: dict[str, object] = {
        "distinct": request.distinct,
        "exclusive": request.exclusive,
        "node_set": request.node_set,
    }
    extra |= {"user": job.user, "name": job.name, "queue": job.queue}
    return found | {name: value for name, value in extra.items() if value}


def write_instances(path: Path, header: Mapping[str, Any], lines: Sequence[str]) -> None:
    """The file, whole or not at all. Raises `Unusable`."""
    write_whole(path, "\n".join([json.dumps(header, separators=(",", ":")), *lines, ""]).encode())


def read_instances(path: Path) -> Iterator[Instance]:
    """The instances of a file, one by one. Raises `InvalidFile` naming the line, `Unusable` for no file at all."""
    cluster: Cluster | None = None
    for number, text in _whole_lines(path):
        try:
            value = json.loads(text)
            if cluster is None:
                cluster = _cluster(value)
                continue
            yield instance_from_json(value, cluster)
        except CpschedError as error:
            raise InvalidFile(path, number, "line", text[:40], str(error)) from error
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            rule = f"must be {FORMAT} version {VERSION}: {type(error).__name__} {error}"
            raise InvalidFile(path, number, "line", text[:40], rule) from error
    if cluster is None:
        raise Unusable(f"{path}: is empty")


def _whole_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines; a round of thousands of jobs is longer than any line of a trace, so that its bound is another."""
    number = 0
    with open_text(path, MAX_INSTANCES_RATIO) as file:
        try:
            for text in iter(partial(file.readline, MOST_CHARS + 1), ""):
                number += 1
                require(len(text) <= MOST_CHARS, "line", f"{len(text):,} characters", "must not be longer")
                yield number, text
        except (EOFError, OSError, zlib.error, CpschedError) as error:
            raise InvalidFile(path, number + 1, "file", path.name, f"must be readable to its end: {error}") from error


def _cluster(value: Mapping[str, Any]) -> Cluster:
    require(value["format"] == FORMAT, "format", value["format"], f"must be {FORMAT}")
    require(value["version"] == VERSION, "version", value["version"], f"must be {VERSION}")
    found = value["cluster"]
    return Cluster.of(found["capacity"], found["resources"], found["nodes"], found["node_sets"])


def instance_from_json(value: Mapping[str, Any], cluster: Cluster) -> Instance:
    """The instance of `instance_to_json`. Raises `InvalidValue` where it breaks a rule of a snapshot."""
    queue = [_job_of(row) for row in value["queue"]]
    running = [
        RunningJob(_job_of(row), row["start_s"], tuple((node, units) for node, units in row["placement"]))
        for row in value["running"]
    ]
    free = cluster.capacity.copy()
    for each in running:
        for node, amounts in used_by(each.job.request, each.placement, cluster.capacity).items():
            free[node] -= amounts
    for node, amounts in value["out_of_service"].items():
        free[int(node)] -= np.array(amounts, np.int64)
    now_s = value["now_s"]
    estimates = {row["id"]: row["estimate_s"] for row in value["queue"]}
    # Each running job keeps its own expected end, whatever rule of overrun the run had.
    estimates |= {row["id"]: row["end_s"] - row["start_s"] for row in value["running"]}
    snapshot = Snapshot.of(now_s, cluster, free, queue, running, estimates)
    for row in value["running"]:
        slot = snapshot.table.slot_of(row["id"])
        column = snapshot.table.estimate_s
        if row["estimate_s"] != int(column[slot]):
            column.flags.writeable = column.base is None or column.base.flags.writeable
            column[slot] = row["estimate_s"]
            column.flags.writeable = False
    return Instance(value["number"], snapshot)


def _job_of(row: Mapping[str, Any]) -> Job:
    request = Request(
        row["units"], tuple(row["per_unit"]), row.get("distinct", False), row.get("exclusive", False),
        row.get("node_set", 0),
    )  # fmt: skip
    names = (row.get(key, "") for key in ("user", "name", "queue"))
    return Job(row["id"], row["submit_s"], row["walltime_s"], request, *names)


# ------------------------------------------------------------------------------------------------------ solving


@dataclass(frozen=True, slots=True)
class Solved:
    """What one dispatcher made of one instance: a row of the table.

    Times are milliseconds: of the whole call (wall clock and CPU), and the solver's until its first and its best plan.
    `gap` is objective less bound, relative. `memory_mb` is the most that the process had held by then.
    """

    instance: int
    dispatcher: str
    queued: int
    considered: int
    variables: int
    path: str
    status: str
    starts: int
    unplaced: int
    objective: float | None
    bound: float | None
    gap: float | None
    slowdown: float
    wall_ms: float
    cpu_ms: float
    first_ms: float
    best_ms: float
    memory_mb: float


COLUMNS = tuple(Solved.__dataclass_fields__)


def ratios(rows: Iterable[Solved], of: str, to: str, column: str) -> list[float]:
    """One figure of `of` over that of `to`, on every instance where both are known and not 0 (pcp20 figures 6, 7)."""
    by: dict[int, dict[str, float]] = {}
    for row in rows:
        value = getattr(row, column)
        if value is not None:
            by.setdefault(row.instance, {})[row.dispatcher] = float(value)
    pairs = ((found.get(of), found.get(to)) for found in by.values())
    return [one / other for one, other in pairs if one is not None and other]


def digest(rows: Sequence[Solved], baseline: str) -> list[dict[str, Any]]:
    """One row per dispatcher: medians, means, and ratios over `baseline` on the same instances."""
    found = []
    for name in dict.fromkeys(row.dispatcher for row in rows):
        own = [row for row in rows if row.dispatcher == name]
        paths: dict[str, int] = {}
        for row in own:
            paths[row.path] = paths.get(row.path, 0) + 1
        gaps = [row.gap for row in own if row.gap is not None]
        of = {column: ratios(rows, name, baseline, column) for column in ("variables", "cpu_ms", "objective")}
        found.append(
            {
                "dispatcher": name,
                "instances": len(own),
                "variables_median": float(np.median([row.variables for row in own])),
                "variables_ratio_max": max(of["variables"], default=None),
                "cpu_ms_mean": float(np.mean([row.cpu_ms for row in own])),
                "cpu_ratio_median": float(np.median(of["cpu_ms"])) if of["cpu_ms"] else None,
                "first_ms_mean": float(np.mean([row.first_ms for row in own])),
                "best_ms_mean": float(np.mean([row.best_ms for row in own])),
                "proved": sum(row.status == "optimal" or row.path in CERTAIN for row in own),
                "gap_mean": float(np.mean(gaps)) if gaps else None,
                "objective_ratio_median": float(np.median(of["objective"])) if of["objective"] else None,
                "starts": sum(row.starts for row in own),
                "unplaced": sum(row.unplaced for row in own),
                "memory_mb": max(row.memory_mb for row in own),
                "paths": paths,
            }
        )
    return found


# ------------------------------------------------------------------------------------------------------ for others


def to_rcp(snapshot: Snapshot) -> str:
    """The pooled problem of one round in Patterson's format: start times alone, all nodes one pool of each resource.

    Activities are a source, the queued jobs, the running jobs with what remains of them, and a sink. Running jobs begin
    at once; a solver that minimises the makespan alone must be told so, and the format knows no other objective.
    Estimates are the durations. Resources that nobody asks for are left out, as are amounts out of service.
    """
    table, slots = snapshot.table, snapshot.queue.tolist()
    active = snapshot.running.tolist()
    rows = [(int(table.estimate_s[slot]), slot) for slot in slots]
    rows += [(int(table.end_s[slot]) - snapshot.now_s, slot) for slot in active]
    asked = table.units[:, None] * table.per_unit
    used = np.flatnonzero(asked[slots].any(axis=0)) if slots else np.arange(0)
    held = {slot: snapshot.placement_of(slot) for slot in active}
    total = snapshot.free.sum(axis=0) + sum(
        (_held(snapshot, slot, held[slot]) for slot in active), np.zeros(table.per_unit.shape[1], np.int64)
    )
    lines = [f"{len(rows) + 2} {len(used)}", " ".join(str(int(total[r])) for r in used)]
    successors = " ".join(map(str, range(2, len(rows) + 2)))
    lines.append(f"0 {'0 ' * len(used)}{len(rows)} {successors}".rstrip())
    for duration_s, slot in rows:
        amounts = _held(snapshot, slot, held[slot]) if slot in held else asked[slot]
        lines.append(f"{duration_s} {' '.join(str(int(amounts[r])) for r in used)} 1 {len(rows) + 2}")
    lines.append(f"0 {'0 ' * len(used)}0")
    return "\n".join(lines) + "\n"


def _held(snapshot: Snapshot, slot: int, placement: Sequence[tuple[int, int]]) -> np.ndarray:
    """What a running job holds of each resource, on all of its nodes together."""
    used = used_by(snapshot.table.jobs[slot].request, tuple(placement), snapshot.cluster.capacity)
    return sum(used.values(), np.zeros(snapshot.free.shape[1], np.int64))
