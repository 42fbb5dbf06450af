"""The content that a running endpoint serves over HTTP."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from cpsched_bridge.cycle.startup import BridgeStartupSteps
from cpsched_bridge.errors import AddressInUse, BackendTimeout
from cpsched_bridge.settings import Settings
from cpsched_bridge.telemetry.bridge_log import LogRateLimit
from cpsched_bridge.web import http_server as endpoints
from cpsched_bridge.web.http_server import HttpServer, compute_max_connections
from cpsched_bridge.web.status_application import StatusApplication
from tests.fakes import FakeCluster
from tests.patience import ENOUGH_S
from tests.unit.bridge.web.endpoint_requests import address, get


@pytest.fixture
def watch():
    return StatusApplication(Settings())


@contextmanager
def serving(watch):
    endpoint = HttpServer(watch.build_app(), "127.0.0.1", 0)
    try:
        yield endpoint
    finally:
        endpoint.close()


@pytest.fixture
def endpoint(watch):
    with serving(watch) as endpoint:
        yield endpoint


def test_serves_prometheus_text_format(endpoint):
    status, headers, text = get(endpoint, "metrics")
    assert (status, headers["content-type"].partition("version=")[0]) == (200, "text/plain; ")
    assert "# TYPE cpsched_cycles_total counter" in text


def test_port_in_use_is_clear_error(endpoint):
    port = int(endpoint.url.rsplit(":", 1)[1].rstrip("/"))
    with pytest.raises(AddressInUse, match=f"metrics.port={port}: cannot listen on 127.0.0.1: Address already in use"):
        HttpServer(None, "127.0.0.1", port)


def test_ready_after_successful_cycle_only(endpoint, watch, bridge_at):
    status, _, text = get(endpoint, "readyz")
    assert (status, text) == (503, "no cycle has ended yet\n")
    cluster = FakeCluster()
    bridge = bridge_at(cluster, listeners=(watch,), cycles=1)
    assert get(endpoint, "readyz")[::2] == (200, "ok: round 1, control, ok\n")
    cluster.fail("observe", BackendTimeout("no answer\x1b[2J"))
    bridge.cycle()
    status, _, text = get(endpoint, "readyz")
    assert (status, text) == (503, "round 2 failed: backend_timeout\nno answer\\x1b[2J\n")
    assert get(endpoint, "healthz")[0] == 200, "a loop whose cluster is away is alive"


def test_old_successful_cycle_is_not_ready(endpoint, watch, bridge_at):
    watch.health.clock = lambda: 1000.0
    bridge_at(FakeCluster(), listeners=(watch,)).cycle()
    now_s = 1011.0  # a cycle that is some intervals late is reported only as an event
    watch.health.clock = lambda: now_s
    assert get(endpoint, "readyz")[0] == 200
    watch.health.clock = lambda: now_s + 12.0
    assert get(endpoint, "readyz")[::2] == (503, "the last good cycle ended 23 s ago; cycle.interval_s is 1 s\n")
    assert get(endpoint, "healthz")[0] == 200, "it may be a long decision"


def test_stalled_loop_is_not_healthy(endpoint, watch, bridge_at):
    watch.health.clock = lambda: 1000.0
    bridge_at(FakeCluster(), listeners=(watch,)).cycle()
    watch.health.clock = lambda: 1000.0 + watch.health.max_cycle_gap_s + 1
    for path in ("healthz", "readyz"):
        status, _, text = get(endpoint, path)
        assert (status, text[:30]) == (503, "no cycle has ended for 151 s; ")


def test_metrics_can_be_disabled():
    with serving(StatusApplication(Settings.model_validate({"metrics": {"enabled": False}}))) as endpoint:
        assert get(endpoint, "metrics")[0] == 404


# ------------------------------------------------------------------------------------------- those who mean it badly


@pytest.fixture
def crowd(endpoint):
    """Opens connections that begin with these bytes, and say nothing more."""
    opened = []

    def come(number, said=b""):
        for _ in range(number):
            opened.append(socket.create_connection(address(endpoint), timeout=ENOUGH_S))
            opened[-1].sendall(said)

    yield come
    for connection in opened:
        connection.close()


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\nHost: x", b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_idle_and_slow_clients_do_not_block_others(endpoint, crowd, said):
    """Some say nothing, some stop in the middle of a request, some never read their answer."""
    crowd(compute_max_connections() + 40, said)
    for path in ("metrics", "healthz"):
        assert get(endpoint, path)[0] in (200, 503)
        assert get(endpoint, path)[2].strip() not in ("", "Service Unavailable")


def test_bounds_number_of_connections(endpoint, crowd):
    crowd(compute_max_connections() + 40)
    assert get(endpoint, "metrics")[0] == 200
    assert len(endpoint._server.server_state.connections) <= compute_max_connections()  # noqa: SLF001


def sent_for_ever(endpoint, first, then, pause_s=0.0):
    """Send `first`, and `then` again and again, and never read, until the server has had enough."""
    with socket.create_connection(address(endpoint), timeout=ENOUGH_S) as client:
        client.sendall(first)
        while True:
            client.sendall(then)
            time.sleep(pause_s)


def test_drops_request_that_never_ends(watch, monkeypatch):
    """Byte after byte, so that something always comes."""
    monkeypatch.setattr(endpoints, "REQUEST_TIMEOUT_S", 0.3)
    with serving(watch) as endpoint:
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            sent_for_ever(endpoint, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"x", 0.02)
        assert get(endpoint, "metrics")[0] == 200


def test_drops_answer_that_client_does_not_read(watch, monkeypatch):
    monkeypatch.setattr(endpoints, "RESPONSE_TIMEOUT_S", 0.3)
    with serving(watch) as endpoint:
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            sent_for_ever(endpoint, b"", b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        assert get(endpoint, "metrics")[0] == 200


def test_logs_invalid_requests_once(watch, monkeypatch):
    told = []
    monkeypatch.setattr(endpoints, "CLIENT_LOG_LIMIT", LogRateLimit(lambda *line: told.append(line)))
    with serving(watch) as endpoint:
        for _ in range(50):
            assert answer_to(endpoint, b"\x16\x03\x01\r\n\r\n").startswith("HTTP/1.1 400")
    assert told == [("Invalid HTTP request received.", 1, "")]


def test_closes_despite_open_client_connections(watch):
    endpoint = HttpServer(watch.build_app(), "127.0.0.1", 0)
    clients = [socket.create_connection(address(endpoint), timeout=ENOUGH_S) for _ in range(20)]
    closing = threading.Thread(target=endpoint.close, daemon=True)
    closing.start()
    closing.join(ENOUGH_S)
    assert not closing.is_alive()
    for client in clients:
        client.close()


def answer_to(endpoint, request):
    """The first line and the headers of the answer to these bytes."""
    with socket.create_connection(address(endpoint), timeout=ENOUGH_S) as client:
        client.sendall(request)
        found = b""
        while b"\r\n\r\n" not in found and (part := client.recv(4096)):
            found += part
    return found.decode("latin-1")


PATHS = ("/", "/jobs/1", "/api/v1/jobs/1", "/api/queue")


@pytest.mark.parametrize("host", ["localhost", "localhost:9764", "127.0.0.1:9764", "[::1]:9764", "10.0.0.1"])
def test_serves_page_to_addresses_and_localhost(endpoint, host):
    for path in PATHS:
        first = answer_to(endpoint, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).split("\r\n")[0]
        assert "421" not in first, path


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:9764", "evil.example@127.0.0.1", "[", "a b"])
def test_rejects_page_for_foreign_host_name(endpoint, host):
    """A browser asks so where a web site has its own name lead to the reader's machine (DNS rebinding)."""
    for path in PATHS:
        first = answer_to(endpoint, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).split("\r\n")[0]
        assert first.split(" ")[1] in ("421", "400"), path


