from __future__ import annotations

import pytest

from cpsched_bridge.adapters.pbs.pbs_doctor import PbsCheckContext, run_checks
from cpsched_bridge.cycle.release_jobs import release_all_jobs
from cpsched_bridge.errors import BackendError, BackendTimeout, CommandRefused
from cpsched_bridge.ports import Hold, Holder, Lease, Observation, QueueGate, StartOrder
from cpsched_bridge.store.ledger import Ledger
from tests.builders import words
from tests.unit.bridge.adapters.pbs.scenes import NOW_S, Site, recorded


def order(seen: Observation, number: int, *nodes: tuple[str, int]) -> StartOrder:
    return StartOrder(next(each.job for each in seen.pending if each.job.id == number), nodes)


def test_jobs_of_a_closed_queue_are_held_for_the_bridge_and_those_that_somebody_holds_are_not() -> None:
    seen = Site().backend().observe()
    assert seen.cluster_name == "vm"
    holds = {each.label: each.hold for each in seen.pending}
    assert holds["0"] is Hold.PLUGIN
    assert {holds[held] for held in ("4", "5", "6", "7", "9")} == {Hold.USER}
    assert {each.label: each.holder for each in seen.pending if each.hold is Hold.USER} == {
        "4": Holder.OWNER,  # u
        "5": Holder.ADMINISTRATOR,  # s
        "6": Holder.ADMINISTRATOR,  # o
        "7": Holder.ADMINISTRATOR,  # sou
        "9": Holder.CLUSTER,  # s, for a dependency
    }
    why = {each.label: words(each.job.ineligible) for each in seen.pending}
    assert (why["8"], why["9"]) == ("begin time", "held (s) until other jobs end")


def test_requests_are_read_and_what_cannot_be_said_is_left_with_the_reason() -> None:
    seen = Site().backend().observe()
    asked = {each.label: each.job.request for each in seen.pending}
    assert seen.cluster.resources == ("ncpus", "mem", "ngpus")
    assert (asked["0"].units, asked["0"].per_unit) == (1, (2, 1024, 0))
    assert (asked["2"].units, asked["2"].per_unit) == (1, (4, 200, 0)), "chunks of two kinds fit onto one vnode"
    assert asked["10"].per_unit == (1, 0, 1)
    assert (asked["11"].units, asked["11"].per_unit, asked["11"].exclusive) == (1, (2, 0, 0), True)
    assert asked["12"].distinct
    assert seen.cluster.node_sets[asked["17"].node_set].tolist() == [False, False, True, False]
    assert {each.label: words(each.reason) for each in seen.left} == {
        "1": "place=scatter where hosts have several vnodes",
        "13": "whole hosts, which have several vnodes",
        "14": "place=scatter where hosts have several vnodes",
        "15": "place=scatter where hosts have several vnodes",
    }
    assert all(each.held_for_us for each in seen.left)


def test_running_jobs_are_where_pbs_put_them_and_those_that_begin_are_not_seen_running_yet() -> None:
    seen = Site(recorded("running.json", "vnodes-running.json")).backend().observe()
    where = {each.job.id: each.placement for each in seen.running}
    assert where[0] == ((1, 1),)
    assert where[1] == ((2, 1), (3, 1))
    assert where[3 << 41 | 3] == ((2, 1),), "subjob 3[2]"
    assert seen.labels == {3 << 41 | 3: "3[2]"}
    assert {each.label: each.hold for each in seen.pending}["10"] is Hold.NONE, "substate 41"
    assert 10 not in where


def test_a_start_says_each_chunk_and_takes_no_more_than_is_free() -> None:
    site = Site()
    backend = site.backend()
    seen = backend.observe()
    orders = [
        order(seen, 2, ("vm[0]", 1)),
        order(seen, 0, ("vm[0]", 1)),
        order(seen, 12, ("vm[1]", 1), ("vm[2]", 1)),
    ]
    assert [each.result for each in backend.start(orders)] == ["done", "refused", "done"]
    assert site.told == [
        ("run", "2.vm", "(vm[0]:ncpus=2)+(vm[0]:ncpus=1:mem=100mb)+(vm[0]:ncpus=1:mem=100mb)"),
        ("run", "12.vm", "(vm[1]:ncpus=1)+(vm[2]:ncpus=1)"),
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"Hold_Types": "u", "job_state": "H"}, "held (u)"),
        ({"job_state": "R", "substate": "42"}, "has begun"),
        ({"queue": "leftq"}, "is not managed by the bridge"),
        ({"schedselect": "1:ncpus=1"}, "asks for something else"),
    ],
)
def test_what_has_changed_since_the_decision_is_not_started(change: dict[str, str], why: str) -> None:
    site = Site()
    backend = site.backend()
    orders = [order(backend.observe(), 0, ("vm[0]", 1))]
    site.seen.jobs["0.vm"].update(change)
    (outcome,) = backend.start(orders)
    assert outcome.result == "refused"
    assert why in outcome.detail
    assert not site.told


