"""The twin of Slurm's scheduler, compared with recorded choices of a real Slurm and with recorded results."""

import csv
from dataclasses import fields
from hashlib import md5
from pathlib import Path

import pytest

from cpsched_sim.simulation import simulate
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.workloads.eurora_generator import generate_eurora_jobs
from cpsched_sim.workloads.workload_loader import Workload, load
from tests.slurm.twin import KNOWN, Recorded, choices, twin_starts
from tests.traces import KTH, trace

PARAMETERS = "bf_interval=60,bf_max_job_user=5,bf_resolution=300,default_queue_depth=20,bf_min_age_reserve=600"
LIVE = Path(__file__).parent / "live"


def live_run(name: str) -> tuple[str, list[Recorded]]:
    """(configuration, record) of a run of tests.slurm.twin on Slurm 26.05, seconds since the epoch."""
    config, *lines = (LIVE / f"{name}.csv").read_text().splitlines()
    words = {field.name for field in fields(Recorded) if field.type == "str"}
    rows = csv.DictReader(lines)
    return config.removeprefix("# "), [
        Recorded(**{key: value if key in words else int(value) for key, value in row.items()}) for row in rows
    ]


@pytest.mark.parametrize(
    ("name", "jobs", "chosen", "wait_s"),
    [("longer-3", 45, 44, 54.7), ("mixed-1", 70, 69, 74.5), ("shorter-1", 120, 108, 32.0)],
)
def test_chooses_jobs_that_real_slurm_started(name, jobs, chosen, wait_s):
    """Shown each second in which Slurm started jobs; and its mean wait where it is left to itself."""
    run, (config, record) = KNOWN[name.partition("-")[0]], live_run(name)
    assert len(record) == jobs
    assert sum(record[number].start_s == second for second, number in choices(run, config, record)) == chosen
    starts = twin_starts(run, config, record)
    waits = [start - job.submit_s for start, job in zip(starts, record, strict=True)]
    assert sum(waits) / jobs == pytest.approx(wait_s, abs=0.05)


@pytest.mark.parametrize(
    ("settings", "starts", "places"),
    [
        ({}, "576adfae60dd", "5c04a07607ab"),
        ({"scheduler_parameters": PARAMETERS}, "d788066011db", "70f8d15da9cb"),
    ],
)
def test_decisions_are_unchanged(settings, starts, places):
    jobs = generate_eurora_jobs(days=2, seed=1, load=3.0)[:1500]
    work = Workload("generated", "eurora", System(load_system("eurora")).cluster, jobs, {}, ())
    schedule = simulate(work, "slurm", "walltime", settings=settings).schedule
    placed = [schedule.placement_of(i) for i in range(len(jobs))]
    assert md5(schedule.start_s.tobytes()).hexdigest()[:12] == starts
    assert md5(str(placed).encode()).hexdigest()[:12] == places


def test_kth_has_recorded_figures():
    found = simulate(load(trace(KTH)), "slurm", "walltime")
    assert (found.bsld, found.mean_wait_s) == pytest.approx((100.4372450674829, 7915.223166321407), rel=1e-12)
