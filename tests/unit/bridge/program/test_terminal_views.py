"""Users' job names are displayed unchanged: they are not interpreted and do not disturb the display."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.model import Cluster
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.effective_config import EffectiveConfig
from cpsched_bridge.errors import UnknownJob
from cpsched_bridge.ports import Lease, Outcome, ReadinessCheck
from cpsched_bridge.program import bridge_reports, terminal_views
from cpsched_bridge.program.bridge_client import BridgeNotAnswering, query_bridge
from cpsched_bridge.store import state_paths
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.journal_reader import UnscheduledJob
from cpsched_bridge.store.lock_and_request_files import LeadershipFile, LeadershipStatus, StartupProgressFile
from tests import stores
from tests.bridges import a_bridge
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster

HOSTILE = {
    "markup": ("[red]", "[red]"),
    "a closing tag": ("[/]", "[/]"),
    "a broken tag": ("[/red", "[/red"),
    "a link": ("[link=file:///etc]x", "[link=file:///etc]x"),
    "an emoji": (":bomb:", ":bomb:"),
    "a terminal's commands": ("\x1b[2Jgone", r"\x1b[2Jgone"),
    "two lines": ("one\ntwo", r"one\ntwo"),
    "half a character": ("\udc80", r"\udc80"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_lists_show_names_unchanged(name, capsys):
    words, shown = HOSTILE[name]
    terminal_views.print_unmanaged([UnscheduledJob(1, "unmanaged", words, words, words)])
    assert capsys.readouterr().out.splitlines()[-1].split() == [*shown.split()] * 3
    terminal_views.print_checks([ReadinessCheck(words, False, words, words)])
    assert capsys.readouterr().out.count(shown) == 3


@pytest.mark.parametrize("name", HOSTILE)
def test_rounds_jobs_and_status_show_names_unchanged(name, tmp_path, capsys):
    words, shown = HOSTILE[name]
    cluster = FakeCluster.of(a_job(1, user=words, name=words, queue=words), a_job(2, per_unit=99, user=words))
    bridge = a_bridge(tmp_path, cluster, EasyDispatcher(), policy_spec=PolicySpec("easy", "walltime"))
    assert bridge.cycle().result == "ok"
    journal = bridge.journal
    journal.write_events(0.0, 1, [CycleEvent("odd", words, 1)])
    record = dataclasses.replace(journal.read_round(1), mode=words, policy=PolicySpec(words, words))
    sent = [("start", Outcome(1, "refused", words))]
    terminal_views.print_round(
        bridge_reports.report_round(dataclasses.replace(record, outcomes=sent, seconds={words: 1.0}))
    )
    out = capsys.readouterr().out
    assert out.count(shown) >= 6
    terminal_views.print_rounds(journal.list_rounds())
    bridge.pause.pause(words)
    print_why("1", bridge.settings)
    print_status(bridge.settings)
    assert f"paused: {shown}" in capsys.readouterr().out
    terminal_views.print_replays(bridge_reports.replay_recorded_rounds(journal, [1]))
    assert "1 round the same" in capsys.readouterr().out


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """The journals of these tests are of 2001."""
    monkeypatch.setattr(bridge_reports, "time", SimpleNamespace(time=lambda: 1e9 + 5))


def print_why(text, settings):
    terminal_views.print_why(bridge_reports.report_job(text, settings), settings)


def print_status(settings):
    terminal_views.print_status(bridge_reports.report_status(settings))


def lines_of(capsys):
    return capsys.readouterr().out.splitlines()


def why_lines(text, settings, capsys):
    """What `cpsched why` prints alone."""
    capsys.readouterr()
    print_why(text, settings)
    return lines_of(capsys)


def labelled(cluster, labels):
    """The same cluster, whose jobs people call otherwise."""
    observe = cluster.read

    def with_labels():
        seen = observe()
        pending = tuple(dataclasses.replace(p, label=labels.get(p.job.id, "")) for p in seen.pending)
        return dataclasses.replace(seen, pending=pending)

    cluster.read = with_labels
    return cluster


@pytest.fixture
def array(tmp_path):
    """Task 7_1 runs, 7_2 waits behind it: their numbers are the adapter's own."""
    cluster = labelled(FakeCluster(cluster=a_cluster(nodes=1, cores=1), now_s=10**9), {8001: "7_1", 8002: "7_2"})
    cluster.submit(a_job(8001, submit_s=10**9 - 60), a_job(8002, submit_s=10**9 - 30))
    bridge = a_bridge(tmp_path, cluster, EasyDispatcher(), policy_spec=PolicySpec("easy", "walltime"))
    bridge.cycle()
    cluster.now_s += 5
    bridge.cycle()
    return bridge


