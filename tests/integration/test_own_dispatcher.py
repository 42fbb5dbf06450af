"""Test the README's second code block: a short dispatcher, simulated on a trace, with a pandas frame of the jobs."""

from dataclasses import replace

import numpy as np
import pytest

import cpsched
import cpsched_sim
from cpsched_sim.cli.input_commands import workload_eurora


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Return the trace of a busy day on a generated Eurora, as `cpsched workload eurora` writes it."""
    path = tmp_path_factory.mktemp("trace") / "day.csv.gz"
    workload_eurora(path, days=0.3, seed=1, load=2.5)
    return path


class SmallestFirst(cpsched.Dispatcher):
    """Start the smallest jobs first without delaying the first waiting job."""

    def decide(self, snapshot, need="plan"):
        return cpsched.plan(snapshot, order="saf", reservations=1, need=need)


def test_custom_dispatcher_is_simulated_compared_and_inspected(trace):
    outcome = cpsched_sim.simulate(trace, SmallestFirst(), predictor="last-two")
    assert outcome.schedule.violations == ()
    assert outcome.bsld == outcome.summary()["bsld"] >= 1
    assert str(outcome).startswith("SmallestFirst / last-two: day.csv.gz on eurora, ")
    assert repr(outcome) == str(outcome)
    assert all(metric.heading in str(outcome) for metric in cpsched_sim.METRICS)

    jobs = outcome.to_frame()
    assert (len(jobs), jobs.bounded_slowdown.mean()) == (outcome.summary()["jobs"], pytest.approx(outcome.bsld))
    assert jobs.wait_s.mean() == pytest.approx(outcome.mean_wait_s)
    assert (jobs.end_s - jobs.start_s == jobs.run_s).all()

    both = cpsched_sim.compare(trace, ["easy", SmallestFirst()], ["walltime", "last-two"])
    assert list(both.to_frame().predictor) == ["walltime", "last-two"] * 2
    assert np.array_equal(both.rows[3].simulation.schedule.start_s, outcome.schedule.start_s)
    assert "SmallestFirst / last-two" in str(both)


def test_order_may_be_function_of_job(trace):
    """A function that returns a job's area gives the same schedule as the order named `saf`."""

    class ByFunction(cpsched.Dispatcher):
        def decide(self, snapshot, need="plan"):
            def area(job):
                return job.request.units * job.request.per_unit[0] * snapshot.estimate_of(job)

            return cpsched.plan(snapshot, order=area, reservations=1, need=need)

    by_name = cpsched_sim.simulate(cpsched_sim.load(trace, max_jobs=400), SmallestFirst)
    by_function = cpsched_sim.simulate(cpsched_sim.load(trace, max_jobs=400), ByFunction)
    assert np.array_equal(by_name.schedule.start_s, by_function.schedule.start_s)


def test_infeasible_jobs_have_no_times(trace):
    workload = cpsched_sim.load(trace, max_jobs=50)
    too_large = cpsched.Request(1000, workload.jobs[7].job.request.per_unit)
    jobs = list(workload.jobs)
    jobs[7] = replace(jobs[7], job=replace(jobs[7].job, request=too_large))
    outcome = cpsched_sim.simulate(replace(workload, jobs=jobs))
    assert outcome.never_started_count == 1
    assert outcome.to_frame().start_s.isna().sum() == 1
    assert "1 job never started" in str(outcome)


def test_missing_pandas_names_package_to_install(trace, mocker):
    outcome = cpsched_sim.simulate(cpsched_sim.load(trace, max_jobs=20))
    mocker.patch.dict("sys.modules", {"pandas": None})
    with pytest.raises(Exception, match=r"to_frame\(\) requires pandas: pip install 'cpsched\[pandas\]'"):
        outcome.to_frame()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dispatcher": "esy"}, "unknown dispatcher 'esy'; known: .*; did you mean 'easy'"),
        ({"dispatcher": int}, r"dispatcher=builtins:int: must derive from Dispatcher \(cpsched.dispatchers.base\)"),
        (
            {"dispatcher": 3},
            "dispatcher=3: must be a dispatcher: a name, package.module:Class, a class or an",
        ),
        ({"predictor": SmallestFirst}, "SmallestFirst: must derive from Predictor"),
        ({"trace": 5}, "trace=5: must be a path or a loaded workload"),
        ({"trace": "nowhere.swf"}, "nowhere.swf: No such file"),
        ({"settings": {"backfil": "fcfs"}}, "unknown parameter of easy.*did you mean 'backfill'"),
        ({"metrics": ["bsdl"]}, "unknown metric 'bsdl'.*did you mean 'bsld'"),
    ],
)
def test_rejects_invalid_arguments(trace, arguments, message):
    with pytest.raises(Exception, match=message):
        cpsched_sim.simulate(**{"trace": cpsched_sim.load(trace, max_jobs=5)} | arguments)


def test_unknown_metric_attribute_lists_known_ones(trace):
    with pytest.raises(AttributeError, match="a simulation has no metric 'bsl': its metrics are bsld, af"):
        cpsched_sim.simulate(cpsched_sim.load(trace, max_jobs=5)).bsl  # noqa: B018