@pytest.mark.parametrize("state", ["offline", "job-exclusive", "down"])
def test_nothing_is_started_where_no_room_is(state: str) -> None:
    site = Site()
    backend = site.backend()
    orders = [order(backend.observe(), 0, ("vm[0]", 1))]
    site.seen.vnodes["vm[0]"]["state"] = state
    assert backend.start(orders)[0].result == "refused"
    assert not site.told


def test_nothing_is_started_in_an_open_queue_nor_on_a_vnode_that_the_job_did_not_choose() -> None:
    site = Site()
    backend = site.backend()
    seen = backend.observe()
    assert "may not run on" in backend.start([order(seen, 17, ("vm[0]", 1))])[0].detail
    site.seen.queues["managed"]["started"] = "True"
    assert "open to PBS" in backend.start([order(seen, 0, ("vm[0]", 1))])[0].detail
    assert not site.told


def test_after_a_start_without_an_answer_no_other_one_is_sent() -> None:
    site = Site(fails={"run": BackendTimeout("no answer")})
    backend = site.backend()
    seen = backend.observe()
    lost, unsent = backend.start([order(seen, 0, ("vm[0]", 1)), order(seen, 10, ("vm[2]", 1))])
    assert (lost.result, unsent.result) == ("unknown", "refused")
    assert unsent.code == "not_sent"
    assert len(site.told) == 1


def test_starts_are_sent_with_left_queue_closed_scheduler_idle() -> None:
    site = Site(scheduling=2)
    backend = site.backend()
    assert backend.start([order(backend.observe(), 0, ("vm[0]", 1))])[0].result == "done"
    assert site.left == ["closed", "at work", "at work", "run", "open", "look"]


@pytest.mark.parametrize(
    ("site", "why"),
    [
        (Site(scheduling=10**6), "PBS's own scheduler is at work"),
        (Site(fails={"schedulers": BackendTimeout("no answer")}), "no answer"),
    ],
)
def test_no_start_beside_a_scheduler_at_work_and_no_failure(site: Site, why: str) -> None:
    backend = site.backend(starting_s=0.2)
    (outcome,) = backend.start([order(backend.observe(), 0, ("vm[0]", 1))])
    assert (outcome.detail, outcome.code) == (f"not sent: {why}", "not_sent")
    assert (site.told, site.left[0], site.left[-2:]) == ([], "closed", ["open", "look"])


def test_a_left_queue_that_is_not_there_is_in_no_starts_way() -> None:
    site = Site()
    backend = site.backend(left_queue="gone")
    assert backend.start([order(backend.observe(), 0, ("vm[0]", 1))])[0].result == "done"
    assert site.left == ["run"]


def test_left_queue_closed_by_a_dead_bridge_is_opened() -> None:
    site = Site()
    site.seen.queues["leftq"]["started"] = "False"
    backend = site.backend()
    seen = backend.observe()
    assert site.left == []
    assert backend.acquire_lease(Lease("a", "1", 1, "login1"), None)
    assert site.left == ["open", "look"]
    site.seen.queues["leftq"]["started"] = "False"
    backend.start([order(seen, 0, ("vm[0]", 1))])
    assert backend.acquire_lease(Lease("a", "1", 2, "login1"), Lease("a", "1", 1, "login1"))
    assert site.left == ["open", "look", "run"]
    assert list(site.backend().open_queues()) == []
    assert site.left[3:] == ["open", "look"], "release-all has a backend of its own"


def test_each_start_has_its_own_reading_where_pbs_starts_too() -> None:
    """Room that goes meanwhile is no failure of the job."""
    site = Site()
    site.seen.queues["other"] = {"queue_type": "Execution", "started": "True"}  # type: ignore[index]
    site.seen.jobs["1.vm"]["queue"] = "other"
    backend = site.backend()
    seen = backend.observe()
    first, second = order(seen, 0, ("vm[0]", 1)), order(seen, 10, ("vm[2]", 1))

    def taken(job: str, placed: str, within_s: float) -> None:
        site.seen.vnodes["vm[2]"]["resources_assigned"] = {"ncpus": "4"}

    site.run = taken  # type: ignore[method-assign]
    assert [(each.result, each.detail, each.code) for each in backend.start([first, second])] == [
        ("done", "", ""),
        ("refused", "not sent: no room on vm[2] any more", "not_sent"),
    ]


