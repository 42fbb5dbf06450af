import json
import re
from dataclasses import replace

import pytest

from cpsched import registry
from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.errors import InvalidValue
from cpsched.model import PendingCode
from cpsched.planning import get_scheduling_state
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.searches import Ablated, Priced

HOUR = 3600


def started(decision, snapshot):
    return set(decision.starts_by_job(snapshot))


@pytest.fixture(params=["pool", "nodes"])
def cluster(request):
    """Four cores: one pool, or two nodes of two resources."""
    if request.param == "pool":
        return a_cluster(nodes=1, cores=4)
    from cpsched.model import Cluster

    return Cluster.of([[2, 2], [2, 2]], ["cores", "memory"])


def a_request(cluster, cores):
    return (1,) if len(cluster.resources) == 1 else (1, 0)


def jobs_for(cluster, *shapes):
    """Jobs of (cores, walltime, submitted)."""
    return [
        a_job(i, cores, a_request(cluster, cores), walltime_s, submit_s)
        for i, (cores, walltime_s, submit_s) in enumerate(shapes)
    ]


def test_starts_all_fitting_jobs_without_search(cluster):
    snapshot = a_snapshot(cluster, jobs_for(cluster, (2, 90, 0), (2, 30, 0)))
    decision = LookaheadDispatcher().decide(snapshot)
    assert started(decision, snapshot) == {0, 1}
    assert (decision.effort.path, decision.effort.branches) == ("all-start", 0)


def test_reuses_last_order_if_nothing_can_start(cluster):
    running = [a_running(a_job(9, 4, a_request(cluster, 4), 50), ((0, 4),) if cluster.counted else ((0, 2), (1, 2)))]
    snapshot = a_snapshot(cluster, jobs_for(cluster, (4, 90, 0), (4, 30, 0)), running)
    decision = LookaheadDispatcher(objective="af").decide(snapshot)
    assert (decision.effort.path, decision.plan_by_job(snapshot)) == ("none-can-start", {0: 50, 1: 140})


WIDE_THEN_SHORT = ((4, 5000, 0), *((4, 20, 10 * HOUR) for _ in range(5)))
"""A wide job that has waited for 10 hours, and five short ones, which are worth more until it has waited too long."""


@pytest.mark.parametrize(
    ("shapes", "now_s", "settings", "first"),
    [
        # A short narrow job and one with the larger area, side by side impossible.
        (((4, 1000, 0), (4, 30, 0)), 0, {"objective": "af"}, 1),
        (((4, 1000, 0), (4, 30, 0)), 0, {"objective": "slowdown"}, 1),
        (((4, 1000, 0), (4, 30, 0)), 0, {"objective": "bsld"}, 1),
        (((4, 100, 0), (1, 99, 0)), 0, {"objective": "awf"}, 0),
        (((4, 100, 0), (1, 99, 0)), 0, {"objective": "p2sf"}, 0),
        # A job is overdue only above the bound.
        (WIDE_THEN_SHORT, 10 * HOUR, {"objective": "slowdown", "overdue_h": 11}, 5),
        (WIDE_THEN_SHORT, 10 * HOUR, {"objective": "slowdown", "overdue_h": 10}, 5),
        (WIDE_THEN_SHORT, 10 * HOUR + 1, {"objective": "slowdown", "overdue_h": 10}, 0),
        # By arrival no job waits longer than the wide job has by now. Five short jobs would be worth more.
        (((4, 100, 0), *((4, 20, 1000) for _ in range(5))), 1000, {"objective": "slowdown"}, 5),
        (((4, 100, 0), *((4, 20, 1000) for _ in range(5))), 1000, {}, 0),
    ],
)
def test_first_start_follows_objective_and_bounds(cluster, shapes, now_s, settings, first):
    snapshot = a_snapshot(cluster, jobs_for(cluster, *shapes), now_s=now_s)
    decision = LookaheadDispatcher(**settings).decide(snapshot)
    assert started(decision, snapshot) == {first}
    assert set(decision.plan_by_job(snapshot)) == set(range(len(shapes))), "no job is left out"


def test_uncovered_job_starts_only_if_it_delays_none(cluster):
    """The first two jobs take turns; the third fits beside neither, the fourth beside the first."""
    queue = jobs_for(cluster, (3, 100, 0), (3, 100, 1), (3, 100, 2), (1, 50, 3))
    snapshot = a_snapshot(cluster, queue, now_s=10)
    decision = Ablated(horizon=2, covered=2, candidates=2, effort=0).decide(snapshot)
    assert decision.plan_by_job(snapshot) == {0: 10, 1: 110, 3: 10}
    assert decision.waits[2].reason.code is PendingCode.RESOURCES


