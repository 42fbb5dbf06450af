"""Choose the GPUs of simulated jobs as Slurm does, and keep the free amounts that result."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpsched.feasibility import amounts_by_node
from cpsched.model import EXCLUSIVE, Cluster, Placement, Starts
from cpsched.model.gpu_parts import ONE_SHARED_GPU, GpuPartsColumns, GpuUse, find_amounts_returned_by_last_jobs
from cpsched_sim.cluster.event_kernels import SimulatedClusterState, rebuild_node_classes


class _UsedGpu(NamedTuple):
    """A GPU of a job. `parts` is None if the job uses it as a whole."""

    columns: GpuPartsColumns
    node: int
    gpu: int
    parts: int | None


class SimulatedGpuParts:
    """The GPUs of a simulated cluster that jobs use as a whole or in parts (see `cpsched.model.gpu_parts`)."""

    def __init__(self, cluster: Cluster, state: SimulatedClusterState) -> None:
        self._cluster, self._state = cluster, state
        self.columns = GpuPartsColumns.of(cluster.resources)
        self._used: dict[tuple[str, int], list[int | None]] = {
            (each.kind, node): [0] * int((cluster.capacity[node, each.gpus] > 0).sum())
            for each in self.columns
            for node in np.flatnonzero(cluster.capacity[:, each.gpus[0]]).tolist()
        }
        self._of_job: dict[int, list[_UsedGpu]] = {}

    def find_rejected_start(self, starts: Starts) -> int:
        """Return the position of the first start that may not find its GPUs, or -1."""
        use, per_unit = GpuUse(self._cluster, self._state.free), self._state.site.jobs.per_unit
        is_known = ((starts.slots >= 0) & (starts.slots < len(per_unit))).all()
        is_known = is_known and ((starts.nodes >= 0) & (starts.nodes < self._cluster.size)).all()
        for at, slot in enumerate(starts.slots.tolist() if is_known else ()):
            part = slice(int(starts.offsets[at]), int(starts.offsets[at + 1]))
            if use.add_start(per_unit[slot], starts.nodes[part], starts.units[part]):
                return at
        return -1

    def update(self, starts: Starts) -> None:
        """Give GPUs to jobs that have started, and take those of jobs that have ended."""
        for slot, placement in starts.placements().items():
            self._of_job[slot] = [
                used
                for columns in self.columns
                for node, units in placement
                if (columns.kind, node) in self._used
                for used in self._choose_gpus(columns, slot, node, units)
            ]
        running = set(self._state.site.running[: self._state.site.active].tolist())
        for slot in self._of_job.keys() - running:
            for used in self._of_job.pop(slot):
                gpus = self._used[used.columns.kind, used.node]
                gpus[used.gpu] = 0 if used.parts is None else (gpus[used.gpu] or 0) - used.parts
            self._state.site.jobs.per_unit[slot] = self._state.site.jobs.jobs[slot].request.per_unit
        self._set_free_amounts()

    def _choose_gpus(self, columns: GpuPartsColumns, slot: int, node: int, units: int) -> list[_UsedGpu]:
        """Return the first GPUs that fit, and use them. The check of the start ensures that there are enough."""
        gpus, capacity = self._used[columns.kind, node], self._cluster.capacity[node]
        per_unit, size = self._state.site.jobs.per_unit[slot], int(capacity[columns.gpus[0]])
        parts = int(per_unit[columns.parts]) * units
        if self._state.site.jobs.sharing[slot] & EXCLUSIVE:
            chosen = [_UsedGpu(columns, node, gpu, None) for gpu in range(len(gpus))]
        elif parts:
            only_used = columns.kind in ONE_SHARED_GPU and any(gpus)
            fits = (
                gpu
                for gpu, used in enumerate(gpus)
                if used is not None and used + parts <= size and (used or not only_used)
            )
            chosen = [_UsedGpu(columns, node, next(fits), parts)]
        else:
            count = int(per_unit[columns.whole]) * units // (int(capacity[columns.whole]) // len(gpus))
            unused = (gpu for gpu, used in enumerate(gpus) if used == 0)
            chosen = [_UsedGpu(columns, node, next(unused), None) for _ in range(count)]
        for each in chosen:
            gpus[each.gpu] = None if each.parts is None else (gpus[each.gpu] or 0) + each.parts
        return chosen

    def _set_free_amounts(self) -> None:
        """Set the free amounts to those on the GPUs. The last job on a node's GPUs returns what no other returns."""
        site, free, capacity = self._state.site, self._state.free, self._cluster.capacity
        slots = site.running[: site.active].tolist()  # by expected end
        jobs = {slot: (site.jobs.jobs[slot].request, self._placement_of(slot)) for slot in slots}
        used = np.zeros_like(free)
        for slot, (request, placement) in jobs.items():
            site.jobs.per_unit[slot] = request.per_unit
            for node, amounts in amounts_by_node(request, placement, capacity).items():
                used[node] += amounts

        for columns in self.columns:
            shared = [columns.parts, columns.whole, *columns.gpus]
            for node in (node for kind, node in self._used if kind == columns.kind):
                free[node, shared] = capacity[node, shared]
                columns.set_free_amounts(self._used[columns.kind, node], free[node], capacity[node])

        missing = np.maximum(capacity - free - used, 0)
        for slot, amounts in find_amounts_returned_by_last_jobs(self._cluster.resources, missing, jobs).items():
            site.jobs.per_unit[slot] += amounts
        self._state.total_free[:] = free.sum(axis=0)
        rebuild_node_classes(self._state)

    def _placement_of(self, slot: int) -> Placement:
        jobs = self._state.site.jobs
        part = slice(int(jobs.place_at[slot]), int(jobs.place_at[slot] + jobs.place_count[slot]))
        return tuple(zip(jobs.place_node[part].tolist(), jobs.place_units[part].tolist(), strict=True))
