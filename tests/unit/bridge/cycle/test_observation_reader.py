"""The first observation includes jobs that ended meanwhile. Later ones repeat only the queries that failed."""

from __future__ import annotations

import pytest

from cpsched.model import EndedJob
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.observation_reader import HISTORY_RETRY_INTERVAL_S, ObservationReader
from cpsched_bridge.store.ledger import Ledger, LedgerState, make_transition
from tests.builders import a_job
from tests.fakes import FakeCluster, FakePace


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


def test_first_reading_lists_ended_ledger_jobs_and_history(reader):
    assert read(reader) == ([1], [1, 2, 3])


def test_reads_history_only_once(reader, cluster):
    for cluster.now_s in (0, 100, 10_000):
        read(reader)
    assert cluster.calls["read_history"] == 1


def test_retries_failed_history_once_a_minute(reader, cluster):
    cluster.history_missing = True
    asked = []
    for cluster.now_s in (
        0,
        HISTORY_RETRY_INTERVAL_S - 1,
        HISTORY_RETRY_INTERVAL_S,
        HISTORY_RETRY_INTERVAL_S + 1,
        2 * HISTORY_RETRY_INTERVAL_S,
    ):
        _, past = read(reader)
        asked.append((cluster.calls["read_history"], len(past)))
    assert asked == [(1, 3), (1, 0), (2, 3), (2, 0), (3, 3)]


def test_first_reading_reports_ends_seen_by_earlier_glance(reader, cluster):
    cluster.submit(a_job(7))
    cluster.run_now(7, ((0, 1),))
    cluster.end(7)
    assert [ended.job.id for ended in reader.read_first().ended] == [7]
    assert reader.read_first().ended == ()
    assert cluster.calls["read_history"] == 0, "the past is not asked for"
    assert read(reader) == ([1, 7], [1, 2, 3])
    assert read(reader) == ([], [])
