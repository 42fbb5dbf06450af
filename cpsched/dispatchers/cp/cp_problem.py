"""Define the problem that a CP model solves, build the input for the kernels, and count a model's variables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpsched.dispatchers.cp.cp_dispatcher_config import Running
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, WeightedDelayObjective, empty_plan
from cpsched.kernels.cp.dive import dive
from cpsched.kernels.cp.startable_jobs import units_fitting_on_empty_nodes
from cpsched.kernels.scheduling_state import build_node_resource_state
from cpsched.model import EXCLUSIVE, IntArray, Snapshot


@dataclass(frozen=True, slots=True)
class CpProblem:
    """One round as a planning problem with jobs to plan, an objective and a horizon.

    `rest` contains the slots of jobs that the model includes but does not search (HCP). `overdue` means that a running
    job should have ended but still occupies its nodes.
    """

    facts: CpInstance
    objective: WeightedDelayObjective
    rest: IntArray
    overdue: bool
    in_order: bool = False
    """Whether interchangeable jobs must start in the order considered (see `find_symmetric_jobs`)."""

    @property
    def horizon_s(self) -> int:
        """Horizon in seconds from now, which is the sum of all durations (pcp20: eoh)."""
        facts = self.facts
        remaining_s = facts.end_s[facts.running] - facts.now_s
        beside_s = facts.table.estimate_s[self.rest].sum() if len(self.rest) else 0
        return int(facts.table.estimate_s[facts.jobs].sum() + beside_s + remaining_s.sum())

    def fits_horizon(self, start_s: IntArray) -> bool:
        """Return whether all jobs end within the horizon, which overdue jobs can prevent."""
        last_s = self.facts.now_s + self.horizon_s
        return bool((start_s + self.facts.table.estimate_s[self.facts.jobs] <= last_s).all())


def build_cp_instance(snapshot: Snapshot, running: Running = "at-least-1s") -> CpInstance:
    """Return the kernels' input for `snapshot`, with no job considered yet."""
    table, active = snapshot.table, snapshot.running
    end_s = table.end_s
    if running == "remaining":
        end_s = end_s.copy()
        end_s[active] = table.start_s[active] + table.estimate_s[active]
        active = active[np.argsort(end_s[active], kind="stable")]
    machine, no_jobs = build_node_resource_state(snapshot.cluster, snapshot.free), np.empty(0, np.int64)
    return CpInstance(snapshot.now_s, machine, table, no_jobs, active, end_s, table.place_node, table.place_units)


def build_first_leaf_plan(facts: CpInstance) -> CpPlan:
    """Return the first leaf of the papers' search, in which every job has a start."""
    plan = empty_plan(facts)
    dive(facts, plan, np.arange(len(facts.jobs)), False)
    return plan


def position_model_size(facts: CpInstance) -> int:
    """Return PCP'20's number of variables: |Q| + sum of rn_i * |R| (pcp20 section 3)."""
    return len(facts.jobs) + int(facts.table.units[facts.jobs].sum()) * int(facts.machine.capacity.shape[1])


def node_model_size(facts: CpInstance) -> int:
    """Return PCP'19's number of variables: |Q| + sum of p[i,n] (pcp20 section 2.2)."""
    slots = facts.jobs.tolist()
    return len(slots) + sum(int(intervals_per_node(facts, slot, int(facts.table.units[slot])).sum()) for slot in slots)


def pool_model_size(facts: CpInstance) -> int:
    """Return the number of variables in HCP: one start per job."""
    return len(facts.jobs)


def intervals_per_node(facts: CpInstance, slot: int, parts: int) -> IntArray:
    """Return p[i,n], the number of a job's intervals on each node, int64[N]."""
    room = units_fitting_on_empty_nodes(facts, slot)
    return np.minimum(room, 1 if facts.table.sharing[slot] & EXCLUSIVE else parts)
