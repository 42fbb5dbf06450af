"""CP by objective: the plan with the least cost on pools, a proved bound, and jobs that do not fit on nodes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cpsched import registry
from cpsched.dispatchers.cp import cp_sat
from cpsched.errors import InvalidValue
from cpsched.feasibility import verify
from cpsched.metrics import ScheduleData
from cpsched.model import Snapshot
from cpsched.planning import plan
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
    facts = [(job.submit_s, job.walltime_s, job.request.units) for job in snapshot.queued_jobs()]
    submit_s, walltime_s, units = np.array(facts).T
    return float(getattr(ScheduleData(submit_s, start_s, start_s + walltime_s, units), name))


def least(name: str, snapshot: Snapshot) -> float:
    """By list scheduling in every order: for these objectives, but for P2SF, some order is optimal."""
    orders = itertools.permutations(range(len(snapshot.queue)))
    return min(metric(name, snapshot, plan(snapshot, order=np.argsort(order)).plan_s) for order in orders)


@pytest.mark.parametrize("certain", ["yes", "no"])
@pytest.mark.parametrize("name", ["bsld", "af", "awf"])
def test_proves_objective_equal_to_metric(name: str, certain: str) -> None:
    snapshot = a_pool()
    decision = studied(f"cp-{name}", {"effort": "5000", "certain": certain}).decide(snapshot)
    assert verify(decision, snapshot) == []
    effort = decision.effort
    assert (effort.path, effort.status) == ("bound-met" if certain == "yes" else "solver", "optimal")
    assert effort.objective == pytest.approx(metric(name, snapshot, decision.plan_s))
    assert (effort.objective, effort.bound) == (pytest.approx(least(name, snapshot)), pytest.approx(effort.objective))


@pytest.mark.parametrize("name", ["cp-p2sf", "cp-p2sf+"])
def test_p2sf_is_never_worse_than_plan_by_arrival(name: str) -> None:
    snapshot = a_pool()
    by_list = registry.DISPATCHERS.build("list-reg").decide(snapshot)
    decision = registry.DISPATCHERS.build(name, {"effort": "5000"}).decide(snapshot)
    assert decision.effort.objective == pytest.approx(metric("p2sf", snapshot, decision.plan_s))
    assert decision.effort.objective <= metric("p2sf", snapshot, by_list.plan_s) * (1 + 1e-9)
    assert decision.effort.bound is None


def test_list_reg_decides_without_plan_in_time(mocker) -> None:
    snapshot = a_pool()
    mocker.patch.object(
        cp_sat, "solve_pool_problem", return_value=cp_sat.CpSatSolution(None, np.inf, None, "unknown", 0.1)
    )
    decision = studied("cp-af", {"certain": "no"}).decide(snapshot)
    by_list = registry.DISPATCHERS.build("list-reg").decide(snapshot)
    assert (decision.effort.path, decision.starts_by_job(snapshot)) == ("late", by_list.starts_by_job(snapshot))


def test_counts_jobs_that_fit_on_no_node() -> None:
    running = [a_running(a_job(90 + n, per_unit=2, walltime_s=500), ((n, 1),)) for n in range(2)]
    jobs = [a_job(1, per_unit=1, walltime_s=10), a_job(2, per_unit=3, walltime_s=10)]
    decision = registry.DISPATCHERS.build("cp-af").decide(
        snapshot := a_snapshot(a_cluster(nodes=2, cores=4), jobs, running)
    )
    assert (decision.starts_by_job(snapshot), decision.effort.unplaced) == ({1: ((0, 1),)}, 1)


def test_decides_same_twice_with_effort_limit() -> None:
    snapshot = a_pool()
    for name in NAMES:
        first, second = (studied(name, {"effort": "300", "certain": "no"}).decide(snapshot) for _ in "ab")
        assert first.plan_by_job(snapshot) == second.plan_by_job(snapshot)


@pytest.mark.parametrize(("setting", "value"), [("limit_s", "0"), ("effort", "0"), ("plans", "saf,nosuch")])
def test_rejects_invalid_settings(setting: str, value: str) -> None:
    with pytest.raises(InvalidValue, match=setting):
        registry.DISPATCHERS.build("cp-af", {setting: value})


def test_starts_one_job_if_plan_idles_idle_cluster(mocker) -> None:
    """No event would come at the planned start."""
    jobs = [a_job(i, per_unit=3, walltime_s=10 * i) for i in (1, 2)]
    snapshot = a_snapshot(a_cluster(nodes=1, cores=4), jobs)
    found = cp_sat.CpSatSolution(np.array([5, 30]), 1.0, None, "feasible", 0.1)
    mocker.patch.object(cp_sat, "solve_p2sf", return_value=found)
    decision = registry.DISPATCHERS.build("cp-p2sf").decide(snapshot)
    assert (decision.effort.path, len(decision.starts)) == ("solver-alone", 1)
