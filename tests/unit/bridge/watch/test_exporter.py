import urllib.request

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cpsched.model import EndedJob
from cpsched_bridge.errors import AddressTaken
from cpsched_bridge.ports import Hold
from cpsched_bridge.watch.exporter import Endpoint, Exporter
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster


@pytest.fixture
def served():
    exporter = Exporter()
    endpoint = Endpoint(exporter, "127.0.0.1", 0)
    yield exporter, endpoint
    endpoint.close()


def scrape(endpoint):
    """(name, labels) -> value, over HTTP."""
    with urllib.request.urlopen(endpoint.url) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_what_a_bridge_does_can_be_scraped(bridge_at, served):
    exporter, endpoint = served
    cluster = FakeCluster(cluster=a_cluster(nodes=2, cores=4), now_s=100)
    cluster.submit(a_job(1, per_unit=4), a_job(2, per_unit=4), a_job(3, per_unit=4, submit_s=20))
    cluster.submit(a_job(4), hold=Hold.USER)
    bridge = bridge_at(cluster, listeners=(exporter,))
    bridge.cycle()
    bridge.pace.at_s += 0.3
    cluster.now_s += 40
    bridge.cycle()
    cluster.end(1)
    bridge.cycle()
    found = scrape(endpoint)
    assert found["cpsched_cycles_total", (("result", "ok"),)] == 3
    assert found["cpsched_solves_total", (("path", "first-fit"), ("status", "none"))] == 3
    assert found["cpsched_commands_total", (("kind", "start"), ("result", "done"))] == 3
    assert found["cpsched_decision_to_running_seconds_count", ()] == 2
    assert found["cpsched_decision_to_running_seconds_sum", ()] == pytest.approx(0.6)
    assert found["cpsched_queued_jobs", ()] == 1
    assert found["cpsched_pending_jobs", ()] == 2
    assert found["cpsched_running_jobs", ()] == 1
    assert found["cpsched_oldest_pending_seconds", ()] == 120
    assert found["cpsched_started_jobs_total", ()] == 2
    assert found["cpsched_job_wait_seconds_sum", ()] == 200
    assert found["cpsched_job_bounded_slowdown_ratio_count", ()] == 1
    assert found["cpsched_job_bounded_slowdown_ratio_sum", ()] == pytest.approx(140 / 40)
    assert found["cpsched_mode", (("mode", "control"),)] == 1
    assert found["cpsched_mode", (("mode", "shadow"),)] == 0
    assert found["cpsched_resource_capacity", (("resource", "cores"),)] == 8
    assert found["cpsched_resource_free", (("resource", "cores"),)] == 4
    assert found["cpsched_last_success_timestamp_seconds", ()] == 1_000_000_000.3
    assert found["cpsched_cycle_phase_duration_seconds_count", (("phase", "decide"),)] == 3


def test_names_follow_the_conventions_and_nothing_is_labelled_by_job_or_user(served):
    exporter, _ = served
    for metric in exporter.registry.collect():
        assert metric.name.startswith("cpsched_")
        assert metric.documentation.endswith(".")
        if metric.type == "histogram":
            assert metric.name.endswith(("_seconds", "_ratio"))
        for sample in metric.samples:
            assert not {"job", "user", "name", "id"} & set(sample.labels)


def test_a_port_in_use_is_a_clear_error(served):
    _, endpoint = served
    port = int(endpoint.url.rsplit(":", 1)[1].split("/")[0])
    with pytest.raises(AddressTaken, match=f"metrics.port={port}: cannot listen on 127.0.0.1: Address already in use"):
        Endpoint(Exporter(), "127.0.0.1", port)


def test_a_failed_cycle_is_counted_and_not_a_success(bridge_at, served):
    from cpsched_bridge.errors import BackendTimeout

    exporter, endpoint = served
    cluster = FakeCluster()
    cluster.fail("observe", BackendTimeout("no answer"))
    bridge_at(cluster, listeners=(exporter,)).cycle()
    found = scrape(endpoint)
    assert found["cpsched_cycles_total", (("result", "backend_timeout"),)] == 1
    assert found["cpsched_last_success_timestamp_seconds", ()] == 0
    assert found["cpsched_events_total", (("kind", "backend_timeout"),)] == 1


def test_a_job_that_ended_unseen_counts_as_started(bridge_at, served):
    exporter, endpoint = served
    cluster = FakeCluster()
    bridge = bridge_at(cluster, listeners=(exporter,), mode="shadow")
    bridge.cycle()
    cluster.submit(a_job(1))
    cluster.jobs[1].start_s, cluster.jobs[1].end_s = 30, 35
    bridge.cycle()
    found = scrape(endpoint)
    assert found["cpsched_started_jobs_total", ()] == found["cpsched_ended_jobs_total", ()] == 1
    assert EndedJob(a_job(1), 30, 35).run_s == 5
    assert np.isclose(found["cpsched_job_wait_seconds_sum", ()], 30)
