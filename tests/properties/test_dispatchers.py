"""Test the properties of every registered dispatcher on random clusters, queues and traces."""

import dataclasses
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cpsched import registry
from cpsched.dispatchers.base import Dispatcher
from cpsched.feasibility import units_fitting_by_node, verify
from cpsched.model import NEVER, Cluster, PendingCode
from cpsched.planning import EVERY_JOB
from cpsched.policy import Policy
from cpsched_sim.cluster.replay import ReplayOptions, TraceReplay, replay
from cpsched_sim.testing.dispatcher_properties import (
    PROPERTIES,
    build_effort_limited_dispatcher,
    build_policy_for_dispatcher,
    dispatcher_example_settings,
)
from cpsched_sim.testing.hypothesis_example_counts import scaled_example_settings
from cpsched_sim.testing.hypothesis_strategies import can_run, full_clusters, snapshots, subtract_placement, traces
from cpsched_sim.traces.trace_job import TraceJob
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.compiled_fit import is_feasible
from tests.properties import reference

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


@pytest.mark.parametrize("name", NAMES)
def test_compiled_check_agrees_and_infeasible_is_reported(name):
    @dispatcher_example_settings(name, 60)
    @given(snapshots())
    def check(snapshot):
        decision = shared(name).decide(snapshot, "plan")
        assert is_feasible(decision, snapshot)
        for job in snapshot.queued_jobs():
            if not can_run(snapshot.cluster, job):
                assert name not in LISTS or decision.waits[job.id].reason.code is PendingCode.NEVER

    check()


@scaled_example_settings(100)
@given(traces(), st.sampled_from([name for name in LISTS if name not in NOT_COMPILED]))
def test_compiled_loop_gives_same_starts(world, name):
    """The compiled loop and the ordinary loop agree in every start, node and count of rounds."""
    cluster, trace = world
    ordinary = replay(trace, cluster, build_policy_for_dispatcher(name))
    compiled = TraceReplay(trace, cluster, build_policy_for_dispatcher(name))
    assert compiled.is_compilable
    found = compiled.run_compiled()
    assert np.array_equal(found.start_s, ordinary.start_s)
    assert [found.placement_of(i) for i in range(len(trace))] == [ordinary.placement_of(i) for i in range(len(trace))]
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
    policy = build_policy_for_dispatcher(name, predictor)
    policy.dispatcher = WithoutGroups(policy.dispatcher)
    rebuilt = replay(trace, cluster, policy)
    assert np.array_equal(carried.start_s, rebuilt.start_s)
    assert [carried.placement_of(i) for i in range(len(trace))] == [rebuilt.placement_of(i) for i in range(len(trace))]


class Checking(Dispatcher):
    """A dispatcher that checks each snapshot before its decision."""

    def __init__(self, dispatcher):
        self.dispatcher = dispatcher

    def decide(self, snapshot, need="plan"):
        snapshot.check()
        return self.dispatcher.decide(snapshot, need)


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
    policy = Policy(registry.build_predictor(predictor), Checking(build_effort_limited_dispatcher("easy")), overrun)
    assert replay(trace, cluster, policy, ReplayOptions(charge=charge)).violations == ()


@pytest.mark.parametrize("name", ["easy", "list-reg", "lookahead"])
def test_many_node_blocks_give_same_starts(name):
    """On 150 contended nodes, the search skips blocks and groups; carried and rebuilt groups give equal starts."""
    cluster, random = Cluster.of([[8, 4]] * 150, ["cores", "gpus"]), np.random.default_rng(3)
    trace = []
    for i in range(400):
        amounts = (int(random.integers(1, 9)), int(random.integers(0, 3)))
        job = a_job(i, int(random.integers(1, 120)), amounts, int(random.integers(5, 60)), 9 * i)
        trace.append(TraceJob(job, int(random.integers(1, 60))))
    carried = replay(trace, cluster, build_policy_for_dispatcher(name))
    policy = build_policy_for_dispatcher(name)
    policy.dispatcher = WithoutGroups(policy.dispatcher)
    built = replay(trace, cluster, policy)
    assert len(built.violations) == 0
    assert carried.paths["searched" if name == "lookahead" else "some-start"] > 10
    assert np.array_equal(carried.start_s, built.start_s)
    assert [carried.placement_of(i) for i in range(len(trace))] == [built.placement_of(i) for i in range(len(trace))]


class WithoutGroups:
    """A dispatcher that gets snapshots without the groups that the simulated cluster carries."""

    def __init__(self, dispatcher):
        self.dispatcher, self.learns, self.learn = dispatcher, dispatcher.learns, dispatcher.learn

    def decide(self, snapshot, need="plan"):
        return self.dispatcher.decide(dataclasses.replace(snapshot, by_construction=True), need)


def reservation_of_the_first_that_waits(snapshot):
    """Return the jobs that start first, then the queue position and start of EASY's reservation."""
    alone, planned = reference.plan(snapshot, range(len(snapshot.queue)), 1, backfill=[])
    first = next((p for p, s in enumerate(planned) if s not in (NEVER, snapshot.now_s)), None)
    return alone, first, None if first is None else planned[first]


@scaled_example_settings(150)
@given(st.one_of(snapshots(), full_clusters()), st.sampled_from(["easy", "ebf", "easy-sjbf"]))
def test_no_start_delays_reservation_of_first_job(snapshot, name):
    """Under EASY, jobs that start now do not change the planned start of the first waiting job."""
    decision = shared(name).decide(snapshot, "plan")
    heads, first, start_s = reservation_of_the_first_that_waits(snapshot)
    if first is not None and not snapshot.cluster.counted:
        assert decision.plan_by_job(snapshot)[snapshot.queued_jobs()[first].id] == start_s
        assert set(heads) <= set(decision.starts_by_job(snapshot))


def test_generated_queues_have_reservations_and_backfill():
    """In most generated queues, a job waits with a reservation, and in many of them, a later job is backfilled."""
    waits, backfilled = [], []

    @settings(max_examples=60, database=None, derandomize=True)
    @given(full_clusters())
    def count(snapshot):
        heads, first, _ = reservation_of_the_first_that_waits(snapshot)
        waits.append(first is not None and not snapshot.cluster.counted)
        backfilled.append(len(shared("easy").decide(snapshot, "plan").starts_by_job(snapshot)) > len(heads))

    count()
    assert np.mean(waits) > 0.9
    assert np.mean(backfilled) > 0.4


def test_infeasible_job_blocks_no_other():
    snapshot = a_snapshot(a_cluster(nodes=2, cores=4), [a_job(1, units=9), a_job(2, units=8)])
    for name in LISTS:
        decision = shared(name).decide(snapshot, "plan")
        assert list(decision.starts_by_job(snapshot)) == [2], name
        assert decision.waits[1].reason.arguments == ("requests 9 units, but the empty cluster holds only 8",), name
