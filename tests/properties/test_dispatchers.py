"""Test the properties of every registered dispatcher on random clusters, queues and traces."""

from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cpsched import registry
from cpsched.feasibility import units_fitting_by_node, verify
from cpsched.model import Cluster, PendingCode
from cpsched.planning import EVERY_JOB
from cpsched.policy import Policy
from cpsched_sim.cluster.replay import ReplayOptions, TraceReplay, replay
from cpsched_sim.testing.dispatcher_properties import (
    PROPERTIES,
    build_effort_limited_dispatcher,
    build_policy_for_dispatcher,
    dispatcher_example_settings,
)
from cpsched_sim.testing.hypothesis_strategies import (
    can_run,
    scaled_example_settings,
    snapshots,
    subtract_placement,
    traces,
)
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.properties import reference
from tests.properties.reference import starts_and_nodes, without_groups

LISTS = [
    "fcfs", "greedy", "easy", "easy-sjbf", "list-reg", "list-sjf", "list-ljf", "list-saf", "list-laf", "list-spf",
    "list-wfp3", "list-unicep", "list-f1", "list-f2", "list-f3", "list-f4", "sjf", "ljf", "ebf", "prb",
]  # fmt: skip
NOT_COMPILED = {"prb", "list-wfp3", "list-unicep", "list-f1", "list-f2", "list-f3", "list-f4"}
"""Dispatchers whose order is computed in Python, so that the compiled loop does not apply."""
NAMES = [listing.name for listing in registry.DISPATCHERS.builtins()]
OTHER_CP_SAT = {"cp-af", "cp-awf", "cp-p2sf", "cp-p2sf+", "cp-bsld+"}
"""Dispatchers that differ from `cp-bsld` only in the objective, and that call a solver for each example."""


shared = cache(build_effort_limited_dispatcher)


def test_catalogue_contains_every_list_scheduler():
    assert set(LISTS) <= set(NAMES)


@pytest.mark.parametrize("promise", PROPERTIES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in OTHER_CP_SAT)) for name in NAMES]
)
def test_dispatcher_satisfies_property(name, promise):
    promise(name)


@st.composite
def roomy_weighted_clusters(draw):
    """Draw a snapshot of weighted nodes, some partly in use, on which almost all queued jobs fit at once."""
    weights = draw(st.lists(st.integers(0, 3), min_size=3, max_size=6))
    leaves = draw(st.none() | st.lists(st.integers(0, 2), min_size=len(weights), max_size=len(weights)))
    rows = [[6 + draw(st.integers(0, 3))] for _ in weights]
    cluster = Cluster.of(rows, ["cores"], weights=weights, leaf_switches=leaves)
    busy = draw(st.sets(st.integers(0, len(weights) - 1)))
    running = [a_running(a_job(10 + node, per_unit=2), ((node, 1),)) for node in busy]
    several = st.tuples(st.integers(1, 2), st.integers(1, 2), st.booleans())
    queue = [
        a_job(i, units, each, distinct=apart)
        for i, (units, each, apart) in enumerate(draw(st.lists(several, min_size=1, max_size=3)))
    ]
    return a_snapshot(cluster, queue, running)


@pytest.mark.parametrize("name", NAMES)
def test_uses_lighter_fitting_nodes_first(name):
    """Only queues that start completely are checked, because a reservation may keep a lighter node free."""

    @dispatcher_example_settings(name, 60)
    @given(roomy_weighted_clusters())
    def check(snapshot):
        decision, cluster, free = (
            build_effort_limited_dispatcher(name).decide(snapshot, "starts"),
            snapshot.cluster,
            snapshot.free.copy(),
        )
        assert verify(decision, snapshot) == []
        started, jobs = decision.starts_by_job(snapshot), snapshot.queued_jobs()
        assume(len(started) == len(jobs))
        weights = np.ones(cluster.size) if cluster.weights is None else cluster.weights
        for job in jobs:
            subtract_placement(job.request, started[job.id], cluster, free)
        for job in jobs:
            used = [node for node, _ in started[job.id]]
            fits = units_fitting_by_node(job.request, cluster, free) > 0
            fits[used] &= not job.request.distinct
            assert not (fits & (weights < weights[used].max())).any()

    check()


