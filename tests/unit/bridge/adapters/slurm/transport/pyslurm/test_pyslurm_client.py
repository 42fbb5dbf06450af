"""The bridge's side of the pyslurm child, with a stand-in for pyslurm.

The child of the fixture `client` is forked from this process. Tests of accounting and of a killed parent start real
ones.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.transport.pyslurm import pyslurm_client
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import PyslurmClient
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import PyslurmTransport
from cpsched_bridge.errors import BackendTimeout
from tests.forked import forks
from tests.unit.bridge.adapters.slurm.transport.fake_scontrol import complaining, put_scontrol

REPOSITORY = Path(__file__).parents[7]
ENOUGH_S = 120.0


class Fake:
    """The cluster file of the stand-in."""

    def __init__(self, path: Path, bin: Path) -> None:
        self.path = path
        self.bin = bin
        self.set(jobs={})

    def set(self, **facts: Any) -> None:
        """Exchange the file as a whole: the stand-in may be reading it."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(facts))
        fresh.replace(self.path)

    def now(self) -> dict[str, Any]:
        return json.loads(self.path.read_text())

    def environment(self) -> dict[str, str]:
        paths = [str(REPOSITORY), str(REPOSITORY / "bridge"), str(Path(__file__).parent)]
        return {
            "FAKE_SLURM": str(self.path),
            "PYTHONPATH": os.pathsep.join(paths),
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
        }


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "cluster.json", tmp_path)


