"""Compare ranges of nodes with single nodes: a job's nodes, undone moves, and the written result."""

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
from cpsched.kernels.node_class_moves import placement_hash, undo_node_moves, write_starts
from cpsched.kernels.node_classes import build_node_classes, move_node
from cpsched.kernels.node_layout import build_class_runs
from cpsched.kernels.node_list_scheduling import begin_plan_on_classes, place_job, resize_class_columns
from cpsched.kernels.order_search_state import (
    OrderSearchSettings,
    OrderSearchState,
    allocate_queue_columns,
    new_order_search_state,
)
from cpsched.kernels.pool_list_scheduling import init_plan_result
from cpsched.kernels.scheduling_state import SchedulingState, copy_starts
from cpsched.kernels.total_profile import init_total_profile
from cpsched.model import Cluster, IntArray
from cpsched.planning import EVERY_JOB, get_scheduling_state
from cpsched.policy import Policy
from cpsched_sim.cluster.replay import TraceReplay
from cpsched_sim.testing.hypothesis_example_counts import scaled_example_settings
from cpsched_sim.testing.hypothesis_strategies import full_clusters, snapshots
from cpsched_sim.traces.trace_job import TraceJob
from tests.builders import a_job, a_snapshot
from tests.properties import reference


@kernel
def opened(site: SchedulingState) -> int:
    init_plan_result(site.draft, site.queued)
    site.draft.offsets[0] = 0
    begin_plan_on_classes(site, 1)
    return site.trial.groups.count


@kernel
def placed(site: SchedulingState, position: int, holds: FixedColumn, ranks: FixedColumn, ranked: bool) -> int:
    """Place a job; each node of group g holds `holds[g]` units and has the rank `ranks[g]`."""
    trial = site.trial
    resize_class_columns(trial)
    for g in range(trial.groups.count):
        trial.found[g] = holds[g] if trial.groups.size[g] > 0 else 0
        trial.rank[g] = ranks[g]
    place_job(site, position, site.now_s, ranked)
    return trial.groups.count


@kernel
def groups_by_node(site: SchedulingState) -> IntArray:
    """Return the group of each node according to the ranges."""
    groups, layout = site.trial.groups, site.trial.layout
    found, asked, times = np.full(len(groups.of), -1), layout.asked[: layout.groups].copy(), layout.times
    for g in range(layout.groups):
        layout.asked[g] = 1
    build_class_runs(site.trial)
    for g in range(groups.count):
        for place in range(groups.begin[g], groups.begin[g] + groups.size[g]):
            r = layout.runs - 1
            while layout.at[r] > place:
                r -= 1
            found[layout.node[r] + place - layout.at[r]] = g

    # Undo the effects of this reading.
    for g in range(layout.groups):
        layout.asked[g] = asked[g]
    if times:
        build_class_runs(site.trial)
    layout.times = times
    return found


@kernel
def taken_back(site: SchedulingState, moves: int, groups: int, steps: int, started: int) -> int:
    undo_node_moves(site.trial, moves)
    site.trial.groups.count, site.trial.groups.steps, site.draft.started = groups, steps, started
    return moves


@kernel
def written(site: SchedulingState) -> int:
    write_starts(site)
    return site.draft.started


def node_by_node(of, holds, ranks, need, ranked):
    """Return a job's units by node, allocated by descending rank and then by ascending index."""
    taken = {}
    for node in sorted(range(len(of)), key=lambda node: (-ranks[of[node]] if ranked else 0, node)):
        units = min(need, holds[of[node]])
        if units:
            taken[node] = units
            need -= units
    assert need == 0
    return taken


def scattered(random, nodes, kinds):
    """Return free amounts by node, equal within runs of random length."""
    lengths = random.choice([1, 2, 3, 40, 70], nodes)
    return np.repeat(random.integers(1, kinds + 1, nodes), lengths)[:nodes]


