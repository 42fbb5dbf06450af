"""Run 200 jobs on each configuration of `site_configs`, under Slurm alone and under control.

`make test-sites [SITE=NAME]`, or `deploy/cluster wide 24` and `python -m tests.slurm.sites [--site NAME] [--count N
--first N]`. On each configuration, `cpsched doctor` runs for shadow, advise and control. If it refuses control, the
result shows the failed checks. Otherwise, the same jobs of six users run under both, and the result compares their
accounting records. The status is 1 if a job is lost or runs twice, or if the result of control is unexpected.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from cpsched.registry import DISPATCHERS
from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import EndedJob, Slurm, docker, wait_until
from tests.slurm.site_configs import BY_CLUSTER, CONFIGS, GPU_FILES, NODES, Control, SiteConfig
from tests.slurm.twin import SETS, Run, Shape, Submitted, submit, wait_until_recorded, workload

USERS = {"alice": 2001, "bob": 2002, "carol": 2003, "dave": 2004, "erin": 2005, "frank": 2006}
ACCOUNTS = {"lab": ("alice", "bob", "carol", "cpsched", "root"), "chem": ("dave", "erin", "frank")}
JOBS = 200
TASKS, MAX_RUNNING_TASKS = 4, 2
"""Number of tasks in an array, and maximum number of running tasks."""
MAX_RUN_S = 240
"""Time limit of a run in seconds. Jobs that wait longer are lost."""
MAX_LEFT_SHARE = 0.5
"""Control serves a site if it leaves at most this share of jobs to Slurm."""
MODES = ("shadow", "advise", "control")
PREEMPTED = ("|PREEMPTED", "|REQUEUED")
"""States of a job that Slurm or, by `scontrol requeue`, the bridge has preempted."""

STARTED = "select label from jobs where id in (select job_id from transitions where after = 'starting')"
LEFT = (
    "select why, count(distinct job_id) from transitions where after = 'releasing' group by why order by 2 desc limit 3"
)


def shapes_of(config: SiteConfig) -> dict[Shape, int]:
    """Return the requests that a configuration allows, with their frequencies."""
    main = next(iter(config.partitions))
    groups, options = partition(config, main)
    exclusive = "EXCLUSIVE" in options

    def shape(options: str, units: int, cores: int) -> Shape:
        return Shape(options, units, cores, exclusive=exclusive)

    found = {
        shape("-N1 -n2", 1, 2): 4, shape("-N1 -n4", 1, 4): 4, shape("-N1 -n8", 1, 8): 5, shape("-N1 -n12", 1, 12): 4,
        shape("-N1 -n1 --mem=6G", 1, 1): 3, shape("-N2 --ntasks-per-node=8", 2, 8): 4,
        shape("-N4 --ntasks-per-node=8", 4, 8): 3, shape("-N1 -n4 --dependency=afterany:$id", 1, 4): 3,
        shape(f"-N1 -n4 --array=1-{TASKS}%{MAX_RUNNING_TASKS}", TASKS, 4): 3,
    }  # fmt: skip
    features = list(
        dict.fromkeys(each for group in groups for each in config.groups[group].features.split(",") if each)
    )
    if config.blocks:
        found[shape("-N4 --ntasks-per-node=8 --segment=2", 4, 8)] = 3
        found[shape("-N6 --ntasks-per-node=4 --segment=3", 6, 4)] = 3
    if features:
        found[shape(f"-N1 -n4 -C {features[0]}", 1, 4)] = 3
    if len(features) > 1:
        found[shape(f"-N1 -n4 -C '{features[0]}|{features[1]}'", 1, 4)] = 1
    for name, _ in licenses(config).items():
        found[shape(f"-N1 -n2 -L {name}:1", 1, 2)] = 2
    second = next((name for name in list(config.partitions)[1:] if open_beside(config, name, groups)), None)
    if second:
        found[shape(f"-N1 -n4 -p {main},{second}", 1, 4)] = 3
    with_gpus = [name for name in config.partitions if all(gpu_kinds(config, name))]
    for name in with_gpus or [main] * any(gpu_kinds(config, main)):
        kind = max(gpu_kinds(config, name))
        found[Shape(f"-N1 -n2 -p {name} --gres={kind}:1", 1, 2, 1, partition=name)] = 4
    return found


def gpu_kinds(config: SiteConfig, name: str) -> list[str]:
    """Return the first generic resource of each of a partition's node groups: `gpu:a100`, or empty."""
    return [config.groups[group].gres.split(",")[0].rpartition(":")[0] for group in partition(config, name)[0]]


