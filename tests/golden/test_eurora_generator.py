"""PCP'20 on generated Eurora jobs: the starts and nodes equal those of the original implementation."""

from hashlib import md5

from cpsched_sim.simulation import simulate
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.workloads.eurora_generator import generate_eurora_jobs
from cpsched_sim.workloads.workload_loader import Workload


def test_decisions_are_unchanged():
    jobs = generate_eurora_jobs(days=32, seed=1)[:1500]
    work = Workload("generated", "eurora", System(load_system("eurora")).cluster, jobs, {}, ())
    schedule = simulate(work, "pcp20", "walltime", settings={"effort": "300"}).schedule
    places = [schedule.placement_of(i) for i in range(len(jobs))]
    assert md5(schedule.start_s.tobytes()).hexdigest()[:12] == "2fb984318827"
    assert md5(str(places).encode()).hexdigest()[:12] == "4afe6a4b2bc4"
    assert schedule.paths["solver"] == 6
