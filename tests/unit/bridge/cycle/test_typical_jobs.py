"""Typical requests for GPUs: which jobs determine them, and what the bridge does with them."""

import dataclasses

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.model import EndedJob
from cpsched.model.typical_requests import TYPICAL_DAYS
from cpsched_bridge.cycle.typical_jobs import DAY_S, RETRY_INTERVAL_S, TypicalJobs
from cpsched_bridge.settings import Settings
from cpsched_bridge.web.status_application import StatusApplication
from tests.builders import a_cluster, a_job, an_observation
from tests.fakes import FakeCluster
from tests.unit.bridge.telemetry.test_prometheus_exporter import scrape


def ended(id, gpus, end_s):
    return EndedJob(a_job(id, per_unit=(1, gpus)), end_s - 10, end_s)


@pytest.mark.parametrize(("chooses", "node"), [(True, 1), (False, 0)])
def test_bridge_measures_stranded_gpus_and_chooses_nodes(bridge_at, chooses, node):
    """Nine of ten jobs take four GPUs, so two idle GPUs of node 1 are expected to be useless for 90 %."""
    watch = StatusApplication(Settings(mode="control"))
    cluster = FakeCluster(
        cluster=a_cluster(nodes=2, cores=8, gpus=[4, 4]), past=[ended(50 + i, 4 if i else 1, 80) for i in range(10)]
    )
    cluster.submit(a_job(1, per_unit=(1, 2)))
    cluster.run_now(1, ((1, 1),))
    cluster.submit(a_job(2, per_unit=(1, 1)))
    bridge = bridge_at(
        cluster,
        dispatcher=EasyDispatcher(),
        listeners=(watch,),
        policy_settings={"least_stranded_gpus": chooses},
    )
    report = bridge.cycle()
    assert report.decided.starts == {2: ((node, 1),)}
    assert scrape(watch.exporter)["cpsched_stranded_gpus", ()] == pytest.approx(1.8)
    assert watch.page_state.get_view().status.stranded_gpus == pytest.approx(1.8)


def test_typical_requests_are_those_of_the_last_weeks():
    typical, cluster = TypicalJobs(chooses_nodes=True), a_cluster(cores=8, gpus=[4])

    def update(now_s, *jobs, cluster=cluster):
        return typical.add_to_observation(an_observation(cluster=cluster, now_s=now_s), jobs)

    none = update(0, ended(1, 0, 0))
    assert (none.typical, none.cluster, none.stranded_gpus) == (None, cluster, None)
    assert update(RETRY_INTERVAL_S - 1, ended(2, 1, 9)).typical is None
    first = update(RETRY_INTERVAL_S)
    assert first.typical.amounts.tolist() == [[1, 1]]
    assert first.cluster.typical is first.typical
    assert update(RETRY_INTERVAL_S + DAY_S - 1, ended(3, 2, 9)).cluster is first.cluster
    second = update(RETRY_INTERVAL_S + DAY_S)
    assert second.typical.amounts.tolist() == [[1, 2], [1, 1]]
    again = update(RETRY_INTERVAL_S + DAY_S + 1, cluster=dataclasses.replace(cluster, resources=("cores", "gpus")))
    assert again.typical is second.typical is again.cluster.typical
    last_s = 9 + TYPICAL_DAYS * DAY_S
    assert update(last_s).typical.amounts.tolist() == [[1, 2], [1, 1]]
    assert update(last_s + DAY_S).typical is None


def test_other_resources_end_typical_requests():
    """Amounts are counted by position, so those of the former resources have another meaning."""
    typical, cluster = TypicalJobs(chooses_nodes=False), a_cluster(cores=8, gpus=[4])

    def update(now_s, resources, *jobs):
        changed = dataclasses.replace(cluster, resources=resources)
        found = typical.add_to_observation(an_observation(cluster=changed, now_s=now_s), jobs)
        assert found.cluster is changed
        return found.typical

    assert update(0, ("cores", "gpus"), ended(1, 1, 0)).amounts.tolist() == [[1, 1]]
    assert update(1, ("cores", "mics"), ended(2, 2, 1)) is None
    assert update(RETRY_INTERVAL_S, ("cores", "mics")) is None
    assert update(RETRY_INTERVAL_S + 1, ("cores", "gpus"), ended(3, 3, 2)).amounts.tolist() == [[1, 3]]
