"""The backend behind the ports, with a child that is played by the test."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.adapter import BATCH, SlurmBackend
from cpsched_bridge.adapters.slurm.transport.pyslurm.client import Client
from cpsched_bridge.adapters.slurm.transport.pyslurm.transport import PyslurmTransport
from cpsched_bridge.errors import BackendDied, BackendError, BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_bridge.ports import Observation, Outcome, StartOrder
from tests.unit.bridge.adapters.slurm.scenes import Scene


class Played(Client):
    """Answers from a scene; takes note of commands; raises what the test wants, in turn."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene
        self.sent: list[tuple[str, list[dict[str, Any]]]] = []
        self.fail: list[BackendError | None] = []

    def call(self, name: str, deadline_s: float, **arguments: Any) -> Any:
        if name in ("hello", "facts"):
            return self.scene.facts
        if name == "snapshot":
            return self.scene.snapshot()
        self.sent.append((name, arguments["orders"]))
        error = self.fail.pop(0) if self.fail else None
        if error is not None:
            raise error
        return [["done", ""]] * len(arguments["orders"])


class Silent(Client):
    """Has no answer."""

    def ask(self, name: str, deadline_s: float, **arguments: Any) -> None:
        pass

    def answered(self, wait_s: float) -> bool:
        return False


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def child(scene: Scene) -> Played:
    return Played(scene)


@pytest.fixture
def backend(child: Played) -> SlurmBackend:
    return SlurmBackend(PyslurmTransport(client=child))


def order(seen: Observation, number: int, *nodes: str) -> StartOrder:
    return StartOrder(next(p.job for p in seen.pending if p.job.id == number), tuple((node, 1) for node in nodes))


def test_a_start_names_nodes_and_tasks_per_node(scene: Scene, child: Played, backend: SlurmBackend) -> None:
    number = scene.job("six")["id"]
    outcomes = backend.start([order(backend.observe(), number, "n2")])
    assert child.sent == [("start", [{"job": number, "nodes": ["n2"], "tasks_per_node": 6}])]
    assert outcomes == [Outcome(number, "done")]


def test_a_roll_back_gives_the_record_back_what_the_pin_changed(
    scene: Scene, child: Played, backend: SlurmBackend
) -> None:
    number = scene.job("six")["id"]
    backend.start([order(backend.observe(), number, "n2")])
    scene.job("six").update(required_nodes="n2", ntasks_per_node=6, max_nodes=1, priority=4)
    seen = backend.observe([number])
    assert next(p for p in seen.pending if p.job.id == number).pinned
    backend.hold([number])
    assert child.sent[-1] == ("hold", [{"job": number, "clear": "ReqNodeList= TasksPerNode=0 NumTasks=6"}])


def test_a_pin_of_an_earlier_life_is_cleared_too(scene: Scene, child: Played, backend: SlurmBackend) -> None:
    number = scene.job("first")["id"]
    scene.job("first")["required_nodes"] = "n2"
    backend.observe([number])
    backend.hold([number])
    assert child.sent == [("hold", [{"job": number, "clear": "ReqNodeList="}])]


def test_an_owners_node_list_survives_a_hand_back(scene: Scene, child: Played, backend: SlurmBackend) -> None:
    number = scene.job("chosen")["id"]
    backend.observe()
    backend.hand_back([number])
    assert child.sent == [("hand_back", [{"job": number, "clear": ""}])]


def test_jobs_are_handed_back_without_an_observation(scene: Scene, child: Played, backend: SlurmBackend) -> None:
    backend.hand_back([7])
    assert child.sent == [("hand_back", [{"job": 7, "clear": "ReqNodeList="}])]


def test_bursts_go_in_batches(child: Played, backend: SlurmBackend) -> None:
    outcomes = backend.hold(range(1, 2 * BATCH + 2))
    assert [len(orders) for _, orders in child.sent] == [BATCH, BATCH, 1]
    assert [outcome.job_id for outcome in outcomes] == list(range(1, 2 * BATCH + 2))


def test_a_failure_before_anything_was_done_is_raised(child: Played, backend: SlurmBackend) -> None:
    child.fail = [BackendUnavailable("gone")]
    with pytest.raises(BackendUnavailable):
        backend.hold(range(1, 2 * BATCH))


