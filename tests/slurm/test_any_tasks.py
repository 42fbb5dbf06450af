"""Test jobs with any number of tasks: each runs as planned or is unmanaged from the beginning.

There are 80 jobs, or the number in CPSCHED_TASKS_JOBS. The requests are drawn at random from the options that define
how a job is split: tasks, nodes, CPUs per task, memory per node and per CPU, `--ntasks-per-node`, `--mincpus`,
`--exclusive`, `--distribution`, and all kinds of `--gpus`. Jobs that Slurm itself would never start (`sbatch
--test-only` on the empty cluster) are not submitted.
"""

from __future__ import annotations

import os
import random

from tests.slurm.bridges import LiveBridge, Step
from tests.slurm.harness import Slurm

JOBS, SEED = int(os.environ.get("CPSCHED_TASKS_JOBS", "80")), 18
MOST_OTHERWISE = 0.1
"""Maximum fraction of starts for which Slurm found more free cores than the bridge, because a job had just ended."""
CYCLES = 2
"""Maximum number of cycles until the bridge leaves a job to Slurm."""


def request(choose: random.Random) -> str:
    """Return the sbatch options of one random job."""
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
    """Return the options and the run time in seconds of `count` random jobs."""
    choose = random.Random(seed)
    return [(request(choose), choose.choice([1, 1, 2, 3])) for _ in range(count)]


def startable(slurm: Slurm, wanted: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the requests that Slurm would start on the empty cluster."""
    ask = "sbatch --test-only -t1 {} --wrap true 2>/dev/null && echo yes || echo no"
    lines = "\n".join(ask.format(options) for options, _ in wanted)
    answers = slurm.run("bash", "-s", user="alice", stdin=lines, timeout_s=300).split()
    return [each for each, answer in zip(wanted, answers, strict=True) if answer == "yes"]


def submit(slurm: Slurm, wanted: list[tuple[str, int]]) -> list[str]:
    """Submit jobs, and return their ids in order."""
    lines = "\n".join(
        f"sbatch --parsable -o /dev/null -t1 {options} --wrap 'sleep {run_s}' || exit 1" for options, run_s in wanted
    )
    return slurm.run("bash", "-s", user="alice", stdin=lines, timeout_s=300).split()


def was_left(steps: list[Step] | None) -> bool:
    """Return whether the bridge left the job to Slurm."""
    return any(step.after == "releasing" for step in steps or [])


STARTED, OTHERWISE = "started on the planned nodes", "started with a different distribution: "


def as_it_should(steps: list[Step] | None) -> bool:
    """Return whether a job started on the decided nodes, or was left to Slurm within `CYCLES` cycles.

    If a job has just ended on a node, Slurm may place more tasks there than the bridge decided. On a busy machine, a
    short job may end before a reading shows it as running.
    """
    if not steps:
        return False
    if not was_left(steps):
        began = [step.why for step in steps if step.after == "running"]
        unseen = not began and [step.after for step in steps[-2:]] == ["starting", "ended"]
        return unseen or (len(began) == 1 and began[0].startswith((STARTED, OTHERWISE)))
    given_back = next(step for step in steps if step.after == "releasing")
    return given_back.round - steps[0].round <= CYCLES


def test_each_job_runs_as_planned_or_is_left_at_once(slurm: Slurm) -> None:
    wanted = startable(slurm, requests(JOBS, SEED))
    assert len(wanted) > JOBS / 2
    slurm.plugin(on=True)
    with LiveBridge(slurm, "tasks", policy={"dispatcher": "easy"}, start={"timeout_s": 15}) as bridge:
        ids = submit(slurm, wanted)
        slurm.wait_until_empty(500)
        bridge.wait_for_rounds(2)
        ran = slurm.wait_for_accounting(ids)
        assert {job: ran[job].state for job in ids} == dict.fromkeys(ids, "COMPLETED")
        history = bridge.transitions()
        asked = dict(zip(ids, (options for options, _ in wanted), strict=True))
        assert {asked[job]: history.get(job) for job in ids if not as_it_should(history.get(job))} == {}
        left = [asked[job] for job in ids if was_left(history.get(job))]
        print(f"{len(left)} of {len(ids)} jobs are left to Slurm: {sorted(left)}")
        why = [step.why for steps in history.values() for step in steps if step.after == "running"]
        assert len(why) > (len(ids) - len(left)) / 2
        otherwise = sum(reason.startswith(OTHERWISE) for reason in why)
        assert otherwise == bridge.metric("cpsched_placement_mismatches_total")
        assert otherwise <= MOST_OTHERWISE * len(ids)
