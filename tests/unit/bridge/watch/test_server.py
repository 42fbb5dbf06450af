"""What is served over HTTP by a running endpoint."""

import urllib.error
import urllib.request

import pytest

from cpsched_bridge.errors import AddressTaken, BackendTimeout
from cpsched_bridge.settings import Settings
from cpsched_bridge.watch.endpoint import Endpoint
from cpsched_bridge.watch.server import Watch
from tests.fakes import FakeCluster


@pytest.fixture
def watch():
    return Watch(Settings())


@pytest.fixture
def endpoint(watch):
    endpoint = Endpoint(watch.app(), "127.0.0.1", 0)
    yield endpoint
    endpoint.close()


def get(endpoint, path):
    """(status, type, text)."""
    try:
        with urllib.request.urlopen(endpoint.url + path) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read().decode()


def test_metrics_come_in_prometheus_text_format(endpoint):
    status, kind, text = get(endpoint, "metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=")
    assert "# TYPE cpsched_cycles_total counter" in text


def test_a_port_in_use_is_a_clear_error(endpoint):
    port = int(endpoint.url.rsplit(":", 1)[1].rstrip("/"))
    with pytest.raises(AddressTaken, match=f"metrics.port={port}: cannot listen on 127.0.0.1: Address already in use"):
        Endpoint(None, "127.0.0.1", port)


def test_ready_after_a_good_cycle_and_not_after_a_failed_one(endpoint, watch, bridge_at):
    status, _, text = get(endpoint, "readyz")
    assert (status, text) == (503, "no cycle has ended yet\n")
    cluster = FakeCluster()
    bridge = bridge_at(cluster, listeners=(watch,))
    bridge.cycle()
    assert get(endpoint, "readyz")[::2] == (200, "ok: round 1, control, ok\n")
    cluster.fail("observe", BackendTimeout("no answer\x1b[2J"))
    bridge.cycle()
    status, _, text = get(endpoint, "readyz")
    assert (status, text) == (503, "round 2 failed: backend_timeout\nno answer\\x1b[2J\n")
    assert get(endpoint, "healthz")[0] == 200, "a loop whose cluster is away is alive"


def test_a_loop_that_stalls_is_not_healthy(endpoint, watch, bridge_at):
    bridge_at(FakeCluster(), listeners=(watch,)).cycle()
    now_s = watch.health._last_s + watch.health.limit_s
    watch.health.clock = lambda: now_s
    assert get(endpoint, "healthz")[0] == 200
    watch.health.clock = lambda: now_s + 1
    for path in ("healthz", "readyz"):
        status, _, text = get(endpoint, path)
        assert status == 503
        assert text.startswith("no cycle ended for 151 s")


def test_metrics_can_be_off():
    endpoint = Endpoint(Watch(Settings.model_validate({"metrics": {"enabled": False}})).app(), "127.0.0.1", 0)
    try:
        assert get(endpoint, "metrics")[0] == 404
    finally:
        endpoint.close()
