"""The first observation includes jobs that ended meanwhile. Later ones repeat only the queries that failed.

Typical requests follow from the ended jobs.
"""

from __future__ import annotations

import dataclasses

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.model import EndedJob
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.observation_reader import ObservationReader, TypicalJobs
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.ledger import Ledger, LedgerState, make_transition
from cpsched_bridge.web.status_application import StatusApplication
from tests.builders import a_cluster, a_job, an_observation
from tests.fakes import FakeCluster, FakePace
from tests.unit.bridge.telemetry.test_prometheus_exporter import scrape


@pytest.fixture
def cluster():
    return FakeCluster(past=[EndedJob(a_job(id), 0, 5) for id in (1, 2, 3)])


@pytest.fixture
def reader(cluster, tmp_path):
    """A reader whose ledger takes job 1 for alive, knows that job 2 is over, and has never heard of job 3."""
    ledger = Ledger(tmp_path / "state.sqlite", durable=False)
    ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=id) for id in (1, 2)])
    ledger.record([make_transition(ledger.get(2), LedgerState.ENDED, 1, "ended")])
    return ObservationReader(cluster, ledger)


def read(reader):
    """Return the ids of the ended and of the past jobs in the next reading."""
    reading = reader.read(CycleRecorder(1, FakePace()))
    return [ended.job.id for ended in reading.ended], [ended.job.id for ended in reading.past]


def test_retries_failed_history_once_a_minute(reader, cluster):
    cluster.history_missing = True
    asked = []
    for cluster.now_s in (0, 59, 60, 61, 200, 259, 260):
        _, past = read(reader)
        asked.append((cluster.calls["read_history"], len(past)))
    assert asked == [(1, 3), (1, 0), (2, 3), (2, 0), (3, 3), (3, 0), (4, 3)]


def test_first_reading_reports_ends_seen_by_earlier_glance(reader, cluster):
    cluster.submit(a_job(7))
    cluster.run_now(7, ((0, 1),))
    cluster.end(7)
    assert [ended.job.id for ended in reader.read_first().ended] == [7]
    assert reader.read_first().ended == ()
    assert cluster.calls["read_history"] == 0, "the past is not asked for"
    assert read(reader) == ([1, 7], [1, 2, 3])
    assert read(reader) == ([], [])


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
    assert update(599, ended(2, 1, 9)).typical is None
    first = update(600)
    assert (first.typical.amounts.tolist(), first.cluster.typical) == ([[1, 1]], first.typical)
    assert update(600 + 86_399, ended(3, 2, 9)).cluster is first.cluster
    second = update(600 + 86_400)
    assert second.typical.amounts.tolist() == [[1, 2], [1, 1]]
    again = update(600 + 86_401, cluster=dataclasses.replace(cluster, resources=("cores", "gpus")))
    assert again.typical is second.typical is again.cluster.typical
    last_s = 9 + 28 * 86_400
    assert update(last_s).typical.amounts.tolist() == [[1, 2], [1, 1]]
    assert update(last_s + 86_400).typical is None


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
    assert update(600, ("cores", "mics")) is None
    assert update(601, ("cores", "gpus"), ended(3, 3, 2)).amounts.tolist() == [[1, 3]]
