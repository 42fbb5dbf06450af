"""The backend, with a child process that the test simulates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm import slurm_backend
from cpsched_bridge.adapters.slurm.slurm_backend import BATCH_SIZE, SlurmBackend
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.transport import JobOrder
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_commands import format_node_count
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import TransportTrial
from cpsched_bridge.errors import (
    AnswerNotUnderstood,
    BackendDied,
    BackendError,
    BackendTimeout,
    BackendUnavailable,
    CommandRefused,
)
from cpsched_bridge.ports import (
    Lease,
    Observation,
    Outcome,
    StartOrder,
    StartSettings,
    UndoOrder,
)
from tests.builders import undo_orders, words
from tests.unit.bridge.adapters.slurm.scenes import Scene

READINGS = ("config", "facts", "read")


class Played:
    """A transport that answers from a scene, takes note of commands, and raises what the test wants, in turn."""

    name, why, child_starts, starts_in_one_change = "cli", "", 0, True

    def __init__(self, scene: Scene, error: BackendError | None = None, breaks: Collection[str] = ()) -> None:
        self.scene, self.error, self.breaks = scene, error, breaks
        self.sent: list[tuple[str, list[JobOrder]]] = []
        self.epochs: list[int] = []
        self.lease_calls: list[tuple[object, ...]] = []
        self.fail: list[BackendError | None] = []

    def call(self, name: str, orders: Sequence[JobOrder] = ()) -> None:
        if self.error is not None and name in self.breaks:
            raise self.error
        if name in READINGS:
            return
        self.sent.append((name, list(orders)))
        error = self.fail.pop(0) if self.fail else None
        if error is not None:
            raise error

    def not_ready_reason(self) -> None:
        return None

    def read_config(self) -> SlurmConfig:
        self.call("config")
        return self.scene.config()

    def gather_doctor_facts(self) -> dict[str, Any]:
        self.call("facts")
        return {**self.scene.facts, "config": self.scene.config(), "admin_level": None, "accounting_answers": False}

    def read(self) -> SlurmRecords:
        self.call("read")
        return self.scene.read()

    def read_accounting(self, since_s: int) -> list[SlurmJob]:
        raise BackendTimeout("ended jobs: no response yet")

    def send(self, kind: str, orders: Sequence[JobOrder], epoch: int = 0) -> list[Outcome]:
        self.epochs.append(epoch)
        self.call(kind, orders)
        return [Outcome(order.job_id, "done") for order in orders]

    def acquire_lease(self, text: str, expected: str | None) -> bool:
        self.lease_calls.append(("acquire_lease", text, expected))
        return True


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def child(scene: Scene) -> Played:
    return Played(scene)


@pytest.fixture
def backend(child: Played) -> SlurmBackend:
    return SlurmBackend(child)


def test_uses_transport_that_trial_chooses(scene: Scene, backend: SlurmBackend) -> None:
    """Commands go to the chosen transport once the trial has ended, and no earlier."""
    faster = Played(scene)
    choices = [None, faster]
    backend.transport_trial = cast(TransportTrial, SimpleNamespace(choose_transport=lambda jobs: choices.pop(0)))
    backend.observe()
    assert backend.transport_trial is not None
    backend.observe()
    assert (backend.transport_trial, choices) == (None, [])
    backend.hold(undo_orders(1))
    assert [kind for kind, _ in faster.sent] == ["hold"]


def order(seen: Observation, number: int, *nodes: str) -> StartOrder:
    """Return the start that the bridge decides, with the observed job's settings."""
    pending = next(p for p in seen.pending if p.job.id == number)
    return StartOrder(pending.job, tuple((node, 1) for node in nodes), pending.start_settings)


def test_reads_gpu_defaults_of_slurm_conf(scene: Scene, backend: SlurmBackend) -> None:
    asks_for_gpus = {each["id"] for each in scene.rows["jobs"] if "gpu" in str(each["gres_per_node"])}
    scene.facts["config"]["job_defaults"] = "DefNew=4"
    seen = backend.observe()
    left = {each.job_id for each in seen.unmanaged if "which sets DefNew=4" in words(each.reason)}
    assert (bool(asks_for_gpus & left), asks_for_gpus & {each.job.id for each in seen.pending}) == (True, set())


def test_start_sends_nodes_and_tasks_per_node(scene: Scene, child: Played, backend: SlurmBackend) -> None:
    number = scene.job("six")["id"]
    start = order(backend.observe(), number, "n2")
    assert start.settings == StartSettings(tasks_per_node=6, restore="TasksPerNode=0 NumTasks=6")
    assert (backend.start([start]), child.sent) == ([Outcome(number, "done")], [("start", [start])])


