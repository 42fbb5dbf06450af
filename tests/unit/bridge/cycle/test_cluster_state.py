"""The cluster state built from an observation, for any output of the adapter."""

from dataclasses import replace

import numpy as np
import pytest

from cpsched_bridge.backoff_groups import BackoffGroupKey
from cpsched_bridge.cycle.cluster_state import (
    build_cluster_state,
    explain_unscheduled_jobs,
    list_unscheduled_jobs,
)
from cpsched_bridge.cycle_report import Decided
from cpsched_bridge.ports import ClusterReason, Hold, Holder, Observation, PendingJob, UnmanagedJob
from cpsched_bridge.store.journal_reader import UnscheduledJob
from cpsched_bridge.store.ledger import MANAGED_STATES, LedgerState, ManagedJobEntry
from tests.builders import a_cluster, a_job, a_pending, a_running, a_snapshot, an_observation


@pytest.mark.parametrize("controlling", [False, True])
def test_clips_free_resources_and_removes_duplicate_jobs(controlling):
    cluster = a_cluster(nodes=2)
    pending = tuple(PendingJob(a_job(id), Hold.NONE) for id in (1, 1, 2, 9))
    running = (a_running(a_job(9), ((0, 1),)), a_running(a_job(9), ((1, 1),)))
    seen = Observation(5, cluster, np.array([[-3], [4]]), pending, running)
    scene = build_cluster_state(seen, {}, controlling)
    assert scene.free.tolist() == [[0], [4]]
    assert [job.id for job in scene.queue] == ([] if controlling else [1, 2])
    assert [(r.job.id, r.placement) for r in scene.running] == [(9, ((0, 1),))]


HELD_BY_CLUSTER = "held by the cluster until the job is released or changed"


def queued(hold, state, controlling):
    """Whether a job is decided on that the cluster holds like this, and the ledger knows in this state (or not)."""
    entries = {} if state is None else {1: ManagedJobEntry(1, state, 0)}
    return [
        job.id for job in build_cluster_state(an_observation(a_pending(hold=hold)), entries, controlling).queue
    ] == [1]


@pytest.mark.parametrize("hold", Hold)
@pytest.mark.parametrize("state", [None, *LedgerState])
def test_control_decides_ledger_jobs_held_by_cluster(hold, state):
    assert queued(hold, state, True) is (state is LedgerState.HELD and hold in (Hold.PLUGIN, Hold.ADMIN))


@pytest.mark.parametrize("hold", Hold)
@pytest.mark.parametrize("state", [None, *LedgerState])
def test_shadow_decides_jobs_that_control_would_hold(hold, state):
    ours = hold is Hold.ADMIN and state in MANAGED_STATES
    assert queued(hold, state, False) is (hold in (Hold.NONE, Hold.PLUGIN) or ours)


COMING = {
    "as promised": ((("n1", 2),), [[4], [4]], [[4], [2]], [((1, 2),)]),
    "to the last core": ((("n1", 2),), [[4], [2]], [[4], [0]], [((1, 2),)]),
    "a core short": ((("n1", 2),), [[4], [1]], [[4], [1]], []),
    "over two nodes, as sent": ((("n1", 1), ("n0", 1)), [[4], [4]], [[3], [3]], [((0, 1), (1, 1))]),
    "one of two nodes is full": ((("n0", 1), ("n1", 1)), [[4], [0]], [[4], [0]], []),
    "a node that is gone": ((("n0", 1), ("n9", 1)), [[4], [4]], [[4], [4]], []),
}


@pytest.mark.parametrize("name", COMING)
def test_starting_jobs_take_nodes_unless_impossible(name):
    nodes, free, left, placements = COMING[name]
    entry = ManagedJobEntry(1, LedgerState.STARTING, 77, nodes=nodes)
    seen = an_observation(a_pending(a_job(units=2)), cluster=a_cluster(2), free=free)
    scene = build_cluster_state(seen, {1: entry}, True)
    assert scene.free.tolist() == left
    assert [(each.start_s, each.placement) for each in scene.running] == [(77, placement) for placement in placements]
    untouched = build_cluster_state(seen, {1: entry}, False)
    assert (untouched.free.tolist(), untouched.running) == (free, ())


