"""Compare the jobs that Slurm preempts with those that its twin would preempt in the same state.

`deploy/cluster wide 24`, then `python -m tests.slurm.victims [--jobs N] [--types TYPE]... [--modes MODE]... [--runs
NAME]... [--out FILE]`: Slurm alone runs each workload with `preempt/qos` and `preempt/partition_prio`, and with the
modes REQUEUE and CANCEL. The log of slurmctld has the ends, preemptions and most starts in their order, and the
accounting records have the other starts, so they give the running jobs before each preemption. `--again FILE` evaluates
kept records without a cluster.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cpsched.feasibility import FreeAmounts, amounts_by_node
from cpsched.model import Cluster, Job, Request, RunningJob
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.site.preemption import PreemptionRules, VictimOrder
from cpsched.site.preemption_plans import PreemptionSearch
from cpsched.site.victims import PreemptibleJob
from cpsched.slurm_text.hostlist import expand_hostlist
from cpsched.slurm_text.preemption import parse_victim_order
from tests.slurm.harness import OLD_SACCT, Slurm
from tests.slurm.site_configs import ENFORCED, NODES, PLAIN, Control, SiteConfig
from tests.slurm.sites import prepare, start
from tests.slurm.twin import CORES, MEMORY_MIB, MIB_PER_CORE, SETS, Run, Shape, run_to_end, workload

ONE_GROUP_S = 1.0
"""Longest time between two victims of one preemptor that are compared together."""
KILLED_END_S = 2
"""Seconds for which the nodes of a cancelled victim may be in use; the log does not say until when they are."""
CLASSES = {"low": 1, "normal": 10, "high": 20}
"""The QOS or partitions with their priorities or tiers. Each preempts the lower ones."""
FREQUENCIES = {"low": 6, "normal": 2, "high": 1}
"""Few jobs preempt, because a decision is clear only if no other preemptor is waiting for its victims."""
STARTED = re.compile(r"sched: Allocate JobId=(\S+) |Started JobId=(\S+) in ")
ENDED = re.compile(r"_job_complete: JobId=(\S+) done")
REQUEUED = re.compile(r"Requeuing JobId=(\S+)")
PREEMPTED = re.compile(r"preempted JobId=(\S+) has been \w+ to reclaim resources for JobId=(\S+)")
SMALL = (Shape("-N1 -n2", 1, 2), Shape("-N1 -n4", 1, 4), Shape("-N1 -n8", 1, 8), Shape("-N1 -n16", 1, 16))
WIDE = (
    Shape("-N2 --ntasks-per-node=8", 2, 8), Shape("-N4 --ntasks-per-node=4", 4, 4),
    Shape("-N8 --ntasks-per-node=12", 8, 12), Shape("-N6 --exclusive", 6, 1, mib=0, exclusive=True),
)  # fmt: skip
PARAMETERS = "bf_interval=5,sched_interval=10,bf_resolution=10"
RUN = Run((*SMALL, *WIDE), PARAMETERS, load=1.8 * NODES / len(SETS["main"]), runs_s=(4, 6, 10, 16, 24))
RUNS = {
    "single": (replace(RUN, shapes=SMALL), ""),
    "wide": (RUN, ""),
    "arrays": (replace(RUN, shapes=SMALL[1:], tasks=4), ""),
    "youngest": (RUN, "preempt_youngest_first"),
    "strict": (RUN, "preempt_reorder_count=3,preempt_strict_order"),
}
"""Workloads at 1.8 times the capacity of 24 nodes, with the victims' order in `SchedulerParameters`."""
TYPES = ("qos", "partition_prio")
MODES = ("REQUEUE", "CANCEL")


@dataclass(slots=True)
class Segment:
    """One run of a job: the lines of the log with its start, its preemption or end, and the release of its nodes.

    `position` orders the jobs as Slurm's list of jobs. `is_logged`: the log has the start; otherwise, `start_line` is
    the first line of its second.
    """

    id: int
    shape: int
    class_name: str
    nodes: str
    start_s: int
    start_line: int
    stop_line: int
    end_line: int
    position: int
    is_logged: bool


@dataclass(slots=True)
class Preemption:
    """The jobs that Slurm stopped for one job at one time."""

    line: int
    at_s: float
    label: str
    start_line: int
    """The line with the next start of the job."""
    shape: int
    class_name: str
    victims: list[int]


