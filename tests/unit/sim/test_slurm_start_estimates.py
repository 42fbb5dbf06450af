"""Forecasts and recorded `squeue --start` estimates are compared with the same recorded starts."""

import pytest

from cpsched.dispatchers.list_dispatchers import ListDispatcher
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.start_time_accuracy import HEADING, compare_forecasts_with_slurm, replay_start_forecasts
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.workload_loader import Workload
from tests.builders import a_cluster, a_job

DAY_S = 86_400
QUEUE = (0, 600, 0), (1, 10, 700), (10, 100, 800), (20, 50, 950)
"""Jobs that use the whole cluster, as (submitted, run time, recorded start). It is idle before the last three."""


def a_workload(*jobs):
    trace = [
        TraceJob(a_job(i, 4, 1, 2 * run_s, submit_s), run_s, start_s)
        for i, (submit_s, run_s, start_s) in enumerate(jobs)
    ]
    return Workload("made", "pool", a_cluster(1, 4), trace, {}, ())


def a_policy():
    return Policy(WalltimePredictor(), ListDispatcher())


@pytest.fixture
def compare(tmp_path):
    """Compare the jobs with estimates given as (moment, job, start)."""

    def compared(jobs, estimates, ids=None):
        path = tmp_path / "estimates.csv"
        path.write_text("\n".join([HEADING, *(",".join(map(str, each)) for each in estimates), ""]))
        return compare_forecasts_with_slurm(a_workload(*jobs), a_policy(), path, ids or {})

    return compared


def test_replay_follows_recorded_starts():
    found = replay_start_forecasts(a_workload(*QUEUE), a_policy(), as_recorded=True)
    assert {each.job: each.start_s for each in found} == {2: 800, 3: 950}
    assert {each.planned_s for each in found if (each.job, each.told.issued_at_s) == (3, 20)} == {1420}


def test_compares_same_jobs_and_moments(compare):
    """The first forecasts are issued at 10 and 20 s. Of two estimates, the nearest is used; N/A is counted."""
    found = compare(QUEUE, [(0, 3, 5000), (15, 3, 980), (70, 3, 5000), (81, 3, 5000), (12, 2, ""), (20, 1, 700)])
    assert (found["cases"], found["without_estimate"], found["days"]) == (1, 1, 1)
    assert (found["slurm"]["absolute_error_s"], found["slurm"]["within_1_min"], found["slurm"]["within_10_min"]) == (
        30,
        100,
        100,
    )
    assert found["slurm"]["pinball_s"] == pytest.approx(15), (
        "of an estimate 30 s too late, on average over the quantiles"
    )
    assert found["forecast"]["absolute_error_s"] > 60 > found["forecast"]["within_1_min"] == 0
    assert found["pinball_difference_s"] == pytest.approx(found["forecast"]["pinball_s"] - 15)
    assert found["pinball_difference_interval_s"] is None


def test_interval_resamples_days(compare):
    days = [
        (day * DAY_S + submit_s, run_s, day * DAY_S + start_s) for day in range(8) for submit_s, run_s, start_s in QUEUE
    ]
    exact = [(submit_s, at, start_s) for at, (submit_s, _, start_s) in enumerate(days)]
    found = compare(days, exact)
    low, high = found["pinball_difference_interval_s"]
    assert (found["days"], found["slurm"]["absolute_error_s"]) == (4, 0)
    assert low <= found["pinball_difference_s"] <= high


def test_estimates_use_ids_of_squeue(compare):
    assert compare(QUEUE, [(20, "12_3", 950)], {3: "12_3"})["cases"] == 1


def test_unusable_recordings_are_errors(compare):
    rule = r"no estimated start within 60 s of any of the \d+ forecasts \(N/A for 1 of them\)\. The file must"
    with pytest.raises(InputError, match=rule):
        compare(QUEUE, [(20, 3, ""), (81, 3, 950), (20, 9, 950)])
    with pytest.raises(InvalidTrace, match=r"estimates.csv:2: row: 20,3: must be at_unix_s,job,start_unix_s"):
        compare(QUEUE, [(20, 3)])
    with pytest.raises(InputError, match="requires the recorded start of each job"):
        compare([*QUEUE[:3], (20, 50, None)], [(20, 3, 950)])
