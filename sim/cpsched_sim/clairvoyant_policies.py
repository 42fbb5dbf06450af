"""Policies with access to the whole trace, which show the value of perfect information. No real scheduler has it.

- The dispatchers `cp-off-*` plan a whole trace in advance (debs24 section 4), with the known run times and arrivals.
  Use them only for small traces.
- The predictor `oracle` (-R) returns the real run time, and `soft-walltime` the soft walltime.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np
from typing_extensions import override

from cpsched import registry
from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import require
from cpsched.model import Cluster, Decision, Effort, IntArray, Job, JobTable, Need, Snapshot
from cpsched.planning import EVERY_JOB, GREEDY, ListSchedulerSpec, plan_by_spec
from cpsched.policy import Policy
from cpsched.predictors.base import Predictor
from cpsched.registration import Registration
from cpsched.registry import PolicyRegistries
from cpsched_sim.traces.trace_jobs import TraceJob

if TYPE_CHECKING:
    from cpsched.dispatchers.cp.cp_sat import CpSatSolution

_HINT_ORDERS = ("reg", "saf", "spf", "laf")
"""Orders for list scheduling. The best of these schedules is the solver's initial solution."""


class KnownRunTimePredictor(Predictor):
    """A predictor that returns known run times."""

    def __init__(self, run_s: dict[int, int]) -> None:
        self._run_s = run_s

    def predict(self, job: Job) -> int:
        """Return the real run time."""
        return self._run_s[job.id]


class OfflineDispatcher(Dispatcher):
    """Start each job at its time in a plan of the whole trace.

    The plan is computed before the first decision.

    Nodes are chosen first-fit when a job starts. A job that fits in the pools but not on the nodes starts later than
    planned. `found` is the plan with its cost and proven bound.
    """

    found: CpSatSolution
    learns = False

    def __init__(
        self,
        objective: Literal["bsld", "af", "awf", "p2sf"] = "bsld",
        limit_s: float = 60.0,
        effort: int | None = None,
        most: int = 2000,
        seed: int = 0,
    ) -> None:
        require(limit_s > 0, "limit_s", limit_s, "must be positive")
        require(effort is None or effort > 0, "effort", effort, "must be positive")
        self._metric, self._limit_s, self._effort, self._most, self._seed = objective, limit_s, effort, most, seed
        self._trace: list[TraceJob] = []
        self._start_s: dict[int, int] = {}

    def observe_truth(self, trace: Iterable[TraceJob]) -> None:
        """Store the whole trace. Raise `InvalidValue` if it is too large."""
        self._trace = list(trace)
        require(len(self._trace) <= self._most, "jobs", len(self._trace), f"must be at most most={self._most}")

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """Start the jobs that are due."""
        if not self._start_s:
            self._plan_trace(snapshot.cluster)
        table, queue = snapshot.table, snapshot.queue
        at_s = np.array([self._start_s.get(table.jobs[slot].id, snapshot.now_s) for slot in queue.tolist()], np.int64)
        if len(snapshot.running) == 0 and len(at_s) and at_s.min() > snapshot.now_s:
            at_s -= at_s.min() - snapshot.now_s  # no job is running: start the next job now
        due = np.flatnonzero(at_s <= snapshot.now_s)
        only = replace(snapshot, queue=queue[due[np.argsort(at_s[due], kind="stable")]], by_construction=True)
        decision = plan_by_spec(ListSchedulerSpec(GREEDY, None), only, "starts", np.arange(len(due)))
        effort = Effort("planned", len(due), unplaced=len(due) - len(decision.starts))
        if need == "starts":
            return replace(decision, effort=effort)
        whole = plan_by_spec(
            ListSchedulerSpec(GREEDY, None), snapshot, "plan", np.lexsort((at_s, at_s > snapshot.now_s))
        )
        waits = {id: wait for id, wait in whole.waits.items() if id not in decision.starts_by_job(only)}
        return Decision(decision.starts, effort, np.maximum(at_s, snapshot.now_s), waits)

    def _plan_trace(self, cluster: Cluster) -> None:
        """Solve the trace, starting from the best list schedule."""
        from cpsched.dispatchers.cp import cp_sat
        from cpsched.kernels.cp.delay_costs import plan_delay_cost

        jobs = [item.job for item in self._trace]
        submit_s = np.array([job.submit_s for job in jobs], np.int64)
        run_s = np.array([item.run_s for item in self._trace], np.int64)
        amounts = np.array([[job.request.units * each for each in job.request.per_unit] for job in jobs], np.int64)
        first_s = int(submit_s.min())
        total = cluster.capacity.sum(axis=0)
        demand = np.minimum(amounts, total)
        problem = cp_sat.PoolSchedulingProblem(
            first_s, submit_s - first_s, run_s, demand, np.zeros(1, np.int64), total[None, :]
        )
        budget = cp_sat.CpSatBudget(self._limit_s, self._effort, self._seed)
        hints = [start for start in self._compute_list_schedules(cluster) if (start >= submit_s).all()]
        processors = np.maximum(1, amounts[:, 0])
        if self._metric == "p2sf":
            best = min(hints, key=lambda start_s: cp_sat.compute_p2sf(problem, submit_s, processors, start_s))
            self.found = cp_sat.solve_p2sf(problem, submit_s, processors, budget, best)
        else:
            cost = cp_sat.trace_metric_objective(self._metric, submit_s, run_s, processors)
            best = min(hints, key=lambda start_s: plan_delay_cost(cost, start_s))
            found = cp_sat.solve_pool_problem(problem, cost, budget, best)
            worth = found.start_s if found.start_s is not None and found.cost <= plan_delay_cost(cost, best) else best
            self.found = replace(found, start_s=worth, cost=cost.constant + plan_delay_cost(cost, worth))
        planned: IntArray = self.found.start_s if self.found.start_s is not None else best
        self._start_s = dict(zip((job.id for job in jobs), planned.tolist(), strict=True))

    def _compute_list_schedules(self, cluster: Cluster) -> list[IntArray]:
        """Return the start times under list scheduling, per order in `_HINT_ORDERS`."""
        run_s = {item.job.id: item.run_s for item in self._trace}
        from cpsched_sim.cluster.replay import replay  # imported here, so that listing names imports no file readers

        return [
            replay(self._trace, cluster, Policy(KnownRunTimePredictor(run_s), _FixedOrderDispatcher(order))).start_s
            for order in _HINT_ORDERS
        ]


