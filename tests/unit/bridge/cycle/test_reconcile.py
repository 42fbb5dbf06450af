from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.model import EndedJob
from cpsched_bridge.backoff_groups import BackoffGroupKey
from cpsched_bridge.cycle import reconcile as reconciling
from cpsched_bridge.cycle.reconcile import ReconcileOptions
from cpsched_bridge.ports import CANNOT_BE_RELEASED, ClusterReason, Hold, PendingJob, UnmanagedJob
from cpsched_bridge.settings import FailedStartSettings
from cpsched_bridge.store.ledger import CLOSED_STATES, MANAGED_STATES, LedgerState, ManagedJobEntry
from tests.builders import a_job, a_pending, a_running, an_entry, an_observation

CONDUCT = ReconcileOptions(start_timeout_s=10, max_failures=3)
OTHER_LEADS = ReconcileOptions(controlling=False, other_in_control=True)


def reconcile(entry, observation, options):
    known = {1: entry} if entry else {}
    return reconciling.reconcile(
        known, {id for id, e in known.items() if e.state not in CLOSED_STATES}, observation, options
    )


def after(entry, observation, options=CONDUCT):
    """The entry as it becomes, or None where nothing changes."""
    found = reconcile(entry, observation, options)
    assert len(found) <= 1
    return found[0].entry if found else None


LIMIT = ClusterReason("AssocMaxJobsLimit", BackoffGroupKey("association", ("u", "a")))
BAD = ClusterReason("BadConstraints", BackoffGroupKey("job", ("1",)))


@pytest.mark.parametrize(
    "state",
    [LedgerState.HOLDING, LedgerState.HELD, LedgerState.STARTING, LedgerState.ROLLING_BACK, LedgerState.RUNNING],
)
def test_releases_job_held_by_cluster_once_and_leaves_it(state):
    held = a_pending(hold=Hold.CLUSTER, pinned=True, cluster_reason=BAD)
    entry = after(an_entry(state, pinned=True), an_observation(held))
    assert (entry.state, entry.pinned) == (LedgerState.RELEASING, True)
    assert "BadConstraints" in entry.unmanaged_reason
    assert after(entry, an_observation(held)) is None, "not before the pin is off"
    free = after(entry, an_observation(replace(held, pinned=False)))
    assert (free.state, free.unmanaged_reason) == (LedgerState.FREE, entry.unmanaged_reason)
    for hold in (Hold.CLUSTER, Hold.NONE, Hold.ADMIN):
        assert after(free, an_observation(replace(held, pinned=False, hold=hold))) is None


@pytest.mark.parametrize(("hold", "state"), [(Hold.NONE, LedgerState.HOLDING), (Hold.PLUGIN, LedgerState.HELD)])
def test_takes_changed_job_back_from_cluster_hold(hold, state):
    held = a_pending(hold=Hold.CLUSTER, cluster_reason=BAD)
    free = after(an_entry(LedgerState.HELD, failures=2), an_observation(held))
    other = replace(held.job, walltime_s=held.job.walltime_s + 60)
    taken = after(free, an_observation(PendingJob(other, hold)))
    assert (free.failures, taken.state, taken.unmanaged_reason, taken.failures) == (2, state, "", 0)


@pytest.mark.parametrize(
    ("entry", "becomes", "why"),
    [
        (
            an_entry(LedgerState.STARTING, failures=2),
            LedgerState.ROLLING_BACK,
            "3 consecutive attempts failed; last failure: held",
        ),
        (
            an_entry(LedgerState.RELEASING, failures=3, unmanaged_reason="odd", why="given up"),
            LedgerState.HOLDING,
            "given up",
        ),
        (an_entry(LedgerState.FREE, unmanaged_reason="odd"), LedgerState.HOLDING, "odd"),
        (an_entry(LedgerState.RUNNING, unmanaged_reason="odd"), LedgerState.HOLDING, "requeued"),
    ],
)
def test_job_startable_only_by_bridge_is_kept_and_retried(entry, becomes, why):
    found = after(entry, an_observation(a_pending(release_is_pointless=True)))
    assert (found.state, found.unmanaged_reason, found.since_s) == (becomes, "", 100)
    assert found.why.startswith(f"{CANNOT_BE_RELEASED}: {why}")
    released = after(entry, an_observation(a_pending()))
    assert released is None or released.state is LedgerState.RELEASING
    assert after(found, an_observation(a_pending(release_is_pointless=True), now_s=101)).state is LedgerState.HELD


