"""The complete `--json` output of the commands, for a bridge that has recorded one event of each kind."""

import json
from dataclasses import asdict

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.ports import ReadinessCheck, UnmanagedJob
from cpsched_bridge.program import bootstrap
from cpsched_bridge.store import round_replay
from cpsched_bridge.store.round_replay import ReplayedRound
from tests.bridges import a_bridge
from tests.builders import a_job
from tests.fakes import FakeCluster
from tests.fuzz.command_line import invoke


@pytest.fixture
def bridge(tmp_path):
    cluster = FakeCluster.of(a_job(1, user="ada"), a_job(2, units=4, per_unit=4, walltime_s=60, user="ben", submit_s=1))
    cluster.unmanaged = [
        UnmanagedJob(9, "array job", "9_[1-3]", "eve"),
        UnmanagedJob(10, "requests licenses", "10", "ada"),
    ]
    bridge = a_bridge(tmp_path, cluster, EasyDispatcher(), policy_spec=PolicySpec("easy", "walltime"))
    assert bridge.cycle().result == "ok"
    bridge.journal.write_events(
        7.0, 1, [CycleEvent("odd", "first", 1), CycleEvent("odd", "second"), CycleEvent("even", "")]
    )
    (tmp_path / "bridge.yaml").write_text(f"adapter: mock\nmode: control\nstate_dir: {tmp_path}\n")
    return bridge


@pytest.fixture
def printed(bridge, tmp_path):
    def run(*words, code=0):
        ended = invoke(*words, "--json", "--config", tmp_path / "bridge.yaml")
        assert (ended.exit_code, ended.stderr) == (code, "")
        return json.loads(ended.stdout)

    return run


def an_event(kind, detail, job_id):
    label = None if job_id is None else str(job_id)
    return {"at_unix_s": 7.0, "round": 1, "kind": kind, "job_id": job_id, "detail": detail, "label": label}


def test_prints_events(printed):
    odd, second, even = an_event("odd", "first", 1), an_event("odd", "second", None), an_event("even", "", None)
    assert printed("events")[-3:] == [odd, second, even]
    assert printed("events", "--last", "1") == [even]
    assert printed("events", "--kind", "odd") == [odd, second]
    assert printed("events", "--job", "1", "--kind", "odd") == [odd]


def test_prints_unsupported_jobs(printed):
    assert printed("unmanaged") == [
        {"job_id": 9, "kind": "unmanaged", "reason": "array job", "label": "9_[1-3]", "user": "eve"},
        {"job_id": 10, "kind": "unmanaged", "reason": "requests licenses", "label": "10", "user": "ada"},
    ]


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_prints_doctor_checks(printed, monkeypatch, ok, code):
    checks = [
        ReadinessCheck("clock", False, "late", "set it", required=False),
        ReadinessCheck("privileges", ok, "may hold", "ask", True, True),
    ]
    monkeypatch.setattr(bootstrap, "wait_for_checks", lambda backend, tell: checks)
    monkeypatch.setattr(bootstrap, "check_other_leader", lambda backend, settings, where: [])
    *of_backend, of_policy = printed("doctor", code=code)
    clock = {"name": "clock", "ok": False, "detail": "late", "fix": "set it"}
    assert of_backend == [
        clock | {"required": False, "may_pass_later": False, "mode": ""},
        {"name": "privileges", "ok": ok, "detail": "may hold", "fix": "ask"}
        | {"required": True, "may_pass_later": True, "mode": ""},
    ]
    assert of_policy.keys() == of_backend[0].keys()


def test_doctor_names_adapter_without_accounting(printed, monkeypatch):
    monkeypatch.setattr(bootstrap, "wait_for_checks", lambda backend, tell: [])
    monkeypatch.setattr(bootstrap, "check_other_leader", lambda backend, settings, where: [])
    assert printed("doctor", "--accounting", "7")[-1]["detail"] == "this adapter does not read accounting records"


def test_prints_journal_replay(printed, monkeypatch):
    """A decision that comes out otherwise gives exit code 1."""
    same = {"round": 1, "same": True, "differences": [], "skipped": None}
    assert printed("journal", "replay", "--all") == [same]
    other = ReplayedRound(1, {}, {}, {}, ("start of job 1",))
    monkeypatch.setattr(round_replay, "replay_round", lambda record, read: other)
    assert printed("journal", "replay", code=1) == [{**same, "same": False, "differences": ["start of job 1"]}]


def test_prints_journal_list(printed, bridge):
    assert printed("journal", "list") == [asdict(line) for line in bridge.journal.list_rounds()]


def test_prints_journal_show(printed, bridge):
    found = printed("journal", "show", "1")
    record = bridge.journal.read_round(1)
    assert (found["round"], found["mode"], found["policy"]["dispatcher"]) == (1, "control", "easy")
    assert (found["at_unix_s"], found["now_s"], found["failure"]) == (record.at_unix_s, record.now_s, record.failure)
    first, second = found["waiting"]
    assert (first["id"], first["user"], first["nodes"]) == (1, "ada", [["n0", 1]])
    assert (second["id"], second["position"], second["request"]["units"]) == (2, 2, 4)
    assert (second["nodes"], second["kind"], second["waits_for"]) == ([], "resources", [1])
    assert (second["request"]["amounts"], second["planned_s"]) == ({"cores": 4}, record.plan[2])
    assert [(each["command"], each["job_id"], each["result"]) for each in found["sent"]] == [("start", 1, "done")]