def test_longest_wait_bound_ignores_short_waits(cluster):
    """By arrival the last of fifteen short jobs waits for 380 s; the long one, after all of them, for 450 s."""
    queue = jobs_for(cluster, (4, 100, 0), *((4, 20, 150) for _ in range(15)))
    snapshot = a_snapshot(cluster, queue, now_s=150)
    assert LookaheadDispatcher("large-jobs").decide(snapshot).plan_by_job(snapshot)[0] == 450


def test_impossible_job_delays_no_other(cluster):
    snapshot = a_snapshot(cluster, jobs_for(cluster, (9, 10, 0), (4, 30, 0), (4, 40, 0)))
    decision = LookaheadDispatcher().decide(snapshot)
    assert decision.plan_by_job(snapshot) == {1: 0, 2: 30}
    assert decision.waits[0].reason.code is PendingCode.NEVER


def test_last_order_survives_json(cluster):
    queue = jobs_for(cluster, (3, 100, 0), (3, 30, 0), (3, 60, 0))
    snapshot = a_snapshot(cluster, queue)
    first, second = LookaheadDispatcher("af"), Ablated("af", candidates=1, effort=0)
    assert first.memory() == {"order": [], "first_s": {}}
    first.decide(snapshot)
    assert first.memory() == {"order": [1, 2, 0], "first_s": {"0": 90, "2": 30}}
    second.recall(json.loads(json.dumps(first.memory())))
    later = a_snapshot(cluster, [queue[2], queue[0], a_job(7, 3, a_request(cluster, 3), 10)])
    assert started(second.decide(later), later) == {2}
    assert second.memory() == {"order": [2, 0, 7], "first_s": {"0": 90, "7": 160}}


def test_keeps_first_expected_start_until_job_is_gone(cluster):
    """One job at a time has a plan: a short one takes that of the wide one, and starts."""
    running = [a_running(a_job(9, 2, a_request(cluster, 2), 50), ((0, 2),))]
    wide, short, other = jobs_for(cluster, (4, 90, 0), (2, 30, 0), (4, 95, 0))
    dispatcher, told = Ablated("af", horizon=1, covered=1, candidates=4), []
    for queue in ([wide], [wide, short, other], [other]):
        dispatcher.decide(a_snapshot(cluster, queue, running))
        told.append(dispatcher.memory()["first_s"])
    assert told == [{"0": 50}, {"0": 50}, {"2": 50}]


def a_crowd(cluster):
    """Twenty jobs for four cores."""
    return a_snapshot(cluster, jobs_for(cluster, *((1 + i % 4, 50 + 37 * i % 90, 0) for i in range(20))))


def test_search_improves_plan(cluster):
    snapshot = a_crowd(cluster)
    total = [int(LookaheadDispatcher("af", effort=n).decide(snapshot).plan_s.sum()) for n in (0, 300)]
    assert total[1] < total[0]


def test_starts_need_gives_same_starts_without_plan(cluster):
    snapshot = a_crowd(cluster)
    decisions = [LookaheadDispatcher(horizon=5, covered=10).decide(snapshot, need) for need in ("plan", "starts")]
    assert (decisions[0].starts_by_job(snapshot), decisions[1].plan_s) == (decisions[1].starts_by_job(snapshot), None)


def test_work_limit_bounds_tried_orders(cluster):
    snapshot = a_crowd(cluster)
    some = 10 if cluster.counted else 200
    tried = [LookaheadDispatcher("af", work=work).decide(snapshot).effort.branches for work in (1, some, 10_000)]
    assert 1 == tried[0] < tried[1] < tried[2] == 307


def test_adapts_work_to_machine_speed(cluster):
    snapshot, dispatcher = a_crowd(cluster), LookaheadDispatcher("af", limit_s=0.1)
    most = dispatcher.memory()["work"]
    quick = dispatcher.decide(snapshot).effort.branches
    dispatcher.took(10)
    least = dispatcher.memory()["work"]
    assert (least < most, dispatcher.decide(snapshot).effort.branches < quick) == (True, True)
    for _ in range(20):
        before = dispatcher.memory()["work"]
        dispatcher.decide(snapshot)
        dispatcher.took(1e-9)
        assert dispatcher.memory()["work"] in (2 * before, before, most)
    assert dispatcher.memory()["work"] == most


def test_round_without_timing_keeps_work(cluster):
    dispatcher = LookaheadDispatcher("af", limit_s=0.1)
    work = dispatcher.memory()["work"]
    dispatcher.decide(a_snapshot(cluster, jobs_for(cluster, (2, 100, 0), (2, 30, 0))))
    dispatcher.took(10)
    dispatcher.decide(a_crowd(cluster))
    dispatcher.took(0)
    assert dispatcher.memory()["work"] == work