def test_adopting_closes_the_queue_once_and_standing_aside_opens_it() -> None:
    site = Site()
    site.seen.queues["managed"]["started"] = "True"
    backend = site.backend()
    assert {each.hold for each in backend.observe().pending} == {Hold.NONE, Hold.USER}
    assert [each.result for each in backend.hold([0, 2, 4, 999])] == ["done", "done", "refused", "refused"]
    assert site.told == [("started", "managed", "False")]
    backend.observe()
    assert list(backend.open_queues()) == []
    assert site.told[1:] == [("started", "managed", "True"), ("look",)]
    assert list(backend.open_queues()) == []
    assert len(site.told) == 3, "nothing is left to open"


def test_a_server_that_does_not_schedule_is_not_made_to() -> None:
    site = Site()
    site.seen.server["scheduling"] = "False"
    assert list(site.backend().open_queues()) == []
    assert site.told == [("started", "managed", "True")]


def test_an_opened_queue_is_open_also_where_pbs_cannot_be_made_to_look() -> None:
    site = Site(fails={"look": BackendTimeout("no answer")})
    assert list(site.backend().open_queues()) == []
    assert site.told == [("started", "managed", "True"), ("look",)]


def test_a_queue_that_somebody_else_opens_is_left_to_pbs_until_it_is_closed_again() -> None:
    site = Site()
    backend = site.backend()
    backend.observe()
    backend.hold([0])
    site.seen.queues["managed"]["started"] = "True"
    seen = backend.observe()
    assert {each.hold for each in seen.pending} == {Hold.USER}
    assert "opened by somebody else" in seen.notes[0]
    assert backend.hold([0])[0].result == "refused"
    site.seen.queues["managed"]["started"] = "False"
    assert Hold.PLUGIN in {each.hold for each in backend.observe().pending}
    assert not site.told


def test_a_job_that_is_handed_back_is_moved_out_of_a_closed_queue_and_an_array_as_a_whole() -> None:
    site = Site()
    backend = site.backend()
    outcomes = backend.release([1, 2 << 41 | 3, 3 << 41 | 3])
    assert [each.result for each in outcomes] == ["done"] * 3
    assert site.told == [("move", "1.vm", "leftq"), ("move", "3[].vm", "leftq")]
    site.seen.queues["managed"]["started"] = "True"
    assert backend.release([0])[0].result == "done"
    assert len(site.told) == 2
    site.seen.queues["managed"]["started"] = "False"
    assert "left_queue" in site.backend(left_queue="").release([0])[0].detail


def test_subjobs_of_an_array_that_has_begun_cannot_be_handed_back_as_long_as_their_queue_is_closed() -> None:
    """PBS refuses to move the array, and leaves its closed queue alone."""
    site = Site()
    backend = site.backend()

    def stays() -> set[str]:
        return {each.label for each in backend.observe().pending if each.release_is_pointless}

    assert stays() == set()
    site.seen.jobs["3[].vm"]["job_state"] = "B"
    there = {each.label for each in backend.observe().pending if each.label.startswith("3[")}
    assert stays() == there != set()
    site.seen.jobs["3[].vm"]["Hold_Types"] = "u"
    assert stays() == set()
    site.seen.jobs["3[].vm"]["Hold_Types"] = "n"
    site.seen.queues["managed"]["started"] = "True"
    assert stays() == set()


@pytest.mark.parametrize(
    ("fails", "result", "moved"),
    [(BackendTimeout("no answer"), "unknown", 0), (CommandRefused("Unauthorized Request"), "done", 1)],
)
def test_no_job_is_moved_out_of_a_queue_that_may_be_open_by_now(fails: BackendError, result: str, moved: int) -> None:
    """In mode advise an operator closes it; the bridge opens it again, and its jobs stay there."""
    site = Site(fails={"started": fails})
    backend = site.backend()
    backend.observe()
    assert "may still be closed" in next(iter(backend.open_queues()))
    assert backend.release([1])[0].result == result
    assert [words[0] for words in site.told].count("move") == moved
    backend.observe()
    assert backend.release([1])[0].result == "done", "a bridge in control releases jobs of a queue that stays closed"


