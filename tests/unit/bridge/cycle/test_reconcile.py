from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.model import EndedJob
from cpsched_bridge.cycle import reconcile as reconciling
from cpsched_bridge.cycle.reconcile import ReconcileOptions
from cpsched_bridge.equivalence import BackoffKey
from cpsched_bridge.ports import RELEASE_POINTLESS, ClusterReason, Hold, Observation, PendingJob, UnmanagedJob
from cpsched_bridge.settings import JobStartSettings
from cpsched_bridge.store.ledger import CLOSED, KEPT, LedgerState, ManagedJobEntry
from tests.builders import a_cluster, a_job, a_running

CLUSTER = a_cluster()
CONDUCT = ReconcileOptions(start_timeout_s=10, max_failures=3)


def reconcile(entry, observation, conduct):
    known = {1: entry} if entry else {}
    return reconciling.reconcile(known, {id for id, e in known.items() if e.state not in CLOSED}, observation, conduct)


def seen(now_s=100, **parts):
    return Observation(now_s, CLUSTER, np.array(CLUSTER.capacity), **{k: tuple(v) for k, v in parts.items()})


def pending(hold, pinned=False, id=1, no_way_back=False):
    return PendingJob(a_job(id), hold, pinned, release_is_pointless=no_way_back)


def after(entry, observation, conduct=CONDUCT):
    """The entry as it becomes, or None where nothing changes."""
    found = reconcile(entry, observation, conduct)
    assert len(found) <= 1
    return found[0].entry if found else None


def an_entry(state, since_s=95, **facts):
    return ManagedJobEntry(1, state, since_s, **facts)


LIMIT = ClusterReason("AssocMaxJobsLimit", BackoffKey("association", ("u", "a")))
BAD = ClusterReason("BadConstraints", BackoffKey("job", ("1",)))


def test_a_start_whose_nodes_the_cluster_refuses_has_failed_at_once():
    """In its first second, and no later than that; one that only waits has its time."""
    refused = replace(pending(Hold.NONE, pinned=True), refused="ReqNodeNotAvail")
    entry = an_entry(LedgerState.STARTING, since_s=100, pinned=True)
    found = reconcile(entry, seen(100, pending=[refused]), CONDUCT)[0]
    assert (found.entry.state, found.failed, found.entry.failures) == (LedgerState.ROLLING_BACK, True, 1)
    assert found.entry.why == "refused by the cluster: ReqNodeNotAvail"
    assert after(entry, seen(100, pending=[pending(Hold.NONE, pinned=True)])) is None
    assert after(an_entry(LedgerState.HOLDING), seen(pending=[refused])) is None


def test_a_start_that_meets_an_obstacle_is_undone_and_is_nobodys_failure():
    """At once, with any remaining time; the reason is reported."""
    waits = replace(pending(Hold.NONE, pinned=True), obstacle=LIMIT)
    (found,) = reconcile(
        an_entry(LedgerState.STARTING, since_s=99, failures=2, pinned=True), seen(pending=[waits]), CONDUCT
    )
    assert (found.entry.state, found.entry.failures, found.entry.pinned) == (LedgerState.ROLLING_BACK, 2, True)
    assert found.obstacle == LIMIT
    assert "AssocMaxJobsLimit" in found.entry.why


@pytest.mark.parametrize(("since_s", "state"), [(95, None), (85, LedgerState.ROLLING_BACK)])
def test_an_obstacle_that_may_pass_is_waited_for(since_s, state):
    waits = replace(pending(Hold.NONE), obstacle=replace(LIMIT, transient=True))
    found = reconcile(an_entry(LedgerState.STARTING, since_s=since_s), seen(pending=[waits]), CONDUCT)
    assert [(each.entry.state, each.obstacle) for each in found] == ([(state, waits.obstacle)] if state else [])