def test_remembers_only_work_that_fits_limit(cluster):
    snapshot, first = a_crowd(cluster), LookaheadDispatcher("af", limit_s=0.1)
    first.decide(snapshot)
    first.took(10)
    second = LookaheadDispatcher("af", limit_s=0.1)
    second.recall(json.loads(json.dumps(first.memory())))
    assert first.decide(snapshot).effort == second.decide(snapshot).effort


def test_clock_has_no_effect_without_limit(cluster):
    snapshot, dispatcher = a_crowd(cluster), LookaheadDispatcher("af")
    dispatcher.decide(snapshot)
    dispatcher.took(1e6)
    assert "work" not in dispatcher.memory()
    assert dispatcher.decide(snapshot).effort.branches > 50


def moved_once(cluster, moves, seeds):
    """By seed, the order of twenty equal jobs after one move: none costs more, so each stays."""
    snapshot = a_snapshot(cluster, jobs_for(cluster, *((3, 100, 0) for _ in range(20))))
    for seed in range(seeds):
        dispatcher = Ablated("af", effort=1, candidates=2, moves=moves, seed=seed)
        dispatcher.decide(snapshot)
        yield dispatcher.memory()["order"]


def without(order, *jobs):
    return [job for job in order if job not in jobs]


TWENTY = list(range(20))
MOVES = {
    "adjacent": lambda order: is_swapped(order, 1),
    "insertion": lambda order: any(without(order, job) == without(TWENTY, job) for job in TWENTY),
    "to-front": lambda order: without(order, order[0]) == without(TWENTY, order[0]),
    "push-back": lambda order: any(
        without(order, job) == without(TWENTY, job) and order.index(job) >= job for job in TWENTY
    ),
    "swap": lambda order: is_swapped(order, 19),
    "reinsert": lambda order: any(without(order, a, b) == without(TWENTY, a, b) for a in TWENTY for b in TWENTY),
}


ALSO = {"adjacent": {"insertion", "swap", "push-back"}, "to-front": {"insertion"}, "push-back": {"insertion"}}
"""Moves that another is a case of; to take out and put back can be any of them."""


def is_swapped(order, at_most):
    """Whether two jobs at most so far from each other have changed places, or none has moved."""
    moved = [place for place, job in enumerate(order) if place != job]
    return not moved or (len(moved) == 2 and moved[1] - moved[0] <= at_most and order[moved[0]] == moved[1])


@pytest.mark.parametrize("which", range(6))
def test_single_move_changes_orders_only_its_way(cluster, which):
    orders, name = list(moved_once(cluster, 1 << which, 60)), list(MOVES)[which]
    always = {move for move, is_such in MOVES.items() if all(map(is_such, orders))}
    assert {name} <= always <= ALSO.get(name, set()) | {name, "reinsert"}


def test_shares_of_enabled_moves_grow_in_proportion(cluster):
    """To the front twice as often as back."""
    moved = [order for order in moved_once(cluster, 1 << 2 | 1 << 3, 400) if order != TWENTY]
    assert 0.6 < sum(1 for order in moved if MOVES["to-front"](order)) / len(moved) < 0.75


def test_all_moves_keep_recorded_draws(cluster):
    """What the search of seed 3 found before a move could be left out."""
    dispatcher = LookaheadDispatcher("bsld", effort=60, seed=3)
    dispatcher.decide(a_crowd(cluster))
    known = [0, 5, 8, 16, 4, 1, 15, 3, 10, 18, 6, 12, 9, 11, 14, 2, 7, 19, 17, 13]
    assert dispatcher.memory()["order"] == known


@pytest.mark.parametrize(("reservations", "first"), [(0, {0, 3}), (1, {0, 3}), (2, {0}), (None, {0})])
def test_reservations_setting_bounds_protected_jobs(reservations, first):
    """The last job fits beside the second one, and not beside the third; the first starts, and needs no reservation."""
    pool = a_cluster(nodes=1, cores=4)
    snapshot = a_snapshot(pool, jobs_for(pool, (3, 100, 0), (3, 50, 0), (4, 100, 0), (1, 200, 0)))
    dispatcher = Ablated("af", effort=0, candidates=2, reservations=reservations)
    assert started(dispatcher.decide(snapshot), snapshot) == first


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "best"}, "objective=best: must be one of"),
        ({"effort": "-1"}, "effort=-1: must not be negative"),
        ({"work": "0"}, "work=0: must be positive"),
        ({"limit_s": "0"}, "limit_s=0.0: must be positive"),
        ({"horizon": "0"}, "horizon=0: must be positive"),
        ({"covered": "5"}, "covered=5: must be at least horizon=100"),
        ({"overdue_h": "0"}, "overdue_h=0.0: must be positive"),
        ({"site_weight": "-1"}, "site_weight=-1"),
    ],
)
def test_rejects_invalid_settings(settings, message):
    with pytest.raises(InvalidValue, match=message):
        registry.DISPATCHERS.build("lookahead", settings)


