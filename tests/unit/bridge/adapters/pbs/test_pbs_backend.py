from __future__ import annotations

from dataclasses import replace

import pytest

from cpsched_bridge.adapters.pbs import pbs_backend
from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.adapters.pbs.pbs_doctor import PbsDoctorContext, run_pbs_doctor_checks
from cpsched_bridge.cycle.release_jobs import release_all_jobs
from cpsched_bridge.errors import BackendError, BackendTimeout, CommandRefused
from cpsched_bridge.ports import Hold, Holder, Lease, Observation, Outcome, QueueGate, StartOrder
from cpsched_bridge.store.ledger import Ledger
from tests.builders import undo_orders, words
from tests.unit.bridge.adapters.pbs.scenes import NOW_S, Site, recorded


def order(seen: Observation, number: int, *nodes: tuple[str, int]) -> StartOrder:
    return StartOrder(next(each.job for each in seen.pending if each.job.id == number), nodes)


def start(backend: PbsBackend, number: int = 0, vnode: str = "vm[0]") -> Outcome:
    """Observe, and start the job on the vnode."""
    return backend.start([order(backend.observe(), number, (vnode, 1))])[0]


def test_holds_jobs_of_closed_queues_unless_users_hold_them() -> None:
    seen = Site().backend().observe()
    assert (seen.cluster_name, next(each.hold for each in seen.pending if each.label == "0")) == ("vm", Hold.PLUGIN)
    assert {each.label: each.holder for each in seen.pending if each.hold is Hold.USER} == {
        "4": Holder.OWNER,  # u
        "5": Holder.ADMINISTRATOR,  # s
        "6": Holder.ADMINISTRATOR,  # o
        "7": Holder.ADMINISTRATOR,  # sou
        "9": Holder.CLUSTER,  # s, for a dependency
    }
    why = {each.label: words(each.job.ineligible) for each in seen.pending}
    assert (why["8"], why["9"]) == ("its begin time has not been reached", "held (s) until other jobs end")


def test_reads_requests_and_gives_reason_for_unsupported_ones() -> None:
    seen = Site().backend().observe()
    asked = {each.label: each.job.request for each in seen.pending}
    assert seen.cluster.resources == ("ncpus", "mem", "ngpus")
    assert {label: (asked[label].units, asked[label].per_unit) for label in ("0", "2", "10", "11")} == {
        "0": (1, (2, 1024, 0)),
        "2": (1, (4, 200, 0)),  # chunks of two kinds fit onto one vnode
        "10": (1, (1, 0, 1)),
        "11": (1, (2, 0, 0)),
    }
    assert (asked["11"].exclusive, asked["12"].distinct) == (True, True)
    assert seen.cluster.node_sets[asked["17"].node_set].tolist() == [False, False, True, False]
    assert {each.label: words(each.reason) for each in seen.unmanaged if each.held_for_bridge} == {
        "1": "requests place=scatter, but hosts have several vnodes",
        "13": "requests whole hosts, which have several vnodes",
        "14": "requests place=scatter, but hosts have several vnodes",
        "15": "requests place=scatter, but hosts have several vnodes",
        "22": "requests more chunks than fit on its vnodes",
    }


def test_running_jobs_have_their_vnodes_and_starting_jobs_wait() -> None:
    seen = Site(recorded("running.json", "vnodes-running.json")).backend().observe()
    where = {each.job.id: each.placement for each in seen.running}
    subjob = 3 << 41 | 3
    assert (where[0], where[1], where[subjob], seen.labels) == (
        ((1, 1),), ((2, 1), (3, 1)), ((2, 1),), {subjob: "3[2]"},
    )  # fmt: skip
    holds = {each.label: each.hold for each in seen.pending}
    assert (holds["10"], 10 in where) == (Hold.NONE, False), "substate 41"


def test_start_names_each_chunk_and_fits_free_resources() -> None:
    site = Site()
    backend = site.backend()
    seen = backend.observe()
    places: dict[int, list[tuple[str, int]]] = {2: [("vm[0]", 1)], 0: [("vm[0]", 1)], 12: [("vm[1]", 1), ("vm[2]", 1)]}
    outcomes = backend.start([order(seen, number, *nodes) for number, nodes in places.items()])
    assert [each.result for each in outcomes] == ["done", "refused", "done"]
    assert site.sent == [
        ("run", "2.vm", "(vm[0]:ncpus=2)+(vm[0]:ncpus=1:mem=100mb)+(vm[0]:ncpus=1:mem=100mb)"),
        ("run", "12.vm", "(vm[1]:ncpus=1)+(vm[2]:ncpus=1)"),
    ]