def test_why_uses_job_labels(array, capsys):
    print_why("7_2", array.settings)
    out = capsys.readouterr().out
    assert out.splitlines()[:5] == [
        "job 7_2: waiting (round 2, 2001-09-09 01:46:40 UTC, easy, mode control)",
        "Start: not known yet.",
        "Planned start: in 1 min 35 s at the latest, if every job runs to its limit.",
        "It is the only pending job, and has waited for 35 s.",
        "Why it waits: too few nodes have enough free resources: 0 of 1.",
    ]
    assert "800" not in out


def test_why_and_config_show_ratios_to_easy_of_last_round(tmp_path, capsys):
    spec = PolicySpec("lookahead", "walltime", {"objective": "balance"})
    bridge = a_bridge(tmp_path, FakeCluster.of(a_job(1)), LookaheadDispatcher("balance"), policy_spec=spec)
    settings = bridge.settings.model_copy(update={"state_dir": tmp_path / "unused"})
    bridge.cycle()
    line = "Recent jobs compared with EASY: too few have ended; weight of large jobs 0.3"
    assert line in why_lines("1", bridge.settings, capsys)
    report = bridge_reports.report_config(EffectiveConfig(spec), bridge.settings)
    terminal_views.print_effective_config(report)
    assert line in lines_of(capsys)
    assert report.easy_ratios == {"area": 0.3}
    assert bridge_reports.report_config(EffectiveConfig(spec), settings).easy_ratios == {}, "no bridge has run yet"


def test_config_reports_unreadable_journal(tmp_path, capsys):
    bridge = a_bridge(tmp_path, FakeCluster.of(a_job(1)), EasyDispatcher())
    bridge.journal.close()
    state_paths.journal_path(bridge.settings).write_bytes(b"not a database" * 100)
    effective = EffectiveConfig(PolicySpec("easy"))
    terminal_views.print_effective_config(bridge_reports.report_config(effective, bridge.settings))
    out = capsys.readouterr().out
    assert "journal.sqlite" in out
    assert "setting" in out, "the settings are shown all the same"


def test_why_names_allowed_nodes_and_blocking_reservation(tmp_path, capsys):
    """With them the reservation that it would run into."""
    cluster = FakeCluster(cluster=Cluster.of([[4]] * 2, ["cores"], node_sets={"main & not maint": [0]}))
    cluster.submit(a_job(1, units=2, distinct=True, node_set=1), a_job(2, per_unit=4))
    bridge = a_bridge(tmp_path, cluster, EasyDispatcher(), policy_spec=PolicySpec("easy", "walltime"), cycles=1)
    assert "allowed nodes: main & not maint" in why_lines("1", bridge.settings, capsys)
    cluster.submit(a_job(3, units=9))
    bridge.cycle()
    print_why("3", bridge.settings)
    assert "allowed nodes" not in capsys.readouterr().out


def test_why_reports_outcome_of_ended_jobs(array, capsys):
    cluster = array.backend
    assert why_lines("7_1", array.settings, capsys)[1:4] == [
        "It runs on n0.",
        "It started 5 s ago, after a wait of 1 min.",
        "It is expected to end in 1 min 35 s; its time limit is 1 min 40 s.",
    ]
    cluster.now_s += 20
    cluster.end(8001)
    array.cycle()
    capsys.readouterr()
    expected = [
        "It ran for 25 s and ended now.",
        "job 7_1: started at 2001-09-09 01:46:40 UTC on n0, ended at 2001-09-09 01:47:05 UTC",
    ]
    for name in ("7_1", "8001"):
        assert why_lines(name, array.settings, capsys)[1:3] == expected
    del cluster.jobs[8001]
    array.cycle()
    assert why_lines("7_1", array.settings, capsys)[1:3] == expected