@pytest.mark.parametrize(
    ("entry", "found", "event"),
    [
        (an_entry(LedgerState.STARTING, failures=2), a_pending(release_is_pointless=True), "still_managed"),
        (an_entry(LedgerState.STARTING, failures=2), a_pending(), "unmanaged"),
        (an_entry(LedgerState.FREE, unmanaged_reason="odd"), a_pending(), "unmanaged"),
        (an_entry(LedgerState.HELD), a_pending(hold=Hold.CLUSTER), "unmanaged"),
        (an_entry(LedgerState.HELD), a_pending(hold=Hold.NONE), "unmanaged"),
        (an_entry(LedgerState.RUNNING, unmanaged_reason="odd"), a_pending(hold=Hold.NONE), ""),
        (an_entry(LedgerState.STARTING), a_pending(), ""),
    ],
)
def test_transitions_report_leaving_or_keeping_job(entry, found, event):
    (transition,) = reconcile(entry, an_observation(found), CONDUCT)
    assert transition.event == event


def test_counts_and_reports_failures_of_unreleasable_job():
    (found,) = reconcile(
        an_entry(LedgerState.STARTING, failures=7), an_observation(a_pending(release_is_pointless=True)), CONDUCT
    )
    assert (found.failed, found.entry.failures) == (True, 8)


@pytest.mark.parametrize("hold", [Hold.NONE, Hold.ADMIN, Hold.USER, Hold.CLUSTER])
@pytest.mark.parametrize("state", list(LedgerState))
def test_unreleasable_job_held_by_others_is_treated_alike(state, hold):
    entry = an_entry(state, failures=2, unmanaged_reason="odd" if state is LedgerState.FREE else "")
    one, other = (
        after(entry, an_observation(a_pending(hold=hold, release_is_pointless=stays))) for stays in (True, False)
    )
    assert one == other


@pytest.mark.parametrize("options", [replace(CONDUCT, controlling=False), replace(CONDUCT, other_in_control=True)])
@pytest.mark.parametrize("state", list(LedgerState))
def test_unreleasable_job_is_treated_alike_out_of_control(state, options):
    entry = an_entry(state)
    one, other = (
        after(entry, an_observation(a_pending(release_is_pointless=stays)), options) for stays in (True, False)
    )
    assert one == other


@pytest.mark.parametrize("options", [ReconcileOptions(), ReconcileOptions(controlling=False)])
@pytest.mark.parametrize(
    ("facts", "free"),
    [
        ({"cause": "held_by_administrator"}, True),
        ({"why": "hold refused: is held by an administrator"}, False),
        ({"why": "hold refused: is RUNNING", "pinned": True}, False),
        ({"why": "hold refused: permission denied"}, False),
    ],
)
def test_earlier_hold_is_not_ours_if_our_hold_was_refused(options, facts, free):
    entry = replace(an_entry(LedgerState.HOLDING), **facts)
    result = after(entry, an_observation(a_pending(hold=Hold.ADMIN)), options)
    assert (result.state is LedgerState.FREE) is free
    if free:
        assert after(result, an_observation(a_pending(hold=Hold.ADMIN)), options) is None


@pytest.mark.parametrize("adopt", [True, False])
def test_adopts_job_released_by_deadman(adopt):
    away = replace(CONDUCT, after_dead_man=True, adopt=adopt)
    free = after(an_entry(LedgerState.HELD), an_observation(a_pending(hold=Hold.NONE)), away)
    assert (free.state, free.unmanaged_reason) == (LedgerState.FREE, "")
    again = after(free, an_observation(a_pending(hold=Hold.NONE)), away)
    assert (again.state if again else None) == (LedgerState.HOLDING if adopt else None)


