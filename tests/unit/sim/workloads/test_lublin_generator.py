from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.traces import swf
from cpsched_sim.workloads.lublin_generator import (
    GAP_DISTRIBUTION,
    LONG_RUN_TIMES,
    MAX_ESTIMATE_S,
    SHORT_RUN_TIMES,
    arrival_rate_by_half_hour,
    draw_walltime_estimates_s,
    generate_lublin_records,
    lublin_swf_header,
    popularity_by_rank,
)
from cpsched_sim.workloads.workload_loader import load

JOBS = 40_000


@pytest.fixture(scope="module", params=[1, pytest.param(20261123, marks=pytest.mark.slow)])
def records(request):
    return generate_lublin_records(JOBS, request.param)


def column(records, name):
    return np.array([record.ask.processors if name == "processors" else getattr(record, name) for record in records])


@cache
def mean_upto(gamma, most, value=lambda x: x):
    """The mean of a function of a gamma variable that is drawn again above `most`, by the midpoint rule."""
    edges = np.linspace(1e-9, most, 4001)
    upto = np.array([gamma.cumulative_probability(edge) for edge in edges])
    return float((np.diff(upto) * value((edges[1:] + edges[:-1]) / 2)).sum() / upto[-1])


def test_serial_and_power_of_two_jobs_have_published_shares(records):
    sizes = column(records, "processors")
    assert (sizes == 1).mean() == pytest.approx(0.244, abs=0.01)
    parallel_powers = (sizes > 1) & (sizes & (sizes - 1) == 0)
    by_chance = 0.10
    assert 0.576 - 0.01 <= parallel_powers.mean() <= 0.576 + by_chance
    assert sizes.min() == 1
    assert sizes.max() == 128


def test_processors_follow_two_stage_distribution(records):
    sizes = column(records, "processors")
    parallel = np.log2(sizes[sizes > 1])
    mean = 0.86 * (0.8 + 4.5) / 2 + 0.14 * (4.5 + 7) / 2
    assert parallel.mean() == pytest.approx(mean, rel=0.03)
    assert (parallel > 5).mean() == pytest.approx(0.14 * 2 / 2.5, abs=0.03)


@pytest.mark.parametrize("size", [1, 8, 32])
def test_run_times_are_one_of_two_gammas_by_size(records, size):
    runs_s = column(records, "run_s")[column(records, "processors") == size]
    short = 0.78 - 0.0054 * size
    expected = short * mean_upto(SHORT_RUN_TIMES, 12) + (1 - short) * mean_upto(LONG_RUN_TIMES, 12)
    assert np.log(runs_s).mean() == pytest.approx(expected, abs=12 / len(runs_s) ** 0.5)
    assert (runs_s > np.exp(8)).mean() == pytest.approx(
        short * (1 - SHORT_RUN_TIMES.cumulative_probability(8) / SHORT_RUN_TIMES.cumulative_probability(12))
        + (1 - short) * (1 - LONG_RUN_TIMES.cumulative_probability(8)),
        abs=2 / len(runs_s) ** 0.5,
    )


def test_means_of_both_gammas_are_as_published():
    assert mean_upto(SHORT_RUN_TIMES, 30) == pytest.approx(4.2 * 0.94, rel=1e-4)
    assert mean_upto(LONG_RUN_TIMES, 13) == pytest.approx(312 * 0.03, rel=1e-4)


def test_wide_jobs_are_long(records):
    sizes, logs = column(records, "processors"), np.log(column(records, "run_s"))
    assert logs[sizes >= 32].mean() > logs[sizes <= 4].mean() + 0.5


def test_gaps_have_their_mean_divided_by_load(records):
    expected_s = mean_upto(GAP_DISTRIBUTION, 13, np.exp)
    submits_s = column(records, "submit_s")
    assert submits_s[-1] / JOBS == pytest.approx(expected_s, rel=0.06)
    doubled = column(generate_lublin_records(JOBS, 3, load=2.0), "submit_s")
    assert doubled[-1] / column(generate_lublin_records(JOBS, 3), "submit_s")[-1] == pytest.approx(0.5, rel=0.01)


