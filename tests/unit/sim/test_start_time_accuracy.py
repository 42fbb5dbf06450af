from dataclasses import replace

import pytest

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.list_dispatchers import ListDispatcher
from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher
from cpsched.forecast import StartForecast
from cpsched.model import NEVER, PowerCap
from cpsched.planning import plan
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.cluster.replay import TraceReplay, replay
from cpsched_sim.start_time_accuracy import (
    StartForecastAccuracy,
    StartForecastOutcome,
    accuracy_by_horizon,
    replay_start_forecasts,
)
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.workload_loader import Workload
from tests.builders import a_cluster, a_job


def a_workload(*jobs):
    """Jobs of (submitted, cores, walltime, real run time) on four cores."""
    trace = [
        TraceJob(a_job(i, cores, 1, walltime, submit), run) for i, (submit, cores, walltime, run) in enumerate(jobs)
    ]
    return Workload("made", "pool", a_cluster(1, 4), trace, {}, ())


def told(*jobs, dispatcher=None):
    """The forecasts of the second half of the jobs, under list-reg by default."""
    return replay_start_forecasts(a_workload(*jobs), Policy(WalltimePredictor(), dispatcher or ListDispatcher()))


QUEUE = (0, 4, 1000, 600), (1, 4, 10, 10), (10, 4, 100, 100), (20, 4, 50, 50)


def test_records_first_forecast_with_actual_start():
    found = told(*QUEUE)
    first = [(each.told.issued_at_s, each.planned_s, each.start_s) for each in found]
    assert first[0] == (10, 1010, 610)
    assert (20, 1110, 710) in first
    assert all(list(each.told.quantiles_s) == sorted(each.told.quantiles_s) for each in found)


def test_long_waiting_job_counts_once_per_class():
    """Its first forecast counts, and the oldest of the later ones, whose horizon is the same.

    Rounds come with the small jobs, one every 10 minutes. The wide job waits for the long one.
    """
    small = [(600 * i + 20, 1, 60, 60) for i in range(1, 30)]
    found = told((0, 3, 20_000, 20_000), *((1, 1, 1, 1) for _ in range(30)), (10, 4, 100, 100), *small)
    times = [each.told.issued_at_s for each in found if each.start_s >= 20_000 and each.told.issued_at_s < 20_000]
    assert times == [10, 620]


def test_forecast_does_not_use_future():
    """The real run time of the running job affects no forecast issued before it ends."""
    short, long = (
        told((0, 4, 1000, run), (1, 1, 1, 1), (10, 4, 100, 100), (10, 4, 9, 9))[0].told for run in (100, 1000)
    )
    assert short == long


def test_calls_dispatcher_at_its_requested_times():
    """The third job is backfilled at a pass of Slurm's twin, when nothing else happens."""
    workload = a_workload((0, 3, 1000, 1000), (10, 4, 100, 100), (20, 1, 50, 50))
    found = replay_start_forecasts(workload, Policy(WalltimePredictor(), SlurmTwinDispatcher()))
    plain = replay(workload.jobs, workload.cluster, Policy(WalltimePredictor(), SlurmTwinDispatcher()))
    assert 20 < plain.start_s[2] <= 60
    assert {each.job: each.start_s for each in found} == {1: plain.start_s[1], 2: plain.start_s[2]}


class Silent(Dispatcher):
    """Starts what fits and plans nothing."""

    def decide(self, snapshot, need="plan"):
        return plan(snapshot, need="starts")


def test_dispatcher_without_plans_gives_no_forecast():
    assert told(*QUEUE, dispatcher=Silent()) == []


def test_groups_figures_by_forecast_horizon():
    found = told(*QUEUE)
    rows = accuracy_by_horizon(found)
    assert sum(row.cases for _, _, row in rows) == len(found) == StartForecastAccuracy.of(found).cases
    assert all(from_s < (to_s or NEVER) for from_s, to_s, _ in rows)


def test_computes_figures_of_two_forecasts():
    """The quantiles are 0, 100, ..., 800; the first job starts at the median, the second beyond all of them."""
    forecast = StartForecast(0, tuple(range(0, 900, 100)), True, True, False, "", (0.0,) * 6)
    row = StartForecastAccuracy.of(
        [StartForecastOutcome(0, forecast, 400, 400), StartForecastOutcome(1, forecast, None, 1060)]
    )
    assert (row.cases, row.coverage) == (2, {"50": 50, "80": 50, "95": 50})
    assert (row.median_width_80_s, row.within_1_min, row.within_10_min) == (400, 50, 50)
    assert (row.estimates, row.estimate_pinball_s) == (1, 0)
    assert row.pinball_s == pytest.approx((forecast.pinball_s(400) + forecast.pinball_s(1060)) / 2)


def test_figures_without_forecasts_are_missing():
    row = StartForecastAccuracy.of([])
    assert (row.cases, row.coverage, row.pinball_s) == (0, {"50": None, "80": None, "95": None}, None)
    assert accuracy_by_horizon([]) == []


def test_expected_starts_respect_power_cap():
    """Two jobs of 8 W each under a cap of 15 W, on room for both."""
    workload = a_workload((0, 1, 100, 10), (0, 1, 100, 10))
    cluster = replace(workload.cluster, power=PowerCap.of(15, {"cores": 8}))
    rounds = TraceReplay(workload.jobs, cluster, Policy(WalltimePredictor(), ListDispatcher()))
    assert [int(decision.plan_s[0]) for _, decision in rounds.rounds(needs_plan=lambda snapshot: True)] == [0, 10]
    assert rounds.schedule.start_s.tolist() == [0, 10]