STARTING = an_entry(LedgerState.STARTING, nodes=(("n0", 1),), failures=1)
SPLIT = an_entry(LedgerState.STARTING, nodes=(("n0", 16), ("n1", 1)))


@pytest.mark.parametrize(
    ("entry", "placement", "otherwise", "why"),
    [
        (STARTING, ((0, 1),), {}, "started on the planned nodes"),
        (STARTING, ((2, 1),), {}, "started on different nodes: n2"),
        (STARTING, ((0, 1),), {1: "n0: 3 cores"}, "started with a different allocation: n0: 3 cores"),
        (SPLIT, ((0, 16), (1, 1)), {}, "started on the planned nodes"),
        (SPLIT, ((0, 9), (1, 8)), {}, "started with a different distribution: n0 9, n1 8"),
        (SPLIT, ((0, 1), (1, 1)), {}, "started on the planned nodes"),  # counted in other units
        (an_entry(LedgerState.HELD), ((0, 1),), {1: "n0: 3 cores"}, "started by another actor"),
    ],
)
def test_running_job_reports_how_it_differs_from_start(entry, placement, otherwise, why):
    observation = replace(an_observation(running=(a_running(a_job(1), placement),)), otherwise=otherwise)
    found = after(entry, observation)
    assert (found.state, found.why, found.failures) == (LedgerState.RUNNING, why, 0)


@pytest.mark.parametrize(
    ("entry", "state"),
    [
        (None, None),
        (an_entry(LedgerState.RUNNING), LedgerState.RELEASING),
        (an_entry(LedgerState.RUNNING, pinned=True), LedgerState.RELEASING),
    ],
)
def test_a_job_that_may_preempt_is_never_adopted(entry, state):
    """The cluster may already be stopping jobs for it."""
    able = a_pending(hold=Hold.NONE, may_preempt=True)
    found = after(entry, an_observation(able), replace(CONDUCT, adopt=True))
    assert (found.state if found else None) == state
    held = after(None, an_observation(replace(able, hold=Hold.PLUGIN)))
    assert held.state is LedgerState.HELD


def test_requeued_job_also_shown_as_ended_is_pending():
    """The first run is over, the job is not."""
    observation = an_observation(a_pending(hold=Hold.NONE, pinned=True), ended=(EndedJob(a_job(1), 50, 99),))
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
        unmanaged_reason=st.sampled_from(["", "not ours"]),
    ),
)


