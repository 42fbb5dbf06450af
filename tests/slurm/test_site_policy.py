"""Test the site's own policy on a real cluster: priorities equal `sprio`'s output, and limits are never exceeded."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until
from tests.slurm.inside import adapter
from tests.slurm.sites import peak

WEIGHTS = (
    "PriorityWeightAge=1000", "PriorityWeightFairShare=10000", "PriorityWeightJobSize=5000",
    "PriorityWeightPartition=700", "PriorityWeightQOS=2000", "PriorityWeightTRES=CPU=300,Mem=50",
)  # fmt: skip
QOS = ("normal", "pair", "cores")


@pytest.fixture
def weighed(slurm: Slurm) -> Iterator[None]:
    """Run the cluster with a weight for every priority factor, and with QOS of different priorities."""
    for rank, name in enumerate(QOS):
        slurm.run("sacctmgr", "--immediate", "modify", "qos", "where", f"name={name}", "set", f"Priority={rank * 10}")
    with slurm.configured(*WEIGHTS):
        yield
    for name in QOS:
        slurm.run("sacctmgr", "--immediate", "modify", "qos", "where", f"name={name}", "set", "Priority=0")


def submit_many(slurm: Slurm, count: int) -> list[str]:
    """Submit jobs with random users, QOS, sizes, limits and nice values, and return their ids."""
    draw, jobs = random.Random(7), []
    for _ in range(count // 10):
        options = (
            f"--ntasks={draw.randint(1, 12)}", f"--time={draw.choice((1, 30, 90, 600))}",
            f"--qos={draw.choice(QOS)}", f"--nice={draw.choice((0, 0, 0, 40, 300))}",
        )  # fmt: skip
        jobs += slurm.burst(10, *options, user=draw.choice(("alice", "bob")))
    return jobs


@pytest.mark.conformance
@pytest.mark.usefixtures("weighed")
def test_priorities_equal_sprio_before_and_after_release(slurm: Slurm) -> None:
    # Use some resources, so that fair share ranks alice and bob differently.
    used = slurm.burst(4, "--ntasks=4", script="sleep 5", user="alice")
    slurm.wait_for_state(used, "COMPLETED", 60)
    with slurm.partition("main", "DOWN"):
        jobs = submit_many(slurm, 200)
        held = jobs[::2]
        slurm.run("scontrol", "hold", ",".join(held))
        found = slurm.call(adapter.read_priorities)
        assert found["notes"] == []
        ok, detail = found["checks"]["priorities"]
        assert ok, detail
        assert f"equal to sprio's for {len(jobs) - len(held)} of {len(jobs) - len(held)} jobs" in detail
        assert not slurm.sprio("Y").keys() & set(held)
        slurm.run("scontrol", "release", ",".join(held))
        shown = wait_until(lambda: len(s := slurm.sprio("Y")) >= len(jobs) and s, 60, "sprio shows the released jobs")
        apart = {job: shown[job] - found["priorities"][job] for job in held}
        # With ACCRUE_ALWAYS, jobs keep aging; a minute between the two readings is 0.1 of 1000 points in seven days.
        assert all(-1 <= difference <= 2 for difference in apart.values()), apart


@pytest.mark.conformance
@pytest.mark.parametrize(("options", "limits", "most"), [(["--qos=pair"], {}, 2), ([], {"GrpTRES": "cpu=5"}, 5)])
def test_limit_is_fully_used_and_never_exceeded(
    slurm: Slurm, options: list[str], limits: dict[str, str], most: int
) -> None:
    """Accounting shows that alice's jobs reach the limit but do not exceed it, and that bob's jobs are not delayed."""
    if limits:
        slurm.limit("alice", **limits)
    slurm.plugin(on=True)
    with LiveBridge(slurm, "policy-limits") as bridge:
        limited = slurm.burst(12, "--time=1", *options, script="sleep 3")
        others = slurm.burst(12, "--time=1", script="sleep 3", user="bob")
        slurm.wait_for_state(others, "COMPLETED", 60)
        slurm.wait_for_state(limited, "COMPLETED", 120)
        assert not bridge.events("circuit_breaker_tripped")
        assert not bridge.events("start_failed")
    records = slurm.wait_for_accounting([*limited, *others])
    assert peak((job.start_s, job.end_s, job.cpus) for job in (records[job] for job in limited)) == most
    assert max(records[job].start_s - records[job].submit_s for job in others) < 20  # type: ignore[operator]


def test_cpu_minutes_limit_is_never_exceeded(slurm: Slurm) -> None:
    """A job that could use more than the remaining CPU minutes does not start, and bob's jobs are not delayed.

    Each job uses about 5 of alice's 40 CPU minutes, and could use 32. The jobs therefore run one at a time, and the
    last jobs wait although CPUs are free.
    """
    with slurm.configured("AccountingStorageEnforce=limits,qos,safe", "PriorityCalcPeriod=1"):
        slurm.run(
            "sacctmgr", "--immediate", "modify", "user", "where", "name=alice", "account=lab", "set", "RawUsage=0"
        )
        slurm.limit("alice", GrpTRESMins="cpu=40")
        slurm.plugin(on=True)
        with LiveBridge(slurm, "policy-minutes") as bridge:
            limited = slurm.burst(9, "-N2", "-n32", "--time=1", script="sleep 10")
            others = slurm.burst(6, "-n2", "--time=1", script="sleep 2", user="bob")
            slurm.wait_for_state(others, "COMPLETED", 60)

            def all_wait() -> bool:
                is_over = set(slurm.states(limited).values()) == {"PENDING", "COMPLETED"}
                return is_over and "AssocGrpCPUMinutesLimit" in bridge.cpsched("why", limited[-1])

            wait_until(all_wait, 150, "the rest of alice's jobs wait for minutes", every_s=2.0)
            assert not bridge.events("circuit_breaker_tripped")
    records = slurm.sacct([*limited, *others])
    times = [(job.start_s, job.end_s, job.cpus) for job in (records[number] for number in limited)]
    ran = [(start_s, end_s, cpus) for start_s, end_s, cpus in times if start_s and end_s]
    assert 5 * 60 < sum(cpus * (end_s - start_s) for start_s, end_s, cpus in ran) <= 40 * 60
    assert peak(ran) == 32
    assert max(records[job].start_s - records[job].submit_s for job in others) < 20  # type: ignore[operator]


@pytest.mark.conformance
def test_job_above_wall_time_limit_is_left_to_slurm(slurm: Slurm) -> None:
    """Slurm does not show who set the job's time limit. An operator may exceed MaxWall, so only Slurm can decide."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, "policy-wall") as bridge:
        job = slurm.sbatch("--qos=quick", "--time=5", script="sleep 1")
        short = slurm.sbatch("--qos=quick", "--time=1", script="sleep 1")
        slurm.wait_for_state(short, "COMPLETED", 60)
        wait_until(lambda: slurm.job(job).reason == "QOSMaxWallDurationPerJobLimit", 30, "Slurm applies its limit")
        assert not slurm.job(job).held
        assert "QOSMaxWallDurationPerJobLimit" in bridge.cpsched("why", job)


