"""`cpsched estimate-start` and `cpsched backfill-windows` over a real endpoint."""

import json
import re

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched_bridge.program.bridge_client import (
    BridgeNotAnswering,
    RequestRejected,
    print_backfill_windows,
    print_start_estimate,
    query_bridge,
)
from cpsched_bridge.settings import Settings
from cpsched_bridge.web.http_server import HttpServer
from cpsched_bridge.web.status_application import StatusApplication
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster


@pytest.fixture
def settings(bridge_at):
    """Of a bridge whose three nodes are taken for an hour."""
    watch = StatusApplication(Settings())
    cluster = FakeCluster(cluster=a_cluster(nodes=3, cores=4), now_s=1000)
    bridge = bridge_at(cluster, dispatcher=EasyDispatcher(), listeners=(watch,))
    cluster.submit(a_job(1, 3, 4, 3600, distinct=True))
    for _ in range(2):
        bridge.cycle()
    endpoint = HttpServer(watch.build_app(), "127.0.0.1", 0)
    yield Settings.model_validate({"metrics": {"port": int(endpoint.url.rsplit(":", 1)[1].rstrip("/"))}})
    endpoint.close()


def test_the_answer_is_told_in_lines(settings, capsys):
    print_start_estimate(query_bridge(settings, "when", {"nodes": 2, "time": "30", "cores": 4}))
    text = capsys.readouterr().out
    assert re.search(r"this +in 1 h", text)
    assert "half the time" in text
    assert "rough" in text
    print_backfill_windows(query_bridge(settings, "windows", {}))
    assert "No job could start now" in capsys.readouterr().out


def test_windows_are_told_in_lines(capsys):
    print_backfill_windows(
        [{"whole": True, "units": 1, "walltime_s": 3600}, {"whole": False, "units": 8, "walltime_s": 900}]
    )
    text = capsys.readouterr().out
    assert re.search(r"1 whole node +1 h", text)
    assert re.search(r"8 cores +15 min", text)


def test_what_the_bridge_refuses_is_an_error_with_its_words(settings):
    with pytest.raises(RequestRejected, match="must be one of cores") as raised:
        query_bridge(settings, "when", {"time": "10", "gpus": 1})
    assert raised.value.exit_code == 2


def test_a_bridge_that_does_not_run_is_an_error(settings):
    gone = Settings.model_validate({"metrics": {"port": 1}})
    with pytest.raises(BridgeNotAnswering, match=r"no bridge answers at http://127.0.0.1:1/api/v1/windows: .*refused"):
        query_bridge(gone, "windows", {})
    with pytest.raises(BridgeNotAnswering, match=re.escape("page.enabled")):
        query_bridge(Settings.model_validate({"page": {"enabled": False}}), "windows", {})


def test_the_answer_is_json(settings):
    assert json.loads(json.dumps(query_bridge(settings, "windows", {}))) == []