@dataclass(frozen=True, slots=True)
class Record:
    """One run of a workload under Slurm."""

    type: str
    mode: str
    run: str
    segments: list[Segment]
    preemptions: list[Preemption]


def configuration(type: str, mode: str, run: str) -> SiteConfig:
    """Return a cluster of 24 equal nodes with three classes of jobs."""
    lower = {name: ",".join(list(CLASSES)[:at]) for at, name in enumerate(CLASSES)}
    preempt = {name: f" Preempt={names}" if names else "" for name, names in lower.items()}
    by_qos = type == "qos"
    qos = {name: f"Priority={priority}{preempt[name]}" for name, priority in CLASSES.items()}
    tiers = {name: f"0 PriorityTier={tier}" for name, tier in CLASSES.items()}
    settings = (
        ENFORCED, f"PreemptType=preempt/{type}", f"PreemptMode={mode}",
        "PriorityWeightQOS=10000", "PriorityWeightAge=0",
        f"SchedulerParameters={PARAMETERS},bf_max_job_test=2000,disable_job_shrink,{RUNS[run][1]}",
    )  # fmt: skip
    name = f"victims-{type.replace('_', '')}{mode.lower()}{run}"
    config = SiteConfig(name, PLAIN, {"main": "0"} if by_qos else tiers, Control.SERVED, (), qos if by_qos else {})
    return replace(config, settings=(*settings, f"SlurmctldLogFile={log_of(config)}"))


def log_of(config: SiteConfig) -> str:
    return f"{config.state_folder}/slurmctld.log"


def run_with_classes(run: Run, type: str) -> Run:
    """Return the workload with a class for each job: its QOS, or a partition in the options of its shape."""
    if type == "qos":
        return replace(run, qos=tuple(itertools.chain(*([name] * count for name, count in FREQUENCIES.items()))))
    shapes = [
        replace(shape, options=f"{shape.options} -p {name}", partition=name)
        for shape, name in itertools.product(run.shapes, CLASSES)
    ]
    return replace(run, shapes=shapes, weights=[*FREQUENCIES.values()] * len(run.shapes))


def record_run(slurm: Slurm, type: str, mode: str, name: str, count: int, seed: int) -> Record:
    """Run a workload under Slurm alone and return its record."""
    run = run_with_classes(RUNS[name][0], type)
    config = configuration(type, mode, name)
    start(slurm, config)
    jobs = workload(run, count, seed)
    ids = run_to_end(slurm, run, jobs)
    array = () if OLD_SACCT else ("--array",)  # old releases list all tasks of an ended array without it
    command = ["sacct", "-aXnPD", *array, "--format=JobID,JobIDRaw,Start,NodeList", "-j", ",".join(ids)]
    rows = [line.split("|") for line in slurm.run("env", "SLURM_TIME_FORMAT=%s", *command).splitlines()]
    starts = [(int(raw), int(start_s), nodes) for _, raw, start_s, nodes in rows if start_s.isdigit()]
    submitted = dict(zip(map(int, ids), jobs, strict=True))
    kinds, tasks = {}, defaultdict[int, set[int]](set)
    for label, raw, *_ in rows:
        submission = int(label.partition("_")[0])
        job = submitted[submission]
        kinds[int(raw)] = job.shape, job.qos if type == "qos" else run.shapes[job.shape].partition
        tasks[submission].add(int(raw))
    return Record(type, mode, name, *read_log(slurm.run("cat", log_of(config)), starts, kinds, positions_of(tasks)))


def positions_of(tasks: Mapping[int, Collection[int]]) -> dict[int, int]:
    """Return the positions of jobs in Slurm's list of jobs, given the job numbers of each submission.

    When an array task starts, it gets a new number and keeps the array's record. The other tasks move to a new record
    at the end of the list and keep the array's number (`job_array_split` in slurmctld). So each task has the position
    at which the task before it started.
    """
    found = {}
    for submission, numbers in tasks.items():
        position = submission
        for number in sorted(numbers, key=lambda each: (each == submission, each)):
            found[number] = position
            position = number
    return found