@pytest.mark.parametrize(
    ("kind", "name", "change", "why"),
    [
        ("jobs", "0.vm", {"Hold_Types": "u", "job_state": "H"}, "held (u)"),
        ("jobs", "0.vm", {"job_state": "R", "substate": "42"}, "has started or ended"),
        ("jobs", "0.vm", {"queue": "leftq"}, "is not managed by the bridge"),
        ("jobs", "0.vm", {"schedselect": "1:ncpus=1"}, "its request has changed since the decision"),
        ("vnodes", "vm[0]", {"state": "offline"}, "vm[0]"),
        ("vnodes", "vm[0]", {"state": "job-exclusive"}, "vm[0]"),
        ("vnodes", "vm[0]", {"state": "down"}, "vm[0]"),
        ("queues", "managed", {"started": "True"}, "open to PBS"),
    ],
)
def test_refuses_start_after_change_since_decision(kind: str, name: str, change: dict[str, str], why: str) -> None:
    site = Site()
    backend = site.backend()
    orders = [order(backend.observe(), 0, ("vm[0]", 1))]
    getattr(site.seen, kind)[name].update(change)
    (outcome,) = backend.start(orders)
    assert (outcome.result, why in outcome.detail, site.sent) == ("refused", True, [])


def test_refuses_start_on_ineligible_vnode() -> None:
    site = Site()
    assert "may not run on" in start(site.backend(), 17).detail
    assert not site.sent


def test_sends_no_start_after_unanswered_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pbs_backend, "MAX_PARALLEL_COMMANDS", 1)
    site = Site(fails={"run": BackendTimeout("no answer")})
    backend = site.backend()
    seen = backend.observe()
    outcomes = backend.start([order(seen, 0, ("vm[0]", 1)), order(seen, 10, ("vm[2]", 1))])
    assert [(each.result, each.code) for each in outcomes] == [("unknown", ""), ("refused", "not_sent")]
    assert len(site.sent) == 1


@pytest.mark.parametrize(
    ("left_queue", "left"),
    [("leftq", ["closed", "at work", "at work", "run", "open", "look"]), ("gone", ["at work", "at work", "run"])],
)
def test_closes_left_queue_and_waits_for_idle_scheduler_to_start(left_queue: str, left: list[str]) -> None:
    """A missing queue does not prevent starts."""
    site = Site(scheduling=2)
    assert start(site.backend(left_queue=left_queue)).result == "done"
    assert site.left == left


@pytest.mark.parametrize(
    ("site", "why"),
    [
        (Site(scheduling=10**6), "PBS's own scheduler is still running"),
        (Site(fails={"schedulers": BackendTimeout("no answer")}), "no answer"),
    ],
)
def test_sends_no_start_while_scheduler_is_busy(site: Site, why: str) -> None:
    outcome = start(site.backend(starting_s=0.2))
    assert (outcome.detail, outcome.code) == (f"not sent: {why}", "not_sent")
    assert (site.sent, site.left[0], site.left[-2:]) == ([], "closed", ["open", "look"])


def test_opens_left_queue_closed_by_dead_bridge() -> None:
    site = Site()
    site.seen.queues["leftq"]["started"] = "False"
    backend = site.backend()
    backend.observe()
    assert site.left == []
    assert backend.acquire_lease(Lease("a", "1", 1, "login1"), None)
    start(backend, 10, "vm[2]")
    assert site.left == ["open", "look", "closed", "run", "open", "look"]
    site.left.clear()
    site.seen.queues["leftq"]["started"] = "False"
    start(backend)
    assert backend.acquire_lease(Lease("a", "1", 2, "login1"), Lease("a", "1", 1, "login1"))
    assert list(site.backend().reopen_queues()) == []
    assert site.left == ["run", "open", "look"], "release-all has a backend of its own"


def test_each_start_has_own_reading_if_pbs_also_starts_jobs() -> None:
    """Room that goes meanwhile is no failure of the job."""
    site = Site()
    site.seen.queues["other"] = {"queue_type": "Execution", "started": "True"}  # type: ignore[index]
    site.seen.jobs["1.vm"]["queue"] = "other"
    backend = site.backend()
    seen = backend.observe()
    first, second = order(seen, 0, ("vm[0]", 1)), order(seen, 10, ("vm[2]", 1))

    def taken(placements: dict[str, str], within_s: float) -> dict[str, None]:
        site.seen.vnodes["vm[2]"]["resources_assigned"] = {"ncpus": "4"}
        return dict.fromkeys(placements)

    site.run_jobs = taken  # type: ignore[assignment, method-assign]
    assert [(each.result, each.detail, each.code) for each in backend.start([first, second])] == [
        ("done", "", ""),
        ("refused", "not sent: vnode vm[2] no longer has enough free resources", "not_sent"),
    ]


