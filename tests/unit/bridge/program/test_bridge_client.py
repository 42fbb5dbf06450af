"""`cpsched queue`, `cpsched estimate-start` and `cpsched backfill-windows` over a real endpoint."""

import re
import urllib.request

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.errors import InvalidValue
from cpsched.formatting import format_start_interval
from cpsched_bridge.program.bridge_client import (
    BridgeNotAnswering,
    BridgeRequestRejected,
    find_job,
    list_rows,
    print_backfill_windows,
    print_job,
    print_queue,
    print_start_estimate,
    query_bridge,
    query_bridge_at_address,
)
from cpsched_bridge.settings import Settings
from cpsched_bridge.views.job_explanation import NOT_CALIBRATED
from cpsched_bridge.web.api_v1 import jobs_to_json
from cpsched_bridge.web.http_server import HttpServer
from cpsched_bridge.web.status_application import StatusApplication
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster
from tests.unit.bridge.web.page.views import some_jobs


@pytest.fixture
def settings(bridge_at):
    """Of a bridge whose three nodes are taken for an hour."""
    watch = StatusApplication(Settings())
    cluster = FakeCluster(cluster=a_cluster(nodes=3, cores=4), now_s=1000)
    bridge = bridge_at(cluster, dispatcher=EasyDispatcher(), listeners=(watch,))
    cluster.submit(a_job(1, 3, 4, 3600, distinct=True, user="ada"))
    for _ in range(2):
        bridge.cycle()
    cluster.submit(a_job(2, 3, 4, 3600, distinct=True, user="bob", name="waits"))
    bridge.cycle()
    watch.forecaster.refresh()
    bridge.cycle()
    endpoint = HttpServer(watch.build_app(), "127.0.0.1", 0)
    yield Settings.model_validate({"metrics": {"port": int(endpoint.url.rsplit(":", 1)[1].rstrip("/"))}})
    endpoint.close()


def test_prints_start_estimate_as_text(settings, capsys):
    print_start_estimate(
        list_rows(query_bridge("", lambda: settings, "when", {"nodes": 2, "time": "30", "cores": 4}), "starts")
    )
    text = capsys.readouterr().out
    assert re.search(r"as given +in .* to .* +in 2 h 00 min at the latest, if every job runs to its limit", text)
    assert "half the time" not in text, "it would not start earlier"
    assert "not calibrated yet" in text
    print_backfill_windows(list_rows(query_bridge("", lambda: settings, "windows", {}), "windows"))
    assert "No job could start now" in capsys.readouterr().out


def test_prints_windows_as_text(capsys):
    print_backfill_windows(
        [{"exclusive": True, "units": 1, "walltime_s": 3600}, {"exclusive": False, "units": 8, "walltime_s": 900}]
    )
    text = capsys.readouterr().out
    assert re.search(r"1 whole node +1 h", text)
    assert re.search(r"8 cores +15 min", text)


def test_refused_query_is_error_with_reason(settings):
    with pytest.raises(BridgeRequestRejected, match="must be one of cores") as raised:
        query_bridge("", lambda: settings, "when", {"time": "10", "gpus": 1})
    assert raised.value.exit_code == 2


def test_query_without_running_bridge_fails(settings):
    gone = Settings.model_validate({"metrics": {"port": 1}})
    with pytest.raises(
        BridgeNotAnswering,
        match=r"http://127.0.0.1:1/api/v1/windows: the bridge does not respond: .*refused; ask an operator",
    ):
        query_bridge("", lambda: gone, "windows", {})
    with pytest.raises(BridgeNotAnswering, match=re.escape("page.enabled")):
        query_bridge("", lambda: Settings.model_validate({"page": {"enabled": False}}), "windows", {})


def test_a_users_pending_job_has_both_intervals(settings, capsys):
    found = list_rows(query_bridge("", lambda: settings, "jobs", {"user": "bob"}), "jobs")
    (row,) = found
    quantiles_s = row["start_quantiles_s"]
    assert (row["state"], row["name"], row["calibrated"]) == ("waiting", "waits", False)
    assert [row["likely_from_s"], row["likely_to_s"]] == [quantiles_s[1], quantiles_s[5]]
    print_queue(found, True, "bob")
    text = capsys.readouterr().out
    assert re.search(r"waits +bob +in .* min.* to .* h.* +in .* to .* +in 1 h 00 min", text)
    assert "not calibrated yet" in text


def test_all_users_jobs_are_listed_with_their_states(settings, capsys):
    print_queue(list_rows(query_bridge("", lambda: settings, "jobs"), "jobs"), False, "")
    text = capsys.readouterr().out
    assert re.search(r"bob +waiting +in 1[0-9] min .* to [2-9] h", text)
    assert re.search(r"ada +running +now", text)
    print_queue([], False, "root")
    assert capsys.readouterr().out == "No job of user root is pending or running; --all shows all users' jobs.\n"


def test_page_api_and_commands_give_one_answer(settings, capsys):
    """The interval comes first, and the plan, which lies outside of it, is called what it is."""
    address = f"http://127.0.0.1:{settings.metrics.port}"
    (row,) = list_rows(query_bridge(address, lambda: settings, "jobs", {"user": "bob"}), "jobs")
    start = format_start_interval(row["likely_from_s"], row["likely_to_s"], row["now_s"])
    plan = "in 1 h 00 min at the latest, if every job runs to its limit"
    assert (row["start"], row["plan"]) == (start, plan)
    sentences = [f"Start, with a probability of 80 %: {start}.", NOT_CALIBRATED, f"Planned start: {plan}."]
    assert query_bridge(address, lambda: settings, "jobs/2")["sentences"][:3] == sentences
    print_job(query_bridge(address, lambda: settings, "jobs/2"))
    assert capsys.readouterr().out.splitlines()[:4] == ["job 2: waiting", *sentences]
    page = urllib.request.urlopen(f"{address}/jobs").read().decode()
    assert f'<td class="when">{start} <span class="soft">{plan}</span>' in page
    assert start in urllib.request.urlopen(f"{address}/").read().decode()


def test_answer_about_unknown_job_has_a_sentence(settings):
    with pytest.raises(BridgeRequestRejected, match="job=99: It is neither pending nor running"):
        query_bridge("", lambda: settings, "jobs/99")
    assert find_job(settings, "99") is None


def test_a_page_that_hides_names_selects_no_user():
    with pytest.raises(InvalidValue, match=re.escape("page.users")):
        jobs_to_json(some_jobs(), users_hidden=True, user="bob")


def test_an_address_needs_a_scheme():
    with pytest.raises(BridgeRequestRejected, match="http://"):
        query_bridge_at_address("bridge.example:9764", "jobs", {})