def test_first_of_two_conflicting_starting_jobs_takes_nodes():
    nodes = (("n0", 1),)
    entries = {id: ManagedJobEntry(id, LedgerState.STARTING, 7, nodes=nodes) for id in (1, 2)}
    entries[3] = ManagedJobEntry(3, LedgerState.ROLLING_BACK, 7, nodes=nodes)
    seen = an_observation(*(a_pending(a_job(id, per_unit=3)) for id in (1, 2, 3, 4)), cluster=a_cluster(2))
    scene = build_cluster_state(seen, entries, True)
    assert ([each.job.id for each in scene.running], scene.free.tolist()) == ([1], [[1], [4]])
    assert seen.free.tolist() == [[4], [4]], "the observation stays as it is"


def test_running_job_counts_where_it_runs():
    entry = ManagedJobEntry(1, LedgerState.STARTING, 7, nodes=(("n0", 1),))
    seen = an_observation(a_pending(), running=(a_running(a_job(1), ((1, 1),)),))
    assert [each.placement for each in build_cluster_state(seen, {1: entry}, True).running] == [((1, 1),)]


DEPENDS = a_job(ineligible="dependency")
OF_USER, OF_CLUSTER = a_pending(hold=Hold.USER), a_pending(a_job(ineligible="begin time"), Hold.CLUSTER)
LAUNCH_FAILED = ClusterReason("launch failed", BackoffGroupKey("job", ("1",)))
FAILED_LAUNCH = f"{HELD_BY_CLUSTER}: launch failed"


def ours(state, why="", **facts):
    return {1: ManagedJobEntry(1, state, 0, why=why, **facts)}


@pytest.mark.parametrize(
    ("job", "entries", "limit", "kind", "reason"),
    [
        (a_pending(DEPENDS, Hold.USER), ours(LedgerState.HELD), "full", "held", "held by its owner"),
        (replace(OF_USER, holder=Holder.ADMINISTRATOR), {}, None, "held", "held by an administrator"),
        (replace(OF_USER, holder=Holder.CLUSTER), {}, None, "held", "held by the cluster"),
        (replace(a_pending(a_job(ineligible="(s)"), Hold.USER), holder=Holder.CLUSTER), {}, None, "held", "(s)"),
        (a_pending(DEPENDS), ours(LedgerState.HELD), "full", "ineligible", "dependency"),
        (a_pending(), ours(LedgerState.HELD, "held"), "QOS full", "ineligible", "QOS full"),
        (a_pending(), ours(LedgerState.HELD, "held"), None, "held", "held"),
        (a_pending(), ours(LedgerState.FREE, "released", unmanaged_reason="odd"), None, "free", "odd"),
        (a_pending(hold=Hold.ADMIN), {}, None, "held", "held by an administrator, not by the bridge"),
        (a_pending(hold=Hold.CLUSTER), {}, None, "held", HELD_BY_CLUSTER),
        (replace(OF_CLUSTER, cluster_reason=LAUNCH_FAILED), ours(LedgerState.FREE), None, "held", FAILED_LAUNCH),
        (a_pending(hold=Hold.PLUGIN), {}, None, "free", "held for the bridge, which has not adopted it yet"),
        (a_pending(hold=Hold.NONE), {}, None, "free", "not held: the cluster's own scheduler may start it"),
    ],
)
def test_gives_reason_why_job_is_not_scheduled(job, entries, limit, kind, reason):
    decided = Decided(limited={} if limit is None else {1: limit})
    reasons = explain_unscheduled_jobs(an_observation(job), decided, entries)
    assert list_unscheduled_jobs(an_observation(job), reasons) == [UnscheduledJob(1, kind, reason)]
    decided = replace(decided, snapshot=a_snapshot(a_cluster(), [replace(job.job, ineligible=None)]))
    assert explain_unscheduled_jobs(an_observation(job), decided, entries) == {}


def test_lists_unsupported_jobs_first_with_label_and_user():
    left = UnmanagedJob(5, "heterogeneous job", "5_1", "ada")
    seen = an_observation(a_pending(a_job(user="bob"), label="1_7"), unmanaged=(left,))
    entry = ManagedJobEntry(1, LedgerState.HELD, 0, why="held")
    reasons = explain_unscheduled_jobs(seen, Decided(), {1: entry})
    assert list_unscheduled_jobs(seen, reasons) == [
        UnscheduledJob(5, "unmanaged", "heterogeneous job", "5_1", "ada"),
        UnscheduledJob(1, "held", "held", "1_7", "bob"),
    ]