@pytest.mark.parametrize(
    "asked",
    [
        "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET http://localhost/api/v1/windows HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-Host: localhost\r\nhost: evil.example\r\n\r\n",
        "GET / HTTP/1.0\r\nX-Forwarded-Host: localhost\r\nHost: evil.example\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_request_must_name_one_host_and_path(endpoint, asked):
    assert answer_to(endpoint, asked.encode()).split(" ")[1] in ("400", "421")


def test_serves_configured_proxy_name():
    settings = Settings.model_validate({"page": {"hosts": ["Cluster.Example"]}})
    with serving(StatusApplication(settings)) as endpoint:
        said = answer_to(endpoint, b"GET / HTTP/1.1\r\nHost: Cluster.example:443\r\n\r\n")
        assert said.startswith("HTTP/1.1 200 ")


def test_serves_metrics_for_any_host_name(endpoint):
    assert answer_to(endpoint, b"GET /metrics HTTP/1.1\r\nHost: head1.example\r\n\r\n").startswith("HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/1/",
        "/api/v1/windows/",
        "//evil.example/jobs/1",
        "/static/../page.py",
        "/static/%2e%2e/page_rendering.py",
        "/static/nothing",
        "/nothing",
    ],
)
def test_redirects_to_no_other_address(endpoint, path):
    """A redirect would name the address of the bridge behind a proxy, or what the client said it was."""
    said = answer_to(endpoint, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert said.startswith("HTTP/1.1 404 ")
    assert "location:" not in said.lower()


@pytest.mark.parametrize("size", [1000, 60_000, 200_000])
def test_answers_long_address_with_short_response(endpoint, size):
    said = answer_to(endpoint, b"GET /jobs/" + b"9" * size + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert said.split(" ")[1] in ("200", "400", "404")
    assert len(said) < 3000
    assert get(endpoint, "metrics")[0] == 200


def test_empty_page_gives_reason(endpoint, watch, bridge_at):
    """At its address, at a job's, and in the JSON."""
    watch.on_startup_step("compiles kernels: 3 of 23 <kernels> are ready")
    for path in ("", "jobs/7"):
        status, _, text = get(endpoint, path)
        assert status == 200
        assert "has not read the cluster yet" in text
        assert "no decision yet: compiles kernels: 3 of 23 &lt;kernels&gt; are ready" in text
    status, _, text = get(endpoint, "api/v1/jobs/7")
    why = "no decision yet: compiles kernels: 3 of 23 <kernels> are ready"
    assert (status, json.loads(text)["error"].split("; ")[1]) == (503, why)
    cluster = FakeCluster()
    cluster.fail("observe", BackendTimeout("no answer"))
    bridge_at(cluster, listeners=(watch,), cycles=1)
    assert "round 1 failed: backend_timeout" in get(endpoint, "")[2]
    assert "compiles" not in get(endpoint, "")[2]


def test_page_reports_bridge_that_reads_but_cannot_decide(endpoint, watch, bridge_at):
    startup = BridgeStartupSteps([lambda: "compiles kernels"])
    bridge_at(FakeCluster(), listeners=(watch,), startup=startup).cycle()
    alert = 'The bridge starts no jobs. <span class="detail">no decision yet: compiles kernels</span>'
    assert alert in get(endpoint, "")[2]
    assert (get(endpoint, "readyz")[0], get(endpoint, "healthz")[0]) == (503, 200)
