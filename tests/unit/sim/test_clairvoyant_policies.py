"""Planning a whole trace: never worse than the initial list schedules, and every job runs."""

from __future__ import annotations

import pytest

from cpsched.errors import InvalidValue
from cpsched.model import Cluster
from cpsched_sim.clairvoyant_policies import SoftWalltimePredictor
from cpsched_sim.simulation import simulate
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.workload_loader import Workload
from tests.builders import a_job


def a_workload(nodes: int = 1) -> Workload:
    jobs = [
        TraceJob(a_job(i, units=1 + 3 * i % 5, walltime_s=200, submit_s=7 * i), 5 + 37 * i % 90) for i in range(1, 17)
    ]
    return Workload("made", "pool", Cluster.of([[6 // nodes]] * nodes, ["cores"]), jobs, {}, ())


@pytest.mark.parametrize("name", ["bsld", "af", "awf", "p2sf"])
def test_offline_schedule_is_no_worse_than_list_schedules(name: str) -> None:
    work = a_workload()
    off = simulate(work, f"cp-off-{name}", "oracle", settings={"effort": "200"})
    lists = [simulate(work, dispatcher, "oracle") for dispatcher in ("list-reg", "list-saf", "list-spf", "list-laf")]
    assert (off.schedule.violations, off.never_started_count) == ((), 0)
    assert off.metric(name) <= min(each.metric(name) for each in lists) * (1 + 1e-9)
    found = off.policy.dispatcher.found
    if name != "p2sf":  # its plan may idle, and then starts between two events come a little later
        assert off.metric(name) == pytest.approx(found.cost)
    assert found.bound is None or found.bound <= found.cost * (1 + 1e-9)


def test_every_job_still_runs_on_nodes() -> None:
    off = simulate(a_workload(nodes=2), "cp-off-af", "oracle", settings={"effort": "50"})
    assert (off.schedule.violations, off.never_started_count) == ((), 0)


def test_rejects_too_large_trace() -> None:
    with pytest.raises(InvalidValue, match="jobs=16: must be at most most=10"):
        simulate(a_workload(), "cp-off-af", "oracle", settings={"most": "10"})


@pytest.mark.parametrize(("soft_s", "expected_s"), [(40, 40), (None, 100), (100, 100), (101, 100)])
def test_estimate_is_soft_walltime_if_shorter(soft_s, expected_s):
    job = a_job(1, walltime_s=100)
    assert SoftWalltimePredictor([TraceJob(job, 30, soft_walltime_s=soft_s)]).predict(job) == expected_s


def test_unknown_job_uses_walltime():
    assert SoftWalltimePredictor().predict(a_job(1, walltime_s=100)) == 100
