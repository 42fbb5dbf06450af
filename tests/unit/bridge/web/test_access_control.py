"""The permitted Host headers, in all their odd forms, and what one user may see."""

import http.client
import json
import re

import pytest

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.errors import BackendTimeout, SettingsError
from cpsched_bridge.ports import Outage
from cpsched_bridge.settings import Settings, validate_section_content
from cpsched_bridge.users import ProxyUserIdentifier, ProxyUserRejected, parse_trusted_network
from cpsched_bridge.views.status_view import PageAlert
from cpsched_bridge.web.access_control import is_allowed_host, redact_for_user
from cpsched_bridge.web.page import view_model
from cpsched_bridge.web.page.node_list import list_nodes
from tests.builders import a_job
from tests.patience import ENOUGH_S
from tests.unit.bridge.web.endpoint_requests import address
from tests.unit.bridge.web.page.views import (
    PRIORITY,
    a_plan,
    a_running,
    a_view,
    a_waiting,
    an_ended,
    an_outage,
    an_unscheduled,
    other,
    some_jobs,
)

OURS = ["localhost", "LocalHost:9764", "127.0.0.1", "10.1.2.3:80", "[::1]", "[2001:DB8::7]:65535", "[::ffff:10.0.0.1]",
        "head1.example", "HEAD1.Example:443"]  # fmt: skip
NOT_OURS = [
    "", " ", ":", ":80", "@", "evil.example", "evil.example@127.0.0.1", "127.0.0.1@evil.example", "ada:x@localhost",
    "localhost.", "127.0.0.1.", "head1.example.", ".localhost", "localhost:", "localhost:http", "localhost:99999",
    "localhost:80:80", "localhost:+80", "localhost:８０", "localhost:80 ", " localhost", "localhost\t", "localhost/",
    "localhost/x", "localhost?x", "localhost#", "localhost\\evil.example", "localhost,evil.example", "localhost;x",
    "localhost\x00", "localhost\n", "localhost%00", "%6cocalhost", "http://localhost", "//localhost",
    "::1", "[::1", "::1]", "[]", "[localhost]", "[127.0.0.1]", "[::1]x", "[::1]:", "[::1%25eth0]", "[fe80::1%lo]",
    "[::1].evil.example", "[v1.a]", "127.1", "127.0.0.01", "0x7f.0.0.1", "2130706433", "127.0.0.1.nip.io", "1.2.3.4.5",
    "１２７.0.0.1", "locаlhost", "localhost.localdomain", "head1", "xhead1.example", "head1.example.evil.example",
    "*", "*.example", "-", "a..b",
]  # fmt: skip
HEADER = "X-Remote-User"
SECRET = ("bob", "bobs-account", "bobs-name", "4711", "4712", "4713", "4714", "4715", "resv-of-bob", "AssocMax")
"""What only Bob may read: his names, the ids of his jobs, and what keeps them waiting."""
PAGES = ("", "jobs?state=all", "jobs?state=running", "jobs?state=unscheduled", "nodes", "wall", "when?time=10")
API = ("api/v1/when?time=10", "api/v1/windows")


@pytest.mark.parametrize("host", OURS)
def test_allows_addresses_localhost_and_listed_names(host):
    assert is_allowed_host(host, ["head1.example"])


@pytest.mark.parametrize("host", NOT_OURS)
def test_rejects_all_other_hosts(host):
    assert not is_allowed_host(host, ["head1.example"])


def test_ignores_case_of_listed_name():
    assert is_allowed_host("head1.example", ["Head1.EXAMPLE"])


def limit(name, particulars):
    return PendingReason(PendingCode.CLUSTER, (name, particulars))


def bobs(id, **more):
    return a_job(id, **{"user": "bob", "account": "bobs-account", "name": "bobs-name", "distinct": True, **more})


@pytest.fixture
def crowd(site_with, monkeypatch):
    """Ada has a job that runs, one that waits and one aside; Bob has some of each, and one that has ended."""
    monkeypatch.setattr(view_model, "version", lambda _: "1.0")  # that of a build contains a time: any digits
    site = site_with(user_header=HEADER, trusted_proxies=["127.0.0.0/8"], operators=["root"])
    site.cluster.submit(
        bobs(4711, walltime_s=5000, per_unit=4), a_job(11, per_unit=2, user="ada"), bobs(4715, per_unit=4)
    )
    site.cycle()
    site.cycle(1002)
    site.cluster.end(4715)
    site.cycle(1005)
    site.cluster.submit(
        bobs(4712, units=3, per_unit=4, submit_s=1000),
        bobs(4713, ineligible=limit("AssocMaxJobsLimit", "2 of 2 jobs of bobs-account")),
        a_job(12, 3, 4, 600, 1000, distinct=True, user="ada", name="mine"),
        a_job(13, user="ada", ineligible=limit("AssocGrpCpuLimit", "8 of 8 of bobs-account")),
        bobs(4714, units=2, per_unit=4),
    )
    site.cluster.outages = (Outage("reserved", "resv-of-bob", (2,), 5000, 9000),)
    site.cycle(1010)
    site.watch.forecaster.refresh()
    site.cycle(1020)
    return site