@pytest.fixture
def client(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[PyslurmClient]:
    monkeypatch.setattr(pyslurm_client, "START_TIMEOUT_S", ENOUGH_S)  # the child starts slowly on a busy machine
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    forks(monkeypatch)
    made = PyslurmClient("fake_pyslurm", fake.environment())
    yield made
    made.close()


def gone(pid: int) -> bool:
    """Return whether the process is dead (a zombie of another parent counts)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    ("printed", "defaults"),
    [
        ("JobDefaults             = DefCpuPerGPU=4", "DefCpuPerGPU=4"),
        ("JobDefaults             = (null)", None),
        ("", None),
    ],
)
def test_reads_job_defaults_from_scontrol(
    client: PyslurmClient, fake: Fake, printed: str, defaults: str | None
) -> None:
    """pyslurm has no field for what slurm.conf adds to jobs that request GPUs."""
    script = fake.bin / "scontrol"
    script.write_text(f"#!/bin/sh\necho 'ClusterName = fake'\necho '{printed}'\n")
    script.chmod(0o755)
    assert client.call("hello", ENOUGH_S)["config"]["job_defaults"] == defaults


def test_call_is_answered_by_child_process(client: PyslurmClient) -> None:
    answer = client.call("hello", ENOUGH_S)
    assert answer["config"]["cluster_name"] == "fake"
    assert answer["pid"] == client.pid != os.getpid()


def test_receives_large_answer_completely(client: PyslurmClient, fake: Fake) -> None:
    fake.set(jobs={str(n): {"name": "x" * 1000} for n in range(1, 3001)})
    table = client.call("snapshot", ENOUGH_S)["jobs"]
    names = {row[table["fields"].index("name")] for row in table["rows"]}
    assert len(table["rows"]) == 3000
    assert names == {"x" * 1000}


def test_hung_child_is_killed_at_deadline_and_replaced(client: PyslurmClient, fake: Fake) -> None:
    hung = client.call("hello", ENOUGH_S)["pid"]
    fake.set(jobs={}, hang="jobs")
    began_s = time.monotonic()
    with pytest.raises(BackendTimeout, match="no response from the pyslurm process"):
        client.call("snapshot", 0.5)
    assert time.monotonic() - began_s < 5
    assert gone(hung)
    fake.set(jobs={"7": {}})
    assert len(client.call("snapshot", ENOUGH_S)["jobs"]["rows"]) == 1
    assert client.starts == 2


def test_slow_accounting_database_does_not_delay_readings(fake: Fake) -> None:
    """The controller is asked by another process meanwhile."""
    controller, accounting = (PyslurmClient("fake_pyslurm", fake.environment()) for _ in range(2))
    controller.call("hello", ENOUGH_S)
    assert accounting.wait_until_ready(ENOUGH_S)
    transport = PyslurmTransport(1.0, ENOUGH_S, controller, accounting)
    fake.set(jobs={"7": {}}, waits="past")
    for _ in range(2):
        with pytest.raises(BackendTimeout, match="no response yet"):
            transport.read_accounting(0)
    asked = transport.accounting.pid
    assert len(transport.read().jobs) == 1
    fake.set(jobs={"7": {}})
    assert transport.accounting.wait_for_answer(ENOUGH_S)
    assert [record["id"] for record in transport.read_accounting(0)] == [3]
    assert asked is not None
    assert gone(asked)
    assert transport.child_starts == 1
    transport.close()


def test_child_crash_during_call_may_have_had_effect(client: PyslurmClient, fake: Fake) -> None:
    fake.set(jobs={}, crash="jobs")
    with pytest.raises(BackendTimeout, match=f"exit status {-signal.SIGSEGV}"):
        client.call("snapshot", ENOUGH_S)


def test_child_exits_with_parent_during_call(fake: Fake, tmp_path: Path) -> None:
    """A bridge that was killed must not go on commanding through its child."""
    fake.set(jobs={}, hang="jobs")
    note = tmp_path / "child.pid"
    program = textwrap.dedent(f"""
        import pathlib
        from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import PyslurmClient
        client = PyslurmClient("fake_pyslurm")
        pathlib.Path({str(note)!r}).write_text(str(client.call("hello", 30.0)["pid"]))
        client.call("snapshot", 600.0)
    """)
    parent = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **fake.environment()})
    until_s = time.monotonic() + ENOUGH_S
    while not (note.exists() and note.read_text()) and time.monotonic() < until_s:
        time.sleep(0.05)
    child = int(note.read_text())
    assert not gone(child)
    parent.kill()
    parent.wait()
    while not gone(child) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert gone(child)


def order(job: int, nodes: list[str], tasks_per_node: int = 0) -> dict[str, Any]:
    return {"job": job, "nodes": nodes, "tasks_per_node": tasks_per_node}


def test_start_pins_and_releases_in_one_change(client: PyslurmClient, fake: Fake) -> None:
    fake.set(jobs={"7": {}, "8": {}})
    orders = [order(7, ["n1"], 4), {**order(8, ["n1"]), "partition": "short"}]
    assert client.call("start", ENOUGH_S, orders=orders) == [["done", "", ""]] * 2
    start = {"required_nodes": ["n1"], "priority": 0xFFFFFFFF}
    assert fake.now()["log"] == [[7, {**start, "ntasks_per_node": 4}], [8, {**start, "partitions": "short"}]]


def test_sets_node_count_before_release(client: PyslurmClient, fake: Fake) -> None:
    said = put_scontrol(fake.bin)
    fake.set(jobs={"7": {}, "8": {}, "9": {"state": "RUNNING"}})
    orders = [{**order(7, ["n1", "n2"]), "num_nodes": "2-2"}, order(8, ["n3"]), {**order(9, ["n3"]), "num_nodes": "1"}]
    assert [result for result, *_ in client.call("start", ENOUGH_S, orders=orders)] == ["done", "done", "refused"]
    assert said.read_text() == "update JobId=7 NumNodes=2-2\n"
    assert [number for number, _ in fake.now()["log"]] == [7, 8]


def test_does_not_start_job_with_refused_node_count(client: PyslurmClient, fake: Fake) -> None:
    put_scontrol(fake.bin, complaining("slurm_update error: Invalid node count"))
    fake.set(jobs={"7": {}, "8": {}})
    orders = [{**order(7, ["n1", "n2"]), "num_nodes": "2-2"}, order(8, ["n3"])]
    (result, why, _), other = client.call("start", ENOUGH_S, orders=orders)
    assert (result, other) == ("refused", ["done", "", ""])
    assert "Invalid node count" in why
    assert [number for number, _ in fake.now()["log"]] == [8]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"state": "RUNNING"}, "RUNNING"),
        ({"priority": 17}, "not held"),
        ({"admin_comment": None, "state_reason": "JobHeldUser"}, "owner"),
        ({"priority": {"broken": "too large"}}, "priority cannot be read"),
        ({"requeue_count": {"broken": "too large"}}, "requeue_count cannot be read"),
        ({"comment": "mine bridge:user-held"}, "owner"),
    ],
)
def test_starts_only_pending_jobs_held_by_bridge(
    client: PyslurmClient, fake: Fake, facts: dict[str, Any], why: str
) -> None:
    """Above all: a node list on a running job would resize it."""
    fake.set(jobs={"7": facts, "8": {}})
    answers = client.call("start", ENOUGH_S, orders=[order(7, ["n1"]), order(8, ["n2"]), order(9, ["n2"])])
    assert [answer[0] for answer in answers] == ["refused", "done", "refused"]
    assert why in answers[0][1]
    assert [number for number, _ in fake.now()["log"]] == [8]


ODD = {"bytes": b"abc\xff\xfe".hex()}


@pytest.mark.parametrize("command", ["start", "hold", "release"])
@pytest.mark.parametrize("field", ["comment", "admin_comment", "name"])
def test_invalid_utf8_fails_no_reading_or_batch(client: PyslurmClient, fake: Fake, command: str, field: str) -> None:
    jobs = {str(n): {"priority": 5} if command == "hold" else {} for n in range(1, 31)}
    jobs["7"][field] = ODD
    fake.set(jobs=jobs)
    table = client.call("snapshot", ENOUGH_S)["jobs"]
    read = {row[table["fields"].index("id")]: row[table["fields"].index(field)] for row in table["rows"]}
    assert read[7] == "abc\\xff\\xfe"
    orders = [{**order(n, ["n1"]), "clear": ""} for n in range(1, 31)]
    answers = [answer[0] for answer in client.call(command, ENOUGH_S, orders=orders)]
    assert answers[:6] + answers[7:] == ["done"] * 29


def test_recognizes_mark_next_to_invalid_utf8(client: PyslurmClient, fake: Fake) -> None:
    held = {"comment": {"bytes": b"bridge:admin-held \xff".hex()}}
    fake.set(jobs={"7": held, "8": {"comment": {"bytes": b"bridge:wait \xff".hex()}}})
    answers = client.call("start", ENOUGH_S, orders=[order(7, ["n1"]), order(8, ["n1"])])
    assert [answer[0] for answer in answers] == ["refused", "done"]


def test_comment_is_no_proof_without_plugin(client: PyslurmClient, fake: Fake) -> None:
    fake.set(jobs={}, plugins=None)
    assert client.call("snapshot", ENOUGH_S)["guarded"] is False
    client.close()  # the next child reads the configuration again
    fake.set(jobs={}, plugins=["lua"])
    assert client.call("snapshot", ENOUGH_S)["guarded"] is True


@pytest.mark.parametrize(("reason", "released"), [("BadConstraints", True), ("JobHoldMaxRequeue", False)])
def test_release_triggers_scheduling_but_keeps_admin_hold(
    client: PyslurmClient, fake: Fake, reason: str, released: bool
) -> None:
    fake.set(jobs={"7": {"state_reason": reason}})
    assert client.call("release", ENOUGH_S, orders=[{"job": 7, "clear": ""}]) == [["done", "", ""]]
    assert ("log" in fake.now()) is released


def test_unreadable_array_does_not_affect_others(client: PyslurmClient, fake: Fake) -> None:
    odd = {"array_id": 30, "array_tasks_waiting": "0-99999999999"}
    fake.set(jobs={"30": odd, "20": {"array_id": 19, "array_task_id": 1}})
    answers = client.call("start", ENOUGH_S, orders=[order(2 << 32 | 19, ["n1"]), order(5 << 32 | 30, ["n1"])])
    assert [answer[0] for answer in answers] == ["done", "refused"]


def test_clears_pin_of_array_task_under_task_name(client: PyslurmClient, fake: Fake) -> None:
    """Under the array's bare number the change would be meant for its running tasks too."""
    said = put_scontrol(fake.bin)
    fake.set(jobs={"19": {"array_id": 19, "array_task_id": 2}, "20": {"array_id": 19, "state": "RUNNING"}})
    answers = client.call("hold", ENOUGH_S, orders=[{"job": 3 << 32 | 19, "clear": "ReqNodeList="}])
    assert answers == [["done", "", ""]]
    assert said.read_text() == "update JobId=19_2 ReqNodeList=\n"


def test_traces_anonymous_error_to_its_job(client: PyslurmClient, fake: Fake) -> None:
    put_scontrol(fake.bin, r"case $line in *JobId=13\ *) printf 'scontrol: error: no \377 resizing\n' >&2;; esac")
    fake.set(jobs={str(n): {"required_nodes": "n1"} for n in range(1, 21)})
    orders = [{"job": n, "clear": "ReqNodeList="} for n in range(1, 21)]
    answers = client.call("hold", ENOUGH_S, orders=orders)
    assert [n for n, answer in enumerate(answers, start=1) if answer[0] != "done"] == [13]
    assert answers[12] == ["unknown", "held, but its pin was not cleared: scontrol: error: no \\xff resizing", ""]


def test_lost_answer_to_change_is_unknown(client: PyslurmClient, fake: Fake) -> None:
    fake.set(jobs={"7": {}}, **{"raise": {"modify": "Unable to contact slurm controller (connect failure)"}})
    assert client.call("start", ENOUGH_S, orders=[order(7, ["n1"])])[0][0] == "unknown"


def test_hold_keeps_running_jobs_and_owner_holds_unchanged(client: PyslurmClient, fake: Fake) -> None:
    mine = {"admin_comment": None, "state_reason": "JobHeldUser"}
    fake.set(jobs={"7": {"priority": 5}, "8": {"state": "RUNNING", "priority": 5}, "9": mine})
    answers = client.call("hold", ENOUGH_S, orders=[{"job": n, "clear": ""} for n in (7, 8, 9)])
    assert [answer[0] for answer in answers] == ["done", "refused", "refused"]
    assert fake.now()["log"] == [[7, {"priority": 0}]]


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"admin_comment": None, "comment": "mine"}, "held_by_administrator"),
        ({"admin_comment": None, "comment": None}, "held_by_administrator"),
        ({"admin_comment": None, "comment": "bridge:wait mine"}, ""),
        ({"admin_comment": "bridge:wait", "comment": None, "state_reason": "JobHeldUser"}, ""),
    ],
)
def test_does_not_take_earlier_admin_hold_for_own(
    client: PyslurmClient, fake: Fake, facts: dict[str, Any], code: str
) -> None:
    """The bridge has read the job without a hold; by now it has one, and the plugin has not seen the bridge."""
    fake.set(jobs={"7": facts})
    order = {"job": 7, "clear": ""}
    assert client.call("hold", ENOUGH_S, orders=[order])[0][2] == code
    fake.set(jobs={"7": facts}, plugins=[])
    assert client.call("hold", ENOUGH_S, orders=[order])[0][0] == "done", "without the plugin this cannot be seen"


