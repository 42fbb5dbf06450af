"""What the study of narrow jobs lets weigh more, and what its tables say."""

import numpy as np
import pytest

from cpsched.dispatchers.lookahead.dispatcher import Lookahead
from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.errors import InvalidValue
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.cluster.replay import replay
from cpsched_sim.traces.job import TraceJob
from tests.benchmarks.narrow import FIRST, MEASURES, Fair, narrowest, row
from tests.benchmarks.unseen import Case, rows_of, with_interval
from tests.builders import a_cluster, a_job, a_running, a_snapshot

POOL = a_cluster(nodes=1, cores=100)


class Seen(Fair):
    """`Fair`, which shows its factors by job."""

    def _site_factors(self, snapshot, expected_s):
        factors = super()._site_factors(snapshot, expected_s)
        jobs = [snapshot.table.jobs[slot].id for slot in snapshot.queue.tolist()]
        self.by_job = dict(zip(jobs, factors.tolist(), strict=True))
        return factors


NARROW, WIDE, BEHIND = a_job(1, 1, (1,), 500), a_job(2, 1, (60,), 500), a_job(3, 1, (100,), 2000)


def factors_of(fair, now_s=100):
    """At 0 `easy` starts the first two jobs and the third waits; really all of them still wait at `now_s`."""
    fair.decide(a_snapshot(POOL, [NARROW, WIDE, BEHIND], now_s=0))
    elsewhere = a_job(9, 1, (100,), 1000)
    fair.decide(a_snapshot(POOL, [NARROW, WIDE, BEHIND], [a_running(elsewhere, ((0, 1),), now_s)], now_s=now_s))
    return fair.by_job


def test_a_job_is_late_from_its_start_under_easy_on():
    fair = Seen()
    assert factors_of(fair) == {1: 1.0, 2: 1.0, 3: 1.0}
    assert fair.lateness.late_s.tolist() == [100.0, 100.0, 0.0]
    assert fair.lateness.longest_s > 0


def test_lateness_ages_with_the_square_of_its_share():
    fair = Seen(late=0.5)
    found = factors_of(fair)
    assert found[1] == found[2] == pytest.approx(1 + (100 / (0.5 * fair.lateness.longest_s)) ** 2)
    assert found[3] == 1.0


def test_beyond_the_bound_a_job_goes_first():
    share = 100 / (lambda fair: (factors_of(fair), fair.lateness.longest_s)[1])(Seen())
    assert factors_of(Seen(bound=0.9 * share)) == {1: FIRST, 2: FIRST, 3: 1.0}
    assert factors_of(Seen(bound=1.1 * share)) == {1: 1.0, 2: 1.0, 3: 1.0}


def test_wide_jobs_are_not_concerned_where_narrow_ones_are_meant():
    found = factors_of(Seen(late=0.5, bound=0.001, narrow=0.01))
    assert found[1] > FIRST
    assert found[2] == 1.0


def test_on_a_small_machine_one_processor_is_narrow():
    found = factors_of(Seen(bound=0.001, narrow=0.0001))
    assert (found[1], found[2]) == (FIRST, 1.0)


def test_a_price_becomes_at_most_so_many_times_dearer():
    assert factors_of(Seen(late=0.001, most=4)) == {1: 4.0, 2: 4.0, 3: 1.0}


@pytest.mark.parametrize(
    ("setting", "concerned"),
    [
        ({"after": 0.0}, {1, 2}),
        ({"after": 100.0}, set()),
        ({"area": 0.01}, {1}),
        ({"area": 0.5}, {1, 2}),
        ({"narrow": 0.01, "share": 0.01}, {1}),
        ({"narrow": 0.01, "share": 0.001}, set()),
        ({"share": 0.2}, set()),
    ],
)
def test_whom_lateness_concerns(setting, concerned):
    found = factors_of(Seen(late=0.01, **setting))
    assert {id for id, factor in found.items() if factor > 1} == concerned


