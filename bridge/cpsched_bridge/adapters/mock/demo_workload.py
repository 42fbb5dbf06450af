"""A loaded morning on Eurora: six hours in which about as much work arrives as the machine can do."""

from __future__ import annotations

from cpsched.model import Cluster
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.traces.trace_job import TraceJob
from cpsched_sim.workloads.eurora import JOBS_PER_DAY, eurora_jobs

MORNING_DAYS = 0.25
LONGEST_RUN_S = 9000
"""What runs longer is left to the night: with it, so many jobs would be more than a day's work for the machine."""
_SPARE = 1.1
"""More jobs than asked for are generated, since the long ones are dropped."""


def loaded_morning(jobs: int, seed: int) -> tuple[Cluster, list[TraceJob]]:
    """Eurora and `jobs` jobs of its synthetic workload, the long ones left out. Deterministic."""
    load = jobs * _SPARE / (JOBS_PER_DAY * MORNING_DAYS)
    generated = eurora_jobs(MORNING_DAYS, seed, load)
    return System(load_system("eurora")).cluster, [job for job in generated if job.run_s <= LONGEST_RUN_S][:jobs]