def test_running_job_on_unknown_nodes_has_clear_text(array, capsys):
    """The placement is empty: the adapter knows none of the nodes, or they are drained."""
    cluster = array.backend
    cluster.jobs[8001].placement = ()
    array.cycle()
    assert "It runs on nodes that currently accept no jobs or were renamed." in why_lines("7_1", array.settings, capsys)


def test_status_reports_transport_and_why_mode_differs_from_settings(tmp_path, capsys):
    lease = Lease("other", "1", 5, "login2:/var/lib/cpsched")
    cluster = FakeCluster(claimed=lease, transport_info="cli: pyslurm is not installed")
    bridge = a_bridge(tmp_path, cluster, cycles=1)
    print_status(bridge.settings)
    told = {
        "mode since 2001-09-09 01:46:40 UTC: "
        "paused another bridge is in control of this cluster: login2:/var/lib/cpsched",
        "transport since 2001-09-09 01:46:40 UTC: cli: pyslurm is not installed",
    }
    assert told <= set(lines_of(capsys))


@pytest.mark.parametrize(
    ("is_here", "other", "heard_unix_s", "line"),
    [
        (True, "", None, "not heard; if the leader dies, another bridge, if there is one, takes over within 120 s"),
        (
            True, "b:/x", 1e9 - 3,
            "b:/x, last heard 2001-09-09 01:46:37 UTC; if the leader dies, the other bridge takes over within 120 s",
        ),
        (False, "", None, "not heard; if the leader dies, this bridge takes over within 120 s"),
    ],
)  # fmt: skip
def test_status_says_who_takes_over(tmp_path, capsys, is_here, other, heard_unix_s, line):
    bridge = a_bridge(tmp_path, FakeCluster(), cycles=1)
    status = LeadershipStatus("a:/x", is_here, 1e9, other, heard_unix_s, 120.0, 0)
    LeadershipFile(bridge.settings.state_dir).write(status)
    print_status(bridge.settings)
    assert f"other bridge: {line}" in lines_of(capsys)


@pytest.mark.parametrize(
    ("ago_s", "problems", "line"),
    [
        (3, None, "bridge: running"),
        (600, None, "bridge: not running, killed or stuck since {}"),
        (3, [], "bridge: not running, stopped at {}: in order"),
        (600, ["job 3 is still held"], "bridge: not running, stopped at {}: job 3 is still held"),
    ],
)
def test_status_and_why_say_first_that_bridge_is_stopped(tmp_path, capsys, monkeypatch, ago_s, problems, line):
    monkeypatch.setattr(bridge_reports, "time", SimpleNamespace(time=lambda: 1e9 + ago_s))
    bridge = a_bridge(
        tmp_path, FakeCluster.of(a_job(7), a_job(8, per_unit=99)), EasyDispatcher(), metrics={"port": 1}, cycles=1
    )
    if problems is not None:
        bridge.journal.write_stop_event(1e9, 1, problems)
    capsys.readouterr()
    print_status(bridge.settings)
    shown = lines_of(capsys)
    line = line.format("2001-09-09 01:46:40 UTC")
    assert shown[0] == line
    assert not [each for each in shown if " settings: " in each]
    print_why("8", bridge.settings)
    stopped = line.replace("bridge: not running", "The bridge is not running") + ". This is its last round."
    assert (lines_of(capsys)[0] == stopped) == ("not running" in line)
    with pytest.raises(BridgeNotAnswering) as raised:
        query_bridge("", lambda: bridge.settings, "jobs")
    assert ("the " + line.replace(":", " is", 1) == str(raised.value)) == ("not running" in line)


def test_why_rejects_unknown_job(array):
    with pytest.raises(UnknownJob, match=r"job=7_9: not in the ledger or the journal"):
        print_why("7_9", array.settings)
    with pytest.raises(UnknownJob):
        print_why("9" * 30, array.settings)


def test_lists_events_by_kind_and_job(array, capsys):
    told = [CycleEvent("gap", "85 s without a cycle"), CycleEvent("start_failed", "not running", 8002)]
    array.journal.write_events(0.0, 2, told)
    terminal_views.print_events(bridge_reports.report_events(array.settings, 50, "", "gap"))
    assert lines_of(capsys) == ["1970-01-01 00:00:00 round 2 gap: 85 s without a cycle"]
    terminal_views.print_events(bridge_reports.report_events(array.settings, 50, "7_2", ""))
    assert lines_of(capsys) == ["1970-01-01 00:00:00 round 2 job 7_2 start_failed: not running"]
    terminal_views.print_events(bridge_reports.report_events(array.settings, 50, "", "no such kind"))
    assert lines_of(capsys) == ["no matching event"]