def test_a_failure_in_between_tells_what_is_done_unknown_and_not_sent(child: Played, backend: SlurmBackend) -> None:
    child.fail = [None, BackendTimeout("late")]
    results = [outcome.result for outcome in backend.hold(range(1, 3 * BATCH + 1))]
    assert results == ["done"] * BATCH + ["unknown"] * BATCH + ["refused"] * BATCH


class Poisoned(Played):
    """A child that some jobs make fail, whatever else is in the batch."""

    poison: frozenset[int] = frozenset()
    error: type[BackendError] = CommandRefused

    def call(self, name: str, deadline_s: float, **arguments: Any) -> Any:
        self.fail = [None]
        if self.poison & {order["job"] for order in arguments.get("orders", ())}:
            self.fail = [self.error("odd")]
        return super().call(name, deadline_s, **arguments)


@pytest.mark.parametrize(("error", "result"), [(CommandRefused, "refused"), (BackendDied, "unknown")])
@pytest.mark.parametrize("poison", [{1}, {60}, {100}, {3, 4, 77}])
def test_a_batch_does_not_fail_because_of_its_members(
    scene: Scene, error: type[BackendError], result: str, poison: set[int]
) -> None:
    """It is split until the culprits are found: they alone fail, with the reason, and the others are done."""
    child = Poisoned(scene)
    child.poison, child.error = frozenset(poison), error
    outcomes = SlurmBackend(PyslurmTransport(client=child)).hold(range(1, BATCH + 1))
    assert [outcome.job_id for outcome in outcomes] == list(range(1, BATCH + 1))
    assert {outcome.job_id for outcome in outcomes if outcome.result != "done"} == poison
    assert {(o.result, o.detail) for o in outcomes if o.job_id in poison} == {(result, "odd")}
    assert len(child.sent) <= 1 + 2 * 7 * len(poison)


@pytest.mark.parametrize("error", [CommandRefused, BackendDied])
def test_a_batch_of_which_nothing_works_is_not_searched_to_its_end(scene: Scene, error: type[BackendError]) -> None:
    child = Poisoned(scene)
    child.poison, child.error = frozenset(range(BATCH + 1)), error
    with pytest.raises(error):
        SlurmBackend(PyslurmTransport(client=child)).hold(range(1, BATCH + 1))
    assert len(child.sent) < 20


def test_a_controller_lost_during_the_search_leaves_the_rest_unsent(child: Played, backend: SlurmBackend) -> None:
    """Something was done already: so it is told by outcomes."""
    child.fail = [CommandRefused("odd"), None, BackendUnavailable("gone")]
    outcomes = backend.hold(range(1, 9))
    assert [outcome.result for outcome in outcomes] == ["done"] * 4 + ["refused"] * 4


def test_checks_of_an_unreachable_controller_fail(child: Played, backend: SlurmBackend) -> None:
    child.scene.facts = {}

    class Dead(Played):
        def call(self, name: str, deadline_s: float, **arguments: Any) -> Any:
            raise BackendUnavailable("connect failure")

    checks = SlurmBackend(PyslurmTransport(client=Dead(child.scene))).checks()
    assert [(check.name, check.ok, check.may_come) for check in checks] == [("controller", False, True)]


def test_without_accounting_the_history_is_what_the_controller_remembers(scene: Scene, backend: SlurmBackend) -> None:
    ended = backend.history()
    told = [job["id"] for job in scene.rows["jobs"] if job["state"] == "CANCELLED" and job["allocated_nodes"]]
    assert 0 < len(ended) <= len(told)
    assert [e.end_s for e in ended] == sorted(e.end_s for e in ended)


def test_an_accounting_database_that_does_not_answer_is_done_without(scene: Scene, backend: SlurmBackend) -> None:
    remembered = backend.history()
    scene.facts["config"]["accounting_storage_type"] = "accounting_storage/slurmdbd"
    without = SlurmBackend(PyslurmTransport(client=Played(scene), accounting=Silent()))
    assert without.history() == remembered
    assert without.history_missing
    assert not backend.history_missing
