"""Compare the jobs that Slurm preempts with those that its twin would preempt in the same state.

`deploy/cluster wide 24`, then `python -m tests.slurm.victims [--jobs N] [--types TYPE]... [--modes MODE]... [--runs
NAME]... [--out FILE]`: Slurm alone runs each workload with `preempt/qos` and `preempt/partition_prio`, and with the
modes REQUEUE and CANCEL. The log of slurmctld names the victims of each preemptor, and the accounting records give the
running jobs at that time. A preemption counts as clear if no job started or ended by itself in its second, because the
records have whole seconds. `--again FILE` evaluates kept records without a cluster.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cpsched.feasibility import FreeAmounts, amounts_used
from cpsched.model import Cluster, Job, Request, RunningJob
from cpsched.site.preemption import PreemptionRules
from cpsched.site.slurm_victims import VictimOrder, slurm_victims, sort_candidates
from tests.slurm.harness import Slurm, expand, wait_until
from tests.slurm.site_configs import ENFORCED, NODES, PLAIN, Control, SiteConfig
from tests.slurm.sites import prepare, start
from tests.slurm.twin import CORES, MEMORY_MIB, MIB_PER_CORE, MOST_WAIT_S, SETS, Run, Shape, submit, workload

CLASSES = {"low": 1, "normal": 10, "high": 20}
"""The QOS or partitions with their priorities or tiers. Each preempts the lower ones."""
LOG_LINE = re.compile(r"^\[(\S+)\] .*preempted JobId=(\S+) has been \w+ to reclaim resources for JobId=(\S+)")
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
    "youngest": (RUN, "youngest_first"),
    "strict": (RUN, "reorder_count=3,strict_order"),
}
"""Workloads at 1.8 times the capacity of 24 nodes, with their `PreemptParameters`."""
TYPES = ("qos", "partition_prio")
MODES = ("REQUEUE", "CANCEL")


@dataclass(frozen=True, slots=True)
class Segment:
    """One run of a job, from the accounting records; seconds since the epoch."""

    id: int
    shape: int
    class_name: str
    start_s: int
    end_s: int
    nodes: str


@dataclass(frozen=True, slots=True)
class Preemption:
    """The jobs that Slurm stopped for one job at one time."""

    at_s: int
    shape: int
    class_name: str
    victims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One run of a workload under Slurm."""

    type: str
    mode: str
    run: str
    segments: tuple[Segment, ...]
    preemptions: tuple[Preemption, ...]


def configuration(type: str, mode: str, run: str) -> SiteConfig:
    """Return a cluster of 24 equal nodes with three classes of jobs."""
    lower = {name: ",".join(list(CLASSES)[:at]) for at, name in enumerate(CLASSES)}
    preempt = {name: f" Preempt={names}" if names else "" for name, names in lower.items()}
    by_qos = type == "qos"
    qos = {name: f"Priority={priority}{preempt[name]}" for name, priority in CLASSES.items()}
    tiers = {name: f"0 PriorityTier={tier}" for name, tier in CLASSES.items()}
    settings = (
        ENFORCED, f"PreemptType=preempt/{type}", f"PreemptMode={mode}", f"PreemptParameters={RUNS[run][1]}",
        "PriorityWeightQOS=10000", "PriorityWeightAge=0", "SlurmctldDebug=info",
        f"SchedulerParameters={PARAMETERS},bf_max_job_test=2000,disable_job_shrink",
    )  # fmt: skip
    name = f"victims-{type.replace('_', '')}{mode.lower()}{run}"
    config = SiteConfig(name, PLAIN, {"main": "0"} if by_qos else tiers, Control.SERVED, (), qos if by_qos else {})
    return replace(config, settings=(*settings, f"SlurmctldLogFile={log_of(config)}"))


def log_of(config: SiteConfig) -> str:
    return f"{config.state_folder}/slurmctld.log"


