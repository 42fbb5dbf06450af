"""CP by objective: the plan with the least cost on pools, a proved bound, and jobs that do not fit on nodes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cpsched import registry
from cpsched.dispatchers.cp import cp_sat
from cpsched.dispatchers.cp.cp_objective import OBJECTIVES
from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.errors import InvalidValue
from cpsched.feasibility import verify
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.model import Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.searches import studied

NAMES = ["cp-bsld", "cp-af", "cp-awf", "cp-p2sf", "cp-bsld+", "cp-p2sf+"]


def a_pool(now_s: int = 100) -> Snapshot:
    """Six processors in one pool, two of them busy for 30 s more."""
    shapes = [(3, 40, 10), (2, 7, 95), (6, 20, 40), (1, 90, 60)]
    queue = [
        a_job(i, units=units, walltime_s=walltime_s, submit_s=submit_s)
        for i, (units, walltime_s, submit_s) in enumerate(sorted(shapes, key=lambda shape: shape[2]), start=1)
    ]
    return a_snapshot(
        a_cluster(nodes=1, cores=6), queue, [a_running(a_job(9, units=2, walltime_s=130), ((0, 2),))], now_s
    )


def metric(name: str, snapshot: Snapshot, start_s: np.ndarray) -> float:
    """The field's formulas, plainly."""
    jobs = snapshot.queued_jobs()
    d = np.array([job.walltime_s for job in jobs], float)
    r = np.array([job.request.units for job in jobs], float)
    w = start_s - np.array([job.submit_s for job in jobs], float)
    f = w + d
    return {
        "bsld": float(np.maximum(1, f / np.maximum(d, 10)).mean()),
        "af": float(f.mean()),
        "awf": float((r * d * f).sum() / (r * d).sum()),
        "p2sf": float(0.75 * (r * (f**4 - w**4)).sum() / (r * (f**3 - w**3)).sum()),
    }[name]


def least(name: str, snapshot: Snapshot) -> float:
    """By list scheduling in every order: for these objectives, but for P2SF, some order is optimal."""
    from cpsched.planning import plan

    n = len(snapshot.queue)
    found = []
    for order in itertools.permutations(range(n)):
        plan_s = plan(snapshot, order=np.argsort(order)).plan_s
        assert plan_s is not None
        found.append(metric(name, snapshot, plan_s))
    return min(found)


@pytest.mark.parametrize("certain", ["yes", "no"])
@pytest.mark.parametrize("name", ["bsld", "af", "awf"])
def test_proves_objective_equal_to_metric(name: str, certain: str) -> None:
    snapshot = a_pool()
    decision = studied(f"cp-{name}", {"effort": "5000", "certain": certain}).decide(snapshot)
    assert verify(decision, snapshot) == []
    assert decision.plan_s is not None
    effort = decision.effort
    assert (effort.path, effort.status) == ("bound-met" if certain == "yes" else "solver", "optimal")
    assert effort.objective == pytest.approx(metric(name, snapshot, decision.plan_s))
    assert effort.objective == pytest.approx(least(name, snapshot))
    assert effort.bound == pytest.approx(effort.objective)


@pytest.mark.parametrize("name", ["cp-p2sf", "cp-p2sf+"])
def test_p2sf_is_never_worse_than_plan_by_arrival(name: str) -> None:
    snapshot = a_pool()
    by_list = registry.build_dispatcher("list-reg").decide(snapshot)
    decision = registry.build_dispatcher(name, {"effort": "5000"}).decide(snapshot)
    assert decision.plan_s is not None
    assert by_list.plan_s is not None
    assert decision.effort.objective == pytest.approx(metric("p2sf", snapshot, decision.plan_s))
    assert decision.effort.objective <= metric("p2sf", snapshot, by_list.plan_s) * (1 + 1e-9)
    assert decision.effort.bound is None