def test_arrivals_follow_daily_cycle(records):
    found = np.bincount(column(records, "submit_s") % 86_400 // 10_800, minlength=8) / JOBS * 8
    expected = arrival_rate_by_half_hour()
    assert expected.mean() == pytest.approx(1)
    assert 24 <= expected.argmax() <= 30
    assert found == pytest.approx(expected.reshape(8, 6).mean(axis=1), abs=0.12)


def test_jobs_are_in_arrival_order_with_ids_from_1(records):
    assert [record.id for record in records] == list(range(1, JOBS + 1))
    assert all(a.submit_s <= b.submit_s for a, b in pairwise(records))


def test_seed_determines_jobs():
    assert generate_lublin_records(500, 5) == generate_lublin_records(500, 5)
    assert generate_lublin_records(500, 5) != generate_lublin_records(500, 6)


@pytest.mark.parametrize("processors", [16, 100, 1000])
def test_jobs_fit_machine_and_some_are_wide(processors):
    sizes = column(generate_lublin_records(5000, 1, processors), "processors")
    assert sizes.max() <= processors
    assert sizes.max() > 0.8 * processors


def test_written_workload_is_read_back(tmp_path):
    path = tmp_path / "lublin.swf.gz"
    records = generate_lublin_records(300, 2, 64)
    swf.write(path, records, lublin_swf_header(300, 2, 64, 1.0))
    system = System(load_system("pool"), {"MaxProcs": "64"})
    jobs = [record.to_trace_job(system.request(record.ask)) for record in records]
    again = load(path)
    assert [each.run_s for each in again.jobs] == [each.run_s for each in jobs]
    assert [each.job for each in again.jobs] == [each.job for each in jobs]
    assert again.cluster.capacity.sum() == system.cluster.capacity.sum() == 64
    assert again.notes == ()


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("jobs", {"jobs": 0}),
        ("jobs", {"jobs": 4_000_001}),
        ("processors", {"processors": 15}),
        ("processors", {"processors": 2**20 + 1}),
        ("load", {"load": 0.0}),
        ("load", {"load": float("nan")}),
    ],
)
def test_rejects_invalid_parameters(field, bad):
    with pytest.raises(InvalidValue, match=field):
        generate_lublin_records(**({"jobs": 10, "seed": 0} | bad))


@pytest.fixture(scope="module")
def pair():
    records = generate_lublin_records(30_000, 4)
    return np.array([record.run_s for record in records]), np.array([record.walltime_s for record in records])


def test_walltimes_are_as_published(pair):
    """20 values cover 89 % of the jobs, the longest first. Runs end within round estimates.

    A job without a long enough estimate would make the longest one more popular than its share.
    """
    runs_s, walltimes_s = pair
    values, counts = np.unique(walltimes_s, return_counts=True)
    assert len(values) == pytest.approx(0.653566 * 30_000**0.547761, rel=0.05)
    assert np.sort(counts)[-20:].sum() / len(walltimes_s) == pytest.approx(0.89, abs=0.005)
    assert values[counts.argmax()] == values.max() == MAX_ESTIMATE_S
    assert counts.max() / len(walltimes_s) == pytest.approx(0.2175, abs=0.005)
    assert (runs_s <= walltimes_s).all()
    assert (walltimes_s % 300 == 0).all()
    assert (walltimes_s == MAX_ESTIMATE_S).sum() <= round(popularity_by_rank(185)[0] * 30_000) + 1


def test_popularity_decreases_with_rank_and_sums_to_1():
    shares = popularity_by_rank(185)
    assert shares.sum() == pytest.approx(1)
    assert shares[:20].sum() == pytest.approx(0.89)
    assert (np.diff(shares) < 0).all()
    assert shares[1] == pytest.approx((14.0491 * np.exp(-0.355062) + 0.462513) / 100)


def test_long_runs_get_longest_estimate():
    runs_s = np.full(100, 170_000)
    assert (draw_walltime_estimates_s(np.random.default_rng(0), runs_s) == MAX_ESTIMATE_S).all()


def test_short_walltimes_have_finer_values():
    runs_s = np.random.default_rng(0).integers(1, 3000, 2000)
    found = draw_walltime_estimates_s(np.random.default_rng(1), runs_s, 3600)
    assert found.max() == 3600
    assert (found % 60 == 0).all()
    assert (found % 300 != 0).any()
    assert (found >= runs_s).all()


@pytest.mark.parametrize(("run_s", "longest_s"), [(10, 3599), (7201, 7200)])
def test_rejects_invalid_run_times(run_s, longest_s):
    with pytest.raises(InvalidValue):
        draw_walltime_estimates_s(np.random.default_rng(0), np.array([run_s]), longest_s)