def get(site, path, user="ada", **more):
    return site.get(path, **{HEADER: user, **more})


def test_no_page_or_answer_contains_data_of_other_users(crowd):
    assert any("bob" in get(crowd, path, "root")[2] for path in PAGES), "operators see everybody"
    for path in (*PAGES, *API):
        status, headers, text = get(crowd, path)
        assert status == 200, (path, text)
        assert not [word for word in SECRET if word in text], path
        assert not [word for word in SECRET if word in str(headers)], path


def test_reader_sees_own_jobs_counts_and_machine(crowd):
    view = redact_for_user(crowd.view, "ada")
    assert (view.jobs.reader, len(view.jobs.running), len(view.jobs.unscheduled)) == ("ada", 1, 1)
    assert sum(each.jobs for each in view.status.pending_reasons) == 2
    (waits,) = view.jobs.waiting
    assert (waits.id, waits.position, waits.waits_for, waits.name) == (12, 1, (), "mine")
    assert waits.likely_from_s is not None
    assert view.decisions == []
    assert {bar.id for bar in view.chart.bars} == {11}, "EASY plans for Bob alone"
    assert [(n.in_use, n.state) for n in list_nodes(view)] == [(n.in_use, n.state) for n in list_nodes(crowd.view)]
    assert {id for node in list_nodes(view) for id in node.running} == {11}
    assert [job.reason_text for job in view.jobs.unscheduled] == ["AssocGrpCpuLimit"]
    assert "It is your only pending job, and has waited for" in get(crowd, "jobs/12")[2]
    assert 'id="reader"' in get(crowd, "")[2]


@pytest.mark.parametrize("id", [4711, 4712, 4713, 4714, 4715])
def test_job_of_other_user_is_like_unknown_job(crowd, id):
    for path in ("jobs/{}", "api/v1/jobs/{}"):
        there, nowhere = (get(crowd, path.format(each)) for each in (id, 9999))
        assert there[0] == nowhere[0] == 404
        assert there[2].replace(str(id), "N") == nowhere[2].replace("9999", "N")
        assert str(id) in get(crowd, path.format(id), "root")[2]
        assert get(crowd, path.format(id), "bob")[0] == 200


@pytest.mark.parametrize(
    "words",
    ["user=bob", "account=bobs-account", "q=bob", "q=4712", "partition=x", "node=n0", "kind=resources", "sort=user"],
)
def test_filters_find_no_job_of_other_users(crowd, words):
    asked = get(crowd, f"jobs?state=all&{words}")[2]
    found = re.sub(r'value="[^"]*"|href="[^"]*"|<option[^>]*>[^<]*', "", asked)  # what was asked for is said back
    assert not [word for word in SECRET if word in found]


def test_user_name_has_one_spelling(crowd):
    for name in ("Ada", "ADA", "adam", "ad", "nobody"):
        assert get(crowd, "api/v1/jobs/12", name)[0] == 404
        view = redact_for_user(crowd.view, name)
        assert [*view.jobs.waiting, *view.jobs.running, *view.jobs.unscheduled] == []
    for page in PAGES:
        assert get(crowd, page, "nobody")[0] == 200


@pytest.mark.parametrize(
    "said", ["", " ", "ada,bob", "ada, bob", "ada bob", "b\xf6b", "../root", "ada;root", "-", "a" * 300, "\x01"]
)
def test_rejects_missing_or_ambiguous_user_header(crowd, said):
    assert raw(crowd, [(HEADER, said)])[0] in (400, 403)


def raw(site, headers, path="/", version="1.1"):
    """(status, headers, text) of a request with these header lines as they are, on a connection of its own."""
    connection = http.client.HTTPConnection(*address(site.endpoint), timeout=ENOUGH_S)
    connection._http_vsn, connection._http_vsn_str = {"1.1": (11, "HTTP/1.1"), "1.0": (10, "HTTP/1.0")}[version]  # noqa: SLF001
    return sent(connection, headers, path)