@pytest.mark.parametrize("name", ["bsld", "af", "awf", "late", "weighted-wait", "wait", "slowdown"])
def test_weights_and_constant_equal_objective(name: str) -> None:
    """Each objective as its formula says, at starts that are not all late enough to count."""
    snapshot, waits = a_pool(), ExpectedQueueWaits({"": 50.0})
    objective = OBJECTIVES[name](snapshot, snapshot.queue, waits)
    jobs = snapshot.queued_jobs()
    start_s = snapshot.now_s + np.array([0, 5, 40, 170], np.int64)
    waited = start_s - np.array([job.submit_s for job in jobs])
    d = np.array([job.walltime_s for job in jobs], float)
    expected = {
        "late": np.maximum(0, (waited - 50) / 50).sum(),
        "weighted-wait": waited.sum(),
        "wait": waited.sum(),
        "slowdown": ((waited + d) / d).sum(),
    }
    wanted = expected[name] if name in expected else metric(name, snapshot, start_s)
    assert objective.constant + plan_delay_cost(objective, start_s) == pytest.approx(float(wanted))


def test_list_reg_decides_without_plan_in_time(mocker) -> None:
    snapshot = a_pool()
    mocker.patch.object(
        cp_sat, "solve_pool_problem", return_value=cp_sat.CpSatSolution(None, np.inf, None, "unknown", 0.1)
    )
    decision = studied("cp-af", {"certain": "no"}).decide(snapshot)
    by_list = registry.build_dispatcher("list-reg").decide(snapshot)
    assert decision.effort.path == "late"
    assert decision.starts_by_job(snapshot) == by_list.starts_by_job(snapshot)


def test_counts_jobs_that_fit_on_no_node() -> None:
    running = [a_running(a_job(90 + n, per_unit=2, walltime_s=500), ((n, 1),)) for n in range(2)]
    jobs = [a_job(1, per_unit=1, walltime_s=10), a_job(2, per_unit=3, walltime_s=10)]
    decision = registry.build_dispatcher("cp-af").decide(
        snapshot := a_snapshot(a_cluster(nodes=2, cores=4), jobs, running)
    )
    assert decision.starts_by_job(snapshot) == {1: ((0, 1),)}
    assert decision.effort.unplaced == 1


def test_shifts_plan_with_gaps_fully_left() -> None:
    """Two units of four are busy until 10 s. Job 0 (3 units) waits for them, job 1 (1) for no job, job 2 for job 0."""
    problem = cp_sat.PoolSchedulingProblem(
        now_s=100,
        release_s=np.array([0, 4, 0]),
        duration_s=np.array([20, 5, 7]),
        demand=np.array([[3], [1], [2]]),
        moment_s=np.array([0, 10]),
        capacity=np.array([[2], [4]]),
    )
    assert cp_sat.left_shift(problem, np.array([115, 160, 190])).tolist() == [110, 104, 130]


def test_decides_same_twice_with_effort_limit() -> None:
    snapshot = a_pool()
    for name in NAMES:
        first, second = (studied(name, {"effort": "300", "certain": "no"}).decide(snapshot) for _ in "ab")
        assert first.plan_by_job(snapshot) == second.plan_by_job(snapshot)


@pytest.mark.parametrize(("setting", "value"), [("limit_s", "0"), ("effort", "0"), ("plans", "saf,nosuch")])
def test_rejects_invalid_settings(setting: str, value: str) -> None:
    with pytest.raises(InvalidValue, match=setting):
        registry.build_dispatcher("cp-af", {setting: value})


def test_starts_one_job_if_plan_idles_idle_cluster(mocker) -> None:
    """No event would come at the planned start."""
    jobs = [a_job(i, per_unit=3, walltime_s=10 * i) for i in (1, 2)]
    snapshot = a_snapshot(a_cluster(nodes=1, cores=4), jobs)
    found = cp_sat.CpSatSolution(np.array([5, 30]), 1.0, None, "feasible", 0.1)
    mocker.patch.object(cp_sat, "solve_p2sf", return_value=found)
    decision = registry.build_dispatcher("cp-p2sf").decide(snapshot)
    assert decision.effort.path == "solver-alone"
    assert len(decision.starts) == 1