class _FixedOrderDispatcher(Dispatcher):
    def __init__(self, order: str) -> None:
        self._scheme = ListSchedulerSpec(EVERY_JOB, order)

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        return plan_by_spec(self._scheme, snapshot, need)


REGISTRATIONS = tuple(
    Registration(
        f"cp-off-{name}",
        f"Plans the whole trace at once, with known arrivals and run times, to minimize {name.upper()}.",
        "debs24 section 4",
        OfflineDispatcher,
        {"objective": name},
    )
    for name in ("bsld", "af", "awf", "p2sf")
)


@runtime_checkable
class Clairvoyant(Protocol):
    """A predictor or dispatcher that receives the real run times before a replay."""

    def observe_truth(self, trace: Iterable[TraceJob]) -> None:
        """Store the real run time of each job."""
        ...


class OraclePredictor(Predictor, Clairvoyant):
    """Predict each job's real run time, capped at its walltime."""

    def __init__(self, trace: Iterable[TraceJob] = ()) -> None:
        self.observe_truth(trace)

    @override
    def observe_truth(self, trace: Iterable[TraceJob]) -> None:
        self._run_s = {item.job.id: item.run_s for item in trace}

    def predict(self, job: Job) -> int:
        """Return the real run time, capped at the walltime."""
        return min(self._run_s[job.id], job.walltime_s)

    def fill(self, table: JobTable, slots: IntArray) -> None:
        """Write the real run times of the jobs in `slots` into the table."""
        jobs, run_s = table.jobs, self._run_s
        truth = np.fromiter((run_s[jobs[slot].id] for slot in slots.tolist()), np.int64, len(slots))
        table.estimate_s[slots] = np.minimum(truth, table.walltime_s[slots])


class SoftWalltimePredictor(Predictor):
    """Predict each job's soft walltime, capped at its walltime.

    Predict the walltime of a job without a soft walltime.
    """

    def __init__(self, trace: Iterable[TraceJob] = ()) -> None:
        self.observe_truth(trace)

    def observe_truth(self, trace: Iterable[TraceJob]) -> None:
        """Store the soft walltime of each job."""
        self._soft_s = {item.job.id: item.soft_walltime_s for item in trace if item.soft_walltime_s is not None}

    def predict(self, job: Job) -> int:
        """Return the soft walltime, capped at the walltime, or the walltime without one."""
        return min(self._soft_s.get(job.id, job.walltime_s), job.walltime_s)


SOFT_WALLTIME = Registration(
    "soft-walltime",
    "The soft walltime in the trace (SWF with 21 fields), or else the walltime. In simulation only.",
    "Klusáček and Chlumský, JSSPP 2018",
    SoftWalltimePredictor,
)
ORACLE = Registration(
    "oracle",
    "The real run time, capped at the walltime. In simulation only.",
    "-R in cp19, pcp20, mod17; clairvoyant in debs24",
    OraclePredictor,
)
PREDICTORS = registry.PREDICTORS.extended_with(ORACLE, SOFT_WALLTIME)
SIMULATION_REGISTRIES = PolicyRegistries(registry.DISPATCHERS.extended_with(*REGISTRATIONS), PREDICTORS)
"""Policy registries for simulations: the core's registries, plus predictors and dispatchers that use the whole trace.
"""