def run_with_classes(run: Run, type: str) -> Run:
    """Return the workload with a class for each job: its QOS, or a partition in the options of its shape."""
    if type == "qos":
        return replace(run, qos=tuple(CLASSES))
    shapes = [
        replace(shape, options=f"{shape.options} -p {name}", partition=name)
        for shape, name in itertools.product(run.shapes, CLASSES)
    ]
    return replace(run, shapes=shapes)


def record_run(slurm: Slurm, type: str, mode: str, name: str, count: int, seed: int) -> Record:
    """Run a workload under Slurm alone and return its record."""
    run = run_with_classes(RUNS[name][0], type)
    config = configuration(type, mode, name)
    start(slurm, config)
    jobs = workload(run, count, seed)
    ids = submit(slurm, run, jobs)
    assert len(ids) == len(jobs), f"Slurm refused {len(jobs) - len(ids)} submissions"
    wait_until(lambda: not slurm.run("squeue", "-h").strip(), MOST_WAIT_S, "all jobs have ended", every_s=2.0)
    listed = ",".join(ids)
    wait_until(lambda: "Unknown" not in slurm.run("sacct", "-aXnPDo", "End", "-j", listed), 60, "all are recorded")
    submitted = dict(zip(map(int, ids), jobs, strict=True))
    command = ["sacct", "-aXnPD", "--array", "--format=JobID,JobIDRaw,Start,End,NodeList", "-j", listed]
    segments, of_raw = [], {}
    for line in slurm.run("env", "SLURM_TIME_FORMAT=%s", *command).splitlines():
        label, raw, start_s, end_s, nodes = line.split("|")
        job = submitted[int(label.partition("_")[0])]
        shape = run.shapes[job.shape]
        of_raw[int(raw)] = (job.shape, job.qos if type == "qos" else shape.partition)
        if start_s.isdigit() and end_s.isdigit() and nodes.startswith("w"):
            segments.append(Segment(int(raw), *of_raw[int(raw)], int(start_s), int(end_s), nodes))
    lines = slurm.run("cat", log_of(config)).splitlines()
    groups = itertools.groupby(preemptions_of(slurm, lines), key=lambda each: each[::2])
    found = [
        Preemption(at_s, *of_raw[preemptor], tuple(victim for _, victim, _ in group))
        for (at_s, preemptor), group in groups
        if preemptor in of_raw
    ]
    return Record(type, mode, name, tuple(segments), tuple(found))