@pytest.mark.parametrize(
    ("version", "all_of_it"), [("22.05.8", True), ("24.11.5", True), ("26.05.5", False), ("27.11.0", False)]
)
def test_older_controller_gets_equal_shares_and_original_values(
    scene: Scene, backend: SlurmBackend, version: str, all_of_it: bool
) -> None:
    scene.facts["config"]["version"] = version
    start = order(backend.observe(), scene.job("six")["id"], "n2")
    more = {"sets_node_count": True, "cpus_per_node": 6, "cpus": 6} if all_of_it else {}
    restored = "NumNodes=1-6 NumTasks=6 MinCPUsNode=1 NumCPUs=6" if all_of_it else "NumTasks=6"
    assert start.settings == StartSettings(tasks_per_node=6, restore=f"TasksPerNode=0 {restored}", **more)


@pytest.mark.parametrize(
    ("tasks", "nodes", "told", "restored"),
    [
        (6, {"n1": 1}, "", "NumTasks=6 MinCPUsNode=1 NumCPUs=6"),
        (17, {"n1": 16, "n3": 1}, "2-17", "NumNodes=1-17 NumTasks=17"),
    ],
)
def test_start_adds_no_maximum_node_count_to_job_without_one(
    scene: Scene, backend: SlurmBackend, tasks: int, nodes: dict[str, int], told: str, restored: str
) -> None:
    scene.facts["config"]["version"] = "22.05.8"
    scene.only("six").job("six").update(ntasks=tasks, cpus=tasks, num_nodes=1, max_nodes=None)
    start = order(backend.observe(), scene.job("six")["id"], *nodes)
    assert format_node_count(start) == told
    assert start.settings.restore.endswith(restored)


def test_start_in_one_partition_can_restore_all(scene: Scene, backend: SlurmBackend) -> None:
    record = scene.only("several").job("several")
    start = order(backend.observe(), record["id"], "n3")
    assert start.settings == StartSettings(partition="main", restore="Partition=main,short")
    record.update(partition="main", required_nodes="n3", priority=1, comment="bridge:pinned()")
    (waiting,) = backend.observe({record["id"]}).pending
    assert (waiting.job.queue, waiting.pinned, waiting.start_settings) == ("main", True, start.settings)


def a_prime(scene: Scene) -> None:
    """17 tasks of 1 core and 1000 MiB on four idle nodes of 16 cores."""
    scene.only("six").with_job("six", ntasks=17, cpus=17, num_nodes=2, max_nodes=17)


def test_start_of_job_by_tasks_sends_nodes_and_node_count(scene: Scene, backend: SlurmBackend) -> None:
    a_prime(scene)
    (waiting,) = backend.observe().pending
    settings = StartSettings(sets_node_count=True, restore="NumNodes=2-17 NumTasks=17")
    request = waiting.job.request
    assert (request.units, request.distinct, waiting.start_settings) == (17, False, settings)
    (settled,) = backend.resolve_layout([StartOrder(waiting.job, (("n1", 5), ("n3", 12)), settings)])
    assert settled == StartOrder(waiting.job, (("n1", 16), ("n3", 1)), settings)
    assert format_node_count(settled) == "2-2"


def test_defers_start_that_another_start_would_change(scene: Scene, backend: SlurmBackend) -> None:
    a_prime(scene)
    other = {**scene.job("six"), "id": 4711, "name": "other", "ntasks": 4, "num_nodes": 1, "max_nodes": 4}
    scene.rows["jobs"].append(other)
    prime, small = sorted(backend.observe().pending, key=lambda waiting: waiting.job.id == 4711)
    under_way = [StartOrder(small.job, (("n1", 1),))]
    wanted = StartOrder(prime.job, (("n1", 12), ("n3", 5)))
    (deferred,) = backend.resolve_layout([wanted], under_way)
    assert isinstance(deferred, Outcome)
    assert "other starts" in deferred.detail
    assert backend.resolve_layout([StartOrder(prime.job, (("n2", 12), ("n3", 5)))], under_way) != [deferred]
    assert backend.resolve_layout([wanted]) == [StartOrder(prime.job, (("n1", 16), ("n3", 1)))]


def test_defers_layout_before_first_reading(scene: Scene, child: Played, backend: SlurmBackend) -> None:
    wanted = order(backend.observe(), scene.job("six")["id"], "n2")
    assert [type(found) for found in SlurmBackend(child).resolve_layout([wanted])] == [Outcome]


