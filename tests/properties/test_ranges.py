"""Compare node classes and total profiles with single nodes: hashes of moves, free amounts, and large machines."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched import registry
from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.goal_presets import DEFAULT_GOAL
from cpsched.jit.decorators import kernel
from cpsched.jit.shared_structs import FixedColumn
from cpsched.kernels.node_class_moves import placement_hash
from cpsched.kernels.node_list_scheduling import begin_plan_on_classes
from cpsched.kernels.order_search_state import (
    OrderSearchSettings,
    OrderSearchState,
    allocate_queue_columns,
    new_order_search_state,
)
from cpsched.kernels.scheduling_state import SchedulingState
from cpsched.kernels.total_profile import init_total_profile
from cpsched.model import Cluster, IntArray
from cpsched.planning import EVERY_JOB, get_scheduling_state
from cpsched.policy import Policy
from cpsched_sim.cluster.replay import TraceReplay
from cpsched_sim.testing.hypothesis_strategies import full_clusters, scaled_example_settings, snapshots
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.builders import a_job, a_snapshot
from tests.properties import reference
from tests.properties.strategies import scattered


@kernel
def number_of(site: SchedulingState, begin: FixedColumn, count: FixedColumn, units: FixedColumn) -> int:
    """Return the `placement_hash` of moves with these columns."""
    trial = site.trial
    trial.moved_begin, trial.moved_count, trial.moved_units = begin.copy(), count.copy(), units.copy()
    trial.moves = len(begin)
    return placement_hash(trial, 0)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=6), st.randoms())
def test_node_use_has_same_hash_however_split(stretches, random):
    site = get_scheduling_state(a_snapshot(Cluster.of([[1], [2]], ["cores"]), [a_job()]))
    by_place = [units for length, units in stretches for _ in range(length)]

    def number(units_by_place):
        """Return the hash of random pieces in random order."""
        cuts = sorted({0, len(units_by_place), *random.sample(range(len(units_by_place)), len(units_by_place) // 3)})
        cuts += [i for i in range(1, len(units_by_place)) if units_by_place[i] != units_by_place[i - 1]]
        cuts = sorted(set(cuts))
        pieces = [(a, b - a, units_by_place[a]) for a, b in pairwise(cuts) if units_by_place[a]]
        random.shuffle(pieces)
        columns = np.array(pieces, np.int64).reshape(-1, 3).T
        return number_of(site, *(np.ascontiguousarray(column) for column in columns))

    assert number(by_place) == number(by_place)
    for at in range(len(by_place)):
        other = by_place.copy()
        other[at] += 1
        assert number(other) != number(by_place)


@kernel
def totals(site: SchedulingState, search: OrderSearchState) -> tuple[IntArray, IntArray]:
    begin_plan_on_classes(site, 2)
    allocate_queue_columns(search, site.queued, len(site.jobs.units), site.machine.free.shape[1])
    init_total_profile(site, search)
    n, resources = search.totals.points[0], len(site.trial.available)
    return search.totals.times[0, :n].copy(), search.totals.free[0, : n * resources].copy()


@scaled_example_settings(100)
@given(st.one_of(snapshots(), full_clusters()))
def test_free_capacity_over_time_matches_running_jobs(snapshot):
    settings, objective = OrderSearchSettings(0, 1, 1, 1, 1, 0, 127, 63, 0), OBJECTIVES[DEFAULT_GOAL]
    search = new_order_search_state(settings, objective.to_wait_cost_parameters())
    times, free = totals(get_scheduling_state(snapshot), search)
    line = reference.Line(
        snapshot, 1 + int(max([snapshot.now_s, *snapshot.table.end_s[snapshot.running]])) - snapshot.now_s
    )
    expected = line.free.sum(axis=0)
    assert times[0] == snapshot.now_s
    assert (np.diff(times) > 0).all()
    at = np.searchsorted(times, snapshot.now_s + np.arange(expected.shape[0]), side="right") - 1
    assert free.reshape(len(times), -1)[at].tolist() == expected.tolist()


@pytest.mark.parametrize("run", [TraceReplay.run, TraceReplay.run_compiled])
@pytest.mark.parametrize(("name", "reservations"), [("easy", 1), ("list-reg", EVERY_JOB)])
@pytest.mark.parametrize("seed", range(3))
def test_large_machine_equals_plain_sweep(name, reservations, seed, run):
    """On several blocks with two kinds of nodes, all starts and nodes of wide jobs equal the reference."""
    random = np.random.default_rng(seed)
    cluster = Cluster.of([[int(cores)] for cores in 2 * scattered(random, 150, 2)], ["cores"])
    trace = []
    for i, submit_s in enumerate(np.cumsum(random.integers(0, 4, 40)).tolist()):
        walltime_s = int(random.integers(1, 25))
        units = int(random.choice([1, 2, 5, 30, 100]))
        job = a_job(i, units, int(random.integers(1, 3)), walltime_s, submit_s, distinct=bool(random.integers(2)))
        trace.append(TraceJob(job, int(random.integers(1, walltime_s + 1))))
    policy = Policy(registry.PREDICTORS.build("walltime"), registry.DISPATCHERS.build(name))
    schedule = run(TraceReplay(trace, cluster, policy))
    reference.assert_same_schedule(schedule, cluster, trace, reference.replay(cluster, trace, reservations))