def test_the_floor_lifts_what_is_cheap_and_nothing_else():
    expected_s = np.array([500.0, 500.0, 2000.0])
    own = OBJECTIVES["default"].weights(np.array([1, 60, 100]), expected_s)
    fair = Seen(floor=0.99)
    found = factors_of(fair)
    lifted = own * [found[1], found[2], found[3]]
    assert found[1] > 1.0
    assert lifted == pytest.approx(np.maximum(own, 0.99 * own.mean()))


@pytest.mark.parametrize("name", ["late", "bound", "floor", "narrow", "most", "after", "area", "share"])
def test_a_negative_setting_is_refused(name):
    with pytest.raises(InvalidValue, match=name):
        Fair(**{name: -0.1})


def some_jobs(count=250, seed=5):
    rng = np.random.default_rng(seed)
    submit_s = np.sort(rng.integers(0, 15_000, count))
    walltime_s = rng.integers(50, 4000, count)
    cores = rng.choice([1, 1, 5, 40], count)
    jobs = [a_job(i, 1, (int(cores[i]),), int(walltime_s[i]), int(submit_s[i]), user=f"u{i % 5}") for i in range(count)]
    return [TraceJob(job, max(1, job.walltime_s // 2)) for job in jobs]


def starts_under(dispatcher):
    return replay(some_jobs(), POOL, Policy(WalltimePredictor(), dispatcher)).start_s.tolist()


def test_without_settings_everything_is_as_in_lookahead():
    assert starts_under(Fair()) == starts_under(Lookahead())


@pytest.mark.parametrize("setting", ["late", "bound", "floor"])
def test_each_setting_changes_decisions(setting):
    assert starts_under(Fair(**{setting: 0.05 if setting != "floor" else 1.0})) != starts_under(Lookahead())


def of_windows(setting, longest, narrow, trace="A"):
    """Figures of windows, of which each has a class narrower than 1 % in which somebody waits for `narrow`."""
    row = dict.fromkeys(MEASURES, 1.0)
    return {
        Case(trace, k, setting, 0): row | {"longest": a, "classes": {"width below 1 %": [5.0, 9.0, 9.0, b]}}
        for k, (a, b) in enumerate(zip(longest, narrow, strict=True))
    }


def test_the_narrowest_class_is_the_first_that_there_is():
    assert narrowest({"width 10 % and more": [1, 2, 3, 4], "width 1 to 10 %": [1, 2, 3, 7]}) == 7


def rows(found, name, setting):
    return rows_of(found, name, setting, row)


def test_figures_are_percent_of_easy_window_by_window_and_narrow_jobs_of_easy_on_the_mean():
    found = of_windows("easy", (10.0, 20.0), (1.0, 99.0)) | of_windows("x", (20.0, 20.0), (50.0, 150.0))
    assert rows(found, "A", "x")[:, 0, MEASURES.index("longest")].tolist() == [200.0, 100.0]
    assert rows(found, "A", "x")[:, 0, -1].tolist() == [100.0, 300.0]
    assert rows(found, "all", "x").tolist() == rows(found, "A", "x").tolist()


def test_a_trace_is_measured_by_its_own_easy():
    found = of_windows("easy", (10.0,), (10.0,)) | of_windows("x", (10.0,), (20.0,))
    found |= of_windows("easy", (10.0,), (40.0,), "B") | of_windows("x", (10.0,), (20.0,), "B")
    assert rows(found, "B", "x")[:, 0, -1].tolist() == [50.0]
    assert rows(found, "all", "x")[:, 0, -1].tolist() == [200.0, 50.0]


def test_an_interval_of_equal_windows_has_no_width():
    each = np.full((3, 2, 1), 98.0)
    assert with_interval(each) == ["98 (98-98)"]
    assert with_interval(each - 100, "+") == ["-2.0 (-2.0 to -2.0)"]


def test_an_interval_draws_windows():
    assert with_interval(np.array([[[0.0]], [[100.0]]])) == ["50 (0-100)"]


def test_an_interval_draws_seeds_of_each_window():
    assert with_interval(np.array([[[0.0], [100.0]]])) == ["50 (0-100)"]
    two = with_interval(np.array([[[0.0], [100.0]]] * 40), "+")[0]
    low, high = (float(each) for each in two.partition("(")[2].rstrip(")").split(" to "))
    assert 35 < low < 42
    assert 58 < high < 65
