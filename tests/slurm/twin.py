"""Compare Slurm's own scheduler on the test cluster with its twin, which replays the recorded submissions.

`make cluster`, then `python -m tests.slurm.twin [--jobs N] [--runs NAME]... [--out FILE]`: each run submits a seeded
mix as an ordinary user, and Slurm alone runs it. The accounting record is compared with the dispatcher `slurm`,
configured by `scontrol show config`, in two ways:

- *Start by start*: for each second in which Slurm starts jobs, the twin gets the real state and makes its passes. The
result counts the real starts that the twin chooses, and its choices that do not start within one backfill interval. One
difference therefore does not cause others.
- *On its own*: the twin replays the submissions from an empty cluster. Jobs occupy their nodes for their real run times
plus the lag of the machine; see `lag_s`.

`--again FILE` compares saved records, without a cluster.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher
from cpsched.model import NEVER, Cluster, Job, Request, RunningJob, Snapshot
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched.site.admission import PendingJobLimitsAndUsage, decide_respecting_limits
from cpsched.site.limit_checks import JobLimitAttributes, JobLimitTable
from cpsched.slurm_text.hostlist import expand_hostlist
from cpsched_sim.cluster.replay import ReplayOptions, replay
from cpsched_sim.site.policy_file import SitePolicyFile, parse_site_policy_file
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.builders import free_beside
from tests.slurm.harness import Slurm, wait_until

MOST_WAIT_S = 1200
"""Time limit of a run in seconds."""
LAG_MOST_S = 10
"""Maximum seconds from an end to a start that count as lag of the machine."""

CORES, MEMORY_MIB, MIB_PER_CORE = 16, 16384, 1000
SETS = {"main": [0, 1, 2, 3], "short": [0, 1], "gpu": [2, 3], "rack2": [1, 3]}
TIERS = {"short": 2}
"""Nodes of the test cluster's partitions and features."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A job's request, as options of sbatch and in the twin's terms."""

    options: str
    units: int
    cores: int
    gpus: int = 0
    mib: int | None = None
    distinct: bool = True
    exclusive: bool = False
    partition: str = "main"
    nodes: str = ""
    """Node set, if it differs from the partition's."""

    def request(self) -> Request:
        """Return the request for the cluster that `the_cluster` returns."""
        mib = self.cores * MIB_PER_CORE if self.mib is None else self.mib
        row = 1 + list(SETS).index(self.nodes or self.partition)
        return Request(self.units, (self.cores, mib, self.gpus), self.distinct, self.exclusive, row)


