from itertools import pairwise

import pytest

from cpsched.dispatchers.list_orders import ListDispatcher
from cpsched.forecast import ISSUE_INTERVAL_S
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.interval_accuracy import coverage_by_horizon, replay_intervals
from cpsched_sim.traces.trace_job import TraceJob
from cpsched_sim.workloads.load import Workload
from tests.builders import a_cluster, a_job


def told(*jobs):
    """Jobs of (submitted, cores, walltime, real run time) on four cores, under list-reg."""
    trace = [
        TraceJob(a_job(i, cores, 1, walltime, submit, user="ada"), run)
        for i, (submit, cores, walltime, run) in enumerate(jobs)
    ]
    workload = Workload("made", "pool", a_cluster(1, 4), trace, {}, ())
    return replay_intervals(workload, Policy(WalltimePredictor(), ListDispatcher()))


def test_a_job_is_told_when_it_is_first_planned_and_its_start_is_kept_beside_it():
    found = told((0, 4, 1000, 600), (10, 4, 100, 100), (20, 4, 50, 50))
    assert [(each.told.issued_at_s, each.start_s) for each in found] == [(10, 600), (20, 700)]
    assert all(each.told.from_s <= each.told.median_s <= each.told.to_s for each in found)


def test_a_job_that_waits_long_is_told_again_once_an_hour():
    """Rounds come with the small jobs, one every 20 minutes."""
    found = told((0, 3, 20_000, 20_000), (10, 4, 100, 100), *((1200 * i, 1, 60, 60) for i in range(1, 16)))
    times = [each.told.issued_at_s for each in found if each.start_s == 20_000]
    assert times[0] == 10
    assert len(times) > 3
    assert all(later - before >= ISSUE_INTERVAL_S for before, later in pairwise(times[1:]))


def test_nothing_of_the_future_is_known():
    """The real run time of the running job affects no interval issued before it ends."""
    short, long = (told((0, 4, 1000, run), (10, 4, 100, 100))[0].told for run in (100, 1000))
    assert short == long


def test_figures_are_by_how_far_ahead_and_for_all():
    found = told((0, 4, 1000, 600), (10, 4, 100, 100), (20, 4, 50, 50))
    rows = coverage_by_horizon(found)
    assert sum(row.told for name, row in rows.items() if name != "all") == rows["all"].told == 2
    assert rows["all"].held + rows["all"].early + rows["all"].late == pytest.approx(1)
    assert rows["all"].told == 2