@given(ENTRIES, st.sampled_from(Hold), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_reconciliation_converges_to_one_owner_of_pending_job(entry, hold, pinned, control, adopt, stays):
    """With commands that work, repeated reconciliation comes to rest: held by us and to be started, or not ours.

    A user's hold is never touched, nor an administrator's on a job that was not ours; no hold stays without a holder.
    """
    options = ReconcileOptions(controlling=control, adopt=adopt, start_timeout_s=10, max_failures=3)
    ours = entry is not None and (entry.state in MANAGED_STATES or entry.state is LedgerState.GONE)
    first_hold, now_s = hold, 100
    for _ in range(8):
        now_s += 20
        for transition in reconcile(
            entry, an_observation(a_pending(hold=hold, pinned=pinned, release_is_pointless=stays), now_s=now_s), options
        ):
            entry = transition.entry
        if control and stays and hold is Hold.PLUGIN:
            assert entry.state is not LedgerState.RELEASING
        if (
            entry is not None
            and entry.state in (LedgerState.HOLDING, LedgerState.ROLLING_BACK)
            and hold is not Hold.USER
        ):
            hold, pinned = (Hold.ADMIN if hold is Hold.NONE else hold), False
        if entry is not None and entry.state is LedgerState.RELEASING and hold is not Hold.USER:
            hold, pinned = Hold.NONE, False
    assert (
        reconcile(
            entry,
            an_observation(a_pending(hold=hold, pinned=pinned, release_is_pointless=stays), now_s=now_s + 1),
            options,
        )
        == []
    )
    state = entry.state if entry else None
    assert state in (None, LedgerState.HELD, LedgerState.FREE, LedgerState.ENDED, LedgerState.RUNNING, LedgerState.GONE)
    if first_hold is Hold.USER:
        assert hold is Hold.USER
    if first_hold is Hold.ADMIN and not ours:
        assert hold is Hold.ADMIN
    if hold is Hold.CLUSTER:
        assert state not in MANAGED_STATES
    if hold is Hold.PLUGIN:
        assert state is LedgerState.HELD
    if not control:
        assert state not in MANAGED_STATES


def ended(id=1, start_s=5, end_s=95):
    return EndedJob(a_job(id), start_s, end_s)


@pytest.mark.parametrize("state", [None, *LedgerState])
def test_ended_job_ends_once(state):
    entry = None if state is None else an_entry(state, pinned=True)
    found = after(entry, an_observation(ended=(ended(start_s=96, end_s=99),)))
    if state in (None, LedgerState.ENDED):
        assert found is None
    elif state is LedgerState.HELD:  # a run of before it was held
        assert found.state is LedgerState.GONE
    else:
        assert (found.state, found.pinned, found.since_s) == (LedgerState.ENDED, False, 100)


@pytest.mark.parametrize("state", [None, *LedgerState])
def test_running_job_is_running_once_regardless_of_starter(state):
    entry = None if state is None else an_entry(state, failures=2, nodes=(("n0", 1),))
    found = after(entry, an_observation(running=(a_running(a_job(1), ((0, 1),)),)))
    if state in (None, LedgerState.RUNNING):
        assert found is None
    else:
        by_us = state in (LedgerState.STARTING, LedgerState.ROLLING_BACK)
        assert (found.state, found.failures) == (LedgerState.RUNNING, 0)
        assert found.why == ("started on the planned nodes" if by_us else "started by another actor")


@pytest.mark.parametrize("state", [None, *LedgerState])
@pytest.mark.parametrize("held_for_bridge", [True, False])
def test_releases_unmodelled_job_that_may_have_our_hold(state, held_for_bridge):
    entry = None if state is None else an_entry(state)
    found = after(entry, an_observation(unmanaged=(UnmanagedJob(1, "het job", held_for_bridge=held_for_bridge),)))
    ours = held_for_bridge or (state in MANAGED_STATES)
    if ours and state is not LedgerState.RELEASING:
        assert (found.job_id, found.state, found.unmanaged_reason) == (1, LedgerState.RELEASING, "het job")
    elif state is LedgerState.RUNNING:
        assert (found.state, found.why) == (LedgerState.FREE, "requeued and left to the cluster: het job")
    else:
        assert found is None


@pytest.mark.parametrize("state", [LedgerState.HELD, LedgerState.RUNNING, LedgerState.ENDED])
def test_pin_unknown_to_restored_ledger_is_recorded(state):
    """The job was started after the ledger had been backed up, and then requeued and held by its owner.

    The bridge may have observed the run.
    """
    entry = an_entry(state, pinned=False)
    found = after(entry, an_observation(a_pending(hold=Hold.USER, pinned=True)))
    assert (found.state, found.pinned) == (LedgerState.FREE, True)


@pytest.mark.parametrize("state", [None, *LedgerState])
def test_removes_pin_of_job_that_became_unmodelled(state):
    """A requeued job with the old list: it is Slurm's, and the list must not bind it to nodes that may leave."""
    entry = None if state is None else an_entry(state)
    found = after(entry, an_observation(unmanaged=(UnmanagedJob(1, "het job", pinned=True),)))
    if state is LedgerState.RELEASING:
        assert found is None
    else:
        assert (found.state, found.pinned, found.unmanaged_reason) == (LedgerState.RELEASING, True, "het job")


@pytest.mark.parametrize(
    ("state", "known_pin", "job", "becomes"),
    [
        (LedgerState.RUNNING, True, {"pinned": True}, LedgerState.RELEASING),
        (LedgerState.RUNNING, False, {"pinned": True}, None),
        (None, False, {"held_for_bridge": True}, None),
        (LedgerState.HELD, False, {"held_for_bridge": True}, LedgerState.FREE),
        (LedgerState.RELEASING, False, {"held_for_bridge": True}, LedgerState.FREE),
    ],
)
def test_releases_only_own_unmodelled_jobs_with_other_bridge(state, known_pin, job, becomes):
    """The pins that the ledger knows are its own, and the plugin's holds are those of the bridge in control."""
    entry = None if state is None else an_entry(state, pinned=known_pin)
    found = after(entry, an_observation(unmanaged=(UnmanagedJob(1, "het job", **job),)), OTHER_LEADS)
    assert (None if found is None else found.state) is becomes


@pytest.mark.parametrize("state", [s for s in LedgerState if s not in CLOSED_STATES])
def test_missing_job_is_gone_if_ours_and_ended_otherwise(state):
    assert after(an_entry(state), an_observation()).state is (
        LedgerState.GONE if state in MANAGED_STATES else LedgerState.ENDED
    )


def test_default_options_match_settings():
    usual, start = ReconcileOptions(), FailedStartSettings()
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
def test_identifies_owner_of_hold_on_pinned_job(cause, apart, becomes):
    """Where the pin comes before the release, a hold is the bridge's own of before, until the release was answered."""
    held = an_observation(a_pending(hold=Hold.ADMIN, pinned=True))
    entry = an_entry(LedgerState.STARTING, cause=cause, pinned=True)
    assert after(entry, held, ReconcileOptions(releases_apart=apart)).state is becomes
    handed = LedgerState.FREE if becomes is LedgerState.FREE else LedgerState.RELEASING
    assert after(entry, held, ReconcileOptions(controlling=False, releases_apart=apart)).state is handed


HOLDING, RELEASING, FREE = LedgerState.HOLDING, LedgerState.RELEASING, LedgerState.FREE


@pytest.mark.parametrize(
    ("entry", "changes", "options", "becomes"),
    [
        (None, {}, CONDUCT, HOLDING),
        (None, {}, replace(CONDUCT, adopt=False), HOLDING),
        (None, {"may_preempt": True}, CONDUCT, HOLDING),
        (None, {}, replace(CONDUCT, controlling=False), RELEASING),
        (None, {}, replace(CONDUCT, other_in_control=True), None),
        (an_entry(HOLDING), {}, CONDUCT, None),
        (an_entry(RELEASING), {}, CONDUCT, None),
        (an_entry(RELEASING), {"awaits_hold": False}, CONDUCT, FREE),
        (an_entry(FREE, unmanaged_reason="3 starts failed"), {}, CONDUCT, RELEASING),
    ],
)
def test_job_delayed_by_plugin_is_held_or_released(entry, changes, options, becomes):
    """A command that has had no effect is repeated until it ends the delay."""
    delayed = replace(a_pending(hold=Hold.NONE), **{"awaits_hold": True, **changes})
    found = after(entry, an_observation(delayed), options)
    assert (found.state if found else None) is becomes


TABLE = Path(__file__).with_name("reconcile_table.txt")
"""What becomes of a pending job: every state in the ledger, every hold, with a pin and without, and every options."""

CONDUCTS = {
    "adopt": (CONDUCT, True),
    "no adopt": (replace(CONDUCT, adopt=False), True),
    "give back": (replace(CONDUCT, controlling=False), True),
    "other leads": (OTHER_LEADS, True),
    "other leads, pin unknown": (OTHER_LEADS, False),
}


def outcome(state, leave, hold, pinned, options, known_pin):
    """The transition in words, of a job with one failure, in its state for a second."""
    facts = {"since_s": 99, "pinned": known_pin, "failures": 1, "unmanaged_reason": leave, "label": "1_1"}
    entry = an_entry(state, **facts) if state else None
    each = PendingJob(a_job(1), hold, pinned, "1_1")
    (transition,) = reconcile(entry, an_observation(each), options) or [None]
    if transition is None:
        return "stays"
    now = transition.entry
    assert (transition.before, now.job_id, now.since_s) == (state, 1, 100)
    words = [now.state.value, "pinned" if now.pinned else "no pin", f"{now.failures} failed", now.label or "no label"]
    return ", ".join(
        [*words, f"why: {now.why}", f"leave: {now.unmanaged_text}" if now.unmanaged_reason else "not left"]
    )


def table():
    """A line for each case; cases that differ by the options alone and come to the same are one line."""
    left = [
        (state, "no more") for state in (LedgerState.FREE, LedgerState.GONE, LedgerState.RUNNING, LedgerState.ENDED)
    ]
    for state, leave in [(None, ""), *((state, "") for state in LedgerState), *left]:
        for hold, pinned in product(Hold, (True, False)):
            of = {name: outcome(state, leave, hold, pinned, *conduct) for name, conduct in CONDUCTS.items()}
            known = f"{state.value if state else 'unknown'}{' (left)' if leave else ''}"
            case = f"{known}, {hold.value}, {'pinned' if pinned else 'free'}"
            for found in dict.fromkeys(of.values()):
                names = [name for name in of if of[name] == found]
                yield f"{case} | {'always' if len(names) == len(of) else ' or '.join(names)} | {found}"


def test_pending_job_table_matches_recorded_one():
    """Changed deliberately: `python -m tests.unit.bridge.cycle.test_reconcile`, then read the difference."""
    assert list(table()) == TABLE.read_text().splitlines()


@pytest.mark.parametrize(
    ("start_s", "end_s", "earlier"),
    [(10, 94, True), (10, 95, True), (95, 95, True), (95, 97, True), (96, 96, False), (96, 99, False)],
)
@pytest.mark.parametrize("state", [state for state in LedgerState if state is not LedgerState.ENDED])
def test_earlier_end_does_not_end_requeued_job(state, start_s, end_s, earlier):
    """The entry is of second 95. A job that waits and is seen no more has been cancelled; one that ran has ended.

    A held job cannot have run since, whatever clocks say that have stepped meanwhile. A start that is about to be sent
    or undone may still be held, too.
    """
    entry = an_entry(state, since_s=95)
    observation = an_observation(ended=(EndedJob(a_job(1), start_s, end_s),))
    (transition,) = reconciling.reconcile({1: entry}, frozenset({1}), observation, CONDUCT)
    before = {
        LedgerState.HOLDING: earlier,
        LedgerState.HELD: True,
        LedgerState.STARTING: end_s < 95,
        LedgerState.ROLLING_BACK: start_s < 95,
        LedgerState.RELEASING: earlier,
    }
    assert transition.entry.state is (LedgerState.GONE if before.get(state) else LedgerState.ENDED)
    if state is LedgerState.STARTING:
        (answered,) = reconciling.reconcile({1: replace(entry, cause="released")}, {1}, observation, CONDUCT)
        assert answered.entry.state is LedgerState.ENDED, "the start itself may have ended before its answer"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "1 x 1 for 100 s in any queue"),
        ({"queue": "long"}, "1 x 1 for 100 s in long"),
        ({"units": 3, "per_unit": (2, 5), "walltime_s": 7}, "3 x 2+5 for 7 s in any queue"),
        ({"exclusive": True, "queue": "q"}, "1 x 1 exclusively for 100 s in q"),
    ],
)
def test_request_text_changes_with_request(facts, words):
    held = a_pending(hold=Hold.CLUSTER, job=a_job(1, **facts))
    found = after(an_entry(LedgerState.HELD), an_observation(held))
    assert found.unmanaged_text == f"the cluster holds it: no reason given, while it requests {words}"


if __name__ == "__main__":
    TABLE.write_text("\n".join(table()) + "\n")