def partition(config: SiteConfig, name: str) -> tuple[list[int], str]:
    """Return a partition's node groups and options."""
    groups, _, options = config.partitions[name].partition(" ")
    return [int(each) for each in groups], options


def open_beside(config: SiteConfig, name: str, groups: Sequence[int]) -> bool:
    """Return whether all users may use the partition for a small job, on nodes without GPUs."""
    mine, options = partition(config, name)
    closed = "AllowAccounts" in options.replace("AllowAccounts=lab,chem", "") or "AllowQos" in options
    return not closed and "MinNodes" not in options and not any(config.groups[each].gres for each in mine)


def licenses(config: SiteConfig) -> dict[str, int]:
    """Return the count of each license that the configuration sets in slurm.conf."""
    text = next((line.partition("=")[2] for line in config.settings if line.startswith("Licenses=")), "")
    return {name: int(count) for name, count in (each.split(":") for each in text.split(",") if each)}


def run_of(config: SiteConfig) -> Run:
    """Return the workload of a configuration: its own shapes, at 1.4 times the cores of the default partition."""
    shapes = shapes_of(config)
    groups, _ = partition(config, next(iter(config.partitions)))
    nodes = sum(config.groups[group].count for group in groups)
    load = 1.4 * nodes / len(SETS["main"])
    qos = tuple(config.qos) or ("normal",)
    return Run(
        tuple(shapes),
        "",
        weights=tuple(shapes.values()),
        load=load,
        runs_s=(2, 3, 5, 8, 12),
        users=tuple(USERS),
        qos=qos,
    )


def jobs_of(run: Run, count: int, seed: int) -> list[Submitted]:
    """Return submissions of at least `count` jobs; each array task counts as one job."""
    jobs = workload(run, count, seed)
    sizes = itertools.accumulate(tasks(run, job) for job in jobs)
    taken = 1 + next(at for at, size in enumerate(sizes) if size >= count)
    first = replace(jobs[0], shape=0)  # the first job has no earlier job on which it could depend
    return [first, *jobs[1:taken]]


def tasks(run: Run, job: Submitted) -> int:
    return TASKS if "--array" in run.shapes[job.shape].options else 1


# ---------------------------------------------------------------------------------------------- the cluster


def prepare(slurm: Slurm) -> None:
    """Add the users and GPUs that the test cluster lacks."""
    extra = {user: uid for user, uid in USERS.items() if uid > 2002}
    add = "; ".join(f"id {user} >/dev/null 2>&1 || useradd -m -u {uid} {user}" for user, uid in extra.items())
    files = " ".join(f"/run/fakegpu{number}" for number in range(GPU_FILES))
    for service in ("slurmctld", "wide"):
        slurm.run("sh", "-c", f"{add}; touch {files}", service=service)
    docker("exec", slurm.python_container(), "sh", "-c", add)
    # A node that Slurm resumes boots: its slurmd restarts, with a new boot time.
    wake = '#!/bin/sh\nscontrol show hostnames "$1" >>/home/woken\n'
    slurm.run("sh", "-c", "cat >/home/wake; chmod 755 /home/wake; touch /home/woken; chmod 666 /home/woken", stdin=wake)


BOOT = """
tail -n 0 -F /home/woken | while read node; do
    kill "$(cat /run/slurmd-$node.pid)"; sleep 0.2
    slurmd -b -N "$node" -L "/var/log/slurm/slurmd-$node.log"
done
"""


