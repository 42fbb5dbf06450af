"""Define GPUs whose parts jobs share: Slurm's shards and MPS.

Slurm chooses the GPUs on a node. All parts of a job on a node belong to one GPU. A GPU is used either as a whole or in
parts (see "Sharding" in Slurm's gres.html). For each kind of parts, for example `shard`, a cluster has these resources:

- `shard`: free parts of all GPUs. Without an unused GPU, only those of the GPU with most free parts, so that a job on
  its own fits exactly if the amounts fit.
- `gpu@shard`: unused GPUs in parts, and the free parts above if no GPU is unused. Jobs use it for whole GPUs and for
  parts, so that plans do not count a GPU twice.
- `shard@gpu0`, `shard@gpu1`, ...: free parts of each GPU. No job requests them.

Several jobs that start together may fit by amounts, but not on the GPUs. `GpuUse` decides that, also for GPUs of
several types (`gpu:a100` and `gpu:1g.5gb`), of which a job without a type uses any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import NamedTuple

import numpy as np

from cpsched.model.cluster import Cluster, IntArray
from cpsched.model.job import Placement, Request

GPU_PART_KINDS = ("mps", "shard")
"""Slurm's generic resources that are parts of a GPU."""
ONE_SHARED_GPU = frozenset({"mps"})
"""Kinds of which only one GPU of a node is shared at a time (`gres_use_busy_dev` in Slurm's interfaces/gres.c).

For MPS, that is Slurm's default (`Flags=one_sharing`). The bridge cannot read this flag.
"""


def gpu_resource_name(kind: str, gpu: int) -> str:
    """Return the name of the resource for the parts of one GPU."""
    return f"{kind}@gpu{gpu}"


def whole_gpus_resource_name(kind: str) -> str:
    """Return the name of the resource that whole GPUs and parts have in common."""
    return f"gpu@{kind}"


def node_amounts(kind: str, gpus: int, parts: int, most_parts: int) -> dict[str, int]:
    """Return a node's amounts for one kind of parts.

    Each of its GPUs has `parts` parts, or 0 if jobs share none. `most_parts` is the maximum on the cluster's nodes.
    """
    found = {whole_gpus_resource_name(kind): gpus * most_parts}
    if parts:
        found[kind] = gpus * parts
        found |= {gpu_resource_name(kind, gpu): parts for gpu in range(gpus)}
    return found