@scaled_example_settings(60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.integers(1, 6))
def test_ranges_allocate_and_free_like_single_nodes(seed, nodes, kinds):
    """Jobs are placed by random units and ranks of the groups, and some placements are undone in between."""
    random = np.random.default_rng(seed)
    free = scattered(random, nodes, kinds)
    needs = random.integers(1, 1 + random.choice([3, nodes, 3 * nodes]), 12).tolist()
    site = get_scheduling_state(
        a_snapshot(Cluster.of([[int(x)] for x in free], ["cores"]), [a_job(i, n) for i, n in enumerate(needs)])
    )
    count, expected, marks = opened(site), [], []
    for position, need in enumerate(needs):
        of = groups_by_node(site)
        assert (of >= 0).all()
        if position % 4 == 3:
            moves, groups, steps, before = marks[-2]
            taken_back(site, moves, groups, steps, len(marks) - 2)
            count, of = groups, groups_by_node(site)
            assert of.tolist() == before
            del marks[-2:], expected[-2:]
        holds, ranks = random.choice([0, 1, 1, 2, 5], count), random.integers(0, 3, count)
        ranked = bool(random.integers(2))
        if holds[of].sum() < need:
            holds[:] = need
        marks.append((site.trial.moves, count, site.trial.groups.steps, of.tolist()))
        taken = node_by_node(of, holds.tolist(), ranks.tolist(), need, ranked)
        count = placed(site, position, holds, ranks, ranked)
        after = groups_by_node(site)
        new = {}
        for node in range(nodes):
            if node not in taken:
                assert after[node] == of[node]
            else:
                assert after[node] >= marks[-1][1]
                assert new.setdefault((of[node], taken[node]), after[node]) == after[node]
        assert len(set(new.values())) == len(new)
        expected.append((position, taken))
    assert written(site) == len(expected)
    slots, offsets, nodes_, units = copy_starts(site.draft)
    for i, (position, taken) in enumerate(expected):
        assert slots[i] == site.queue[position]
        a, b = offsets[i], offsets[i + 1]
        assert list(zip(nodes_[a:b].tolist(), units[a:b].tolist(), strict=True)) == sorted(taken.items())


@kernel
def moved(site: SchedulingState, node: int, to: int) -> int:
    groups = site.groups
    groups.size[groups.of[node]] -= 1
    groups.size[to] += 1
    move_node(groups.of, groups.edged, node, to)
    return node


@kernel
def carried(site: SchedulingState) -> int:
    build_node_classes(site.groups, site.machine, site.jobs, site.running[:0])
    site.groups.stale = 0
    return site.groups.count


@scaled_example_settings(40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 200))
def test_layout_detects_all_moves_since_last_one(seed, nodes):
    """Blocks without moved nodes are not scanned again, and no move at their borders is missed."""
    random = np.random.default_rng(seed)
    free = scattered(random, nodes, 3)
    site = get_scheduling_state(a_snapshot(Cluster.of([[int(x)] for x in free], ["cores"]), [a_job()]))
    count, of = carried(site), np.unique(free, return_inverse=True)[1]
    names = {int(free[node]): g for g, node in enumerate(sorted(np.unique(free, return_index=True)[1].tolist()))}
    of = np.array([names[int(x)] for x in free])
    for _ in range(6):
        opened(site)
        assert groups_by_node(site).tolist() == of.tolist()
        borders = [node for node in (0, 63, 64, 127, 128) if node < nodes]
        for node in [*random.choice(borders, 1).tolist(), *random.integers(0, nodes, random.integers(3)).tolist()]:
            of[node] = random.integers(count)
            moved(site, node, int(of[node]))


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
    policy = Policy(registry.build_predictor("walltime"), registry.build_dispatcher(name))
    schedule = run(TraceReplay(trace, cluster, policy))
    reference.assert_same_schedule(schedule, cluster, trace, reference.replay(cluster, trace, reservations))