@pytest.mark.parametrize(
    "state",
    [LedgerState.HOLDING, LedgerState.HELD, LedgerState.STARTING, LedgerState.ROLLING_BACK, LedgerState.RUNNING],
)
def test_what_the_cluster_holds_is_handed_back_once_and_then_left_to_it(state):
    held = replace(pending(Hold.CLUSTER, pinned=True), obstacle=BAD)
    entry = after(an_entry(state, pinned=True), seen(pending=[held]))
    assert (entry.state, entry.pinned) == (LedgerState.HANDING_BACK, True)
    assert "BadConstraints" in entry.leave
    assert after(entry, seen(pending=[held])) is None, "not before the pin is off"
    free = after(entry, seen(pending=[replace(held, pinned=False)]))
    assert (free.state, free.leave) == (LedgerState.FREE, entry.leave)
    for hold in (Hold.CLUSTER, Hold.NONE, Hold.ADMIN):
        assert after(free, seen(pending=[replace(held, pinned=False, hold=hold)])) is None


@pytest.mark.parametrize(("hold", "state"), [(Hold.NONE, LedgerState.HOLDING), (Hold.PLUGIN, LedgerState.HELD)])
def test_a_job_that_the_cluster_held_is_taken_again_when_it_asks_for_something_else(hold, state):
    held = replace(pending(Hold.CLUSTER), obstacle=BAD)
    free = after(an_entry(LedgerState.HELD), seen(pending=[held]))
    other = replace(held.job, walltime_s=held.job.walltime_s + 60)
    taken = after(free, seen(pending=[PendingJob(other, hold)]))
    assert (taken.state, taken.leave) == (state, "")


def test_out_of_control_what_the_cluster_holds_stays_so():
    held = replace(pending(Hold.CLUSTER), obstacle=BAD)
    away = ReconcileOptions(controlling=False)
    assert after(None, seen(pending=[held]), away) is None
    assert after(an_entry(LedgerState.HELD), seen(pending=[held]), away).state is LedgerState.FREE
    pinned = replace(held, pinned=True)
    assert (
        after(an_entry(LedgerState.STARTING, pinned=True), seen(pending=[pinned]), away).state
        is LedgerState.HANDING_BACK
    )


def test_after_too_many_failures_a_job_is_left_to_the_cluster():
    entry = an_entry(LedgerState.STARTING, since_s=85, failures=2)
    result = after(entry, seen(pending=[pending(Hold.NONE)]))
    assert result.state is LedgerState.HANDING_BACK
    assert result.leave.startswith("3 attempts in a row failed")


@pytest.mark.parametrize(
    ("entry", "becomes", "why"),
    [
        (
            an_entry(LedgerState.STARTING, failures=2),
            LedgerState.ROLLING_BACK,
            "3 attempts in a row failed, the last one: held",
        ),
        (an_entry(LedgerState.HANDING_BACK, failures=3, leave="odd", why="given up"), LedgerState.HOLDING, "given up"),
        (an_entry(LedgerState.FREE, leave="odd"), LedgerState.HOLDING, "odd"),
        (an_entry(LedgerState.RUNNING, leave="odd"), LedgerState.HOLDING, "requeued"),
    ],
)
def test_a_job_that_nobody_else_could_start_is_held_on_and_tried_again(entry, becomes, why):
    found = after(entry, seen(pending=[pending(Hold.PLUGIN, no_way_back=True)]))
    assert (found.state, found.leave, found.since_s) == (becomes, "", 100)
    assert found.why.startswith(f"{RELEASE_POINTLESS}: {why}")
    handed_back = after(entry, seen(pending=[pending(Hold.PLUGIN)]))
    assert handed_back is None or handed_back.state is LedgerState.HANDING_BACK
    assert after(found, seen(101, pending=[pending(Hold.PLUGIN, no_way_back=True)])).state is LedgerState.HELD


@pytest.mark.parametrize(
    ("entry", "found", "event"),
    [
        (an_entry(LedgerState.STARTING, failures=2), pending(Hold.PLUGIN, no_way_back=True), "kept_on"),
        (an_entry(LedgerState.STARTING, failures=2), pending(Hold.PLUGIN), "left"),
        (an_entry(LedgerState.FREE, leave="odd"), pending(Hold.PLUGIN), "left"),
        (an_entry(LedgerState.HELD), pending(Hold.CLUSTER), "left"),
        (an_entry(LedgerState.HELD), pending(Hold.NONE), "left"),
        (an_entry(LedgerState.RUNNING, leave="odd"), pending(Hold.NONE), ""),
        (an_entry(LedgerState.STARTING), pending(Hold.PLUGIN), ""),
    ],
)
def test_transitions_that_leave_a_job_or_keep_it_on_say_so(entry, found, event):
    (transition,) = reconcile(entry, seen(pending=[found]), CONDUCT)
    assert transition.event == event