def read_log(
    text: str,
    starts: Sequence[tuple[int, int, str]],
    kinds: Mapping[int, tuple[int, str]],
    positions: Mapping[int, int],
) -> tuple[list[Segment], list[Preemption]]:
    """Return the runs of all jobs and all preemptions in a log.

    `starts` are the accounted starts: job, second and nodes. `kinds` are the shape and the class of each job. A start
    that the log lacks, as those by backfill in new releases, is at the first line of its second.
    """
    lines = text.splitlines()
    times = list(itertools.accumulate(map(time_of, lines), max))
    started, stopped, freed = (defaultdict[int, list[int]](list) for _ in range(3))
    labels = defaultdict[str, list[int]](list)
    found = list[Preemption]()
    last: tuple[str, float] = "", 0.0
    for number, line in enumerate(lines):
        if match := STARTED.search(line):
            label = match[1] or match[2]
            started[job_id(label)].append(number)
            labels[label.partition("(")[0]].append(number)
        elif match := ENDED.search(line):
            stopped[job_id(match[1])].append(number)
            freed[job_id(match[1])].append(number)
        elif match := REQUEUED.search(line):
            freed[job_id(match[1])].append(number)
        elif match := PREEMPTED.search(line):
            victim, preemptor = job_id(match[1]), job_id(match[2])
            if last[0] != match[2] or times[number] - last[1] > ONE_GROUP_S:
                label = match[2].partition("(")[0]
                found.append(Preemption(number, times[number], label, 0, *kinds[preemptor], []))
            last = match[2], times[number]
            found[-1].victims.append(victim)
            stopped[victim].append(number)
            if "requeued" not in line:
                freed[victim].append(bisect_left(times, times[number] + KILLED_END_S))
    segments = []
    for job, start_s, nodes in starts:
        logged = next((number for number in started[job] if abs(times[number] - start_s) < KILLED_END_S), None)
        first = bisect_left(times, start_s) if logged is None else logged
        stop, end = (
            next((number for number in numbers[job] if number > first), len(lines)) for numbers in (stopped, freed)
        )
        segments.append(
            Segment(job, *kinds[job], nodes, start_s, first, stop, end, positions[job], is_logged=logged is not None)
        )
    for each in found:
        each.start_line = next((number for number in labels[each.label] if number > each.line), len(lines))
    return segments, found


def time_of(line: str) -> float:
    """Return the time of a line, `[2026-11-27T16:10:17.028] ...`, in seconds since the epoch; 0 if it has none."""
    stamp, found, _ = line.removeprefix("[").partition("]")
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp() if found and stamp[:2] == "20" else 0.0


def job_id(label: str) -> int:
    """Return the number of job `12` or of the array task `12_3(15)`."""
    return int(label.partition("(")[2].rstrip(")") or label)


# ------------------------------------------------------------------------------------------------ the comparison


def compare(record: Record) -> tuple[int, int, int, int]:
    """Return the number of preemptions, of those with the same victims, of clear ones, and of clear and same ones.

    A preemption is clear if the log and the records determine the state: no job started without a line in the log in
    that second, no cancelled victim may still have been ending, and no other job was waiting for its victims to end.
    For such a job, Slurm keeps nodes free.
    """
    run, parameters = RUNS[record.run]
    run, (order, _) = run_with_classes(run, record.type), parse_victim_order("", parameters)
    names = [f"w{at + 1}" for at in range(NODES)]
    cluster = Cluster.of([[CORES, MEMORY_MIB]] * NODES, ["cores", "memory_mib"], names)
    rules = PreemptionRules("partition_prio", "requeue", ranks=CLASSES)
    same = clear = both = 0
    for each in record.preemptions:
        before = [one for one in record.segments if one.start_line < each.line <= one.end_line]
        is_same = stops_same(set(each.victims), partial(twin_victims, cluster, run, rules, order, each, before))
        others = (one for one in record.preemptions if one.line < each.line)
        is_clear = not any(one.start_s == int(each.at_s) and not one.is_logged for one in record.segments) and not any(
            (each.line < one.start_line and one.label != each.label)
            or (record.mode == "CANCEL" and each.at_s - one.at_s < KILLED_END_S)
            for one in others
        )
        same, clear, both = same + is_same, clear + is_clear, both + (is_same and is_clear)
    return len(record.preemptions), same, clear, both


