"""Releasing all jobs: the requests to the cluster, their number, the records, and the messages."""

import pytest

from cpsched_bridge.cycle import release_jobs
from cpsched_bridge.cycle.release_jobs import HarmlessDiskProblem, release_all_jobs
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable
from cpsched_bridge.ports import Hold, Outcome
from cpsched_bridge.store.ledger import MANAGED_STATES, LedgerState, LedgerTransition, ManagedJobEntry
from tests.builders import a_job
from tests.fakes import FakeCluster
from tests.stores import full_disk

BLIND = "the cluster cannot be read, so the submit plugin may hold more jobs: "


@pytest.fixture
def cluster():
    """A cluster on which nothing can start."""
    return FakeCluster(drained={0, 1, 2, 3})


def holding(cluster, ledger, state=LedgerState.HELD, *ids, pinned=False, since_s=3):
    """Jobs that the ledger knows in a state, and that are pending with a hold of ours."""
    for id in ids or (1,):
        cluster.submit(a_job(id))
        entry = ManagedJobEntry(id, LedgerState.HELD, since_s, pinned=pinned)
        ledger.record([LedgerTransition(None, entry)])
        if state is not LedgerState.HELD:
            back = LedgerState.FREE if state is LedgerState.HOLDING else LedgerState.STARTING
            ledger.record([LedgerTransition(LedgerState.HELD, ManagedJobEntry(id, back, since_s, pinned=pinned))])
            ledger.record([LedgerTransition(back, ManagedJobEntry(id, state, since_s, pinned=pinned))])


def state_of(ledger, id=1):
    entry = ledger.get(id)
    return entry.state, entry.pinned


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("state", sorted(MANAGED_STATES))
def test_releases_once_any_job_that_may_have_our_hold(cluster, ledger, state, pinned):
    holding(cluster, ledger, state, pinned=pinned)
    cluster.jobs[1].pin = (("n0", 1),) if pinned else ()
    assert release_all_jobs(cluster, ledger, "the bridge stops") == []
    assert (cluster.sent("release"), cluster.jobs[1].hold, cluster.jobs[1].pin) == ([(1,)], Hold.NONE, ())
    assert state_of(ledger) == (LedgerState.FREE, False)
    assert cluster.readings == [{1} if pinned else set()], "our pins are passed to the reader"


@pytest.mark.parametrize("hold", [Hold.USER, Hold.ADMIN])
def test_job_held_by_others_after_start_loses_pin_and_stays_held(cluster, ledger, hold):
    holding(cluster, ledger, LedgerState.STARTING, pinned=True)
    cluster.jobs[1].pin, cluster.jobs[1].hold = (("n0", 1),), hold
    assert release_all_jobs(cluster, ledger, "the bridge stops") == []
    assert (cluster.sent("release"), cluster.jobs[1].hold, cluster.jobs[1].pin) == ([], hold, ())
    assert state_of(ledger) == (LedgerState.FREE, False)


@pytest.mark.parametrize("is_sent", [True, False])
def test_reports_pin_that_cannot_be_removed(cluster, ledger, is_sent):
    holding(cluster, ledger, LedgerState.STARTING, pinned=True)
    cluster.jobs[1].pin, cluster.jobs[1].hold = (("n0", 1),), Hold.USER
    if is_sent:
        cluster.fail("unpin", BackendTimeout("no answer"), times=3)
    else:
        cluster.unpin_one = lambda id: Outcome.not_sent(id, "no answer")
    assert release_all_jobs(cluster, ledger, "x") == ["job 1 may still have the bridge's node list: no answer"]
    assert state_of(ledger) == (LedgerState.FREE, True)


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("state", sorted(MANAGED_STATES))
@pytest.mark.parametrize(
    ("error", "words"),
    [(BackendTimeout("no answer"), "no answer"), (RuntimeError("a bug"), "RuntimeError: a bug")],
)
def test_releases_ledger_jobs_if_cluster_is_unreadable(cluster, ledger, state, pinned, error, words):
    holding(cluster, ledger, state, pinned=pinned)
    cluster.fail("observe", error, times=3)
    assert release_all_jobs(cluster, ledger, "the bridge stops") == [BLIND + words]
    assert cluster.sent("release") == [(1,)], "once: what is done is not done again"
    assert state_of(ledger) == (LedgerState.FREE, False)
    assert ledger.get(1).since_s == 3, "there is no cluster time to write down"
    whys = [why for _, _, _, _, why in ledger.read_transitions(1)]
    assert whys[-1] == "released to the cluster"
    assert ("the bridge stops" in whys) is (state is not LedgerState.RELEASING)


def test_sends_no_command_if_no_job_is_held(cluster, ledger):
    cluster.submit(a_job(1), hold=Hold.USER)
    cluster.submit(a_job(2), hold=Hold.ADMIN)
    cluster.submit(a_job(3), hold=Hold.NONE)
    assert release_all_jobs(cluster, ledger, "") == []
    assert (cluster.commands, len(cluster.readings), ledger.list_managed_job_ids()) == ([], 1, [])


