"""Generate a demo workload: six hours on Eurora at about full load."""

from __future__ import annotations

from cpsched.model import Cluster
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.traces.trace_job import TraceJob
from cpsched_sim.workloads.eurora import JOBS_PER_DAY, eurora_jobs

MORNING_DAYS = 0.25
LONGEST_RUN_S = 9000
"""Longest run time of a generated job: longer jobs would overload the machine."""
_SPARE = 1.1
"""Factor of surplus jobs, because long jobs are dropped."""


def make_demo_workload(jobs: int, seed: int) -> tuple[Cluster, list[TraceJob]]:
    """Return Eurora and `jobs` jobs of its synthetic workload, without long ones."""
    load = jobs * _SPARE / (JOBS_PER_DAY * MORNING_DAYS)
    generated = eurora_jobs(MORNING_DAYS, seed, load)
    return System(load_system("eurora")).cluster, [job for job in generated if job.run_s <= LONGEST_RUN_S][:jobs]