def sent(connection, headers, path="/"):
    connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
    for name, value in [("Host", "localhost"), *headers]:
        connection._buffer.append(f"{name}: {value}".encode("latin-1"))  # noqa: SLF001
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(
    ("headers", "reader"),
    [
        ([], None),
        ([(HEADER, "ada"), (HEADER, "ada")], None),
        ([(HEADER, "ada"), (HEADER.lower(), "root")], None),
        ([(HEADER, "ada"), ("X_Remote_User", "root")], "ada"),
        ([("x-REMOTE-user", "ada")], "ada"),
        ([(HEADER, "  ada  ")], "ada"),
        (
            [
                (HEADER, "ada"),
                ("X-Forwarded-For", "8.8.8.8"),
                ("Forwarded", "for=8.8.8.8"),
                ("X-Forwarded-User", "root"),
            ],
            "ada",
        ),
        ([("X-Forwarded-User", "root"), ("Authorization", "Basic cm9vdDpyb290"), ("Remote-User", "root")], None),
    ],
)
def test_rejects_malformed_user_headers(crowd, headers, reader, version):
    status, _, text = raw(crowd, headers, version=version)
    assert status == (200 if reader else 403)
    assert reader_of(text) == reader if reader else "bob" not in text


def reader_of(text):
    """Whose jobs a page shows; None: every user's."""
    found = re.search(r'id="reader">This page shows only the jobs of (.*?)\.', text)
    return found and found[1]


def test_one_connection_serves_several_readers(crowd):
    connection = http.client.HTTPConnection(*address(crowd.endpoint), timeout=ENOUGH_S)
    for name in ("ada", "bob", "ada", "root", "ada"):
        assert reader_of(sent(connection, [(HEADER, name)])[2]) == (None if name == "root" else name)
    assert sent(connection, [])[0] == 403


def test_responses_are_private_and_vary_by_user(crowd):
    _, headers, text = get(crowd, "jobs")
    assert headers["Cache-Control"] == "private, no-cache"
    assert HEADER.lower() in headers["Vary"].lower()
    other = get(crowd, "jobs", "bob")
    assert other[1]["ETag"] != headers["ETag"]
    assert get(crowd, "jobs", "bob", **{"If-None-Match": headers["ETag"]})[0] == 200
    status, again, _ = get(crowd, "jobs", "ada", **{"If-None-Match": headers["ETag"]})
    assert (status, again["Cache-Control"]) == (304, "private, no-cache")
    assert get(crowd, "jobs")[2] == text, "what was made for Bob meanwhile is his"
    for path in ("api/v1/jobs/12", "jobs/12", "when?time=10", "api/v1/nothing"):
        found = get(crowd, path)[1]
        assert (HEADER.lower() in found["Vary"].lower(), "private" in found["Cache-Control"]) == (True, True), path


def test_hides_operator_details_from_readers(crowd):
    assert (get(crowd, "metrics")[0], crowd.get("metrics")[0]) == (403, 200)
    crowd.cluster.fail("observe", BackendTimeout("job 4711 of bob"))
    crowd.cycle()
    assert "4711" in crowd.get("readyz")[2]
    assert get(crowd, "readyz")[2] == "not ready\n"
    for path in ("", "wall"):
        text = get(crowd, path)[2]
        assert "The last cycle failed" in text
        assert "4711" not in text


def test_hides_errors_before_first_reading_from_readers(site_with):
    site = site_with(user_header=HEADER, trusted_proxies=["127.0.0.1"], operators=["root"])
    site.cluster.fail("observe", BackendTimeout("job 4711 of bob"))
    site.cycle()
    for path in ("", "jobs/1", "when", "api/v1/jobs/1"):
        assert "4711" not in get(site, path)[2]
        assert "4711" in get(site, path, "root")[2]


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("10.1.2.3", True), ("10.2.0.1", False), ("::ffff:10.1.2.3", True), ("2001:db8::5", True),
        ("2001:db9::5", False),
        ("", False), (None, False), ("testclient", False), ("10.1.2.3, 8.8.8.8", False), ("127.0.0.1", False),
    ],
)  # fmt: skip
def test_accepts_user_header_from_trusted_peers_only(peer, trusted):
    readers = ProxyUserIdentifier(
        HEADER, (parse_trusted_network("10.1.0.0/16"), parse_trusted_network("2001:db8::/32"))
    )
    if trusted:
        assert readers.identify_reader(peer, ["ada"]) == "ada"
    else:
        with pytest.raises(ProxyUserRejected, match="trusted_proxies"):
            readers.identify_reader(peer, ["ada"])