class GpuPartsColumns(NamedTuple):
    """The columns of one kind of parts in a cluster."""

    kind: str
    parts: int
    whole: int
    gpus: IntArray

    @classmethod
    def of(cls, resources: Sequence[str]) -> tuple[GpuPartsColumns, ...]:
        """Return the columns of each kind of parts that a cluster has."""
        index = {name: column for column, name in enumerate(resources)}
        found = []
        for kind in GPU_PART_KINDS:
            names = takewhile(index.__contains__, (gpu_resource_name(kind, gpu) for gpu in count()))
            gpus = np.array([index[name] for name in names], np.int64)
            if len(gpus):
                found.append(cls(kind, index[kind], index[whole_gpus_resource_name(kind)], gpus))
        return tuple(found)

    def set_free_amounts(self, used: Sequence[int | None], free: IntArray, capacity: IntArray) -> None:
        """Reduce the free amounts of a node, int64[R], to those on its GPUs.

        `used` contains the used parts of each GPU, or None for a GPU that a job uses as a whole.
        """
        size = int(capacity[self.gpus].max())
        room = [0 if parts is None else size - parts for parts in used]
        if self.kind in ONE_SHARED_GPU and any(used):
            room = [parts % size for parts in room]
        has_unused_gpu = size in room
        most = sum(room) if has_unused_gpu else max(room)
        unused = list(used).count(0) * (int(capacity[self.whole]) // len(used))
        whole = unused if has_unused_gpu else unused + most
        columns = (*self.gpus[: len(room)], self.parts, self.whole)
        for column, amount in zip(columns, (*room, most, whole), strict=True):
            free[column] = min(free[column], amount)


def find_amounts_returned_by_last_jobs(
    resources: Sequence[str], missing: IntArray, jobs: Mapping[int, tuple[Request, Placement]]
) -> dict[int, IntArray]:
    """Return what the last job on each node's shared GPUs returns beyond its own amounts, int64[R] by job.

    The free amounts may be smaller than the sum of the free parts. `missing`, int64[N, R], are the amounts of each node
    that are neither free nor used by `jobs`, which are in the order of their expected ends.
    """
    found: dict[int, IntArray] = {}
    for columns in GpuPartsColumns.of(resources):
        last = {
            placement[0][0]: job
            for job, (request, placement) in jobs.items()
            if request.per_unit[columns.parts] and len(placement) == 1 and not request.exclusive
        }
        for node, job in last.items():
            amounts = found.setdefault(job, np.zeros_like(missing[node]))
            amounts[[columns.parts, columns.whole]] = missing[node, [columns.parts, columns.whole]]
    return found


class GpuUse:
    """The GPUs that the starts of one decision use.

    A start fits only if it fits whichever GPUs Slurm chooses for it and for the earlier starts.
    """

    def __init__(self, cluster: Cluster, free: IntArray) -> None:
        self._columns = GpuPartsColumns.of(cluster.resources)
        types = [column for column, name in enumerate(cluster.resources) if name.startswith("gpu:")]
        self._types = np.array(types if len(types) > 1 else [], np.int64)
        self._gpu = cluster.resources.index("gpu") if "gpu" in cluster.resources else -1
        self.limits_starts = bool(self._columns) or len(types) > 1
        """Whether amounts do not suffice, because jobs share GPUs or nodes have several types."""
        self._capacity, self._free = cluster.capacity, free.copy() if self.limits_starts else free
        self._starts: dict[tuple[str, int], _NodeStarts] = {}
        self._typed: dict[int, IntArray] = {}
        """GPUs of each type that the starts on a node may use."""

    def add_start(self, per_unit: IntArray, nodes: IntArray, units: IntArray) -> list[int]:
        """Add a start, unless it may not find its GPUs on some of its nodes. Return these nodes."""
        placement = list(zip(nodes.tolist(), units.tolist(), strict=True))
        parts = [
            (columns, node, _NodeStarts(1, int(per_unit[columns.parts]) * node_units, 0))
            if per_unit[columns.parts]
            else (columns, node, _NodeStarts(0, 0, int(per_unit[columns.whole]) * node_units))
            for columns in self._columns
            if per_unit[columns.whole]
            for node, node_units in placement
            if self._capacity[node, columns.gpus].any()
        ]
        asked = per_unit[self._types]
        has_types = len(self._types) > 0 and self._gpu >= 0 and per_unit[self._gpu] > 0
        typed = placement if has_types else []

        full = [node for columns, node, start in parts if not self._has_gpus(columns, node, start)]
        for node, node_units in typed:
            total = self._typed.get(node, 0) + asked * node_units
            if (total > self._free[node, self._types])[asked > 0].any():
                full.append(node)
        if full:
            return full

        for columns, node, start in parts:
            before = self._starts.get((columns.kind, node), NO_STARTS)
            self._starts[columns.kind, node] = _NodeStarts(*map(sum, zip(before, start, strict=True)))
        # In the worst case, a job without a type uses GPUs of each type.
        used = asked if asked.any() else np.full_like(asked, per_unit[self._gpu])
        for node, node_units in typed:
            self._typed[node] = self._typed.get(node, 0) + used * node_units
        return []

    def _has_gpus(self, columns: GpuPartsColumns, node: int, start: _NodeStarts) -> bool:
        before = self._starts.get((columns.kind, node), NO_STARTS)
        capacity, room = self._capacity[node], self._free[node, columns.gpus]
        size = int(capacity[columns.gpus].max())
        per_gpu = int(capacity[columns.whole]) // int((capacity[columns.gpus] > 0).sum())
        has_one_gpu = columns.kind in ONE_SHARED_GPU and before.jobs > 0 and bool((room == size).any())

        if start.whole:
            # In the worst case, each earlier job with parts uses another unused GPU.
            opened = min(1 if has_one_gpu else before.jobs, int((room == size).sum()))
            return before.whole + start.whole + opened * per_gpu <= int(self._free[node, columns.whole])
        if has_one_gpu:
            return before.parts + start.parts <= size

        # In the worst case, earlier jobs use just as many parts of each GPU that this job no longer fits there.
        room = np.sort(room[room >= start.parts])
        room = room[: len(room) - before.whole // per_gpu]
        return len(room) > 0 and (before.jobs < len(room) or before.parts < int((room - start.parts + 1).sum()))


class _NodeStarts(NamedTuple):
    """The starts of one decision on a node: jobs with parts, their parts, and the amount of whole GPUs."""

    jobs: int
    parts: int
    whole: int


NO_STARTS = _NodeStarts(0, 0, 0)
