"""Jobs of any number of tasks: each runs as planned or is Slurm's at once, and the queue empties as under Slurm.

There are 80 jobs, or as many as CPSCHED_TASKS_JOBS says.
The requests are drawn at random from the options that say how a job is split: tasks, nodes, CPUs per task, memory per
node and per CPU, `--ntasks-per-node`, `--mincpus`, `--exclusive`, `--distribution`, and all kinds of `--gpus`. What
Slurm itself would never start is not submitted beside the bridge: the same requests run under Slurm alone first.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

import pytest

from tests.slurm.bridges import LiveBridge, Step
from tests.slurm.harness import EndedJob, Slurm, wait_until

JOBS, SEED = int(os.environ.get("CPSCHED_TASKS_JOBS", "80")), 18
MOST_OTHERWISE = 0.1
"""Of all starts: those that found more room than the bridge had seen, because a job had just ended there."""
CYCLES = 2
"""Within so many cycles a job that is left to Slurm must be known as that."""


def request(choose: random.Random) -> str:
    """The options of one job."""
    tasks = choose.choice([1, 2, 3, 4, 6, 7, 8, 11, 13, 16, 17, 19, 23, 31, 32, 37, 38, 41, 48])
    words = [f"-n{tasks}"]
    if choose.random() < 0.3:
        low = choose.randint(1, min(4, tasks))
        words.append(choose.choice([f"-N{low}", f"-N{low}-{min(4, low + 2)}"]))
    if choose.random() < 0.25 and tasks <= 16:
        words.append(f"-c{choose.choice([2, 3, 4])}")
    if choose.random() < 0.35:
        words.append(choose.choice(["--mem=2G", "--mem=3000", "--mem-per-cpu=500", "--mem-per-cpu=1500"]))
    if choose.random() < 0.2:
        words.append(f"--ntasks-per-node={choose.choice([2, 3, 4, 5, 8, 16])}")
    if choose.random() < 0.1:
        words.append(f"--mincpus={choose.choice([2, 4, 8])}")
    if choose.random() < 0.1:
        words.append(choose.choice(["-m cyclic", "-m block", "-m plane=4"]))
    if choose.random() < 0.05:
        words.append("--exclusive")
    if choose.random() < 0.2:
        gpus = ["--gpus=1", "--gpus=2", "--gpus=3", "--gpus-per-node=1", "--gres=gpu:2"]
        words.append(choose.choice([*gpus, "--gpus-per-task=1"]))
    return " ".join(words)


def requests(count: int, seed: int) -> list[tuple[str, int]]:
    """(options, seconds that the job runs) of `count` jobs."""
    choose = random.Random(seed)
    return [(request(choose), choose.choice([1, 2, 3, 5])) for _ in range(count)]


def submit(slurm: Slurm, wanted: list[tuple[str, int]]) -> list[str]:
    """The ids in order, empty where Slurm refuses a request at once."""
    lines = "\n".join(
        f"sbatch --parsable -o /dev/null -t1 {options} --wrap 'sleep {run_s}' 2>/dev/null || echo -"
        for options, run_s in wanted
    )
    found = slurm.run("bash", "-s", user="alice", stdin=lines, timeout_s=300).split()
    return ["" if word == "-" else word for word in found]


@dataclass(frozen=True, slots=True)
class Emptied:
    """How a queue was emptied: each job by its place in the list of requests, and in how many seconds."""

    ran: dict[int, EndedJob]
    span_s: int


def emptied(slurm: Slurm, wanted: list[tuple[str, int]], places: list[int]) -> tuple[Emptied, dict[int, str]]:
    """Submit the requests at these places together and wait for them; what never can run is cancelled and left out."""
    ids = dict(zip(places, submit(slurm, [wanted[place] for place in places]), strict=True))
    ids = {place: job for place, job in ids.items() if job}

    def over() -> bool:
        never = (
            "squeue -h -t pending -o '%A %r' | awk '/BadConstraints|PartitionNodeLimit/ {print $1}' | xargs -r scancel"
        )
        slurm.run("bash", "-c", never)
        return not slurm.run("squeue", "-h").strip()

    wait_until(over, 500, "an empty queue", every_s=1.0)
    ran = slurm.sacct(ids.values())
    found = {place: ran[job] for place, job in ids.items() if job in ran and ran[job].start_s is not None}
    span_s = max(job.end_s or 0 for job in found.values()) - min(job.submit_s for job in found.values())
    return Emptied(found, span_s), ids


def was_left(steps: list[Step] | None) -> bool:
    """Whether the bridge gave the job to Slurm."""
    return any(step.after == "handing-back" for step in steps or [])


def left_because(steps: list[Step]) -> str:
    """The reason with which a job was given to Slurm."""
    return next(step.why for step in steps if step.after == "handing-back")


STARTED, OTHERWISE = "started where decided", "started, but split as "


def as_it_should(steps: list[Step] | None) -> bool:
    """Whether a job was started on the nodes decided, or was Slurm's within `CYCLES` cycles of being first seen.

    Slurm may have found more room on the first of its nodes than the bridge: a job had just ended there.
    """
    if not steps:
        return False
    if not was_left(steps):
        began = [step.why for step in steps if step.after == "running"]
        return len(began) == 1 and began[0].startswith((STARTED, OTHERWISE))
    given_back = next(step for step in steps if step.after == "handing-back")
    return given_back.round - steps[0].round <= CYCLES


def test_each_job_runs_as_planned_or_is_left_at_once(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = requests(JOBS, SEED)
    alone, _ = emptied(slurm, wanted, list(range(JOBS)))
    slurm.reset()
    slurm.plugin(on=True)
    with LiveBridge(slurm, "tasks", policy={"dispatcher": "easy"}, start={"timeout_s": 15}) as bridge:
        places = sorted(alone.ran)
        beside, ids = emptied(slurm, wanted, places)
        bridge.wait_for_rounds(2)
        assert {place: job.state for place, job in beside.ran.items()} == dict.fromkeys(places, "COMPLETED")
        history = bridge.transitions()
        wrong = {wanted[place][0]: history.get(job) for place, job in ids.items() if not as_it_should(history.get(job))}
        otherwise = bridge.metric("cpsched_starts_otherwise_total")
        left = {
            wanted[place][0]: left_because(history[job]) for place, job in ids.items() if was_left(history.get(job))
        }
        postponed = bridge.events().count("start_postponed")
        with capsys.disabled():
            print(f"\n{len(places)} jobs: {len(places) - len(left)} planned, {len(left)} left to Slurm, ", end="")
            print(f"{otherwise:.0f} carried out otherwise, {postponed} postponements")
            print(f"queue empty after {alone.span_s} s under Slurm alone, {beside.span_s} s beside the bridge")
            for options, why in sorted(left.items()):
                print(f"  left: {options}: {why}")
            for options, steps in sorted(wrong.items()):
                print(f"  wrong: {options}: {steps}")
        assert not wrong
        assert otherwise <= MOST_OTHERWISE * len(places)
        assert otherwise == sum(step.why.startswith(OTHERWISE) for steps in history.values() for step in steps)
