"""Which starts succeeded or failed, the possible causes, and the reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cpsched.model import EndedJob, RunningJob
from cpsched_bridge.backoff_groups import BackoffGroupKey, make_equivalence_class_key
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.start_outcomes import FailureCause, ObservedStartOutcomes, StartOutcomeTracker
from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.ports import ClusterReason, Hold, Holder, Observation
from cpsched_bridge.store.ledger import PERMITTED_TRANSITIONS, LedgerState, LedgerTransition, ManagedJobEntry
from tests.builders import a_cluster, a_job, a_pending, an_observation
from tests.fakes import FakePace

CLUSTER = a_cluster(nodes=3, cores=4)
JOB = replace(a_job(1, per_unit=2), user="ann", account="lab", queue="main", qos="fast")
ITS_OWN = {("user", "ann"), ("account", "lab"), ("partition", "main"), ("QOS", "fast")}


def observed(**facts: object) -> Observation:
    return replace(an_observation(a_pending(JOB, Hold.ADMIN), cluster=CLUSTER, now_s=9), **facts)  # type: ignore[arg-type]


def outcomes(transitions: Sequence[LedgerTransition], seen: Observation) -> ObservedStartOutcomes:
    return StartOutcomeTracker().classify_outcomes(transitions, seen)


def a_failure(*nodes: str, after: LedgerState = LedgerState.ROLLING_BACK, id: int = 1) -> LedgerTransition:
    entry = ManagedJobEntry(id, after, 9, nodes=tuple((node, 1) for node in nodes), why="not running after 16 s")
    return LedgerTransition(LedgerState.STARTING, entry, failed=True)


def test_failed_start_suspects_job_nodes_and_running_users() -> None:
    running = tuple(
        RunningJob(replace(a_job(id), user=user), 0, ((node, 1),))
        for id, user, node in ((2, "bob", 0), (3, "cy", 1), (4, "dee", 2))
    )
    (found,) = outcomes([a_failure("n0", "n1")], observed(running=running)).failed
    shapes = {suspect for suspect in found.suspects if suspect[0] == "shape"}
    assert len(shapes) == 1
    others = {("node", "n0"), ("node", "n1"), ("user", "bob"), ("user", "cy")}
    assert (found.suspects - shapes, found.cause) == (ITS_OWN | others, FailureCause.UNKNOWN)


@pytest.mark.parametrize("after", sorted(PERMITTED_TRANSITIONS[LedgerState.STARTING]))
def test_classifies_outcome_of_start(after: LedgerState) -> None:
    """Seen running, or to have run, it succeeded; with a failure it failed; else neither."""
    plain = outcomes([LedgerTransition(LedgerState.STARTING, ManagedJobEntry(1, after, 9))], observed())
    assert plain.began == ({1: ""} if after in (LedgerState.RUNNING, LedgerState.ENDED) else {})
    assert plain.failed == ()
    assert len(outcomes([a_failure("n0", after=after)], observed()).failed) == 1


def test_cause_and_group_of_failed_start() -> None:
    """The job needs two cores on each of its nodes. Where two are free just so, the cluster itself is suspect."""
    scope, own, alike = (
        BackoffGroupKey("qos", ("fast",)),
        BackoffGroupKey("job", ("1",)),
        make_equivalence_class_key(JOB),
    )
    limit = ClusterReason("QOSGrpCpuLimit", scope)
    rule = ClusterReason("QOSMaxWall", scope, clears_on_end=False)
    failed, refused = a_failure("n0", "n1"), ManagedJobEntry(1, LedgerState.HELD, 9, cause="refused")
    table = {
        "a limit": (replace(failed, cluster_reason=limit), {}, {}, ("limit", scope, "QOSGrpCpuLimit")),
        "a rule": (replace(failed, cluster_reason=rule), {}, {}, ("cluster", scope, "QOSMaxWall")),
        "its owner": (failed, {"hold": Hold.USER}, {}, ("owner", own, "StartFailed")),
        "the cluster's hold": (
            failed, {"hold": Hold.USER, "holder": Holder.CLUSTER}, {}, ("unknown", alike, "StartFailed"),
        ),
        "other jobs": (failed, {"lower_priority": True}, {}, ("precedence", own, "StartFailed")),
        "one node is gone": (a_failure("n0", "gone"), {}, {}, ("precedence", own, "StartFailed")),
        "just enough is free": (failed, {}, {"free": [[2], [2], [0]]}, ("unknown", alike, "StartFailed")),
        "one node is full": (failed, {}, {"free": [[4], [1], [4]]}, ("precedence", own, "StartFailed")),
        "a refusal": (LedgerTransition(LedgerState.STARTING, refused), {}, {}, ("unknown", alike, "StartFailed")),
    }  # fmt: skip
    found = {}
    for name, (transition, job, facts, _) in table.items():
        pending = a_pending(JOB, **{"hold": Hold.ADMIN, **job})
        seen = an_observation(pending, cluster=CLUSTER, now_s=9, **facts)
        (failure,) = outcomes([transition], seen).failed
        assert failure.pending is pending
        found[name] = (failure.cause, failure.group, failure.reason)
    assert found == {name: expected for name, (*_, expected) in table.items()}


def test_takes_users_of_successful_starts_from_reading() -> None:
    moves = [
        LedgerTransition(LedgerState.STARTING, ManagedJobEntry(id, state, 9))
        for id, state in ((1, LedgerState.RUNNING), (2, LedgerState.ENDED))
    ]
    running = (RunningJob(JOB, 8, ((0, 1),)),)
    ended = (EndedJob(replace(a_job(2), user="bob"), 7, 8),)
    assert outcomes(moves, observed(pending=(), running=running, ended=ended)).began == {1: "ann", 2: "bob"}


# ------------------------------------------------------------------------------------- what is timed and reported


LIMIT = ClusterReason("AssocMaxJobsLimit", BackoffGroupKey("association", ("ada", "")))


@pytest.fixture
def tracker():
    return StartOutcomeTracker()


def noted(tracker, *transitions, now_s=7.5):
    recorder = CycleRecorder(1, FakePace())
    tracker.report_transitions(transitions, now_s, recorder)
    return recorder


def step(before, after, event="", cluster_reason=None, id=1):
    return LedgerTransition(before, ManagedJobEntry(id, after, 0, why="for people"), cluster_reason, event=event)


@pytest.mark.parametrize("cluster_reason", [None, LIMIT])
@pytest.mark.parametrize("after", sorted(PERMITTED_TRANSITIONS[LedgerState.STARTING]))
def test_measures_latency_of_each_start_once(tracker, after, cluster_reason):
    tracker.record_decided_starts([1], 5.0)
    recorder = noted(tracker, step(LedgerState.STARTING, after, "as_decided", cluster_reason))
    ran = after in (LedgerState.RUNNING, LedgerState.ENDED)
    assert recorder.latencies_s == ([2.5] if ran else [])
    again = noted(tracker, step(LedgerState.STARTING, LedgerState.RUNNING, "as_decided"))
    assert again.latencies_s == [], "when that start was decided is forgotten"


@pytest.mark.parametrize("before", [None, *(state for state in LedgerState if state is not LedgerState.STARTING)])
def test_ignores_jobs_that_were_not_starting(tracker, before):
    for after in PERMITTED_TRANSITIONS[before]:
        tracker.record_decided_starts([1], 5.0)
        recorder = noted(tracker, step(before, after))
        assert recorder.latencies_s == []
        again = noted(tracker, step(LedgerState.STARTING, LedgerState.RUNNING, "as_decided"))
        assert again.latencies_s == [], "a start that was refused is over"


@pytest.mark.parametrize(
    ("transition", "told"),
    [
        (step(LedgerState.STARTING, LedgerState.RUNNING, "as_decided"), []),
        (step(LedgerState.STARTING, LedgerState.RUNNING), ["started_elsewhere"]),
        (step(LedgerState.STARTING, LedgerState.ENDED), []),
        (step(LedgerState.HELD, LedgerState.RUNNING), []),
        (step(LedgerState.STARTING, LedgerState.ROLLING_BACK), ["start_failed"]),
        (step(LedgerState.STARTING, LedgerState.ROLLING_BACK, cluster_reason=LIMIT), []),
        (step(LedgerState.HELD, LedgerState.GONE), []),
        (step(LedgerState.RELEASING, LedgerState.GONE), []),
        (step(LedgerState.STARTING, LedgerState.GONE, cluster_reason=LIMIT), ["job_gone"]),
        (step(LedgerState.HELD, LedgerState.RELEASING, "unmanaged"), ["unmanaged"]),
        (step(LedgerState.STARTING, LedgerState.ROLLING_BACK, "still_managed"), ["still_managed", "start_failed"]),
        (step(LedgerState.RELEASING, LedgerState.HOLDING, "still_managed"), ["still_managed"]),
        (step(LedgerState.HELD, LedgerState.RELEASING), []),
        (step(LedgerState.RELEASING, LedgerState.FREE, "unmanaged"), []),
        (step(LedgerState.STARTING, LedgerState.FREE, "unmanaged", LIMIT), ["unmanaged"]),
        (step(LedgerState.HELD, LedgerState.FREE), []),
    ],
)
def test_reports_notable_transitions(tracker, transition, told):
    recorder = noted(tracker, transition)
    assert recorder.bridge_events == [CycleEvent(kind, transition.entry.why, 1) for kind in told]


def test_measures_latency_of_each_job(tracker):
    tracker.record_decided_starts([1, 2], 1.0)
    tracker.record_decided_starts([3], 4.0)
    starts = [step(LedgerState.STARTING, LedgerState.RUNNING, "as_decided", id=id) for id in (3, 1, 9)]
    assert noted(tracker, *starts).latencies_s == [3.5, 6.5]
    last = step(LedgerState.STARTING, LedgerState.RUNNING, "as_decided", id=2)
    assert noted(tracker, last, now_s=11.0).latencies_s == [10.0]