def start(slurm: Slurm, config: SiteConfig) -> None:
    """Start the configuration's cluster, with its accounts, and wait until its nodes are idle."""
    lines = [f"add cluster {config.cluster}", *(f"add qos {name}" for name in config.qos)]
    lines += [f"modify qos where name={name} set {words}" for name, words in config.qos.items() if words]
    allowed = ",".join(config.qos) or "normal"
    for account, users in ACCOUNTS.items():
        where = f"cluster={config.cluster} DefaultQOS=normal QOS={allowed}"
        lines.append(f"add account {account} cluster={config.cluster} Description={account} Organization={account}")
        lines.append(f"add user {','.join(users)} account={account} DefaultAccount={account} {where}")
    script = "".join(f"sacctmgr --immediate {line}\n" for line in lines)
    slurm.run("sh", service="wide", stdin=script, check=False)  # sacctmgr fails for objects that already exist
    for name, content in (("gres", config.gres_conf()), ("topology", config.topology_conf())):
        path = f"/etc/slurm/{name}.conf"
        write = f"cat >{path}" if content else f"rm -f {path}"
        slurm.run("sh", "-c", write, service="wide", stdin="".join(f"{line}\n" for line in content))
    folder = config.state_folder
    slurm.run("sh", "-c", f"rm -rf {folder}; mkdir -p {folder}; chown slurm: {folder}")
    slurm.start_as(*config.slurm_conf())
    slurm.plugin(on=False)
    if any(line.startswith("SuspendTime") for line in config.settings):
        docker("exec", "--detach", slurm.container("wide"), "sh", "-c", BOOT)

    def idle() -> bool:
        states = slurm.run("sinfo", "--noheader", "--Node", "--format=%N %T", check=False).split("\n")
        found = dict(line.split() for line in states if line)
        return len(found) == NODES and set(found.values()) <= {"idle", "idle~"}

    wait_until(idle, 90, f"all nodes of {config.name} are idle")


def failed_checks(slurm: Slurm, mode: str) -> tuple[list[str], list[str]]:
    """Return the checks of `doctor` that refuse this mode, with their details, and the names of its warnings."""
    text = LiveBridge(slurm, "doctor", mode=mode).cpsched("doctor", "--json", check=False)
    checks: list[dict[str, Any]] = json.loads(text[text.index("[{") : text.rindex("]") + 1])
    failed = [check for check in checks if not check["ok"]]
    refused = [f"{check['name']}: {check['detail']}" for check in failed if check["required"]]
    return refused, [check["name"] for check in failed if not check["required"]]


# ---------------------------------------------------------------------------------------------- the comparison


@dataclass(frozen=True, slots=True)
class Figures:
    """One run of the jobs of a configuration; waits in seconds."""

    jobs: int
    lost: int
    twice: int
    weights: float
    """Mean over the jobs of the sum of their nodes' weights."""
    switches: float
    """Mean number of leaf switches per job."""
    blocks: float
    """Mean number of base blocks per job."""
    wait_s: float
    longest_s: int
    exceeded: list[str]
    """Limits that were exceeded at any time."""


def peak(spans: Iterable[tuple[int, int, int]]) -> int:
    """Return the highest sum of amounts at one time, of (start, end, amount); an end precedes a start."""
    changes = sorted(change for begin, end, amount in spans for change in ((begin, amount), (end, -amount)))
    return max(itertools.accumulate((amount for _, amount in changes), initial=0))


Ran = tuple[Submitted, str, EndedJob]
"""A submission, its job's number, and one of its ended jobs."""


