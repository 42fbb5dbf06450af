"""Synthetic weeks for the tests of tuning: a small machine, and users who overestimate run times."""

import random

from cpsched.model import Cluster, Job, Request
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.workload_loader import Workload

DAY_S = 86_400


def weeks(days=28, jobs_a_day=60, seed=1, machine=16):
    """A workload with a queue: jobs by four users, a few of them wide and long."""
    draw = random.Random(seed)
    submits = sorted(draw.randrange(days * DAY_S) for _ in range(days * jobs_a_day))
    jobs = []
    for number, submit_s in enumerate([0, *submits, days * DAY_S - 1], start=1):
        wide = draw.random() < 0.2
        units = draw.randint(8, machine) if wide else draw.randint(1, 4)
        run_s = draw.randint(1200, 9000) if wide else draw.randint(10, 2400)
        job = Job(number, submit_s, draw.choice((2, 5, 10)) * run_s, Request(units, (1,)), user=f"u{number % 4}")
        jobs.append(TraceJob(job, run_s))
    return Workload("synthetic", "small", Cluster.of([[machine]], ["cores"]), jobs, {}, ())


def as_swf(workload):
    """The text of the same as SWF."""
    lines = [f"; MaxProcs: {int(workload.cluster.capacity.sum())}"]
    for entry in workload.jobs:
        job, units = entry.job, entry.job.request.units
        fields = [job.id, job.submit_s, -1, entry.run_s, units, -1, -1, units, job.walltime_s, -1, 1, job.user[1:]]
        lines.append(" ".join(map(str, [*fields, -1, -1, -1, -1, -1, -1])))
    return "\n".join(lines) + "\n"
