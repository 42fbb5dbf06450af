"""The properties of every dispatcher, tested on random inputs.

A property takes a dispatcher's name, or `package.module:Class`. It raises `AssertionError` with the smallest
counterexample found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cpsched.dispatchers.base import Dispatcher
from cpsched.feasibility import verify
from cpsched.model import NEVER, Cluster, Snapshot
from cpsched.policy import Policy
from cpsched.policy_spec import setting_names
from cpsched.registry import DISPATCHERS, PREDICTORS
from cpsched_sim.cluster.replay import Schedule, replay
from cpsched_sim.testing.hypothesis_strategies import can_run, full_clusters, scaled_example_settings, snapshots, traces
from cpsched_sim.traces.trace_jobs import TraceJob

TEST_EFFORT = "100"
"""The deterministic limit for dispatchers that search. No property may depend on a clock."""


def build_effort_limited_dispatcher(name_or_path: str) -> Dispatcher:
    """Build a dispatcher. If it searches, limit its effort instead of its time."""
    limited = "effort" in setting_names(DISPATCHERS.find(name_or_path))
    return DISPATCHERS.build(name_or_path, {"effort": TEST_EFFORT} if limited else None)


def build_policy_for_dispatcher(name_or_path: str, predictor: str = "walltime") -> Policy:
    """Build a policy with this dispatcher."""
    return Policy(PREDICTORS.build(predictor), build_effort_limited_dispatcher(name_or_path))


def dispatcher_example_settings(name_or_path: str, many: int) -> settings:
    """Return Hypothesis settings for `many` examples (see `scaled_example_settings`).

    A dispatcher that searches gets fewer examples.
    """
    searches = "effort" in setting_names(DISPATCHERS.find(name_or_path))
    return scaled_example_settings(many // 6 if searches else many)


def decisions_are_feasible_and_explained(name_or_path: str) -> None:
    """Check that decisions break no rule and plans are consistent.

    Every queued job starts or has a wait with a reason.
    """
    dispatcher = build_effort_limited_dispatcher(name_or_path)

    @dispatcher_example_settings(name_or_path, 60)
    @given(st.one_of(snapshots(), full_clusters()))
    def check(snapshot: Snapshot) -> None:
        decision = dispatcher.decide(snapshot, "plan")
        assert verify(decision, snapshot) == []
        started, jobs = decision.starts_by_job(snapshot), snapshot.queued_jobs()
        assert set(started) | set(decision.waits) == {job.id for job in jobs}, "each job starts or has a wait"
        assert not set(started) & set(decision.waits), "no job does both"
        assert all(wait.reason.arguments != ("",) for wait in decision.waits.values()), "each wait has a reason"
        plan = decision.plan_by_job(snapshot)
        assert all(plan[id] == snapshot.now_s for id in started if id in plan), "what starts is planned for now"
        assert all(start_s >= snapshot.now_s for start_s in plan.values()), "no plan is in the past"

    check()


def decisions_are_deterministic(name_or_path: str) -> None:
    """Check that new dispatchers choose equal starts and nodes for equal snapshots."""

    @dispatcher_example_settings(name_or_path, 20)
    @given(st.one_of(snapshots(), full_clusters()))
    def check(snapshot: Snapshot) -> None:
        first = build_effort_limited_dispatcher(name_or_path).decide(snapshot, "starts")
        second = build_effort_limited_dispatcher(name_or_path).decide(snapshot, "starts")
        assert first.starts_by_job(snapshot) == second.starts_by_job(snapshot)

    check()


def memory_round_trips(name_or_path: str) -> None:
    """Check that a dispatcher with restored memory makes the same decisions."""

    @dispatcher_example_settings(name_or_path, 20)
    @given(st.lists(snapshots(), min_size=2, max_size=4))
    def check(rounds: list[Snapshot]) -> None:
        first = build_effort_limited_dispatcher(name_or_path)
        for snapshot in rounds:
            second, memory = build_effort_limited_dispatcher(name_or_path), first.memory()
            if memory is None and first.learns:
                return
            if memory is not None:
                second.recall(json.loads(json.dumps(memory)))
            decision, again = first.decide(snapshot, "plan"), second.decide(snapshot, "plan")
            assert decision.starts_by_job(snapshot) == again.starts_by_job(snapshot)
            assert decision.plan_by_job(snapshot) == again.plan_by_job(snapshot)

    check()


def jobs_run_within_capacity(name_or_path: str) -> None:
    """Check on whole traces that all jobs start, or are rejected with a reason.

    Replays must also be deterministic.
    """

    @dispatcher_example_settings(name_or_path, 40)
    @given(traces(), st.sampled_from(["walltime", "last-two"]))
    def check(world: tuple[Cluster, list[TraceJob]], predictor: str) -> None:
        cluster, trace = world
        schedule = replay(trace, cluster, build_policy_for_dispatcher(name_or_path, predictor))
        assert schedule.violations == ()
        able = [can_run(cluster, item.job) for item in trace]
        assert (schedule.start_s != NEVER).tolist() == able, "every job that can run starts eventually"
        assert [i not in schedule.refused for i in range(len(trace))] == able
        assert find_misplaced_jobs(cluster, trace, schedule) == []
        assert find_overcommitted_nodes(cluster, trace, schedule) == []
        again = replay(trace, cluster, build_policy_for_dispatcher(name_or_path, predictor))
        assert np.array_equal(again.start_s, schedule.start_s)
        for index in range(len(trace)):
            assert again.placement_of(index) == schedule.placement_of(index)

    check()


PROPERTIES: tuple[Callable[[str], None], ...] = (
    decisions_are_feasible_and_explained,
    decisions_are_deterministic,
    memory_round_trips,
    jobs_run_within_capacity,
)


def find_overcommitted_nodes(cluster: Cluster, trace: Sequence[TraceJob], schedule: Schedule) -> list[tuple[int, int]]:
    """Return overcommitted (second, node) pairs.

    A whole-node job must be alone on its nodes.
    """
    found, steps = [], {0}
    ran = [i for i in range(len(trace)) if schedule.start_s[i] != NEVER]
    steps.update(int(schedule.start_s[i]) for i in ran)
    for second in sorted(steps):
        used, jobs = np.zeros_like(cluster.capacity), np.zeros(cluster.size, np.int64)
        alone = np.zeros(cluster.size, np.int64)
        for i in ran:
            if schedule.start_s[i] <= second < schedule.end_s[i]:
                request = trace[i].job.request
                for node, units in schedule.placement_of(i):
                    used[node] += units * np.array(request.per_unit)
                    jobs[node] += 1
                    alone[node] += request.exclusive
        too_much = (used > cluster.capacity).any(axis=1) | ((alone > 0) & (jobs > 1))
        found += [(second, node) for node in np.flatnonzero(too_much).tolist()]
    return found


def find_misplaced_jobs(cluster: Cluster, trace: Sequence[TraceJob], schedule: Schedule) -> list[int]:
    """Return the jobs whose placement or times violate their request."""
    found = []
    for i, item in enumerate(trace):
        if schedule.start_s[i] == NEVER:
            continue
        request, placement = item.job.request, schedule.placement_of(i)
        nodes = [node for node, _ in placement]
        right = (
            sum(units for _, units in placement) == request.units
            and len(set(nodes)) == len(nodes)
            and (not request.distinct or all(units == 1 for _, units in placement))
            and cluster.node_sets[request.node_set, nodes].all()
            and schedule.start_s[i] >= item.job.submit_s
            and schedule.end_s[i] - schedule.start_s[i] == item.run_s
        )
        if not right:
            found.append(item.job.id)
    return found