def test_a_bridge_that_stops_opens_its_queues_also_where_no_job_waits(ledger: Ledger) -> None:
    site = Site()
    site.seen.jobs.clear()  # type: ignore[attr-defined]
    backend = site.backend()
    assert isinstance(backend, QueueGate)
    assert release_all_jobs(backend, ledger, "the bridge stops") == []
    assert site.told == [("started", "managed", "True"), ("look",)]


def test_a_bridge_that_stops_beside_another_one_leaves_the_queues_closed(ledger: Ledger) -> None:
    site = Site()
    assert release_all_jobs(site.backend(), ledger, "the bridge stops", lambda _: True) == []
    assert site.told == []


def test_a_queue_that_cannot_be_opened_is_told(ledger: Ledger) -> None:
    site = Site(fails={"started": CommandRefused("Unauthorized Request")})
    assert any(
        "may still be closed: Unauthorized" in each for each in release_all_jobs(site.backend(), ledger, "stops")
    )
    assert ("look",) not in site.told


def test_a_claim_stands_until_another_one_is_there() -> None:
    site = Site()
    backend = site.backend()
    mine, theirs = Lease("a", "1", 1, "login1:/var/lib/cpsched"), Lease("b", "2", 1, "elsewhere")
    assert backend.acquire_lease(mine, None)
    assert backend.observe().claim == mine
    assert not backend.acquire_lease(theirs, None)
    backend.release_lease(theirs)
    assert backend.observe().claim == mine
    backend.release_lease(mine)
    assert backend.observe().claim is None


def test_a_job_that_ran_and_is_gone_has_ended() -> None:
    site = Site(recorded("running.json", "vnodes-running.json"))
    backend = site.backend()
    backend.observe()
    del site.seen.jobs["0.vm"]  # type: ignore[attr-defined]
    assert [each.job.id for each in backend.observe().ended] == [0]
    assert backend.observe().ended == ()


@pytest.mark.parametrize("shown", [None, "X", "F"])
def test_a_job_that_was_started_and_is_over_by_the_next_reading_has_ended(shown: str | None) -> None:
    """PBS goes on showing subjobs that are over (state X) as long as their array is there."""
    site = Site()
    backend = site.backend()
    backend.start([order(backend.observe(), 0, ("vm[0]", 1))])
    site.seen.jobs["0.vm"].update({"job_state": "R", "substate": "41", "exec_vnode": "(vm[0]:ncpus=2)"})
    assert backend.observe().ended == (), "its host takes it on"
    if shown is None:
        del site.seen.jobs["0.vm"]  # type: ignore[attr-defined]
    else:
        site.seen.jobs["0.vm"]["job_state"] = shown
    assert [(each.job.id, each.start_s) for each in backend.observe().ended] == [(0, NOW_S)]
    assert backend.observe().ended == ()


def test_a_job_that_waits_again_after_its_start_and_is_deleted_then_has_not_ended() -> None:
    site = Site()
    backend = site.backend()
    backend.start([order(backend.observe(), 0, ("vm[0]", 1))])
    backend.observe()
    del site.seen.jobs["0.vm"]  # type: ignore[attr-defined]
    assert backend.observe().ended == ()


def test_limits_count_what_runs_of_whom_they_are_about() -> None:
    site = Site(recorded("running.json", "vnodes-running.json"))
    site.seen.queues["managed"]["max_run"] = ("[u:PBS_GENERIC=3]", "[u:bob=9]")
    site.seen.server["max_run_res"] = {"ncpus": "[o:PBS_ALL=20]"}
    seen = site.backend().observe()
    assert seen.limits is not None
    checks = {check.whose: check for each in seen.limits.standings.values() for check in each.checks}
    assert (checks["user bob in queue managed"].limit, checks["all jobs"].limit) == (9, 20)
    assert seen.limits.used[checks["all jobs"].counter] >= 6


def test_the_doctor_wants_a_queue_for_jobs_that_are_left_and_a_manager() -> None:
    seen = recorded()
    found = {each.name: each for each in run_checks(seen, PbsCheckContext(("managed",), "", "ada", ("login1",)))}
    assert not found["left_queue"].ok
    assert not found["privilege"].ok
    assert found["claim"].ok
    seen.server["managers"] = "ada@login*,bob@vm"
    good = {each.name: each for each in run_checks(seen, PbsCheckContext(("managed",), "leftq", "ada", ("login1",)))}
    assert {each.name for each in good.values() if not each.ok} == {"points", "formula"}
    assert {each.mode for each in good.values() if not each.ok} == {"advise"}
    bad = {each.name: each for each in run_checks(seen, PbsCheckContext(("managed",), "managed", "bob", ("login1",)))}
    assert not bad["left_queue"].ok
    assert not bad["privilege"].ok