def test_clears_pin_by_scontrol_before_release(client: PyslurmClient, fake: Fake) -> None:
    said = put_scontrol(fake.bin)
    fake.set(jobs={"7": {"priority": 9, "required_nodes": "n1"}, "8": {}})
    orders = [{"job": 7, "clear": "ReqNodeList= TasksPerNode=0 NumNodes=1-4"}, {"job": 8, "clear": ""}]
    assert client.call("release", ENOUGH_S, orders=orders) == [["done", "", ""], ["done", "", ""]]
    assert said.read_text() == "update JobId=7 ReqNodeList= TasksPerNode=0 NumNodes=1-4\n"
    assert fake.now()["log"] == [[7, {"priority": 0}], [7, {"priority": 0xFFFFFFFF}], [8, {"priority": 0xFFFFFFFF}]]


def test_job_with_uncleared_pin_stays_held(client: PyslurmClient, fake: Fake) -> None:
    put_scontrol(fake.bin, complaining("slurm_update error: Access denied for job 7"))
    fake.set(jobs={"7": {"required_nodes": "n1"}})
    answers = client.call("release", ENOUGH_S, orders=[{"job": 7, "clear": "ReqNodeList="}])
    assert answers[0][0] == "unknown"
    assert "Access denied" in answers[0][1]
    assert "log" not in fake.now()