def stops_same(victims: set[int], decide: Callable[[Collection[int]], set[int]]) -> bool:
    """Return whether one or more decisions of the twin stop exactly these victims.

    Slurm decides again while the first victims are ending. `decide` returns the next victims, given those before.
    """
    stopped = set[int]()
    while stopped != victims:
        more = decide(stopped)
        if not more or not more <= victims - stopped:
            return False
        stopped |= more
    return True


def twin_victims(
    cluster: Cluster,
    run: Run,
    rules: PreemptionRules,
    order: VictimOrder,
    preemption: Preemption,
    segments: Sequence[Segment],
    stopped: Collection[int],
) -> set[int]:
    """Return the twin's victims in this state, in which `stopped` are ending. It is empty if no victims suffice."""
    amounts, running = FreeAmounts(cluster, cluster.capacity.copy()), list[PreemptibleJob]()
    positions = {each.id: each.position for each in segments}
    for segment in segments:
        request = request_of(run.shapes[segment.shape])
        placement = tuple((int(name[1:]) - 1, 1) for name in expand_hostlist(segment.nodes))
        job = Job(segment.id, segment.start_s, 600, request, "alice", queue=segment.class_name)
        for node, used in amounts_by_node(request, placement, cluster.capacity).items():
            amounts.free[node] -= used
        is_running = segment.stop_line >= preemption.line and segment.id not in stopped
        if is_running and rules.may_preempt(preemption.class_name, segment.class_name):
            rank, stopped_run = CLASSES[segment.class_name], RunningJob(job, segment.start_s, placement)
            running.append(PreemptibleJob(stopped_run, 0, rank=rank, preemption_class=segment.class_name))
    running.sort(key=lambda each: positions[each.running.job.id])
    job = Job(0, 0, 600, request_of(run.shapes[preemption.shape]), "alice", queue=preemption.class_name)
    trial = FreeAmounts(cluster, amounts.free.clip(0))
    plan = PreemptionSearch(trial, PendingJobLimitsAndUsage(), rules, order, lambda: running).plan_start(job, False)
    return set() if plan is None else {victim.job.id for victim in plan.stopped}


def request_of(shape: Shape) -> Request:
    mib = shape.cores * MIB_PER_CORE if shape.mib is None else shape.mib
    return Request(shape.units, (shape.cores, mib), shape.distinct, shape.exclusive)


LINE = "{:15} {:8} {:10}" + " {:>12}" * 4
COLUMNS = ("type", "mode", "workload", "preemptions", "same %", "clear", "same %")


def row(record: Record) -> str:
    count, same, clear, both = compare(record)
    shares = [f"{100 * part / whole:.1f}" if whole else "-" for part, whole in ((same, count), (both, clear))]
    return LINE.format(record.type, record.mode, record.run, count, shares[0], clear, shares[1])


def read_record(text: str) -> Record:
    """Return a record that was written as a line of JSON."""
    content = json.loads(text)
    segments = [Segment(**each) for each in content.pop("segments")]
    preemptions = [Preemption(**each) for each in content.pop("preemptions")]
    return Record(**content, segments=segments, preemptions=preemptions)


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300, help="submissions in each run")
    parser.add_argument("--types", action="append", choices=TYPES, help="default: both")
    parser.add_argument("--modes", action="append", choices=MODES, help="default: both")
    parser.add_argument("--runs", action="append", choices=list(RUNS), help="default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a file to which each record is appended as a line of JSON")
    parser.add_argument("--again", type=Path, help="evaluate the records of this file, without a cluster")
    wanted = parser.parse_args()
    print(LINE.format(*COLUMNS), flush=True)
    if wanted.again:
        for text in wanted.again.read_text().splitlines():
            print(row(read_record(text)), flush=True)
        return
    with closing(Slurm()) as slurm:
        prepare(slurm)
        for type, mode, name in itertools.product(wanted.types or TYPES, wanted.modes or MODES, wanted.runs or RUNS):
            record = record_run(slurm, type, mode, name, wanted.jobs, wanted.seed)
            if wanted.out:
                with wanted.out.open("a") as stream:
                    stream.write(json.dumps(asdict(record)) + "\n")
            print(row(record), flush=True)


if __name__ == "__main__":
    main()
