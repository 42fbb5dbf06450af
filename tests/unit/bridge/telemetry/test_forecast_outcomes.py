"""Expected starts and predictions, observed over the cycles of a bridge in control of a fake cluster."""

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched_bridge.telemetry.forecast_outcomes import ForecastOutcomeTracker
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster


@pytest.fixture
def cluster():
    return FakeCluster(cluster=a_cluster(nodes=1, cores=4), now_s=0)


@pytest.fixture
def following():
    return ForecastOutcomeTracker()


@pytest.fixture
def cycled(bridge_at, cluster, following):
    """Let the bridge do a cycle, and say what became certain with it."""
    found = []
    bridge = bridge_at(
        cluster,
        dispatcher=EasyDispatcher(),
        listeners=(lambda report: found.append(following.record_report_and_get_outcomes(report)),),
    )

    def cycle(times=1):
        for _ in range(times):
            bridge.cycle()
        return found[-1]

    return cycle


def test_first_expected_start_is_kept_until_job_starts_or_vanishes(cluster, following, cycled):
    cluster.submit(a_job(1, per_unit=4, walltime_s=100), a_job(2, per_unit=4, submit_s=5))
    cycled()
    cluster.submit(a_job(3, per_unit=4, submit_s=1))  # the only reservation goes to the first job
    cycled()
    cluster.now_s = 150  # the first job has outlived its estimate
    cycled()
    assert following.first_planned_s == {2: 100, 3: 100}
    cluster.cancel(3)
    cycled()
    assert following.first_planned_s == {2: 100}
    cluster.end(1)
    settled = cycled(2)
    assert [(each.first_s, each.start_s) for each in settled.kept] == [(100, 150)]
    assert not following.first_planned_s


def test_compares_prediction_with_run_at_end(cluster, cycled):
    cluster.submit(a_job(1, per_unit=4, walltime_s=100))
    cycled(2)
    cluster.now_s = 25
    cluster.end(1)
    (found,) = cycled().predicted
    assert (found.estimate_s, found.run_s) == (100, 25)


def test_forgets_oldest_predictions_beyond_bound(cluster, following, cycled, monkeypatch):
    monkeypatch.setattr("cpsched_bridge.telemetry.forecast_outcomes.MAX_STORED_ESTIMATES", 2)
    for id in (1, 2, 3):
        cluster.submit(a_job(id, walltime_s=100 * id))
        cycled(2)
    for id in (1, 2, 3):
        cluster.end(id)
    assert sorted(each.estimate_s for each in cycled().predicted) == [200, 300]