@pytest.mark.parametrize(
    ("age_s", "words"),
    [
        (None, "never"),
        (4.2, "4 s ago"),
        (-1.0, "0 s ago"),
        (-3600.0, "unknown: the heartbeat is 1 h 00 min in the future"),
    ],
)
def test_heartbeat_in_future_is_reported(age_s, words):
    assert terminal_views.format_last_good_cycle_age(age_s).startswith(words)


@pytest.mark.parametrize(("broken", "shown"), [("journal", "held by the bridge: 1"), ("state", "last round: 2")])
def test_status_shows_readable_part_of_damaged_files(array, capsys, broken, shown):
    array.journal.close()
    array.ledger.close()
    file = array.settings.state_dir / f"{broken}.sqlite"
    file.write_bytes(b"no database at all " * 500)
    print_status(array.settings)
    out = capsys.readouterr().out
    assert shown in out
    assert f"{file}: file is not a database; the bridge moves a damaged file aside" in out
    print_why("7_2", array.settings)
    assert "file is not a database" in capsys.readouterr().out


def test_replays_round_for_plan_no_longer_stored(array, capsys):
    terminal_views.print_round(bridge_reports.report_round(array.journal.read_round(2)))
    told = capsys.readouterr().out
    assert "(waits for 7_1)" in told
    path = array.settings.state_dir / "journal.sqlite"
    stores.change(path, "delete from explanations")
    terminal_views.print_round(bridge_reports.report_round(Journal(path, read_only=True).read_round(2)))
    shown = lines_of(capsys)
    shown.remove("plan and reasons: from a replay with the same result")
    assert shown == told.splitlines()


def test_status_reports_startup_step(tmp_path, capsys):
    bridge = a_bridge(tmp_path, FakeCluster(), cycles=1)
    file = StartupProgressFile(bridge.settings.state_dir)
    file.write_step("compiles kernels: 3 of 23 kernels are ready\x1b[2J")
    print_status(bridge.settings)
    assert r"no decision yet: compiles kernels: 3 of 23 kernels are ready\x1b[2J (reported " in capsys.readouterr().out
    file.write_step("")
    print_status(bridge.settings)
    assert "no decision yet" not in capsys.readouterr().out


def test_unwritable_state_dir_does_not_prevent_startup(tmp_path):
    file = StartupProgressFile(tmp_path / "gone")
    file.write_step("compiles")
    file.write_step("")
    assert file.read_step() is None


def test_why_json_contains_values(array):
    report = bridge_reports.report_job("7_2", array.settings)
    report.bridge = {"id": 8002, "label": "7_2"}
    found = report.to_json()
    assert (found["job"], found["job_id"], found["round"], found["now_s"]) == ("7_2", 8002, 2, 10**9 + 5)
    assert (found["bridge"], found["ledger"]["state"], found["past"]) == (report.bridge, "held", None)
    facts = {
        "id": 8002, "label": "7_2", "state": "waiting", "position": 1, "submit_s": 10**9 - 30, "walltime_s": 100,
        "estimate_s": 100, "planned_s": 10**9 + 100, "kind": "resources", "waits_for": [8001], "nodes": [],
        "reason": "too few nodes have enough free resources: 0 of 1",
        "request": {"units": 1, "amounts": {"cores": 1}, "distinct": False, "exclusive": False, "nodes_from": []},
    }  # fmt: skip
    assert {name: found["recorded"][name] for name in facts} == facts
    running = bridge_reports.report_job("7_1", array.settings).to_json()["recorded"]
    assert (running["state"], running["nodes"], running["start_s"]) == ("running", [["n0", 1]], 10**9)
    json.dumps(found)


def test_status_report_contains_values(array):
    status = bridge_reports.report_status(array.settings)
    assert (status.configured_mode, status.paused, status.unreadable) == ("control", None, [])
    assert (status.ledger, status.held, status.unmanaged) == ({"held": 1, "running": 1}, 1, 0)
    assert status.backoff == bridge_reports.BackoffCounts(0, 0)
    assert (status.last_round.number, status.mode.detail, status.journal.first_round) == (2, "control", 1)
