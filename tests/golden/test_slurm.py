"""The twin of Slurm's scheduler on generated Eurora jobs and on KTH-SP2: the figures of the day it was written."""

from hashlib import md5

import pytest

from cpsched_sim.experiment import simulate
from cpsched_sim.systems.system import System, load_system
from cpsched_sim.workloads.eurora import eurora_jobs
from cpsched_sim.workloads.load import Workload, load
from tests.traces import KTH, trace

PARAMETERS = "bf_interval=60,bf_max_job_user=5,bf_resolution=300,default_queue_depth=20,bf_min_age_reserve=600"


@pytest.mark.parametrize(
    ("settings", "starts", "places"),
    [
        ({}, "cbe38367a805", "5d244d32fbf6"),
        ({"scheduler_parameters": PARAMETERS}, "ac5708614c4e", "4d1628fa6086"),
    ],
)
def test_decisions_have_not_moved(settings, starts, places):
    jobs = eurora_jobs(days=2, seed=1, load=3.0)[:1500]
    work = Workload("generated", "eurora", System(load_system("eurora")).cluster, jobs, {}, ())
    schedule = simulate(work, "slurm", "walltime", settings=settings).schedule
    placed = [schedule.placement_of(i) for i in range(len(jobs))]
    assert md5(schedule.start_s.tobytes()).hexdigest()[:12] == starts
    assert md5(str(placed).encode()).hexdigest()[:12] == places


def test_kth_has_its_figures():
    found = simulate(load(trace(KTH)), "slurm", "walltime")
    assert (found.bsld, found.mean_wait_s) == pytest.approx((100.4372450674829, 7915.223166321407), rel=1e-12)