def test_adoption_closes_queue_once_and_pause_opens_it() -> None:
    site = Site()
    site.seen.queues["managed"]["started"] = "True"
    backend = site.backend()
    assert {each.hold for each in backend.observe().pending} == {Hold.NONE, Hold.USER}
    assert [each.result for each in backend.hold(undo_orders(0, 2, 4, 999))] == ["done", "done", "refused", "refused"]
    assert site.sent == [("started", "managed", "False")]
    backend.observe()
    assert list(backend.reopen_queues()) == []
    assert site.sent[1:] == [("started", "managed", "True"), ("look",)]
    assert list(backend.reopen_queues()) == []
    assert len(site.sent) == 3, "nothing is left to open"


@pytest.mark.parametrize(
    ("scheduling", "fails", "sent"),
    [
        ("True", {}, [("started", "managed", "True"), ("look",)]),
        ("False", {}, [("started", "managed", "True")]),
        ("True", {"look": BackendTimeout("no answer")}, [("started", "managed", "True"), ("look",)]),
    ],
)
def test_triggers_cycle_of_server_with_scheduling(
    scheduling: str, fails: dict[str, BackendError], sent: list[tuple[str, ...]]
) -> None:
    site = Site(fails=fails)
    site.seen.server["scheduling"] = scheduling
    assert (list(site.backend().reopen_queues()), site.sent) == ([], sent)


def test_leaves_queue_opened_by_operator_to_pbs_until_closed() -> None:
    site = Site()
    backend = site.backend()
    backend.observe()
    backend.hold(undo_orders(0))
    site.seen.queues["managed"]["started"] = "True"
    seen = backend.observe()
    assert ({each.hold for each in seen.pending}, backend.hold(undo_orders(0))[0].result) == ({Hold.USER}, "refused")
    assert "queue managed was opened by another actor" in seen.notes[0]
    site.seen.queues["managed"]["started"] = "False"
    assert Hold.PLUGIN in {each.hold for each in backend.observe().pending}
    assert not site.sent


def test_release_moves_job_or_whole_array_out_of_closed_queue() -> None:
    site = Site()
    backend = site.backend()
    assert [each.result for each in backend.release(undo_orders(1, 2 << 41 | 3, 3 << 41 | 3))] == ["done"] * 3
    assert site.sent == [("move", "1.vm", "leftq"), ("move", "3[].vm", "leftq")]
    site.seen.queues["managed"]["started"] = "True"
    assert backend.release(undo_orders(0))[0].result == "done"
    assert len(site.sent) == 2
    site.seen.queues["managed"]["started"] = "False"
    assert "left_queue" in site.backend(left_queue="").release(undo_orders(0))[0].detail