def preemptions_of(slurm: Slurm, lines: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield second, victim and preemptor of each preemption in the log."""
    matches = [match for line in lines if (match := LOG_LINE.search(line))]
    times = "\n".join(match[1].partition(".")[0] for match in matches)
    seconds = slurm.run("date", "-f", "-", "+%s", stdin=times).split() if times else []
    for match, at_s in zip(matches, seconds, strict=True):
        yield int(at_s), raw_id(match[2]), raw_id(match[3])


def raw_id(text: str) -> int:
    """Return the job number of `12` or of the array task `12_3(15)`."""
    return int(re.sub(r"^\d+_\d+\((\d+)\)$", r"\1", text))


# ------------------------------------------------------------------------------------------------ the comparison


def order_of(parameters: str) -> VictimOrder:
    """Return the order for `PreemptParameters`."""
    found = re.search(r"reorder_count=(\d+)", parameters)
    return VictimOrder("youngest_first" in parameters, "strict_order" in parameters, int(found[1]) if found else 1)


def compare(record: Record) -> tuple[int, int, int, int]:
    """Return the number of preemptions, those with the same victims, the clear ones, and the same among these."""
    run, parameters = RUNS[record.run]
    run, order = run_with_classes(run, record.type), order_of(parameters)
    cluster = Cluster.of(
        [[CORES, MEMORY_MIB]] * NODES, ["cores", "memory_mib"], [f"w{at + 1}" for at in range(NODES)], {}
    )
    rules = PreemptionRules("partition_prio", "requeue", tiers=CLASSES)
    same, clear, both, stopped = 0, 0, 0, dict[int, int]()
    for each in record.preemptions:
        victims = set(each.victims)
        theirs = [
            segment
            for segment in record.segments
            if segment.start_s <= each.at_s <= segment.end_s
            and (segment.id in victims or (segment.end_s > each.at_s and stopped.get(segment.id) != segment.start_s))
        ]
        changes = [
            segment
            for segment in record.segments
            if each.at_s in (segment.start_s, segment.end_s) and segment.id not in victims
        ]
        twins = twin_victims(cluster, run, rules, order, each, theirs)
        is_same, is_clear = twins == victims, not changes
        same, clear, both = same + is_same, clear + is_clear, both + (is_same and is_clear)
        stopped |= {segment.id: segment.start_s for segment in theirs if segment.id in victims}
    return len(record.preemptions), same, clear, both


def twin_victims(
    cluster: Cluster,
    run: Run,
    rules: PreemptionRules,
    order: VictimOrder,
    preemption: Preemption,
    segments: Sequence[Segment],
) -> set[int]:
    """Return the victims that the twin selects in this state; empty if stopping all candidates is not enough."""
    amounts, running = FreeAmounts(cluster, cluster.capacity.copy()), list[RunningJob]()
    ranks: dict[int, int] = {}
    for segment in segments:
        request = request_of(run.shapes[segment.shape])
        placement = tuple((int(name[1:]) - 1, 1) for name in expand(segment.nodes))
        job = Job(segment.id, segment.start_s, 600, request, "alice", queue=segment.class_name)
        for node, used in amounts_used(request, placement, cluster.capacity).items():
            amounts.free[node] -= used
        ranks[segment.id] = CLASSES[segment.class_name]
        if rules.may_preempt(preemption.class_name, segment.class_name):
            running.append(RunningJob(job, segment.start_s, placement))
    candidates = sort_candidates(sorted(running, key=lambda each: each.job.id), ranks, order)
    request, trial = request_of(run.shapes[preemption.shape]), FreeAmounts(cluster, amounts.free.clip(0))
    without = trial.copy()
    for each in candidates:
        without.release(each.job.request, each.placement)
    if not without.place(request):
        return set()
    return {victim.job.id for victim in slurm_victims(trial, request, candidates, order)}


def request_of(shape: Shape) -> Request:
    mib = shape.cores * MIB_PER_CORE if shape.mib is None else shape.mib
    return Request(shape.units, (shape.cores, mib), shape.distinct, shape.exclusive)


LINE = "{:15} {:8} {:10}" + " {:>12}" * 4
COLUMNS = ("type", "mode", "workload", "preemptions", "same %", "clear", "same %")


def row(record: Record) -> str:
    count, same, clear, both = compare(record)
    shares = (f"{100 * part / whole:.1f}" if whole else "-" for part, whole in ((same, count), (both, clear)))
    return LINE.format(record.type, record.mode, record.run, count, next(shares), clear, next(shares))


def read_record(content: Mapping[str, object]) -> Record:
    """Return a record that `asdict` wrote as JSON."""
    segments = tuple(Segment(**each) for each in content["segments"])  # type: ignore[attr-defined]
    found = (Preemption(**each) for each in content["preemptions"])  # type: ignore[attr-defined]
    preemptions = tuple(replace(each, victims=tuple(each.victims)) for each in found)
    return Record(str(content["type"]), str(content["mode"]), str(content["run"]), segments, preemptions)


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
            print(row(read_record(json.loads(text))), flush=True)
        return
    slurm = Slurm()
    try:
        prepare(slurm)
        for type, mode, name in itertools.product(wanted.types or TYPES, wanted.modes or MODES, wanted.runs or RUNS):
            record = record_run(slurm, type, mode, name, wanted.jobs, wanted.seed)
            if wanted.out:
                with wanted.out.open("a") as stream:
                    stream.write(json.dumps(asdict(record)) + "\n")
            print(row(record), flush=True)
    finally:
        slurm.close()


if __name__ == "__main__":
    main()
