"""What a site's policy costs the bridge in one cycle: 10,000 pending jobs, 2,000 associations, limits of many kinds.

    python -m tests.benchmarks.site_policy

Prints milliseconds of CPU time: of ranking the jobs of an observation, and of admitting them to a round, in a cycle in
which nothing changed, in one with 100 new jobs, and in one in which the whole policy was read anew.
"""

from __future__ import annotations

import sys
import time
from statistics import median

import numpy as np

from cpsched.model import Cluster, Job, Request, Snapshot
from cpsched.site.accounts import Accounts, Association, Limits, Qos, SiteLimits
from cpsched.site.admission import admit, narrowed, site_order, standings_of
from cpsched.site.limits import Spent
from cpsched.site.multifactor import MachineSize, PriorityRules, Weights
from cpsched_bridge.adapters.slurm.policy.answers import PartitionPolicy, SitePicture
from cpsched_bridge.adapters.slurm.policy.ranking import Ranking
from cpsched_bridge.ports import Hold, Observation, PendingJob

JOBS, RUNNING, ASSOCIATIONS, NODES = 10_000, 1_000, 2_000, 1_000
NOW_S = 1_800_000_000


def picture() -> SitePicture:
    """A site with 200 accounts of nine users each."""
    rows = [Association("root", parent=-1, limits=Limits(group_tres={"cpu": 50_000}))]
    for account in range(ASSOCIATIONS // 10):
        rows.append(Association(f"a{account}", limits=Limits(group_tres={"cpu": 400}, group_jobs=200)))
        at = len(rows) - 1
        rows += [Association(f"a{account}", f"u{account}-{n}", parent=at, limits=Limits(jobs=20)) for n in range(9)]
    qos = {
        "normal": Qos("normal", 10, Limits(tres_a_user={"cpu": 64, "gres/gpu": 4}, wall_min=7200)),
        "long": Qos("long", 5, Limits(jobs_a_user=4, tres_an_account={"cpu": 256})),
        "part": Qos("part", 0, Limits(tres_a_node={"cpu": 64})),
    }
    weights = Weights(1000, 10_000, 500, 200, 2000, 100, {"cpu": 100.0})
    partitions = {"main": PartitionPolicy(1, 1, "part", {"cpu": 64 * NODES})}
    site = SiteLimits(Accounts(tuple(rows)), qos, {"main": "part"})
    shares = {at: at % 100 / 100 for at in range(len(rows))}
    return SitePicture(site, PriorityRules(weights=weights), Spent(), shares, partitions)


def record(number: int, state: str = "PENDING") -> dict[str, object]:
    account = number % (ASSOCIATIONS // 10)
    tres = {"cpu": 1 + number % 16, "mem": 4000, "node": 1, "billing": 4}
    return {
        "id": number, "state": state, "priority": 0, "account": f"a{account}", "user_name": f"u{account}-{number % 9}",
        "user_id": 1, "partition": "main", "qos": ("normal", "long")[number % 3 == 0], "submit_time": NOW_S - number,
        "eligible_time": None, "accrue_time": None, "time_limit": 60 + number % 600, "num_nodes": 1,
        "cpus": tres["cpu"], "nice": 0, "requested_tres": tres, "allocated_tres": tres, "array_id": None,
        "array_tasks_waiting": None, "dependencies": None, "end_time": NOW_S + 3600,
    }  # fmt: skip


def pending(row: dict[str, object]) -> PendingJob:
    request = Request(1, (int(str(row["cpus"])), 4000))
    minutes, number, submit_s = (int(str(row[name])) for name in ("time_limit", "id", "submit_time"))
    names = [str(row[name]) for name in ("user_name", "partition", "account")]
    job = Job(number, submit_s, minutes * 60, request, names[0], "job", names[1], names[2])
    return PendingJob(job, Hold.PLUGIN, label=str(number))


def spent_ms(began_s: float) -> float:
    return (time.process_time() - began_s) * 1000


def main(words: list[str]) -> None:
    cluster = Cluster.of(np.full((NODES, 2), (64, 256_000)), ["cores", "memory_mib"])
    rows = [record(number) for number in range(JOBS)]
    running = [record(1_000_000 + number, "RUNNING") for number in range(RUNNING)]
    jobs = [pending(row) for row in rows]
    ranking, machine = Ranking(), MachineSize(NODES, 64 * NODES)
    ranking.use(picture())

    def cycle(now_s: int) -> tuple[float, float]:
        seen = Observation(now_s, cluster, cluster.capacity, tuple(jobs))
        records = [*rows, *running]
        began_s = time.process_time()
        ranked = ranking.applied(seen, records, machine)
        ranking_ms = spent_ms(began_s)
        queue = [p.job for p in ranked.pending]
        snapshot = Snapshot.of(now_s, cluster, cluster.capacity, queue, (), {job.id: job.walltime_s for job in queue})
        assert ranked.limits is not None
        began_s = time.process_time()
        standings = standings_of(snapshot, ranked.limits)
        found = admit(standings, ranked.limits.used, site_order(snapshot))
        narrowed(snapshot, found.positions)
        return ranking_ms, spent_ms(began_s)

    def show(name: str, times: list[tuple[float, float]]) -> None:
        first, second = (median(column) for column in zip(*times, strict=True))
        print(f"{name:<40}{first:8.1f} ms ranking {second:8.1f} ms admission {first + second:8.1f} ms in all")

    show("policy read anew", [(ranking.use(picture()), cycle(NOW_S))[1] for _ in range(5)])
    show("nothing changed", [cycle(NOW_S + 1 + at) for at in range(15)])
    times = []
    for at in range(10):
        for place in range(at * 100, at * 100 + 100):
            rows[place] = record(2_000_000 + place)
            jobs[place] = pending(rows[place])
        times.append(cycle(NOW_S + 20 + at))
    show("100 new jobs", times)


if __name__ == "__main__":
    main(sys.argv[1:])