def test_pin_exempts_job_from_no_limit(slurm: Slurm) -> None:
    """Slurm exempts fields that an operator changes from limits, but the node list is not one of these fields."""
    slurm.plugin(on=True)
    with LiveBridge(slurm, "policy-pin"):
        first = slurm.burst(2, "--qos=pair", "--time=1", script="sleep 15")
        slurm.wait_for_state(first, "RUNNING", 30)
        third = slurm.sbatch("--qos=pair", "--time=1", script="sleep 1")
        # Pin and release, as a bridge without knowledge of limits would.
        slurm.scontrol("update", f"JobId={third}", "ReqNodeList=n1")
        slurm.run("scontrol", "release", third)
        wait_until(lambda: slurm.job(third).reason.startswith("QOSMaxJobsPerUserLimit"), 20, "Slurm's limit holds")


@pytest.mark.parametrize("boost", [0, 10_000_000])
def test_unmanaged_job_blocks_start_unless_priority_is_raised(slurm: Slurm, boost: int) -> None:
    """The unmanaged job waits for all nodes. The pinned job has lower priority and runs too long for backfill."""
    running = slurm.sbatch("-N1", "-n16", "--time=5", "--nodelist=n1", script="sleep 120")
    slurm.wait_for_state(running, "RUNNING", 20)
    blocker = slurm.sbatch("-N4", "-n64", "--time=5", script="sleep 1")
    wait_until(lambda: slurm.job(blocker).reason == "Resources", 20, "it waits for nodes")
    slurm.plugin(on=True)
    options = {"boost": boost}
    with LiveBridge(slurm, f"boost-{boost}", start={"adopt": False, "timeout_s": 8}, options=options) as bridge:
        job = slurm.sbatch("-N1", "-n2", "--time=20", "--nice=7", script="sleep 30")
        if boost:
            slurm.wait_for_state(job, "RUNNING", 30)
            assert int(slurm.record(job)["Nice"]) < 0
        else:
            wait_until(lambda: bridge.events("start_failed"), 60, "it could not start", every_s=1.0)
            assert slurm.record(job)["Nice"] == "7"
        assert slurm.job(blocker).state == "PENDING"
