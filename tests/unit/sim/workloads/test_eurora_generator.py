from itertools import pairwise

import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.predictors.profile import ProfilePredictor
from cpsched_sim.predictor_accuracy import PredictorAccuracy, predict_run_times_s
from cpsched_sim.workloads.eurora_generator import (
    JOBS_PER_DAY,
    PUBLISHED_FIGURES,
    generate_eurora_jobs,
    generate_eurora_records,
)


@pytest.fixture(scope="module", params=[1, 20261120])
def month(request):
    return generate_eurora_jobs(days=30, seed=request.param)


def reached(jobs):
    """The statistics of `PUBLISHED_FIGURES`, measured."""
    run_s = np.array([entry.run_s for entry in jobs])
    walltime_s = np.array([entry.job.walltime_s for entry in jobs])
    cores = np.array([entry.job.request.units * entry.job.request.per_unit[0] for entry in jobs])
    hours, cpu = run_s / 3600, run_s * cores
    short, long = hours < 1, hours > 12
    medium = ~short & ~long
    walltime = PredictorAccuracy.of(run_s, walltime_s)
    profile = PredictorAccuracy.of(run_s, predict_run_times_s(jobs, ProfilePredictor()))
    return {
        "short_share": short.mean(),
        "medium_share": medium.mean(),
        "long_share": long.mean(),
        "from_1_to_5_h_share": ((hours >= 1) & (hours <= 5)).mean(),
        "over_5_h_share": (hours > 5).mean(),
        "short_cpu_share": cpu[short].sum() / cpu.sum(),
        "medium_cpu_share": cpu[medium].sum() / cpu.sum(),
        "long_cpu_share": cpu[long].sum() / cpu.sum(),
        "longest_h": hours.max(),
        "walltime_error_min": walltime.mean_absolute_error_min,
        "walltime_under": walltime.under,
        "walltime_over": walltime.over,
        "profile_error_min": profile.mean_absolute_error_min,
        "profile_under": profile.under,
        "profile_over": profile.over,
        "profile_close": profile.close,
    }


def test_month_is_within_20_percent_of_published_statistics(month):
    found = reached(month)
    assert found.keys() == PUBLISHED_FIGURES.keys()
    far = {name: value for name, value in found.items() if abs(value / PUBLISHED_FIGURES[name] - 1) > 0.20}
    assert not far
    assert found["longest_h"] <= 24


def test_few_walltimes_are_close_to_run_time(month):
    run_s = np.array([entry.run_s for entry in month])
    assert PredictorAccuracy.of(run_s, np.array([entry.job.walltime_s for entry in month])).close < 0.10


def test_month_has_as_many_jobs_as_busiest_of_eurora(month):
    assert len(month) == round(30 * JOBS_PER_DAY)
    assert month[-1].job.submit_s < 30 * 86_400


def test_seed_determines_jobs():
    assert generate_eurora_records(2, seed=5) == generate_eurora_records(2, seed=5)
    assert generate_eurora_records(2, seed=5) != generate_eurora_records(2, seed=6)


def test_jobs_are_in_arrival_order_with_ids_from_1():
    records = generate_eurora_records(3, seed=1)
    assert [record.id for record in records] == list(range(1, len(records) + 1))
    assert all(a.submit_s <= b.submit_s for a, b in pairwise(records))


def test_load_multiplies_jobs():
    assert len(generate_eurora_records(1, seed=1, load=2.0)) == round(2 * JOBS_PER_DAY)


def test_uses_all_queues_and_accelerators():
    records = generate_eurora_records(7, seed=3)
    assert {record.queue for record in records} == {"debug", "parallel", "np_parallel", "longpar"}
    assert {name for record in records for name, _ in record.ask.each} == {"cores", "memory_mib", "gpus", "mics"}


@pytest.mark.parametrize(
    ("days", "load", "message"),
    [
        (0.0, 1.0, "days=0.0: must be positive"),
        (1.0, 0.0, "load=0.0: must be positive"),
        (1e9, 1.0, "days=1000000000.0: must be at least a second"),
        (float("nan"), 1.0, "days=nan: must be positive"),
        (1e-9, 1.0, "days=1e-09: must be at least a second"),
        (-1.0, 1.0, "days=-1.0: must be positive"),
        (1.0, float("inf"), "load=inf: must be positive"),
        (1.0, float("nan"), "load=nan: must be positive"),
        (30.0, 1e6, "jobs, must be at most 4,000,000"),
        (36_525.0, 1.0, "44,6[0-9]{2},[0-9]{3} jobs, must be at most 4,000,000"),
    ],
)
def test_rejects_excessive_sizes(days, load, message):
    with pytest.raises(InvalidValue, match=message):
        generate_eurora_records(days, 1, load)


def test_smallest_workload_is_one_job():
    assert [record.submit_s for record in generate_eurora_records(1 / 86_400, 1, 1e-9)] == [0]