def weights_of(objective, cluster, *shapes, now_s=0):
    """What a second costs of each queued job."""
    jobs, lookahead = jobs_for(cluster, *shapes), Priced(objective)
    lookahead.decide(a_snapshot(cluster, jobs, now_s=now_s))
    return lookahead.weights(len(jobs)).tolist()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_weights_of_new_jobs_match_row(cluster, objective):
    """The number of jobs is even, so that two areas are in the middle."""
    shapes = tuple((1 + i % 4, 5 + 700 * i * i, 0) for i in range(8))
    cores, walltimes_s, _ = zip(*shapes, strict=True)
    found = OBJECTIVES[objective].job_wait_weights(cores, walltimes_s)
    assert found.tolist() == pytest.approx(weights_of(objective, cluster, *shapes))


def cost_of(formula, r, E, W, s, **of_queue):
    """What a job costs that starts `s` seconds from now, by the text that the page shows."""
    text = re.sub(r"(\d+) h", lambda hours: str(3600 * int(hours[1])), formula.partition(";")[0]).replace("^", "**")
    text = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", text)
    return eval(text, {"r": r, "E": E, "W": W, "s": s, "now": 0, "F": W + s + E} | of_queue)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_kernel_cost_equals_documented_formula(cluster, objective):
    """Less what a start now costs; p2sf counts in hours."""
    now_s, row = 40 * HOUR, OBJECTIVES[objective]
    shapes = tuple((1 + i % 4, 500 + 700 * i * i, i * 5 * HOUR) for i in range(8))
    snapshot, lookahead = a_snapshot(cluster, jobs_for(cluster, *shapes), now_s=now_s), Priced(objective)
    lookahead.decide(snapshot)
    areas = sorted(cores * walltime_s for cores, walltime_s, _ in shapes)
    of_queue = {
        "A": areas[6],
        "m": sum(walltime_s**row.e for _, walltime_s, _ in shapes) / sum(areas),
        "L": lookahead.aged_s / (row.aged_by or 1),
        "w": row.area,
    }
    for later_s in (1, 3 * HOUR, 50 * HOUR):
        found = lookahead.prices(get_scheduling_state(snapshot), now_s + later_s)
        wanted = []
        for r, E, submit_s in shapes:
            then, now = (cost_of(row.formula, r, E, now_s - submit_s, s, **of_queue) for s in (later_s, 0))
            wanted.append((then - now) / (HOUR**row.power if row.power else 1))
        assert found.tolist() == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("objective", "formula"),
    [
        ("large-jobs", "r^1.3 E (1 + 0.5 A / (r E)) (1 + (W / 12 h)^4) (s - now); bound on the longest wait"),
        ("af", "(s - now)"),
        ("balance", "(E^-0.5 + w m r E) (1 + (W / (0.3 L))^4) (s - now); bound on the longest wait"),
        ("waits", "(E^-0.5 + w m r E) (1 + (W / (0.5 L))^4) (s - now)"),
        ("slowdown", "r^-1 E^-1 (1 + (W / L)^4) (s - now)"),
        ("p2sf", "r (F^4 - (F - E)^4)"),
    ],
)
def test_formats_formulas(objective, formula):
    assert OBJECTIVES[objective].formula == formula


@pytest.mark.parametrize("preferred", [0, 1, 2])
def test_site_preference_orders_equal_jobs(cluster, preferred):
    alike = jobs_for(cluster, (4, 90, 0), (4, 90, 0), (4, 90, 0))
    jobs = [replace(job, priority=10 if job.id == preferred else 5) for job in alike]
    snapshot = a_snapshot(cluster, jobs, now_s=60)
    assert started(LookaheadDispatcher(site_weight=1).decide(snapshot), snapshot) == {preferred}
    indifferent = a_snapshot(cluster, alike, now_s=60)
    assert started(LookaheadDispatcher().decide(snapshot), snapshot) == started(
        LookaheadDispatcher().decide(indifferent), indifferent
    )


@pytest.mark.parametrize(("site_weight", "first"), [(0.5, 0), (6.0, 1)])
def test_small_site_weight_does_not_override_objective(cluster, site_weight, first):
    """A job of a minute goes before one of a day, though the site prefers that. A heavy weight turns it round."""
    jobs = [replace(job, priority=job.id) for job in jobs_for(cluster, (4, 60, 0), (4, 86_400, 0))]
    snapshot = a_snapshot(cluster, jobs, now_s=60)
    assert started(LookaheadDispatcher("slowdown", site_weight=site_weight).decide(snapshot), snapshot) == {first}
