"""Which jobs get forecasts, and which forecasts have outcomes."""

from dataclasses import replace

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.errors import InvalidValue
from cpsched.forecast import FIRST_CLASS
from cpsched.model import Cluster, EndedJob, NodeSetCondition, PendingCode, PendingReason, RunningJob
from cpsched.run_time_model import RunTimeModel
from cpsched_bridge.ports import Hold, PendingJob
from cpsched_bridge.telemetry.start_forecasts import (
    HypotheticalSubmission,
    StartForecaster,
    find_partition_node_set,
    list_requestable_partitions,
)
from tests.builders import a_cluster, a_cycle_report, a_job, a_pending, a_snapshot, an_observation

CLUSTER = a_cluster(1, 1)
BUSY = RunningJob(a_job(100, walltime_s=600), 900, ((0, 1),))


def a_cycle(now_s, queue=(), running=(BUSY,), mode="control", **facts):
    """Return the report of a cycle with a plan for `queue`."""
    snapshot = a_snapshot(CLUSTER, list(queue), list(running), now_s)
    decision = EasyDispatcher().decide(snapshot, "plan")
    return a_cycle_without_plan(
        now_s, map(a_pending, queue), running, mode, snapshot=snapshot, decision=decision, **facts
    )


def a_cycle_without_plan(now_s, pending=(), running=(BUSY,), mode="control", **facts):
    seen = an_observation(*pending, cluster=CLUSTER, now_s=now_s, running=tuple(running))
    return a_cycle_report(mode=mode, observation=seen, **facts)


def refreshed(forecaster, *reports):
    """Refresh after each report, and return the jobs with a forecast but no start yet."""
    for report in reports:
        forecaster(report)
        forecaster.refresh()
    return {row[0] for row in forecaster.export_memory()["told"]}


def test_job_that_bridge_starts_now_gets_no_forecast():
    """Its wait is over. The replay that measures the forecasts issues none, either."""
    first, second = a_job(7, walltime_s=600), a_job(8, walltime_s=600)
    assert refreshed(StartForecaster(), a_cycle(1000, [first, second], running=())) == {8}
    shadow = a_cycle(1000, [first, second], running=(), mode="shadow")
    assert refreshed(StartForecaster(), shadow) == {7, 8}, "in shadow mode, the cluster decides whether it starts"


def test_started_job_gets_no_second_forecast_from_old_plan():
    forecaster, job = StartForecaster(), a_job(7, walltime_s=600)
    failed = a_cycle_without_plan(1600, started=[(job, 1550)])
    assert refreshed(forecaster, a_cycle(1000, [job]), failed) == set()
    assert len(forecaster.take_outcomes()) == 1


def test_start_reported_during_refresh_gets_no_second_forecast(monkeypatch):
    """The loop reports the next cycle while `refresh` learns from the last one."""
    forecaster, job = StartForecaster(), a_job(7, walltime_s=600)
    refreshed(forecaster, a_cycle(1000, [job]))
    running = RunningJob(job, 1550, ((0, 1),))
    coming = [a_cycle(1600, running=[running], started=[(job, 1550)])]
    monkeypatch.setattr(RunTimeModel, "learn", lambda *_: forecaster(coming.pop()) if coming else None)
    assert refreshed(forecaster, a_cycle(1540, [job], ended=[EndedJob(BUSY.job, 900, 1530)])) == set()
    assert len(forecaster.take_outcomes()) == 1


def test_array_counts_once_per_class():
    """The waits of its tasks are alike: 611 of them must not outweigh the forecasts that other users read."""
    forecaster, jobs = StartForecaster(), [a_job(id, walltime_s=600) for id in (11, 12, 13, 20)]
    cycle = a_cycle(1000, jobs)
    labels = {11: "7_1", 12: "7_2", 13: "7_3"}
    pending = tuple(PendingJob(job, Hold.PLUGIN, label=labels.get(job.id, "")) for job in jobs)
    forecaster(replace(cycle, observation=replace(cycle.observation, pending=pending)))
    forecaster.refresh()
    ended = a_cycle_without_plan(9000, running=(), started=[(job, 2000 + job.id) for job in jobs])
    refreshed(forecaster, ended)
    assert [score.outcome_class for score in forecaster.take_outcomes()] == [FIRST_CLASS, FIRST_CLASS]
    assert forecaster.week.count_outcomes(9000)[FIRST_CLASS, "covered"] == 2


JOB = a_job(7, walltime_s=600)
DEPENDS = replace(JOB, ineligible=PendingReason(PendingCode.DEPENDENCY))


@pytest.mark.parametrize(
    ("pending", "known"),
    [
        ([PendingJob(JOB, Hold.USER)], set()),
        ([PendingJob(JOB, Hold.CLUSTER)], set()),
        ([a_pending(DEPENDS)], set()),
        ([a_pending(JOB)], {7}),
        ([], set()),
    ],
    ids=["held by user", "held by cluster", "dependency", "may start", "cancelled"],
)
def test_drops_forecasts_of_jobs_that_may_not_start(pending, known):
    """Their wait would include time for which no forecast was made. No cycle here plans the job again."""
    assert refreshed(StartForecaster(), a_cycle(1000, [JOB]), a_cycle_without_plan(1060, pending)) == known


def test_job_held_since_the_plan_gets_no_forecast():
    forecaster = StartForecaster()
    forecaster(a_cycle(1000, [JOB]))
    assert refreshed(forecaster, a_cycle_without_plan(1010, [PendingJob(JOB, Hold.USER)])) == set()


@pytest.mark.parametrize(("resources", "distinct"), [(1, False), (2, True)])
def test_hypothetical_job_on_a_pool_needs_no_distinct_nodes(resources, distinct):
    """A pool is one node with all processors. Two of its units never fit on distinct nodes."""
    cluster = Cluster.of([[64] * resources], ["cores", "gpus"][:resources])
    assert cluster.counted is not distinct
    assert HypotheticalSubmission(nodes=2, time="10").to_job(0, cluster).request.distinct is distinct


def test_reservation_is_no_partition():
    """Slurm names a reservation after its user."""
    cluster = Cluster.of([[4]] * 2, ["cores"], node_sets={"main": [0, 1], "ada_12": [0]})
    parts = tuple(
        (NodeSetCondition(kind, name),)
        for kind, name in (("all", "all"), ("partition", "main"), ("reservation", "ada_12"))
    )
    cluster = replace(cluster, node_set_parts=parts)
    assert list_requestable_partitions(cluster) == ["all", "main"]
    with pytest.raises(InvalidValue, match="must be one of all, main"):
        find_partition_node_set(cluster, "ada_12")