def test_releases_job_whose_hold_only_cluster_shows(cluster, ledger):
    cluster.submit(a_job(4))
    assert release_all_jobs(cluster, ledger, "") == []
    assert cluster.jobs[4].hold is Hold.NONE
    assert state_of(ledger, 4) == (LedgerState.FREE, False)


def test_leaves_job_that_has_started(cluster, ledger):
    holding(cluster, ledger, LedgerState.STARTING, 1, 2)
    cluster.run_now(1, ((0, 1),))
    assert release_all_jobs(cluster, ledger, "") == []
    assert (cluster.sent("release"), ledger.get(1).state) == ([(2,)], LedgerState.RUNNING)


def test_retries_failed_release_a_few_times(cluster, ledger):
    holding(cluster, ledger, LedgerState.HELD, 1, 2)
    cluster.fail("release", BackendUnavailable("connection refused"), times=5)
    assert release_all_jobs(cluster, ledger, "") == [
        "job 1 may still be held: connection refused",
        "job 2 may still be held: connection refused",
    ]
    assert (cluster.sent("release"), len(cluster.readings)) == ([(1, 2)] * 3, 3)
    assert state_of(ledger) == (LedgerState.RELEASING, False)


def test_continues_while_remaining_jobs_decrease(cluster, ledger, monkeypatch):
    """With a limit on calls each attempt releases some; each batch is a sign of life."""
    monkeypatch.setattr(release_jobs, "BATCH_SIZE", 4)
    holding(cluster, ledger, LedgerState.HELD, *range(1, 8))
    give, given = cluster.release_one, []

    def one_at_a_time(id):
        if len(given) < len(cluster.readings):
            given.append(id)
            return give(id)
        return Outcome(id, "refused", "not sent: no more calls", "not_sent")

    cluster.release_one = one_at_a_time
    signs = []
    assert (
        release_all_jobs(cluster, ledger, "", on_keep_alive=lambda: signs.append(len(ledger.list_managed_job_ids())))
        == []
    )
    assert (given, len(cluster.readings)) == (list(range(1, 8)), 7)
    assert signs == [7, 7, 6, 6, 6, 5, 5, 5, 4, 4, 4, 3, 3, 2, 2, 1, 1]


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_stops_retrying_after_success(cluster, ledger, failures):
    holding(cluster, ledger)
    cluster.fail("release", BackendUnavailable("connection refused"), times=failures)
    assert release_all_jobs(cluster, ledger, "") == []
    assert len(cluster.readings) == len(cluster.sent("release")) == failures + 1


@pytest.mark.parametrize("result", ["refused", "unknown"])
def test_names_jobs_possibly_held_and_frees_others(cluster, ledger, result):
    holding(cluster, ledger, LedgerState.HELD, 1, 2, 3)
    give = cluster.release_one
    cluster.release_one = lambda id: Outcome(id, result, "no") if id == 2 else give(id)
    assert release_all_jobs(cluster, ledger, "") == ["job 2 may still be held: no"]
    assert cluster.sent("release") == [(1, 2, 3), (2,), (2,)]
    assert [ledger.get(id).state for id in (1, 2, 3)] == [LedgerState.FREE, LedgerState.RELEASING, LedgerState.FREE]


def test_ignores_answer_about_unrequested_job(cluster, ledger):
    holding(cluster, ledger)
    give = cluster.release_one
    cluster.release = lambda orders: [*(give(each.job_id) for each in orders), Outcome(77, "done")]
    assert release_all_jobs(cluster, ledger, "") == []
    assert ledger.get(77) is None


@pytest.mark.parametrize("blind", [False, True])
def test_readonly_ledger_keeps_no_job_held_and_is_reported_once(cluster, ledger, blind):
    holding(cluster, ledger, LedgerState.HELD, 1, 2)
    cluster.fail("observe", BackendTimeout("no answer"), times=3 if blind else 0)
    with full_disk(ledger):
        problems = release_all_jobs(cluster, ledger, "")
    assert [fake.hold for fake in cluster.jobs.values()] == [Hold.NONE, Hold.NONE]
    assert cluster.sent("release") == [(1, 2)]
    if blind:
        assert problems == [BLIND + "no answer"], "of the last attempt, at which nothing was left to be written"
    else:
        assert len(problems) == 2
        assert all(isinstance(problem, HarmlessDiskProblem) and "readonly" in problem for problem in problems)
    assert state_of(ledger) == (LedgerState.FREE, False), "it is remembered, if not written"


def test_programming_error_is_not_taken_for_full_disk(cluster, ledger, monkeypatch):
    holding(cluster, ledger)

    def bug(*_, **__):
        raise TypeError("no idea")

    monkeypatch.setattr(ledger, "record", bug)
    with pytest.raises(TypeError):
        release_all_jobs(cluster, ledger, "")