@scaled_example_settings(200)
@given(snapshots(), st.sampled_from(LISTS))
def test_infeasible_jobs_are_reported(snapshot, name):
    waits = shared(name).decide(snapshot, "plan").waits
    never = {id for id, wait in waits.items() if wait.reason.code is PendingCode.NEVER}
    assert {job.id for job in snapshot.queued_jobs() if not can_run(snapshot.cluster, job)} <= never


@scaled_example_settings(100)
@given(traces(), st.sampled_from([name for name in LISTS if name not in NOT_COMPILED]))
def test_compiled_loop_gives_same_starts(world, name):
    """The compiled loop and the ordinary loop agree in every start, node and count of rounds."""
    cluster, trace = world
    ordinary = replay(trace, cluster, build_policy_for_dispatcher(name))
    compiled = TraceReplay(trace, cluster, build_policy_for_dispatcher(name))
    assert compiled.is_compilable
    found = compiled.run_compiled()
    assert starts_and_nodes(found) == starts_and_nodes(ordinary)
    assert (found.rounds, found.paths, found.violations) == (ordinary.rounds, ordinary.paths, ())


@scaled_example_settings(60)
@given(
    traces(),
    st.sampled_from(["fcfs", "greedy", "easy", "list-reg"]),
    st.sampled_from([TraceReplay.run, TraceReplay.run_compiled]),
)
def test_schedules_equal_plain_event_sweep(world, name, run):
    """The reference simulator shares no code with the kernels or the engine. All starts and nodes must be equal."""
    cluster, trace = world
    reservations = {"fcfs": reference.STRICT, "greedy": reference.GREEDY, "easy": 1, "list-reg": EVERY_JOB}[name]
    schedule = run(TraceReplay(trace, cluster, build_policy_for_dispatcher(name)))
    reference.assert_same_schedule(schedule, cluster, trace, reference.replay(cluster, trace, reservations))


@scaled_example_settings(60)
@given(
    traces(),
    st.sampled_from(["easy", "list-reg", "list-laf", "fcfs", "lookahead"]),
    st.sampled_from(["walltime", "last-two"]),
)
def test_carried_groups_decide_like_rebuilt_ones(world, name, predictor):
    """Groups updated over a trace, with overrun estimates, give the same decisions as groups rebuilt in each round."""
    cluster, trace = world
    carried = replay(trace, cluster, build_policy_for_dispatcher(name, predictor))
    rebuilt = replay(trace, cluster, deciding_on(without_groups, build_policy_for_dispatcher(name, predictor)))
    assert starts_and_nodes(carried) == starts_and_nodes(rebuilt)


def deciding_on(change, policy):
    """Return the policy, whose dispatcher gets each snapshot after this change."""
    decide = policy.dispatcher.decide
    policy.dispatcher.decide = lambda snapshot, need="plan": decide(change(snapshot), need)
    return policy


def checked(snapshot):
    snapshot.check()
    return snapshot


@scaled_example_settings(100)
@given(
    traces(),
    st.sampled_from(["walltime", "last-two"]),
    st.sampled_from(["one-second", "double", "walltime"]),
    st.sampled_from([None, 1500.0]),
)
def test_simulated_snapshots_are_valid_by_construction(world, predictor, overrun, charge):
    """Snapshots satisfy every rule even if jobs overrun their estimates and decisions take time."""
    cluster, trace = world
    policy = Policy(registry.PREDICTORS.build(predictor), build_effort_limited_dispatcher("easy"), overrun)
    assert replay(trace, cluster, deciding_on(checked, policy), ReplayOptions(charge=charge)).violations == ()


def test_infeasible_job_blocks_no_other():
    snapshot = a_snapshot(a_cluster(nodes=2, cores=4), [a_job(1, units=9), a_job(2, units=8)])
    for name in LISTS:
        decision = shared(name).decide(snapshot, "plan")
        assert list(decision.starts_by_job(snapshot)) == [2], name
        assert decision.waits[1].reason.arguments == ("requests 9 units, but the empty cluster holds only 8",), name