def exceeded(config: SiteConfig, run: Run, ran: Sequence[Ran]) -> list[str]:
    """Return the exceeded limits of licenses, QOS, partitions and arrays."""
    groups: dict[tuple[str, int], dict[str, list[tuple[int, int, int]]]] = defaultdict(lambda: defaultdict(list))
    for job, number, ended in ran:
        span, shape = (ended.start_s or 0, ended.end_s or 0), run.shapes[job.shape]
        for name, count in licenses(config).items():
            if f"-L {name}:" in shape.options:
                groups[f"license {name}", count][""].append((*span, 1))
        if "--array" in shape.options:
            groups["array tasks at once", MAX_RUNNING_TASKS][number].append((*span, 1))
        words = dict(re.findall(r"(Max\w+)=(\S+)", config.qos.get(job.qos, "")))
        if most := words.get("MaxJobsPerUser"):
            groups[f"MaxJobsPerUser of {job.qos}", int(most)][job.user].append((*span, 1))
        resource, _, most = words.get("MaxTRESPerUser", "").partition("=")
        if resource:
            amount = ended.cpus if resource == "cpu" else shape.gpus
            groups[f"MaxTRESPerUser of {job.qos}", int(most)][job.user].append((*span, amount))
        if most := dict(re.findall(r"(Max\w+)=(\S+)", partition(config, ended.partition)[1])).get("MaxCPUsPerNode"):
            for node in ended.nodes:
                key = f"MaxCPUsPerNode of {ended.partition}", int(most)
                groups[key][node].append((*span, ended.cpus // len(ended.nodes)))
    return [name for (name, most), spans in groups.items() if max(map(peak, spans.values())) > most]


def figures(
    config: SiteConfig,
    run: Run,
    jobs: Mapping[str, Submitted],
    ended: Mapping[str, EndedJob],
    preempted: Mapping[str, int] | None = None,
) -> Figures:
    """Return the figures of a run: its submissions by job number, and the accounting records by job.

    `preempted` is how often each job was preempted; such a job runs again without having run twice.
    """
    again = sum(each.restarts > (preempted or {}).get(name, 0) for name, each in ended.items())
    of = [(jobs[name.partition("_")[0]], name.partition("_")[0], each) for name, each in ended.items()]
    ran = [(job, number, each) for job, number, each in of if each.state == "COMPLETED"]
    weights, leaves, blocks = config.weights(), config.leaf_switches(), config.base_blocks()
    waits = [(each.start_s or 0) - each.submit_s for *_, each in ran] or [0]
    count = sum(tasks(run, job) for job in jobs.values())
    return Figures(
        count, count - len(ran), again,
        statistics.mean(sum(weights[node] for node in each.nodes) for *_, each in ran),
        statistics.mean(len({leaves[node] for node in each.nodes}) for *_, each in ran),
        statistics.mean(len({blocks[node] for node in each.nodes}) for *_, each in ran),
        statistics.mean(waits), max(waits), exceeded(config, run, ran),
    )  # fmt: skip


def measure(slurm: Slurm, config: SiteConfig, run: Run, jobs: Sequence[Submitted]) -> tuple[Figures, list[str]]:
    """Run all jobs until they end, and return the figures and the jobs' labels."""
    ids = submit(slurm, run, jobs)
    assert len(ids) == len(jobs), f"{config.name}: Slurm refused {len(jobs) - len(ids)} submissions"
    try:
        slurm.wait_until_empty(MAX_RUN_S)
    except AssertionError:
        print(slurm.run("squeue", "--all", "--format=%i %P %T %r %y %N"), file=sys.stderr)
        slurm.run("sh", "-c", "squeue -h --all --format=%A | sort -u | xargs -r scancel")
    wait_until_recorded(slurm, ids)
    ended = slurm.sacct(ids)
    records = slurm.run("sacct", "-aXnPDo", "JobID,State", "-j", ",".join(ids)).split()
    preempted = Counter(record.partition("|")[0] for record in records if record.endswith(PREEMPTED))
    return figures(config, run, dict(zip(ids, jobs, strict=True)), ended, preempted), list(ended)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one configuration."""

    config: SiteConfig
    control: Control
    reasons: list[str]
    """Failed checks of control mode, or its warnings and the most frequent reasons for leaving jobs to Slurm."""
    other_modes: list[str]
    """Failed checks of shadow and advise mode that differ from those of control mode."""
    left: float = 0.0
    """Fraction of jobs that Slurm started by itself."""
    slurm: Figures | None = None
    bridge: Figures | None = None
    took_s: float = 0.0

    @property
    def bad(self) -> bool:
        """Return whether a job is lost or ran twice, a limit is exceeded, or control's result is unexpected."""
        runs = [each for each in (self.slurm, self.bridge) if each]
        return self.control != self.config.control or any(each.lost or each.twice or each.exceeded for each in runs)

    def cells(self) -> list[str]:
        """Return the columns of the table."""
        cells = [self.config.name, self.control.value]
        if self.slurm and self.bridge:
            pairs = [(getattr(self.slurm, name), getattr(self.bridge, name)) for name in COMPARED]
            limits = sorted({*self.slurm.exceeded, *self.bridge.exceeded})
            cells += [f"{self.left:.1%}", f"{self.bridge.lost}", f"{self.bridge.twice}"]
            cells += [f"{theirs:.3g} / {mine:.3g}" for theirs, mine in pairs]
            cells.append("exceeded: " + ", ".join(limits) if limits else "kept")
        else:
            cells += [""] * (len(COLUMNS) - 4)
        return [*cells, "; ".join(self.reasons + self.other_modes)]


COMPARED = ("weights", "switches", "blocks", "wait_s", "longest_s")
COLUMNS = (
    "site", "control", "left", "lost", "twice", "node weights", "leaf switches", "blocks", "mean wait s",
    "longest wait s", "limits", "reasons",
)  # fmt: skip


def row(cells: Iterable[str]) -> str:
    """Format a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def run_config(
    slurm: Slurm, config: SiteConfig, count: int, seed: int, dispatcher: str, choose_victims: bool = False
) -> Result:
    """Run one configuration."""
    start(slurm, config)
    failed = {mode: failed_checks(slurm, mode) for mode in MODES}
    refused, warnings = failed["control"]
    others = [f"{mode}: {', '.join(failed[mode][0]) or 'passes'}" for mode in MODES[:2] if failed[mode][0] != refused]
    if refused:
        return Result(config, Control.REFUSED, refused, others)
    run = run_of(config)
    jobs = jobs_of(run, count, seed)
    alone, _ = measure(slurm, config, run, jobs)
    slurm.plugin(on=True)
    settings = {"policy": {"dispatcher": dispatcher}, "preemption": {"choose": choose_victims}}
    with LiveBridge(slurm, config.cluster, **settings) as bridge:
        ours, labels = measure(slurm, config, run, jobs)
        bridge.wait_for_rounds(1)
        started = {label for (label,) in bridge.query("state", STARTED)}
        why = bridge.query("state", LEFT)
    left = sum(label not in started for label in labels) / len(labels)
    control = Control.SERVED if left <= MAX_LEFT_SHARE else Control.LEFT
    reasons = [f"warnings: {', '.join(warnings)}"] if warnings else []
    reasons += [f"{number} x {text}" for text, number in why]
    return Result(config, control, reasons, others, left, alone, ours)


def parse_arguments() -> argparse.Namespace:
    """Return the command's options, or exit with status 2; `deploy/test-sites` does this before it starts a cluster."""
    parser = argparse.ArgumentParser("test-sites", None, __doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--site", action="append", choices=BY_CLUSTER, metavar="NAME",
        help="a configuration, such as site07; default: all, or as many as --count states",
    )  # fmt: skip
    parser.add_argument("--count", type=int, default=len(CONFIGS), help="the number of configurations")
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first of these; taken modulo their number"
    )
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dispatcher", choices=DISPATCHERS.names(), metavar="NAME", default="easy")
    parser.add_argument("--choose-victims", action="store_true", help="the bridge chooses which jobs are preempted")
    return parser.parse_args()


def main() -> int:
    """Run as a command; return the status."""
    wanted = parse_arguments()
    rotated = [CONFIGS[(wanted.first + at) % len(CONFIGS)] for at in range(wanted.count)]
    configs = [BY_CLUSTER[name] for name in wanted.site or ()] or rotated
    results = []
    with closing(Slurm()) as slurm:
        prepare(slurm)
        for config in configs:
            began_s = time.monotonic()
            try:
                result = run_config(slurm, config, wanted.jobs, wanted.seed, wanted.dispatcher, wanted.choose_victims)
            except (AssertionError, subprocess.SubprocessError) as error:  # the other sites still run
                print(error, file=sys.stderr)
                result = Result(config, Control.FAILED, [str(error).splitlines()[0]], [])
            result = replace(result, took_s=time.monotonic() - began_s)
            results.append(result)
            print(row([*result.cells(), f"{result.took_s:.0f} s"]), flush=True)
    print("", row(COLUMNS), row("---" for _ in COLUMNS), *(row(result.cells()) for result in results), sep="\n")
    bad = [result.config.name for result in results if result.bad]
    print(f"not as expected: {', '.join(bad)}" if bad else f"all {len(results)} as expected")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
