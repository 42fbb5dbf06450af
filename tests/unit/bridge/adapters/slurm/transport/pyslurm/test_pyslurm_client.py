"""The bridge's side of the pyslurm child, with a stand-in for pyslurm.

The child of the fixture `client` is forked from this process. The test of a killed parent starts a real one.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpsched_bridge import child_server
from cpsched_bridge.adapters.slurm.transport.pyslurm import pyslurm_client
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import PyslurmClient
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_reader import PyslurmReader
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import PyslurmJobActions, PyslurmTransport
from cpsched_bridge.child_server import ChildServer
from cpsched_bridge.errors import (
    BackendDied,
    BackendError,
    BackendStartFailed,
    BackendStarting,
    BackendTimeout,
    BackendUnavailable,
    CommandRefused,
)
from cpsched_bridge.ports import Outcome, StartOrder, StartSettings, UndoOrder, Victim
from tests.builders import a_job
from tests.forked import forks
from tests.patience import ENOUGH_S, is_gone, until
from tests.unit.bridge.adapters.slurm.transport.cli.standin import Programs
from tests.unit.bridge.adapters.slurm.transport.fake_scontrol import complaining, put_scontrol

REPOSITORY = Path(__file__).parents[7]
UNKNOWN_PARTITION = "Invalid partition name specified"


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


@pytest.fixture
def transport(client: PyslurmClient, programs: Programs) -> PyslurmTransport:
    return PyslurmTransport(ENOUGH_S, reader=PyslurmReader(client, deadline_s=ENOUGH_S, programs=programs))


@pytest.fixture
def programs(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Programs:
    monkeypatch.setenv("PATH", f"{fake.bin}{os.pathsep}{os.environ['PATH']}")
    return Programs()


def test_receives_large_answer_completely(client: PyslurmClient, fake: Fake) -> None:
    fake.set(jobs={str(n): {"name": "x" * 1000} for n in range(1, 3001)})
    table = client.call("jobs", ENOUGH_S)
    assert [row[table["fields"].index("name")] for row in table["rows"]] == ["x" * 1000] * 3000


@pytest.mark.parametrize(
    ("trouble", "deadline_s", "kind", "said"),
    [
        ("crash", ENOUGH_S, BackendDied, f"exit status {-signal.SIGSEGV}"),
        ("hang", 0.5, BackendTimeout, "no response from the pyslurm process"),
    ],
)
def test_call_without_answer_may_have_had_effect(
    client: PyslurmClient, fake: Fake, trouble: str, deadline_s: float, kind: type[BackendError], said: str
) -> None:
    assert client.wait_until_ready(ENOUGH_S)
    fake.set(jobs={}, **{trouble: "jobs"})
    with pytest.raises(BackendTimeout, match=said) as error:
        client.call("jobs", deadline_s)
    assert error.type is kind


def test_child_that_ended_between_calls_is_replaced(client: PyslurmClient) -> None:
    assert client.wait_until_ready(ENOUGH_S)
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)
    until(lambda: is_gone(client.pid))
    assert (client.call("version", ENOUGH_S), client.starts) == ("25.11.2", 2)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("Unable to contact slurm controller (connect failure)", BackendUnavailable),
        ("Socket timed out", BackendTimeout),
        ("Access/permission denied", CommandRefused),
    ],
)
def test_error_of_library_keeps_child(client: PyslurmClient, fake: Fake, words: str, error: type[BackendError]) -> None:
    fake.set(jobs={}, **{"raise": {"jobs": words}})
    with pytest.raises(error, match=f"^jobs: {re.escape(words)}$") as raised:
        client.call("jobs", ENOUGH_S)
    assert type(raised.value) is error
    assert (client.call("version", ENOUGH_S), client.starts) == ("25.11.2", 1)


def test_call_of_starting_child_is_not_sent(client: PyslurmClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChildServer, "wait_until_ready", lambda *_: False)
    with pytest.raises(BackendStarting, match=r"^hold: not sent yet: .* has been importing pyslurm for"):
        client.call("hold", 5.0)


def test_child_that_cannot_start_had_no_effect(client: PyslurmClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(child_server, "SocketChildProcess", refuse)
    with pytest.raises(BackendStartFailed, match=r"^the pyslurm process cannot start: no more processes$"):
        client.call("hold", 5.0)


def order(job: int, *nodes: str, **settings: Any) -> StartOrder:
    return StartOrder(a_job(job), tuple((name, 1) for name in nodes), StartSettings(**settings))


def done(*jobs: int) -> list[Outcome]:
    return [Outcome(job, "done") for job in jobs]


def test_start_pins_and_releases_in_one_change(transport: PyslurmTransport, fake: Fake) -> None:
    fake.set(jobs={"7": {}, "8": {}})
    orders = [order(7, "n1", tasks_per_node=4, nice=-3), order(8, "n1", partition="short")]
    assert transport.send("start", orders) == done(7, 8)
    start = {"required_nodes": ["n1"], "priority": 0xFFFFFFFF}
    assert fake.now()["log"] == [
        [7, {**start, "ntasks_per_node": 4, "nice": -3}],
        [8, {**start, "partitions": "short"}],
    ]


@pytest.mark.parametrize("knows_epoch", [True, False])
def test_changes_carry_epoch_if_plugin_knows_it(
    transport: PyslurmTransport, fake: Fake, monkeypatch: pytest.MonkeyPatch, knows_epoch: bool
) -> None:
    monkeypatch.setattr(PyslurmJobActions, "has_submit_plugin", lambda self: setattr(self, "_guarded", True) or True)
    fake.set(jobs={"7": {}, "8": {}}, **{"raise": {} if knows_epoch else {"modify": UNKNOWN_PARTITION}})
    replies = transport.send("start", [order(7, "n1", partition="short"), order(8, "n1")], epoch=30)
    start = {"required_nodes": ["n1"], "priority": 0xFFFFFFFF}
    if not knows_epoch:
        assert [reply.detail for reply in replies] == [f"modify: {UNKNOWN_PARTITION}"] * 2
        return
    assert (replies, fake.now()["log"]) == (
        done(7, 8),
        [[7, {**start, "partitions": "bridge:set:30/short"}], [8, {**start, "partitions": "bridge:set:30"}]],
    )


def test_sets_node_count_before_release(transport: PyslurmTransport, fake: Fake) -> None:
    said = put_scontrol(fake.bin)
    fake.set(jobs={"7": {}, "8": {}, "9": {"state": "RUNNING"}})
    orders = [order(7, "n1", "n2", sets_node_count=True), order(8, "n3"), order(9, "n3", sets_node_count=True)]
    assert [reply.result for reply in transport.send("start", orders)] == ["done", "done", "refused"]
    assert said.read_text() == "update JobId=7 NumNodes=2-2\n"
    assert [number for number, _ in fake.now()["log"]] == [7, 8]


def test_does_not_start_job_with_refused_node_count(transport: PyslurmTransport, fake: Fake) -> None:
    put_scontrol(fake.bin, complaining("slurm_update error: Invalid node count"))
    fake.set(jobs={"7": {}, "8": {}})
    refused, other = transport.send("start", [order(7, "n1", "n2", sets_node_count=True), order(8, "n3")])
    assert (refused.result, "Invalid node count" in refused.detail, other) == ("refused", True, Outcome(8, "done"))
    assert [number for number, _ in fake.now()["log"]] == [8]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"state": "RUNNING"}, "RUNNING"),
        ({"priority": 17}, "not held"),
        ({"priority": {"broken": "too large"}}, "priority cannot be read"),
        ({"requeue_count": {"broken": "too large"}}, "requeue_count cannot be read"),
        ({"comment": {"bytes": b"bridge:user-held \xff".hex()}}, "owner"),
    ],
)
def test_starts_only_pending_jobs_held_by_bridge(
    transport: PyslurmTransport, fake: Fake, facts: dict[str, Any], why: str
) -> None:
    """Above all: a node list on a running job would resize it."""
    fake.set(jobs={"7": facts, "8": {"comment": {"bytes": b"bridge:wait \xff".hex()}}})
    replies = transport.send("start", [order(7, "n1"), order(8, "n2"), order(9, "n2")])
    assert ([reply.result for reply in replies], why in replies[0].detail) == (["refused", "done", "refused"], True)
    assert [number for number, _ in fake.now()["log"]] == [8]


@pytest.mark.parametrize("field", ["comment", "name"])
def test_invalid_utf8_fails_no_reading_or_batch(transport: PyslurmTransport, fake: Fake, field: str) -> None:
    jobs: dict[str, dict[str, Any]] = {str(n): {} for n in range(1, 31)}
    jobs["7"][field] = {"bytes": b"abc\xff\xfe".hex()}
    fake.set(jobs=jobs)
    assert {job.id: getattr(job, field) for job in transport.read().jobs}[7] == "abc\\xff\\xfe"
    replies = transport.send("start", [order(n, "n1") for n in range(1, 31)])
    assert replies[:6] + replies[7:] == done(*range(1, 7), *range(8, 31))


def test_holds_and_releases_with_library_and_clears_pins_with_scontrol(transport: PyslurmTransport, fake: Fake) -> None:
    said = put_scontrol(fake.bin)
    fake.set(jobs={"7": {"priority": 9, "required_nodes": "n1"}, "8": {}})
    orders = [UndoOrder(7, True, "TasksPerNode=0 NumNodes=1-4"), UndoOrder(8)]
    assert transport.send("release", orders) == done(7, 8)
    assert said.read_text() == "update JobId=7 ReqNodeList= TasksPerNode=0 NumNodes=1-4\n"
    assert fake.now()["log"] == [[7, {"priority": 0}], [7, {"priority": 0xFFFFFFFF}], [8, {"priority": 0xFFFFFFFF}]]


@pytest.mark.parametrize(
    ("error", "settings", "expected"),
    [
        ("Unable to contact slurm controller (connect failure)", {}, ("unknown", "")),
        ("Access/permission denied", {}, ("refused", "")),
        # The number of nodes must be restored, so the start is undone.
        ("Access/permission denied", {"sets_node_count": True},
         ("unknown", "not pinned, but NumNodes=1-1 is set: ")),
    ],
)  # fmt: skip
def test_failed_change_affects_no_other_job(
    transport: PyslurmTransport, fake: Fake, error: str, settings: dict[str, Any], expected: tuple[str, str]
) -> None:
    put_scontrol(fake.bin)
    fake.set(jobs={"7": {}, "8": {}}, **{"raise": {"modify": error}})
    replies = transport.send("start", [order(7, "n1", **settings), order(8, "n1", **settings)])
    result, prefix = expected
    assert [(reply.result, reply.detail) for reply in replies] == [(result, f"{prefix}modify: {error}")] * 2


@pytest.mark.parametrize("trouble", [{"crash": "modify"}, {"hang": "modify"}])
def test_sends_nothing_after_change_without_answer(
    client: PyslurmClient, programs: Programs, fake: Fake, trouble: dict[str, str]
) -> None:
    """Each further change might wait as long as the first."""
    fake.set(jobs={"7": {}, "8": {}}, **trouble)
    assert client.wait_until_ready(ENOUGH_S)
    transport = PyslurmTransport(1.0, reader=PyslurmReader(client, deadline_s=ENOUGH_S, programs=programs))
    first, second = transport.send("start", [order(7, "n1"), order(8, "n1")])
    assert (first.result, second.result, second.code) == ("unknown", "refused", "not_sent")
    assert client.starts <= 2


def test_preempts_and_reads_single_job_with_library(transport: PyslurmTransport, fake: Fake) -> None:
    said = put_scontrol(fake.bin)
    fake.set(jobs={"7": {"state": "RUNNING", "start_time": 500, "partition": "main", "qos": "low"}})
    assert transport.send("preempt", [Victim(7, 500, "requeue", "main", "low")]) == done(7)
    assert said.read_text() == "requeue 7\n"


def test_doctor_facts_name_library(transport: PyslurmTransport) -> None:
    assert transport.gather_doctor_facts()["pyslurm"] == "25.11.2"
