from dataclasses import replace

import numpy as np
import pytest

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.dispatchers.list_orders import ListDispatcher
from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmDispatcher
from cpsched.model import PowerCap
from cpsched.planning import plan
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.cluster.replay import replay
from cpsched_sim.start_time_accuracy import PlannedRoundReplay, StartTimeErrors, first_forecasts
from cpsched_sim.traces.trace_job import TraceJob
from cpsched_sim.workloads.load import Workload
from tests.builders import a_cluster, a_job


def a_workload(*jobs):
    """Jobs of (submitted, cores, walltime, real run time) on four cores."""
    trace = [
        TraceJob(a_job(i, cores, 1, walltime, submit), run) for i, (submit, cores, walltime, run) in enumerate(jobs)
    ]
    return Workload("made", "pool", a_cluster(1, 4), trace, {}, ())


def told(dispatcher, *jobs):
    return first_forecasts(a_workload(*jobs), Policy(WalltimePredictor(), dispatcher))


QUEUE = (0, 4, 1000, 600), (10, 4, 100, 100), (20, 4, 50, 50)


def test_the_first_start_that_a_plan_names_is_the_promise_also_where_nothing_can_start():
    found = told(ListDispatcher(), *QUEUE)
    assert (found.told_at_s.tolist(), found.told_s.tolist()) == ([10, 20], [1000, 1100])
    assert found.start_s.tolist() == [600, 700]


def test_a_job_that_no_plan_named_was_told_nothing():
    found = told(EasyDispatcher(), *QUEUE[:2], (20, 4, 50, 50))
    assert found.told_s.tolist() == [1000, 650 + 50]


def test_a_dispatcher_with_clocks_of_its_own_is_asked_when_it_wants_to_be():
    """The third job would be backfilled at a pass of Slurm's twin, when nothing else happens."""
    workload = a_workload((0, 3, 1000, 1000), (10, 4, 100, 100), (20, 1, 50, 50))
    found = first_forecasts(workload, Policy(WalltimePredictor(), SlurmDispatcher()))
    plain = replay(workload.jobs, workload.cluster, Policy(WalltimePredictor(), SlurmDispatcher()))
    assert 20 < plain.start_s[2] <= 60
    assert found.start_s.tolist() == plain.start_s[1:].tolist()


class Silent(Dispatcher):
    """Starts what fits and plans nothing."""

    def decide(self, snapshot, need="plan"):
        return plan(snapshot, need="starts")


def test_a_dispatcher_without_plans_promises_nothing():
    found = told(Silent(), *QUEUE)
    assert len(found.told_s) == 0
    assert found.errors_by_horizon() == {}


def test_figures_are_by_how_far_ahead_a_promise_was():
    found = told(ListDispatcher(), (0, 4, 500, 500), (10, 4, 9000, 9000), (20, 4, 50, 50))
    kept = found.errors_by_horizon()
    assert {name: row.jobs for name, row in kept.items()} == {"up to 15 min": 1, "up to 6 h": 1, "all": 2}
    assert kept["all"].on_time == 1.0


def test_errors_are_real_starts_less_promised_ones():
    kept = StartTimeErrors.of(np.array([-100, 0, 40, 60]))
    assert (kept.on_time, kept.median_error_s, kept.mean_error_s, kept.mean_absolute_error_s) == (0.5, 20, 0, 50)
    assert kept.late_p95_s == pytest.approx(57)


def test_what_is_promised_under_a_cap_of_power_keeps_the_cap():
    """Two jobs of 8 W each under a cap of 15 W, on room for both."""
    workload = a_workload((0, 1, 100, 10), (0, 1, 100, 10))
    cluster = replace(workload.cluster, power=PowerCap.of(15, {"cores": 8}))
    rounds = PlannedRoundReplay(workload.jobs, cluster, Policy(WalltimePredictor(), ListDispatcher()))
    assert [int(decision.plan_s[0]) for _, decision in rounds.rounds(learns=False)] == [0, 10]
    assert rounds.state.table.start_s[:2].tolist() == [0, 10]