def test_its_failures_go_on_being_counted_and_told():
    (found,) = reconcile(
        an_entry(LedgerState.STARTING, failures=7), seen(pending=[pending(Hold.PLUGIN, no_way_back=True)]), CONDUCT
    )
    assert (found.failed, found.entry.failures) == (True, 8)


@pytest.mark.parametrize("hold", [Hold.NONE, Hold.ADMIN, Hold.USER, Hold.CLUSTER])
@pytest.mark.parametrize("state", list(LedgerState))
def test_that_changes_nothing_about_what_is_not_held_for_the_bridge(state, hold):
    entry = an_entry(state, failures=2, leave="odd" if state is LedgerState.FREE else "")
    one, other = (after(entry, seen(pending=[pending(hold, no_way_back=stays)])) for stays in (True, False))
    assert one == other


@pytest.mark.parametrize("conduct", [replace(CONDUCT, controlling=False), replace(CONDUCT, beside=True)])
@pytest.mark.parametrize("state", list(LedgerState))
def test_nor_about_what_is_handed_back_out_of_control(state, conduct):
    entry = an_entry(state)
    one, other = (
        after(entry, seen(pending=[pending(Hold.PLUGIN, no_way_back=stays)]), conduct) for stays in (True, False)
    )
    assert one == other


@pytest.mark.parametrize("conduct", [ReconcileOptions(), ReconcileOptions(controlling=False)])
@pytest.mark.parametrize(
    ("facts", "free"),
    [
        ({"cause": "held_by_administrator"}, True),
        ({"why": "hold refused: is held by an administrator"}, False),
        ({"why": "hold refused: is RUNNING", "pinned": True}, False),
        ({"why": "hold refused: permission denied"}, False),
    ],
)
def test_a_hold_that_came_before_a_refused_one_of_ours_is_not_ours(conduct, facts, free):
    entry = replace(an_entry(LedgerState.HOLDING), **facts)
    result = after(entry, seen(pending=[pending(Hold.ADMIN)]), conduct)
    assert (result.state is LedgerState.FREE) is free
    if free:
        assert after(result, seen(pending=[pending(Hold.ADMIN)]), conduct) is None


@pytest.mark.parametrize("adopt", [True, False])
def test_a_job_that_the_dead_man_released_is_adopted_again(adopt):
    away = replace(CONDUCT, after_dead_man=True, adopt=adopt)
    free = after(an_entry(LedgerState.HELD), seen(pending=[pending(Hold.NONE)]), away)
    assert (free.state, free.leave) == (LedgerState.FREE, "")
    again = after(free, seen(pending=[pending(Hold.NONE)]), away)
    assert (again.state if again else None) == (LedgerState.HOLDING if adopt else None)


def test_running_tells_whether_the_job_runs_where_it_was_sent():
    entry = an_entry(LedgerState.STARTING, nodes=(("n0", 1),), failures=1)
    there = after(entry, seen(running=[a_running(a_job(1), ((0, 1),))]))
    elsewhere = after(entry, seen(running=[a_running(a_job(1), ((2, 1),))]))
    assert (there.state, there.why, there.failures) == (LedgerState.RUNNING, "started where decided", 0)
    assert elsewhere.why == "started, but on n2"


def test_running_tells_whether_the_job_was_split_as_it_was_sent():
    entry = an_entry(LedgerState.STARTING, nodes=(("n0", 16), ("n1", 1)))
    as_sent = after(entry, seen(running=[a_running(a_job(1), ((0, 16), (1, 1)))]))
    other = after(entry, seen(running=[a_running(a_job(1), ((0, 9), (1, 8)))]))
    units = after(entry, seen(running=[a_running(a_job(1), ((0, 1), (1, 1)))]))
    assert as_sent.why == "started where decided"
    assert other.why == "started, but split as n0 9, n1 8"
    assert units.why == "started where decided", "counted in other units"


