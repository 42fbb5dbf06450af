"""The facts in a record that count for priority and limits, and the substitute for each missing fact."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from cpsched.site.accounts import AccountingLimits, Association, AssociationTree, Qos
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.site.multifactor_priority import ClusterSize, PriorityPolicy, PriorityWeights
from cpsched.site.site_policy import PartitionPolicy, SitePolicy
from cpsched.slurm_text.jobs import JobDependencies, SlurmJob
from cpsched.slurm_text.site_policy import SitePolicyReading
from cpsched_bridge.adapters.slurm.policy import priority_ranking as rankings
from cpsched_bridge.adapters.slurm.policy.priority_ranking import (
    JobEligibleTimes,
    PriorityRanker,
    PriorityRankingInput,
    RankedJobs,
    compute_age_start_s,
    compute_priority_points,
    get_job_tres,
)
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.ports import Hold, PendingJob
from tests.builders import a_job, a_slurm_job
from tests.reach import entries

NOW_S = 10_000
WEIGHTS = PriorityWeights(
    age=0, fair_share=100, job_size=1000, partition=50, qos=200, association=80, tres={"cpu": 320.0}
)
POLICY = SitePolicy(
    AssociationTree(
        (
            Association("root", parent=-1),
            Association("lab", "ada", parent=0, priority=30),
            Association("lab", "", parent=0, priority=40),
            Association("", "ada", parent=0, priority=10),
        )
    ),
    {"normal": Qos("normal", priority=5), "fast": Qos("fast", priority=20)},
    {"main": PartitionPolicy(3, 2, "", {"cpu": 32}), "other": PartitionPolicy(1, 8)},
    priority=PriorityPolicy("multifactor", WEIGHTS),
)
READING = SitePolicyReading(POLICY, fair_share={1: 0.25, 3: 0.75})
MACHINE = ClusterSize(nodes=10, cpus=320)


def a_record(**facts: Any) -> SlurmJob:
    return a_slurm_job(
        **{
            "account": "lab", "user_name": "ada", "user_id": 1001, "partition": "main", "qos": "normal",
            "num_nodes": 2, "cpus": 16, "time_limit": 60, "nice": 7, "requested_tres": {"cpu": 16, "node": 2}, **facts,
        }
    )  # fmt: skip


def reading_with(**fields: Any) -> SitePolicyReading:
    return dataclasses.replace(READING, policy=dataclasses.replace(POLICY, **fields))


def told(reading: SitePolicyReading = READING, **facts: Any) -> dict[str, float]:
    found = compute_priority_points([a_record(**facts)], reading, MACHINE, NOW_S, [0])
    return {name: float(getattr(found, name)[0]) for name in found.__slots__}


PLAIN = {
    "age": 0.0, "association": 60.0, "fair_share": 25.0, "job_size": 1000 * (0.2 + 0.05) / 2, "partition": 12.5,
    "qos": 50.0, "tres": 160.0, "site": 0.0, "nice": 7.0,
}  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("facts", "changed"),
    [
        ({}, {}),
        ({"account": None}, {"fair_share": 75.0, "association": 20.0}),
        ({"account": "nowhere"}, {"fair_share": 0.0, "association": 0.0}),
        ({"user_name": None}, {"fair_share": 0.0, "association": 0.0}),
        ({"partition": None}, {"partition": 6.25, "tres": 0.0}),
        ({"partition": "other"}, {"partition": 50.0, "tres": 0.0}),
        ({"qos": None}, {"qos": 0.0}),
        ({"qos": "fast"}, {"qos": 200.0}),
        ({"nice": None}, {"nice": 0.0}),
        ({"nice": -50}, {"nice": -50.0}),
        ({"num_nodes": None}, {"job_size": 1000 * (0.1 + 0.05) / 2}),
        ({"num_nodes": 4}, {"job_size": 1000 * (0.4 + 0.05) / 2}),
        ({"cpus": 32}, {"job_size": 1000 * (0.2 + 0.1) / 2}),
        ({"requested_tres": {"cpu": 32}}, {"tres": 320.0}),
        ({"requested_tres": None}, {"tres": 160.0}),
    ],
)
def test_each_fact_changes_its_priority_factor(facts: dict[str, Any], changed: dict[str, float]) -> None:
    assert told(**facts) == pytest.approx(PLAIN | changed)


@pytest.mark.parametrize(("limit", "minutes"), [(60, 60), (1, 1), (None, 1), ("UNLIMITED", 1), (0, 1)])
def test_non_numeric_time_limit_counts_as_one_minute(limit: Any, minutes: int) -> None:
    weights = dataclasses.replace(WEIGHTS, size_over_time=True)
    reading = reading_with(priority=PriorityPolicy("multifactor", weights))
    assert told(reading, time_limit=limit)["job_size"] == pytest.approx(1000 * 64 / minutes / 320)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, {"cpu": 16, "node": 2}),
        ({"requested_tres": None}, {"cpu": 16, "node": 2}),
        ({"requested_tres": {"mem": 5}}, {"cpu": 16, "node": 2, "mem": 5}),
        ({"requested_tres": {"cpu": 3, "node": 9}}, {"cpu": 3, "node": 9}),
        ({"requested_tres": {}, "cpus": None, "num_nodes": None}, {"cpu": 1, "node": 1}),
        ({"licenses": ["a:2", "b", "a=1"]}, {"cpu": 16, "node": 2, "license/a": 3, "license/b": 1}),
        ({"licenses": ["a:2|b:2"]}, {"cpu": 16, "node": 2}),
    ],
)
def test_computes_requested_tres(facts: dict[str, Any], expected: dict[str, int]) -> None:
    record = a_record(**facts)
    assert get_job_tres(record, record.requested_tres) == expected


@pytest.mark.parametrize(
    ("facts", "freed_s", "since_s"),
    [
        ({"submit_time": 50}, 0, 50),
        ({"submit_time": 50, "eligible_time": 90}, 0, 90),
        ({"submit_time": 50, "eligible_time": 90}, 120, 120),
        ({"submit_time": 50, "priority": 3, "accrue_time": 70}, 120, 70),
        ({"submit_time": 50, "priority": 0, "accrue_time": 70}, 0, 50),
        ({"submit_time": 50, "priority": 3, "accrue_time": None}, 0, 50),
        ({"submit_time": None}, 0, 0),
    ],
)
def test_computes_start_of_age(facts: dict[str, Any], freed_s: int, since_s: int) -> None:
    clearances = JobEligibleTimes()
    if freed_s:
        clearances.record_reading([a_slurm_job(dependencies=JobDependencies((("afterok", "2"),)))], freed_s - 10)
        clearances.record_reading([a_slurm_job()], freed_s)
        clearances.record_reading([a_slurm_job()], freed_s + 10)
    assert compute_age_start_s(a_record(**facts), POLICY.priority, clearances) == since_s


def test_forgets_eligible_time_of_job_that_left_queue() -> None:
    """No other reading has that job waiting."""
    clearances = JobEligibleTimes()
    waiting, eligible = a_slurm_job(dependencies=JobDependencies((("afterok", "2"),))), a_slurm_job()
    times = []
    for at, jobs in enumerate(([waiting], [eligible], [], [waiting], [], [eligible]), 1):
        clearances.record_reading(jobs, 10 * at)
        times.append(clearances.get_eligible_s(1))
    assert times == [0, 20, 0, 0, 0, 0]


def ranked(
    reading: SitePolicyReading,
    *records: SlurmJob,
    exclusive: bool = False,
    machine: ClusterSize = MACHINE,
) -> RankedJobs:
    pending = [
        PendingJob(a_job(r.id, user="ada", account="lab", queue="main", exclusive=exclusive), Hold.PLUGIN)
        for r in records
    ]
    ranks = RankedJobs.for_policy(reading)
    around = PriorityRankingInput(pending, {r.id: r for r in records}, machine, NOW_S, JobEligibleTimes())
    ranks.rank(around, pending)
    return ranks


def test_submission_order_respects_nice() -> None:
    basic = reading_with(priority=PriorityPolicy("basic"))
    ranks = ranked(basic, a_record(id=1, nice=None), a_record(id=2, nice=100), a_record(id=3, nice=0))
    jobs = [ranks.known[id][1].job for id in (1, 2, 3)]
    assert np.diff([job.priority for job in jobs]).tolist() == [-101, -1]
    assert (jobs[0].tier, jobs[0].qos) == (3, "normal")


@pytest.mark.parametrize(
    ("exclusive", "nodes", "cpus", "held"),
    [(False, 10, 320, 16), (True, 10, 320, 64), (True, 10, 321, 66), (True, 0, 320, 16), (True, 10, 10, 16)],
)
def test_exclusive_job_holds_all_cpus_of_nodes(exclusive: bool, nodes: int, cpus: int, held: int) -> None:
    reading = reading_with(qos={"normal": Qos("normal", limits=AccountingLimits(group_tres={"cpu": 999}))})
    ranks = ranked(reading, a_record(), exclusive=exclusive, machine=ClusterSize(nodes, cpus))
    assert [amount for _, amount in ranks.standings[1].takes] == [held]


def running(**facts: Any) -> SlurmJob:
    return a_record(state="RUNNING", allocated_tres={"cpu": 4}, **facts)


@pytest.mark.parametrize(
    ("end_s", "minutes"), [(NOW_S + 600, 10), (NOW_S + 659, 10), (NOW_S, 0), (NOW_S - 60, 0), (None, 0)]
)
def test_running_minutes_count_until_time_limit(end_s: int | None, minutes: int) -> None:
    limits = AccountingLimits(group_running_minutes={"cpu": 10**6})
    ranks = RankedJobs.for_policy(reading_with(qos={"normal": Qos("normal", limits=limits)}))
    used = [sum(ranks.compute_running_limit_usage([running(end_time=end_s)], NOW_S + later_s)) for later_s in (0, 60)]
    assert used == [4 * minutes, 4 * max(0, minutes - 1)]


def test_running_jobs_count_their_tres_until_they_end() -> None:
    reading = reading_with(qos={"normal": Qos("normal", limits=AccountingLimits(group_tres={"cpu": 999}))})
    ranks = RankedJobs.for_policy(reading)
    rows = [running(id=1), running(id=2), a_record(id=3), running(id=4)._replace(state="COMPLETING")]
    assert ranks.compute_running_limit_usage(rows, NOW_S) == [8]
    first = ranks.running[1, False]
    assert ranks.compute_running_limit_usage(rows[:1], NOW_S) == [4]
    assert ranks.running == {(1, False): first}


@pytest.mark.parametrize(("walltime_s", "minutes"), [(1, 1), (59, 1), (60, 1), (61, 2), (120, 2), (6000, 100)])
def test_rounds_time_limit_up_to_minutes(walltime_s: int, minutes: int) -> None:
    limits = AccountingLimits(group_running_minutes={"node": 10**6})
    reading = reading_with(qos={"normal": Qos("normal", limits=limits)})
    pending = [PendingJob(a_job(1, walltime_s=walltime_s), Hold.PLUGIN)]
    ranks = RankedJobs.for_policy(reading)
    ranks.rank(PriorityRankingInput(pending, {1: a_record()}, MACHINE, NOW_S, JobEligibleTimes()), pending)
    assert [check.amount for check in ranks.standings[1].checks] == [2 * minutes]


def a_reading(now_s: int, *ids: int) -> SlurmRecords:
    return SlurmRecords(now_s, [], [], [], [a_record(id=id) for id in ids])


def test_keeps_ranks_of_pending_jobs_for_period() -> None:
    ranking = PriorityRanker()
    ranking.set_policy(READING)

    def rank(*ids: int, now_s: int = NOW_S) -> tuple[list[PendingJob], PendingJobLimitsAndUsage]:
        waiting = [PendingJob(a_job(id, queue="main"), Hold.PLUGIN) for id in ids]
        return ranking.rank_jobs(waiting, a_reading(now_s, *ids))

    first, limits = rank(1, 2, 3)
    assert sorted(limits.standings) == [1, 2, 3]
    standing, size = limits.standings[2], entries(ranking)
    second, limits = rank(2, 3)
    assert (sorted(limits.standings), limits.standings[2] is standing, entries(ranking) < size) == ([2, 3], True, True)
    assert [each.job.priority for each in second] == [each.job.priority for each in first[1:]]
    for later_s, is_kept in ((0, True), (299, True), (300, False)):  # all are ranked again after the period
        found = rank(2, 3, 4, now_s=NOW_S + later_s)[1].standings
        assert (sorted(found), found[2] is standing) == ([2, 3, 4], is_kept)


def test_continues_ranking_longer_than_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """One job a cycle, and a cycle a period: a begun ranking is continued, not restarted."""
    monkeypatch.setattr(rankings, "RANKED_PER_CYCLE", 1)
    ranking = PriorityRanker()
    ranking.set_policy(reading_with(priority=dataclasses.replace(POLICY.priority, period_s=1)))
    waiting = [PendingJob(a_job(id, queue="main"), Hold.PLUGIN) for id in (1, 2, 3)]
    seen = []
    for now_s in range(NOW_S, NOW_S + 8):
        ranking.rank_jobs(waiting, a_reading(now_s, 1, 2, 3))
        seen.append(ranking._now)  # noqa: SLF001
    assert len({id(each) for each in seen}) >= 3