def test_hold_restores_fields_changed_by_pin(scene: Scene, child: Played, backend: SlurmBackend) -> None:
    number = scene.job("six")["id"]
    start = order(backend.observe(), number, "n2")
    scene.job("six").update(required_nodes="n2", ntasks_per_node=6, max_nodes=1, priority=4)
    pending = next(p for p in backend.observe({number}).pending if p.job.id == number)
    assert (pending.pinned, pending.start_settings) == (True, start.settings)
    undo_order = UndoOrder(number, pinned=True, restore=start.settings.restore)
    backend.hold([undo_order])
    assert child.sent == [("hold", [undo_order])]


def test_left_job_with_pin_unknown_to_ledger_is_pinned(scene: Scene, backend: SlurmBackend) -> None:
    """A node list of the owner, as job `chosen` has it, is no pin."""
    scene.with_job("first", required_nodes="n2", licenses=["matlab:1"], priority=4, comment="bridge:pinned()")
    seen = backend.observe()
    pinned = {left.job_id for left in seen.unmanaged if left.pinned}
    assert (pinned, seen.list_pinned_job_ids()) == ({scene.job("first")["id"]}, {scene.job("first")["id"]})
    assert scene.job("chosen")["required_nodes"]


def test_splits_orders_into_batches(child: Played, backend: SlurmBackend) -> None:
    outcomes = backend.hold(undo_orders(*range(1, 2 * BATCH_SIZE + 2)))
    assert [len(orders) for _, orders in child.sent] == [BATCH_SIZE, BATCH_SIZE, 1]
    assert [outcome.job_id for outcome in outcomes] == list(range(1, 2 * BATCH_SIZE + 2))


def test_raises_error_before_first_command_succeeds(child: Played, backend: SlurmBackend) -> None:
    child.fail = [BackendUnavailable("gone")]
    with pytest.raises(BackendUnavailable):
        backend.hold(undo_orders(*range(1, 2 * BATCH_SIZE)))


def test_failure_midway_gives_done_unknown_and_not_sent(child: Played, backend: SlurmBackend) -> None:
    child.fail = [None, BackendTimeout("late")]
    outcomes = backend.hold(undo_orders(*range(1, 3 * BATCH_SIZE + 1)))
    expected = [("done", ""), ("unknown", ""), ("refused", "not_sent")]
    assert [(outcome.result, outcome.code) for outcome in outcomes] == [
        each for each in expected for _ in range(BATCH_SIZE)
    ]


class Poisoned(Played):
    """A child that some jobs make fail, whatever else is in the batch."""

    poison: frozenset[int] = frozenset()
    error: type[BackendError] = CommandRefused

    def call(self, name: str, orders: Sequence[JobOrder] = ()) -> None:
        self.fail = [None]
        if self.poison & {order.job_id for order in orders}:
            self.fail = [self.error("odd")]
        super().call(name, orders)


@pytest.mark.parametrize(("error", "result"), [(CommandRefused, "refused"), (BackendDied, "unknown")])
@pytest.mark.parametrize("poison", [{1}, {60}, {100}, {3, 4, 77}])
def test_failed_batch_is_split_until_bad_jobs_are_found(
    scene: Scene, error: type[BackendError], result: str, poison: set[int]
) -> None:
    """It is split until the culprits are found: they alone fail, with the reason, and the others are done."""
    child = Poisoned(scene)
    child.poison, child.error = frozenset(poison), error
    outcomes = SlurmBackend(child).hold(undo_orders(*range(1, BATCH_SIZE + 1)))
    assert outcomes == [
        Outcome(job, result, "odd") if job in poison else Outcome(job, "done") for job in range(1, BATCH_SIZE + 1)
    ]
    assert len(child.sent) <= 1 + 2 * 7 * len(poison)


@pytest.mark.parametrize("error", [CommandRefused, BackendDied])
def test_stops_splitting_batch_if_all_jobs_fail(scene: Scene, error: type[BackendError]) -> None:
    child = Poisoned(scene)
    child.poison, child.error = frozenset(range(BATCH_SIZE + 1)), error
    with pytest.raises(error):
        SlurmBackend(child).hold(undo_orders(*range(1, BATCH_SIZE + 1)))
    assert len(child.sent) < 20


def test_lost_controller_leaves_rest_of_split_batch_unsent(child: Played, backend: SlurmBackend) -> None:
    """A command was already carried out, so outcomes report it. The failure is not that of the jobs."""
    child.fail = [CommandRefused("odd"), None, BackendUnavailable("gone")]
    outcomes = backend.hold(undo_orders(*range(1, 9)))
    assert outcomes[:4] == [Outcome(id, "done") for id in range(1, 5)]
    assert outcomes[4:] == [Outcome.not_sent(id, "gone") for id in range(5, 9)]