def test_keeps_pin_of_job_that_started_during_hold(client: PyslurmClient, fake: Fake) -> None:
    """Slurm answers such a hold with success; a change of nodes would resize the running job."""
    said = put_scontrol(fake.bin)
    fake.set(jobs={"7": {"priority": 9, "required_nodes": "n1"}}, starts=7)
    answers = client.call("hold", ENOUGH_S, orders=[{"job": 7, "clear": "ReqNodeList="}])
    assert answers[0][0] == "refused"
    assert not said.exists()


def test_lost_controller_in_batch_leaves_rest_unknown(client: PyslurmClient, fake: Fake) -> None:
    jobs = {str(n): {} for n in range(1, 31)}
    fake.set(jobs=jobs, breaks_after=20)
    answers = client.call("start", ENOUGH_S, orders=[order(n, ["n1"]) for n in range(1, 31)])
    assert [answer[0] for answer in answers] == ["done"] * 20 + ["unknown"] * 10


def test_splits_array_tasks_off_before_start(client: PyslurmClient, fake: Fake) -> None:
    """All waiting tasks are wanted: all but the last are split off, which keeps the common record."""
    said = put_scontrol(
        fake.bin,
        f"cat >{fake.path} <<'E'\n"
        '{"jobs": {"20": {"array_id": 19}, "21": {"array_id": 19, "array_task_id": 1},'
        ' "19": {"array_id": 19, "array_tasks_waiting": "5"}}}\n'
        "E",
    )
    fake.set(jobs={"19": {"array_id": 19, "array_tasks_waiting": "0-1,5"}})
    tasks = [(task + 1) << 32 | 19 for task in (0, 1, 5)]
    answers = client.call("start", ENOUGH_S, orders=[order(job, ["n1"]) for job in tasks])
    assert [answer[0] for answer in answers] == ["done"] * 3
    assert said.read_text() == "hold 19_[0-1]\n"
    assert [number for number, _ in fake.now()["log"]] == [20, 21, 19]