def test_running_tells_what_the_job_was_given_where_that_is_not_what_it_asked_for():
    entry = an_entry(LedgerState.STARTING, nodes=(("n0", 1),))
    observation = replace(seen(running=[a_running(a_job(1), ((0, 1),))]), otherwise={1: "n0: 3 cores"})
    assert after(entry, observation).why == "started, but with n0: 3 cores"
    assert after(an_entry(LedgerState.HELD), observation).why == "started by someone else"


def test_a_requeued_job_that_also_shows_as_ended_is_pending():
    """The first run is over, the job is not."""
    observation = seen(ended=[EndedJob(a_job(1), 50, 99)], pending=[pending(Hold.NONE, pinned=True)])
    assert after(an_entry(LedgerState.RUNNING, pinned=True), observation).state is LedgerState.HOLDING


ENTRIES = st.one_of(
    st.none(),
    st.builds(
        ManagedJobEntry,
        job_id=st.just(1),
        state=st.sampled_from(LedgerState),
        since_s=st.integers(0, 100),
        pinned=st.booleans(),
        failures=st.integers(0, 4),
        leave=st.sampled_from(["", "not ours"]),
    ),
)


@given(ENTRIES, st.sampled_from(Hold), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_whatever_stands_in_the_ledger_a_pending_job_has_one_master(entry, hold, pinned, control, adopt, stays):
    """With commands that work, repeated reconciliation comes to rest: held by us and to be started, or not ours.

    A user's hold is never touched, nor an administrator's on a job that was not ours; no hold stays without a holder.
    """
    conduct = ReconcileOptions(controlling=control, adopt=adopt, start_timeout_s=10, max_failures=3)
    ours = entry is not None and (entry.state in KEPT or entry.state is LedgerState.GONE)
    first_hold, now_s = hold, 100
    for _ in range(8):
        now_s += 20
        for transition in reconcile(entry, seen(now_s, pending=[pending(hold, pinned, no_way_back=stays)]), conduct):
            entry = transition.entry
        if control and stays and hold is Hold.PLUGIN:
            assert entry.state is not LedgerState.HANDING_BACK
        if (
            entry is not None
            and entry.state in (LedgerState.HOLDING, LedgerState.ROLLING_BACK)
            and hold is not Hold.USER
        ):
            hold, pinned = (Hold.ADMIN if hold is Hold.NONE else hold), False
        if entry is not None and entry.state is LedgerState.HANDING_BACK and hold is not Hold.USER:
            hold, pinned = Hold.NONE, False
    assert reconcile(entry, seen(now_s + 1, pending=[pending(hold, pinned, no_way_back=stays)]), conduct) == []
    state = entry.state if entry else None
    assert state in (None, LedgerState.HELD, LedgerState.FREE, LedgerState.ENDED, LedgerState.RUNNING, LedgerState.GONE)
    if first_hold is Hold.USER:
        assert hold is Hold.USER
    if first_hold is Hold.ADMIN and not ours:
        assert hold is Hold.ADMIN
    if hold is Hold.CLUSTER:
        assert state not in KEPT
    if hold is Hold.PLUGIN:
        assert state is LedgerState.HELD
    if not control:
        assert state not in KEPT


def ended(id=1, start_s=5, end_s=95):
    return EndedJob(a_job(id), start_s, end_s)


@pytest.mark.parametrize("state", [None, *LedgerState])
def test_a_job_that_ended_is_over_once(state):
    entry = None if state is None else an_entry(state, pinned=True)
    found = after(entry, seen(ended=[ended(start_s=96, end_s=99)]))
    if state in (None, LedgerState.ENDED):
        assert found is None
    elif state is LedgerState.HELD:  # a run of before it was held
        assert found.state is LedgerState.GONE
    else:
        assert (found.state, found.pinned, found.since_s) == (LedgerState.ENDED, False, 100)


@pytest.mark.parametrize("state", [None, *LedgerState])
def test_a_job_that_runs_is_running_once_whoever_started_it(state):
    entry = None if state is None else an_entry(state, failures=2, nodes=(("n0", 1),))
    found = after(entry, seen(running=[a_running(a_job(1), ((0, 1),))]))
    if state in (None, LedgerState.RUNNING):
        assert found is None
    else:
        by_us = state in (LedgerState.STARTING, LedgerState.ROLLING_BACK)
        assert (found.state, found.failures) == (LedgerState.RUNNING, 0)
        assert found.why == ("started where decided" if by_us else "started by someone else")


@pytest.mark.parametrize("state", [None, *LedgerState])
@pytest.mark.parametrize("held_for_us", [True, False])
def test_a_job_that_cannot_be_modelled_is_handed_back_if_anything_of_ours_may_be_on_it(state, held_for_us):
    entry = None if state is None else an_entry(state)
    found = after(entry, seen(left=[UnmanagedJob(1, "het job", held_for_us=held_for_us)]))
    ours = held_for_us or (state in KEPT)
    if ours and state is not LedgerState.HANDING_BACK:
        assert (found.job_id, found.state, found.leave) == (1, LedgerState.HANDING_BACK, "het job")
    else:
        assert found is None


@pytest.mark.parametrize("state", [None, *LedgerState])
def test_a_job_that_cannot_be_modelled_any_more_loses_our_pin(state):
    """A requeued job with the old list: it is Slurm's, and the list must not bind it to nodes that may leave."""
    entry = None if state is None else an_entry(state)
    found = after(entry, seen(left=[UnmanagedJob(1, "het job", pinned=True)]))
    if state is LedgerState.HANDING_BACK:
        assert found is None
    else:
        assert (found.state, found.pinned, found.leave) == (LedgerState.HANDING_BACK, True, "het job")


@pytest.mark.parametrize(("known", "becomes"), [(True, LedgerState.HANDING_BACK), (False, None)])
def test_beside_another_bridge_only_pins_that_the_own_ledger_knows_are_taken_off_what_is_left(known, becomes):
    entry = an_entry(LedgerState.RUNNING, pinned=known)
    found = after(
        entry, seen(left=[UnmanagedJob(1, "het job", pinned=True)]), ReconcileOptions(controlling=False, beside=True)
    )
    assert (None if found is None else found.state) is becomes


@pytest.mark.parametrize("state", [s for s in LedgerState if s not in CLOSED])
def test_a_job_that_is_nowhere_is_gone_if_it_was_ours_and_else_over(state):
    assert after(an_entry(state), seen()).state is (LedgerState.GONE if state in KEPT else LedgerState.ENDED)


def test_the_usual_conduct_is_that_of_the_settings():
    usual, start = ReconcileOptions(), JobStartSettings()
    assert (usual.adopt, usual.start_timeout_s, usual.max_failures) == (
        start.adopt,
        start.timeout_s,
        start.max_failures,
    )
    assert usual.controlling


@pytest.mark.parametrize(
    ("cause", "apart", "becomes"),
    [
        ("", False, LedgerState.FREE),
        ("", True, LedgerState.ROLLING_BACK),
        ("released", True, LedgerState.FREE),
    ],
)
def test_whose_hold_it_is_on_a_job_with_a_pin_of_ours(cause, apart, becomes):
    """Where the pin comes before the release, a hold is the bridge's own of before, until the release was answered."""
    held = seen(pending=[pending(Hold.ADMIN, pinned=True)])
    entry = an_entry(LedgerState.STARTING, cause=cause, pinned=True)
    assert after(entry, held, ReconcileOptions(releases_apart=apart)).state is becomes
    handed = LedgerState.FREE if becomes is LedgerState.FREE else LedgerState.HANDING_BACK
    assert after(entry, held, ReconcileOptions(controlling=False, releases_apart=apart)).state is handed


@pytest.mark.parametrize(("now_s", "late"), [(105, False), (106, True)])
def test_a_start_is_late_after_its_time_and_not_before(now_s, late):
    found = after(an_entry(LedgerState.STARTING, since_s=95), seen(now_s, pending=[pending(Hold.NONE, pinned=True)]))
    assert (found is not None) == late
    if late:
        assert (found.state, found.failures, found.why) == (LedgerState.ROLLING_BACK, 1, "not running after 11 s")


TABLE = Path(__file__).with_name("reconcile_table.txt")
"""What becomes of a pending job: every state in the ledger, every hold, with a pin and without, and every conduct."""

CONDUCTS = {
    "adopt": CONDUCT,
    "no adopt": replace(CONDUCT, adopt=False),
    "give back": replace(CONDUCT, controlling=False),
}


def outcome(state, leave, hold, pinned, conduct):
    """The transition in words, of a job with one failure and a pin by the ledger, in its state for a second."""
    entry = an_entry(state, since_s=99, pinned=True, failures=1, leave=leave, label="1_1") if state else None
    each = PendingJob(a_job(1), hold, pinned, "1_1")
    (transition,) = reconcile(entry, seen(pending=[each]), conduct) or [None]
    if transition is None:
        return "stays"
    now = transition.entry
    assert (transition.before, now.job_id, now.since_s) == (state, 1, 100)
    words = [now.state.value, "pinned" if now.pinned else "no pin", f"{now.failures} failed", now.label or "no label"]
    return ", ".join([*words, f"why: {now.why}", f"leave: {now.leave}" if now.leave else "not left"])


def table():
    """A line for each case; cases that differ by the conduct alone and come to the same are one line."""
    left = [
        (state, "no more") for state in (LedgerState.FREE, LedgerState.GONE, LedgerState.RUNNING, LedgerState.ENDED)
    ]
    for state, leave in [(None, ""), *((state, "") for state in LedgerState), *left]:
        for hold, pinned in product(Hold, (True, False)):
            of = {name: outcome(state, leave, hold, pinned, conduct) for name, conduct in CONDUCTS.items()}
            known = f"{state.value if state else 'unknown'}{' (left)' if leave else ''}"
            case = f"{known}, {hold.value}, {'pinned' if pinned else 'free'}"
            for found in dict.fromkeys(of.values()):
                names = [name for name in of if of[name] == found]
                yield f"{case} | {'always' if len(names) == len(of) else ' or '.join(names)} | {found}"


def test_the_table_of_pending_jobs_is_as_written_down():
    """Changed deliberately: `python -m tests.unit.bridge.cycle.test_reconcile`, then read the difference."""
    assert list(table()) == TABLE.read_text().splitlines()


@pytest.mark.parametrize(
    ("start_s", "end_s", "earlier"),
    [(10, 94, True), (10, 95, True), (95, 95, True), (95, 97, True), (96, 96, False), (96, 99, False)],
)
@pytest.mark.parametrize("state", [state for state in LedgerState if state is not LedgerState.ENDED])
def test_the_end_of_an_earlier_run_ends_no_job_that_waits_again(state, start_s, end_s, earlier):
    """The entry is of second 95. A job that waits and is seen no more has been cancelled; one that ran has ended.

    A held job cannot have run since, whatever clocks say that have stepped meanwhile.
    """
    entry = an_entry(state, since_s=95)
    observation = seen(ended=(EndedJob(a_job(1), start_s, end_s),))
    (transition,) = reconciling.reconcile({1: entry}, frozenset({1}), observation, CONDUCT)
    before = state is LedgerState.HELD or (state in (LedgerState.HOLDING, LedgerState.HANDING_BACK) and earlier)
    assert transition.entry.state is (LedgerState.GONE if before else LedgerState.ENDED)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "1 x 1 for 100 s in any queue"),
        ({"queue": "long"}, "1 x 1 for 100 s in long"),
        ({"units": 3, "per_unit": (2, 5), "walltime_s": 7}, "3 x 2+5 for 7 s in any queue"),
        ({"exclusive": True, "queue": "q"}, "1 x 1 exclusively for 100 s in q"),
    ],
)
def test_what_a_job_asks_for_in_words_that_change_with_it(facts, words):
    held = replace(pending(Hold.CLUSTER), job=a_job(1, **facts))
    found = after(an_entry(LedgerState.HELD), seen(pending=(held,)))
    assert found.leave == f"the cluster holds it: no reason given, while it asks for {words}"


if __name__ == "__main__":
    TABLE.write_text("\n".join(table()) + "\n")