def test_releases_jobs_by_recent_reading_of_this_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after the bridge has opened the queue, because its jobs stay there then."""
    site = Site()
    backend = site.backend()
    backend.observe()
    site.seen = replace(site.seen, queues={})
    assert [each.result for each in backend.release(undo_orders(1))] == ["done"]
    assert site.sent == [("move", "1.vm", "leftq")]

    site.seen = recorded()
    assert list(backend.reopen_queues()) == []
    assert [each.result for each in backend.release(undo_orders(1))] == ["done"]
    assert site.sent[1:] == [("started", "managed", "True"), ("look",)]

    backend.observe()
    monkeypatch.setattr(pbs_backend, "MAX_READING_AGE_S", -1.0)
    site.seen = replace(site.seen, jobs={})
    assert [each.detail for each in backend.release(undo_orders(1))] == [pbs_backend.UNKNOWN_JOB]


def test_cannot_release_subjobs_of_started_array_in_closed_queue() -> None:
    """PBS refuses to move the array, and leaves its closed queue alone."""
    site = Site()
    backend = site.backend()
    stays = []
    for state, hold, started in (("Q", "n", "False"), ("B", "n", "False"), ("B", "u", "False"), ("B", "n", "True")):
        site.seen.jobs["3[].vm"].update(job_state=state, Hold_Types=hold)
        site.seen.queues["managed"]["started"] = started
        stays.append({each.label for each in backend.observe().pending if each.release_is_pointless})
    assert [stays[0], *stays[2:]] == [set(), set(), set()]
    assert {label.partition("[")[0] for label in stays[1]} == {"3"}


@pytest.mark.parametrize(
    ("fails", "result", "moved"),
    [(BackendTimeout("no answer"), "unknown", 0), (CommandRefused("Unauthorized Request"), "done", 1)],
)
def test_moves_no_job_out_of_queue_that_may_be_open(fails: BackendError, result: str, moved: int) -> None:
    """In mode advise an operator closes it; the bridge opens it again, and its jobs stay there."""
    site = Site(fails={"started": fails})
    backend = site.backend()
    backend.observe()
    assert "may still be closed" in next(iter(backend.reopen_queues()))
    assert backend.release(undo_orders(1))[0].result == result
    assert [words[0] for words in site.sent].count("move") == moved
    backend.observe()
    later = backend.release(undo_orders(1))[0].result
    assert later == "done", "a bridge in control releases jobs of a queue that stays closed"


def test_stopping_bridge_opens_queues_without_pending_jobs(ledger: Ledger) -> None:
    site = Site()
    site.seen.jobs.clear()  # type: ignore[attr-defined]
    backend = site.backend()
    assert isinstance(backend, QueueGate)
    assert release_all_jobs(backend, ledger, "the bridge stops") == []
    assert site.sent == [("started", "managed", "True"), ("look",)]


def test_stopping_bridge_leaves_queues_closed_for_other_bridge(ledger: Ledger) -> None:
    site = Site()
    assert release_all_jobs(site.backend(), ledger, "the bridge stops", lambda _: True) == []
    assert site.sent == []


def test_reports_queue_that_cannot_be_opened(ledger: Ledger) -> None:
    site = Site(fails={"started": CommandRefused("Unauthorized Request")})
    assert any(
        "may still be closed: Unauthorized" in each for each in release_all_jobs(site.backend(), ledger, "stops")
    )
    assert ("look",) not in site.sent


def test_vanished_running_job_has_ended() -> None:
    site = Site(recorded("running.json", "vnodes-running.json"))
    backend = site.backend()
    backend.observe()
    del site.seen.jobs["0.vm"]  # type: ignore[attr-defined]
    assert [[each.job.id for each in backend.observe().ended] for _ in range(2)] == [[0], []]


def test_job_requeued_after_start_and_deleted_has_not_ended() -> None:
    site = Site()
    backend = site.backend()
    start(backend)
    backend.observe()
    del site.seen.jobs["0.vm"]  # type: ignore[attr-defined]
    assert backend.observe().ended == ()


@pytest.mark.parametrize("shown", [None, "X", "F"])
def test_job_started_and_over_by_next_reading_has_ended(shown: str | None) -> None:
    """PBS goes on showing subjobs that are over (state X) as long as their array is there."""
    site = Site()
    backend = site.backend()
    start(backend)
    site.seen.jobs["0.vm"].update({"job_state": "R", "substate": "41", "exec_vnode": "(vm[0]:ncpus=2)"})
    assert backend.observe().ended == (), "its host takes it on"
    if shown is None:
        del site.seen.jobs["0.vm"]  # type: ignore[attr-defined]
    else:
        site.seen.jobs["0.vm"]["job_state"] = shown
    ended = [[(each.job.id, each.start_s) for each in backend.observe().ended] for _ in range(2)]
    assert ended == [[(0, NOW_S)], []]


def test_limits_count_running_jobs_of_their_subject() -> None:
    site = Site(recorded("running.json", "vnodes-running.json"))
    site.seen.queues["managed"]["max_run"] = ("[u:PBS_GENERIC=3]", "[u:bob=9]")
    site.seen.server["max_run_res"] = {"ncpus": "[o:PBS_ALL=20]"}
    seen = site.backend().observe()
    assert seen.limits is not None
    checks = {check.whose: check for each in seen.limits.standings.values() for check in each.checks}
    assert (checks["user bob in queue managed"].limit, checks["all jobs"].limit) == (9, 20)
    assert seen.limits.used[checks["all jobs"].counter] >= 6


@pytest.mark.parametrize(
    ("managers", "left_queue", "user", "failed"),
    [
        ("", "", "ada", {"left_queue", "privilege", "boosts", "formula"}),
        ("ada@login*,bob@vm", "leftq", "ada", {"boosts", "formula"}),
        ("ada@login*,bob@vm", "managed", "bob", {"left_queue", "privilege", "boosts", "formula"}),
    ],
)
def test_doctor_requires_left_queue_and_manager_privilege(
    managers: str, left_queue: str, user: str, failed: set[str]
) -> None:
    seen = recorded()
    seen.server |= {"managers": managers} if managers else {}
    context = PbsDoctorContext(("managed",), left_queue, user, ("login1",))
    checks = [check for check in run_pbs_doctor_checks(seen.parsed(), context) if not check.ok]
    assert {check.name for check in checks} == failed
    assert {check.mode for check in checks if check.name in ("boosts", "formula")} == {"advise"}