SMALL = (
    Shape("-N1 -n1", 1, 1), Shape("-N1 -n2", 1, 2), Shape("-N1 -n4", 1, 4), Shape("-N1 -n8", 1, 8),
    Shape("-N1 -n16", 1, 16), Shape("-N1 -n1 --mem=6G", 1, 1, mib=6144),
)  # fmt: skip
WIDE = (
    Shape("-N2 --ntasks-per-node=4", 2, 4), Shape("-N2 --ntasks-per-node=16", 2, 16),
    Shape("-N4 --ntasks-per-node=4", 4, 4), Shape("-N3 --exclusive", 3, 1, mib=0, exclusive=True),
)  # fmt: skip
MIXED = (
    Shape("-N1 -n4 --gres=gpu:1", 1, 4, 1), Shape("-N1 -n2 -p gpu --gres=gpu:2", 1, 2, 2, partition="gpu"),
    Shape("-N1 -n2 -p short", 1, 2, partition="short"), Shape("-N1 -n4 -C rack2", 1, 4, nodes="rack2"),
    Shape("-N2 --ntasks-per-node=8 -p gpu", 2, 8, partition="gpu"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """A workload and Slurm's settings: shapes, nice values to draw from, and array length."""

    shapes: Sequence[Shape]
    parameters: str
    nices: Sequence[int] = (0,)
    weights: Sequence[int] = ()
    """Relative frequency of each shape; empty if all are equal."""
    tasks: int = 1
    load: float = 1.3
    """Submitted core seconds per second, as a fraction of the cluster's cores."""
    runs_s: Sequence[int] = (5, 8, 13, 21, 34, 55)
    users: Sequence[str] = ("alice",)
    qos: Sequence[str] = ("normal",)
    limits: Mapping[str, str] = field(default_factory=dict)
    """Limits of alice's association by Slurm's names. The QOS of the test cluster also have limits."""


RUNS = {
    "single": Run(SMALL, "bf_interval=10,sched_interval=20,bf_resolution=10"),
    "wide": Run((*SMALL, *WIDE), "bf_interval=10,sched_interval=20,bf_resolution=10"),
    "mixed": Run((*SMALL, *WIDE, *MIXED), "bf_interval=10,sched_interval=20,bf_resolution=10"),
    "nice": Run((*SMALL, *WIDE), "bf_interval=10,sched_interval=20,bf_resolution=10", (0, 100, 200)),
    "arrays": Run(SMALL, "bf_interval=10,sched_interval=20,bf_resolution=10", tasks=4),
    "limits": Run(
        SMALL,
        "bf_interval=10,sched_interval=20,bf_resolution=10",
        users=("alice", "bob"),
        qos=("normal", "normal", "pair", "cores"),
        limits={"MaxJobs": "6"},
    ),
    "short": Run((*SMALL[:4], *WIDE[:3]), "bf_interval=10,sched_interval=20,bf_resolution=10", runs_s=(5, 8, 13, 21)),
    "usual": Run((*SMALL, *WIDE), "bf_interval=30"),
    "narrow": Run(
        SMALL[:3], "bf_interval=10,sched_interval=20,bf_resolution=10", tasks=6, runs_s=(8, 13, 21, 34), load=1.15
    ),
}
COMPARED = {
    "shorter": Run(
        (
            *SMALL, Shape("-N2 --ntasks-per-node=4", 2, 4), Shape("-N2 --ntasks-per-node=16", 2, 16),
            Shape("-N4 --ntasks-per-node=4", 4, 4), Shape("-N1 -n4 --gres=gpu:1", 1, 4, 1),
        ),
        "bf_interval=5,sched_interval=5,batch_sched_delay=0,disable_job_shrink",
        weights=(6, 5, 5, 4, 2, 2, 3, 1, 1, 3),
        load=1.6,
        runs_s=(2, 3, 5, 8, 13, 21, 34),
        users=("alice", "bob"),
    ),
    "longer": Run(
        (*SMALL, *WIDE, *MIXED),
        "bf_interval=3,sched_interval=6,bf_resolution=6,batch_sched_delay=0,disable_job_shrink",
        runs_s=(6, 6, 12, 12, 24, 24, 48, 96),
        users=("alice", "bob"),
    ),
}  # fmt: skip
"""The workloads of tests.slurm.compare, which also runs them under bridges."""
KNOWN = RUNS | COMPARED


@dataclass(frozen=True, slots=True)
class Submitted:
    """One job of a workload."""

    pause_s: float
    shape: int
    run_s: int
    limit_min: int
    nice: int
    user: str = "alice"
    qos: str = "normal"


def workload(run: Run, count: int, seed: int) -> list[Submitted]:
    """Return jobs of 5 to 60 s; limits are whole minutes, up to three times the run time."""
    choose, found = random.Random(seed), []
    for _ in range(count):
        [shape] = choose.choices(range(len(run.shapes)), run.weights or None)
        run_s = choose.choice(run.runs_s)
        asked = run.shapes[shape]
        cores = asked.units * (CORES if asked.exclusive else asked.cores) * run.tasks
        pause_s = choose.expovariate(1.0) * cores * run_s / (len(SETS["main"]) * CORES * run.load)
        limit_min = -(-run_s // 60) + choose.choice([0, 0, 1, 2])
        nice = choose.choice(run.nices)
        user, qos = (choose.choice(each) if len(each) > 1 else each[0] for each in (run.users, run.qos))
        found.append(Submitted(pause_s, shape, run_s, limit_min, nice, user, qos))
    return found


def submit(slurm: Slurm, run: Run, jobs: Sequence[Submitted]) -> list[str]:
    """Submit all jobs at their times from one shell, and return their ids. In options, `$id` is the previous job."""
    array = f"--array=1-{run.tasks} " if run.tasks > 1 else ""
    lines = [
        f"sleep {job.pause_s:.2f}; id=$(sbatch --chdir=/tmp --parsable -o /dev/null {array}"
        f"{run.shapes[job.shape].options} -t{job.limit_min} --nice={job.nice} --uid={job.user} --qos={job.qos} "
        f"--wrap 'sleep {job.run_s}'); echo $id"
        for job in jobs
    ]
    return slurm.run("bash", "-s", stdin="\n".join(lines), timeout_s=MOST_WAIT_S).split()


def run_to_end(slurm: Slurm, run: Run, jobs: Sequence[Submitted], timeout_s: float = MOST_WAIT_S) -> list[str]:
    """Submit all jobs, and return their ids when all have ended and are in the accounting database."""
    ids = submit(slurm, run, jobs)
    assert len(ids) == len(jobs), f"Slurm refused {len(jobs) - len(ids)} submissions"
    slurm.wait_until_empty(timeout_s)
    wait_until_recorded(slurm, ids)
    return ids


def wait_until_recorded(slurm: Slurm, ids: Sequence[str]) -> None:
    ends = ("sacct", "-aXnPo", "End", "-j", ",".join(ids))
    wait_until(lambda: "Unknown" not in slurm.run(*ends), 60, "all are recorded")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The accounting record of a job or array task; seconds since the epoch."""

    shape: int
    limit_min: int
    submit_s: int
    start_s: int
    end_s: int
    priority: int
    nodes: str = ""
    """Nodes as a hostlist, such as n[1-2,4]."""
    user: str = "alice"
    qos: str = "normal"


def recorded(slurm: Slurm, jobs: Sequence[Submitted], ids: Sequence[str]) -> list[Recorded]:
    """Return the record of each job in order of submission; an array's tasks are consecutive."""
    fields = "JobID,State,NodeList,Submit,Start,End,Priority"
    command = ["sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "--array", f"--format={fields}"]
    text = slurm.run("env", "SLURM_TIME_FORMAT=%s", *command, "--jobs", ",".join(ids))
    of_id, found = dict(zip(ids, jobs, strict=True)), []
    for line in text.splitlines():
        identity, state, nodes, *numbers = line.split("|")
        assert state == "COMPLETED", f"job {identity}: {state}"
        number, _, task = identity.partition("_")
        job = of_id[number]
        times = map(int, numbers)
        record = Recorded(job.shape, job.limit_min, *times, nodes=nodes, user=job.user, qos=job.qos)
        found.append((int(number), int(task or 0), record))
    return [record for *_, record in sorted(found, key=lambda row: row[:2])]


def carried_out(slurm: Slurm, run: Run, count: int, seed: int) -> tuple[str, list[Recorded]]:
    """Return `scontrol show config`, and the record of a workload run by Slurm alone."""
    slurm.reset()
    if run.limits:
        slurm.limit("alice", **run.limits)
    jobs = workload(run, count, seed)
    parameters = f"SchedulerParameters={run.parameters},bf_max_job_test=2000,disable_job_shrink"
    with slurm.configured(parameters, "PriorityWeightAge=0"):
        config = slurm.run("scontrol", "show", "config")
        ids = run_to_end(slurm, run, jobs)
        return config, recorded(slurm, jobs, ids)


def keep(file: Path, run: str, config: str, record: Sequence[Recorded]) -> None:
    """Append a record to a file in the form that `--again` reads."""
    kept = {"run": run, "config": config, "record": [asdict(job) for job in record]}
    with file.open("a") as stream:
        stream.write(json.dumps(kept) + "\n")


# ---------------------------------------------------------------------------------------------- the twin


def the_cluster() -> Cluster:
    """Return the four nodes of the test cluster."""
    rows = [[CORES, MEMORY_MIB, 0]] * 2 + [[CORES, MEMORY_MIB, 2]] * 2
    return Cluster.of(rows, ["cores", "memory_mib", "gpus"], ["n1", "n2", "n3", "n4"], SETS)


def jobs_of(run: Run, record: Sequence[Recorded]) -> list[Job]:
    """Return a record's jobs in the twin's terms."""
    found = []
    for number, job in enumerate(record):
        shape = run.shapes[job.shape]
        asked = Job(
            number, job.submit_s, 60 * job.limit_min, shape.request(), job.user, queue=shape.partition,
            priority=job.priority, tier=TIERS.get(shape.partition, 1), account="lab", qos=job.qos,
        )  # fmt: skip
        found.append(asked)
    return found


POLICY = """
accounts: {{ lab: {{ users: {{ alice: {{ limits: {{ {limits} }} }}, bob: {{}} }} }} }}
qos:
  normal: {{}}
  pair: {{ limits: {{ MaxJobsPU: 2 }} }}
  cores: {{ limits: {{ MaxTRESPU: cpu=16 }} }}
"""


def policy_of(run: Run) -> SitePolicyFile | None:
    """Return a run's limits, or None. deploy/slurm/entrypoint defines the QOS."""
    limits = ", ".join(f"{name}: {value}" for name, value in run.limits.items())
    return parse_site_policy_file(Path("policy.yaml"), POLICY.format(limits=limits)) if run.limits else None


def limits_now(
    site: SitePolicyFile | None, queue: Sequence[Job], running: Sequence[RunningJob]
) -> PendingJobLimitsAndUsage | None:
    """Return the limits of the waiting jobs, given the running ones."""
    if site is None:
        return None
    book = JobLimitTable(site.policy)

    def claimant(job: Job) -> JobLimitAttributes:
        tres = (("cpu", job.request.units * job.request.per_unit[0]), ("node", job.request.units))
        return JobLimitAttributes(job.user, job.account, job.queue, job.qos, tres, job.walltime_s // 60)

    standings = {job.id: book.limits_of(claimant(job)) for job in queue}
    return PendingJobLimitsAndUsage(standings, book.usage([book.limits_of(claimant(each.job)) for each in running]))


def lags_s(record: Sequence[Recorded]) -> list[int]:
    """Return the seconds from each end to the start of the first waiting job on the same nodes.

    This start does not wait for an interval, because Slurm's main loop runs at each end. Gaps before other jobs are
    Slurm's own, and the twin has them, too.
    """
    found = []
    for number, job in enumerate(record):
        first = not any(
            other.start_s > job.start_s
            and (-other.priority, other.submit_s, at) < (-job.priority, job.submit_s, number)
            for at, other in enumerate(record)
            if other.submit_s <= job.start_s
        )
        mine = set(expand_hostlist(job.nodes))
        ends = [
            other.end_s for other in record if mine & set(expand_hostlist(other.nodes)) and other.end_s <= job.start_s
        ]
        if first and ends and job.start_s - job.submit_s > LAG_MOST_S and job.start_s - max(ends) <= LAG_MOST_S:
            found.append(job.start_s - max(ends))
    return found


def lag_s(record: Sequence[Recorded]) -> int:
    """Return the median of the lags, or 0."""
    return round(statistics.median(lags_s(record) or [0]))


def twin_starts(run: Run, config: str, record: Sequence[Recorded]) -> list[int]:
    """Return the start of each of a record's jobs in the twin's own replay."""
    lag = lag_s(record)
    pairs = zip(jobs_of(run, record), record, strict=True)
    trace = [TraceJob(job, max(1, each.end_s - each.start_s + lag)) for job, each in pairs]
    policy = Policy(WalltimePredictor(), SlurmTwinDispatcher(config=config), "walltime")
    schedule = replay(trace, the_cluster(), policy, ReplayOptions(site=policy_of(run), strict=True))
    assert (schedule.start_s != NEVER).all()
    starts: list[int] = schedule.start_s.tolist()
    return starts


def choices(run: Run, config: str, record: Sequence[Recorded]) -> list[tuple[int, int]]:
    """Return second and number of each job that the twin starts in a second in which Slurm starts jobs."""
    cluster, jobs, found = the_cluster(), jobs_of(run, record), []
    estimates, site = {job.id: job.walltime_s for job in jobs}, policy_of(run)
    for now_s in sorted({job.start_s for job in record}):
        queue = [job for job, each in zip(jobs, record, strict=True) if each.submit_s <= now_s <= each.start_s]
        running = []
        for job, each in zip(jobs, record, strict=True):
            if not each.start_s < now_s < each.end_s:
                continue
            placement = tuple((cluster.node_names.index(name), 1) for name in expand_hostlist(each.nodes))
            running.append(RunningJob(job, each.start_s, placement))
        snapshot = Snapshot.of(now_s, cluster, free_beside(cluster, running), queue, running, estimates, "walltime")
        limits = limits_now(site, queue, running)
        made = decide_respecting_limits(
            snapshot, limits, lambda seen: SlurmTwinDispatcher(config=config).decide(seen, "starts")
        )
        found += [(now_s, number) for number in made.decision.starts_by_job(made.snapshot)]
    return found


LINE = "{:10}" + " {:>11}" * 7
COLUMNS = ("workload", "jobs", "chosen %", "extra %", "within %", "wait s", "twin wait s", "lag s")


def judged(name: str, config: str, record: Sequence[Recorded]) -> str:
    """Return one line of the table.

    It shows the shares of real starts that the twin chooses in the same second, of its choices that do not start within
    one interval, and of starts in its own replay that are within one interval of the real starts.
    """
    run, interval_s = KNOWN[name], SlurmTwinDispatcher(config=config).read.parameters.bf_interval
    late = [record[number].start_s - second for second, number in choices(run, config, record)]
    off = [twin - job.start_s for twin, job in zip(twin_starts(run, config, record), record, strict=True)]
    shares = (
        late.count(0) / len(record), sum(each > interval_s for each in late) / len(late),
        sum(abs(each) <= interval_s for each in off) / len(off),
    )  # fmt: skip
    wait_s = statistics.mean(job.start_s - job.submit_s for job in record)
    waits = (f"{each:.1f}" for each in (wait_s, wait_s + statistics.mean(off)))
    return LINE.format(name, len(record), *(f"{100 * each:.1f}" for each in shares), *waits, lag_s(record))


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200, help="submissions in each run")
    parser.add_argument("--runs", action="append", choices=list(RUNS), help="default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where the records are kept, JSON lines; more are appended")
    parser.add_argument("--again", type=Path, help="replay the records of this file, without a cluster")
    wanted = parser.parse_args()
    print(LINE.format(*COLUMNS), flush=True)
    if wanted.again:
        for text in wanted.again.read_text().splitlines():
            kept = json.loads(text)
            print(judged(kept["run"], kept["config"], [Recorded(**job) for job in kept["record"]]), flush=True)
        return
    with closing(Slurm()) as slurm:
        for name in wanted.runs or RUNS:
            config, record = carried_out(slurm, RUNS[name], wanted.jobs, wanted.seed)
            if wanted.out:
                keep(wanted.out, name, config, record)
            print(judged(name, config, record), flush=True)


if __name__ == "__main__":
    main()