def test_direct_client_sees_nothing(site_with):
    site = site_with(user_header=HEADER, trusted_proxies=["192.0.2.7"])
    site.cycle()
    for path in (*PAGES, *API, "jobs/1", "api/v1/jobs/1", "api/v1/openapi.json", "static/page.css"):
        status, _, text = get(site, path, "root", **{"X-Forwarded-For": "192.0.2.7", "X-Real-IP": "192.0.2.7"})
        assert (status, "trusted_proxies" in text) == (403, True), path
    assert site.get("metrics")[0] == 200


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ({"user_header": HEADER, "trusted_proxies": ["0.0.0.0/0"]}, "would trust every client"),
        ({"user_header": HEADER, "trusted_proxies": ["::/0"]}, "would trust every client"),
        ({"user_header": HEADER, "trusted_proxies": ["proxy.example"]}, "must be addresses or networks"),
        ({"user_header": HEADER, "trusted_proxies": ["10.0.0.1/8"]}, "must be addresses or networks"),
        ({"user_header": "X Remote", "trusted_proxies": ["10.0.0.1"]}, "must consist of letters"),
        ({"user_header": "X_Remote_User", "trusted_proxies": ["10.0.0.1"]}, "must consist of letters"),
        ({"user_header": "X-Forwarded-For", "trusted_proxies": ["10.0.0.1"]}, "clients do not send"),
        ({"user_header": "cookie", "trusted_proxies": ["10.0.0.1"]}, "clients do not send"),
        ({"user_header": HEADER, "trusted_proxies": ["10.0.0.1"], "operators": ["a b"]}, "must be a user name"),
    ],
)
def test_rejects_invalid_settings(page, why):
    with pytest.raises(SettingsError, match=why):
        validate_section_content(Settings, {"page": page}, "bridge.yaml")


def test_ended_job_still_belongs_to_owner(crowd):
    crowd.cluster.end(11)
    crowd.cycle(1030)
    assert json.loads(get(crowd, "api/v1/jobs/11")[2])["state"] == "ended"
    assert get(crowd, "api/v1/jobs/11", "bob")[0] == 404


def test_names_only_own_jobs_that_job_waits_for():
    """Those that run and those that wait, but no other user's."""
    jobs = some_jobs(
        waiting=[
            a_waiting(1, user="bob"), a_waiting(2, position=2), a_waiting(3, position=3, waits_for=(1, 2, 50, 51))
        ],
        running=[a_running(50), a_running(51, user="bob")],
        unscheduled=[
            an_unscheduled(90, reason=limit("AssocGrpCpuLimit", "8 of 8 of x")), an_unscheduled(91, user="bob")
        ],
        ended=[an_ended(70), an_ended(71, user="bob")],
    )  # fmt: skip
    view = a_view(
        jobs,
        bars=[a_plan(2, 2000, 0, user="ada"), a_plan(1, 2000, 0, user="bob")],
        outages=[an_outage("reserved", 0, name="bobs"), an_outage("drained", 1, name="disk")],
        held=7,
        alerts=[
            PageAlert(urgent=True, text="The bridge starts no jobs.", details=["bob broke it"]),
            PageAlert(urgent=False, text="job of bob", details=[]),
        ],
    )
    found = redact_for_user(view, "ada")
    assert [(job.id, job.position, job.waits_for, job.reason) for job in found.jobs.waiting] == [
        (2, 1, (), PRIORITY), (3, 2, (2, 50), PRIORITY),
    ]  # fmt: skip
    assert [(job.id, job.reason_text) for job in found.jobs.unscheduled] == [(90, "AssocGrpCpuLimit")]
    assert [job.id for job in (*found.jobs.running, *found.jobs.ended)] == [50, 70]
    assert [bar.id for bar in found.chart.bars] == [2]
    assert [(each.kind, each.name) for each in found.chart.outages] == [("reserved", ""), ("drained", "disk")]
    assert (found.jobs.reader, found.status.held) == ("ada", 0)
    assert found.status.alerts == [PageAlert(urgent=True, text="The bridge starts no jobs.", details=[])]
    assert [(each.kind, each.jobs) for each in found.status.pending_reasons] == [("priority", 2), ("ineligible", 1)]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [(other("bob is first"), other("other reasons")), (PRIORITY, PRIORITY), (None, None)],
)
def test_reason_of_own_job_names_no_other_user(reason, expected):
    (job,) = redact_for_user(a_view(some_jobs(waiting=[a_waiting(1, reason=reason)])), "ada").jobs.waiting
    assert job.reason == expected