def test_checks_of_unreachable_controller_fail(child: Played, backend: SlurmBackend) -> None:
    child.scene.facts = {}
    checks = SlurmBackend(Played(child.scene, BackendUnavailable("connect failure"), READINGS)).run_checks()
    assert [(check.name, check.ok, check.may_pass_later) for check in checks] == [("controller", False, True)]


def test_checks_include_nodes_if_cluster_is_readable(child: Played, backend: SlurmBackend) -> None:
    names = [check.name for check in backend.run_checks()]
    assert names[-8:] == [
        "objects", "core selection", "dynamic nodes", "power saving", "node weights", "partition settings",
        "reservations", "node lists",
    ]  # fmt: skip

    half = SlurmBackend(Played(child.scene, BackendUnavailable("connect failure"), ["read"])).run_checks()
    assert [check.name for check in half] == [*names[:-8], "reading"]
    assert (half[-1].ok, half[-1].required, half[-1].detail) == (False, True, "connect failure")


def test_checks_name_unreadable_records_and_blame_no_service(child: Played, scene: Scene) -> None:
    """A field that cannot be read, and an answer of another form, are not a slurmctld that does not answer."""
    for name in ("n1", "n2", "n3"):
        scene.node(name)["unreadable"] = {"configured_gres": "brackets do not match"}
    scene.partition("main")["unknown"] = {"Colour": "red"}
    for table in ("nodes", "partitions"):
        scene.tables[table]["fields"] += ["unreadable", "unknown"]
    checks = {check.name: check for check in SlurmBackend(child).run_checks()}
    assert (checks["objects"].ok, checks["objects"].required, checks["objects"].detail) == (
        False, False,
        "ignored: node n1: configured_gres cannot be read: brackets do not match; "
        "node n2: configured_gres cannot be read: brackets do not match; "
        "node n3: configured_gres cannot be read: brackets do not match; "
        "partition main: Colour=red: this version has no rule for it",
    )  # fmt: skip

    garbled = AnswerNotUnderstood("scontrol: the output (9 characters) is truncated")
    (check,) = SlurmBackend(Played(child.scene, garbled, READINGS)).run_checks()
    assert (check.name, check.ok, "slurmctld" in check.fix) == ("controller", False, False)


def test_missing_program_is_not_stopped_controller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = SlurmBackend(SlurmCliTransport()).run_checks()
    assert (check.name, check.ok, f"not found in PATH={tmp_path}" in check.detail) == ("programs", False, True)
    assert ("SLURM_CONF" in check.fix, "slurmctld" in check.fix) == (True, False)


def test_history_is_from_controller_if_accounting_is_silent(scene: Scene, backend: SlurmBackend) -> None:
    """Or if there is none."""
    remembered = backend.read_history()
    told = [job["id"] for job in scene.rows["jobs"] if job["state"] == "CANCELLED" and job["allocated_nodes"]]
    assert 0 < len(remembered) <= len(told)
    assert [e.end_s for e in remembered] == sorted(e.end_s for e in remembered)
    scene.facts["config"]["accounting_storage_type"] = "accounting_storage/slurmdbd"
    without = SlurmBackend(Played(scene))
    assert (without.read_history(), without.history_missing, backend.history_missing) == (remembered, True, False)


def test_accounting_share_check_fails_without_response(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_backend, "ACCOUNTING_WAIT_S", 0.0)
    (check,) = SlurmBackend(Played(scene)).accounting_checks(7)
    found = check.name, check.ok, check.required, "no response" in check.detail
    assert found == ("accounting share", False, False, True)


CLAIM = Lease("aa", "1", 2, "one:/state")
WORDS = "bridge=aa&run=1&beat=2&on=one:/state"


@pytest.mark.parametrize("text", [None, "beat=x  odd"])
def test_acquires_lease_only_in_place_of_the_one_read(
    backend: SlurmBackend, child: Played, scene: Scene, text: str | None
) -> None:
    """For any words, including unknown ones."""
    times = {"start_time": 2_100_000_000, "end_time": 2_100_000_060}
    found = {"name": "cpsched-bridge", "nodes": "n1", **times, "comment": text}
    scene.rows["reservations"] = [] if text is None else [found]
    before = backend.observe().lease
    assert (before is None, backend.acquire_lease(CLAIM, before)) == (text is None, True)
    assert child.lease_calls == [("acquire_lease", WORDS, text)]


def test_changes_carry_epoch_of_lease(backend: SlurmBackend, child: Played) -> None:
    backend.epoch = 30
    backend.hold([UndoOrder(7)])
    assert child.epochs == [30]


def test_observation_names_cluster(scene: Scene, backend: SlurmBackend) -> None:
    scene.facts["config"]["cluster_name"] = "alpha"
    assert backend.observe().cluster_name == "alpha"
