"""Recorded jobs with a site's policy: priorities, limits, and the doctor's comparison with sprio."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched.site.admission import first_exceeded_limit
from cpsched.site.multifactor_priority import ClusterSize
from cpsched.slurm_text.site_policy import parse_site_policy
from cpsched_bridge.adapters.slurm.background_queries import BackgroundCommandOutput, PeriodicSitePolicyReader
from cpsched_bridge.adapters.slurm.policy import priority_ranking
from cpsched_bridge.adapters.slurm.policy.priority_ranking import JobEligibleTimes, compute_age_start_s
from cpsched_bridge.adapters.slurm.policy.sprio_comparison import compare_with_sprio, parse_sprio
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.adapters.slurm.slurm_doctor import check_partitions_mixing_unmanaged_jobs, run_policy_checks
from cpsched_bridge.ports import Observation
from tests.builders import a_slurm_job, words
from tests.slurm_replies import ALL, CONFIG, association
from tests.unit.bridge.adapters.slurm.scenes import Scene
from tests.unit.bridge.adapters.slurm.test_background_queries import Clock
from tests.unit.bridge.adapters.slurm.test_background_queries import Played as PlayedAsking
from tests.unit.bridge.adapters.slurm.test_slurm_backend import Played


def state(**limits: object) -> str:
    """The association manager with alice in account lab."""
    lines = [association("root"), association("lab", id=2, parent="root(1)"), association("lab", "alice", 3, **limits)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"state": None},
         "association user alice in account lab: MaxJobs cannot be read: some(1): must be a whole number"),
        ({"qos": ALL["qos"].replace("cpu=16", "cpu=?")},
         "qos normal: MaxTRESPU cannot be read: ?: must be a whole number, optionally with K, M, G or T"),
    ],
)  # fmt: skip
def test_leaves_jobs_with_unreadable_policy(texts: dict[str, str | None], why: str) -> None:
    """Those of others are ranked as ever."""
    scene = Scene().only("first", "after").with_job("first", account="lab", user_name="alice", qos="normal")
    scene.job("after").update(account="lab", user_name="bob", qos="part-fast", dependencies=None)
    replies = {name: state(jobs="some(1)") if text is None else text for name, text in texts.items()}
    seen = observed(scene, **replies)
    first, after = (scene.job(name)["id"] for name in ("first", "after"))
    assert [(left.job_id, words(left.reason), left.held_for_bridge) for left in seen.unmanaged] == [(first, why, True)]
    assert ([pending.job.id for pending in seen.pending], [str(each) for each in seen.unusable]) == ([after], [why])
    assert seen.limits is not None
    assert seen.limits.standings.keys() == {after}


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"wall": 1}, "AssocMaxWallDurationPerJobLimit: "),
        ({"per_job": "cpu=0"}, "AssocMaxCpuPerJobLimit: "),
        ({"jobs": "0(0)", "wall": 2}, None),
    ],
)
def test_job_above_limit_per_job_is_left_to_slurm(limits: dict[str, Any], why: str | None) -> None:
    """An operator may have set its request: Slurm then starts it, and a held job would wait for ever."""
    scene = Scene().only("first").with_job("first", account="lab", user_name="alice", qos="normal", time_limit=2)
    seen = observed(scene, state=state(**limits))
    assert len(seen.pending) + len(seen.unmanaged) == 1
    assert [words(each.reason).startswith(str(why)) for each in seen.unmanaged] == ([True] if why else [])


def test_user_unknown_on_this_host_has_limits_of_association() -> None:
    """The association manager prints `UserName=alice(1001)`, so no name of this host is needed."""
    scene = Scene().only("first", "after").with_job("first", account="lab", user_id=1001, user_name="1001", qos="")
    scene.job("after").update(account="lab", user_id=1002, user_name="bob", qos="", dependencies=None)
    seen = observed(scene, state=state(jobs="1(0)"))
    assert [pending.job.user for pending in seen.pending] == ["alice", "bob"]
    assert seen.limits is not None
    limits = [[check.reason for check in each.checks] for each in seen.limits.standings.values()]
    assert limits == [["AssocMaxJobsLimit"], []]


def observed(scene: Scene, **texts: str) -> Observation:
    asking = PlayedAsking()
    lab = {"state": state(), "shares": "ID|FairShare\n3|0.500000\n"}
    asking.ready = [BackgroundCommandOutput(ALL | lab | texts, {})]
    return SlurmBackend(Played(scene), policy=PeriodicSitePolicyReader(asking, Clock())).observe()


@pytest.fixture
def scene() -> Scene:
    """The recorded cluster as if it had accounting: every job is of account lab and QOS normal."""
    scene = Scene()
    scene.tables["jobs"]["fields"] = list(dict.fromkeys([*scene.tables["jobs"]["fields"], "nice", "accrue_time"]))
    for record in scene.rows["jobs"]:
        record |= {"account": "lab", "qos": "normal", "nice": 0, "accrue_time": None}
    return scene


def first_of(scene: Scene, seen: Observation, name: str) -> Any:
    number = scene.job(name)["id"]
    return next(p.job for p in seen.pending if p.job.id == number)


def test_computes_priority_like_slurm(scene: Scene) -> None:
    record = scene.only("six").job("six")
    config = CONFIG.replace("CPU=100,GRES/gpu=300", "(null)").replace("= 500\n", "= 0\n")
    seen = observed(scene, config=config)
    job = first_of(scene, seen, "six")
    age = 1000 * (scene.now_s - record["submit_time"]) / (7 * 86_400)
    # fair share 10000 * 0.5, partition 200 * 1/10, qos 2000 * 10/10
    assert (job.priority, job.tier, job.qos) == (int(age + 5000 + 20 + 2000), 1, "normal")


def test_job_has_priority_of_planned_partition(scene: Scene) -> None:
    """`fast` has ten times the job factor of `main`."""
    scene.only("several").job("several")["partition"] = "main,fast"
    scene.partition("short").update(name="fast", nodes="n[1-4]")
    found, config = {}, CONFIG.replace("CPU=100,GRES/gpu=300", "(null)")
    for tier in (0, 5):
        scene.partition("fast")["priority_tier"] = tier
        job = first_of(scene, observed(scene, config=config), "several")
        found[job.queue] = job.tier, job.priority
    assert (found["main"][0], found["fast"][0], found["fast"][1]) == (1, 5, found["main"][1] + 200 * 9 // 10)


def test_subtracts_nice(scene: Scene) -> None:
    plain = first_of(scene.only("six"), observed(scene), "six").priority
    assert first_of(scene.with_job("six", nice=300), observed(scene), "six").priority == plain - 300


def test_association_limit_delays_jobs_and_counts_running_ones(scene: Scene) -> None:
    for record in scene.rows["jobs"]:
        record["state"] = "COMPLETING" if record["id"] == 150 else record["state"]
    running = [r for r in scene.rows["jobs"] if r["state"] == "RUNNING" and r["user_name"] == "alice"]
    assert len(running) == 3
    for most, reason in ((3, "AssocMaxJobsLimit"), (4, None)):
        seen = observed(scene, state=state(jobs=f"{most}(1)"), qos="Name|Priority|Flags\nnormal|1|\n")
        assert seen.limits is not None
        alice = next(p.job for p in seen.pending if p.job.user == "alice")
        check = first_exceeded_limit(seen.limits.standings[alice.id], seen.limits.used)
        assert (check.reason if check else None) == reason


@pytest.mark.parametrize(
    ("begins_s", "held", "reason"),
    [
        (3000, "matlab:2", "Licenses"),
        (3000, "matlab:1", None),
        (3000, "other:9", None),
        (3899, "matlab:2", "Licenses"),
        (3900, "matlab:2", None),
        (1, "matlab:2", "Licenses"),
        (0, "matlab:2", None),
        (-1, "matlab:2", None),
    ],
)
def test_job_leaves_licenses_of_future_reservations_free(
    scene: Scene, begins_s: int, held: str, reason: str | None
) -> None:
    """It runs for an hour; until the next ranking, five minutes later, it may start.

    The licenses of a reservation that has begun are not among the free ones, and must not count twice.
    """
    record = scene.job("first")
    record.update(licenses=["matlab:2"], time_limit=60)
    span = {"start_time": scene.now_s + begins_s, "end_time": scene.now_s + 90000}
    scene.rows["reservations"] = [{**scene.rows["reservations"][0], "nodes": None, "licenses": [held], **span}]
    shown = "LicenseName=matlab Total=3 Used=0 Free=3 Reserved=0\n"
    seen = observed(scene, licenses=shown, qos="Name|Priority|Flags\nnormal|1|\n")
    assert seen.limits is not None
    check = first_exceeded_limit(seen.limits.standings[record["id"]], seen.limits.used)
    assert (check.reason if check else None) == reason


def test_observes_jobs_if_policy_cannot_be_read(scene: Scene) -> None:
    """Or if there is no reader of the policy."""
    asking = PlayedAsking()
    asking.ready = [BackgroundCommandOutput({}, {"config": "scontrol: refused"})]
    seen = SlurmBackend(Played(scene), policy=PeriodicSitePolicyReader(asking, Clock())).observe()
    plain = SlurmBackend(Played(scene)).observe()
    assert (seen.limits, plain.limits, {pending.job.priority for pending in plain.pending}) == (None, None, {0})
    assert (len(seen.pending), "scontrol: refused" in seen.notes[0]) == (len(plain.pending), True)


def test_unchanged_job_is_same_object_in_next_reading(scene: Scene) -> None:
    asking = PlayedAsking()
    asking.ready = [BackgroundCommandOutput(ALL | {"state": state()}, {})]
    scene.job("several")["partition"] = "main"
    backend = SlurmBackend(Played(scene), policy=PeriodicSitePolicyReader(asking, Clock()))
    before, after = backend.observe(), backend.observe()
    assert all(a.job is b.job for a, b in zip(before.pending, after.pending, strict=True))


def test_applies_new_policy_only_after_ranking_all_jobs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority_ranking, "RANKED_PER_CYCLE", 10)
    scene.job("several")["partition"] = "main"
    texts = ALL | {"state": state(), "shares": "ID|FairShare\n3|0.500000\n"}
    asking, clock = PlayedAsking(), Clock()
    asking.ready = [
        BackgroundCommandOutput(texts, {}),
        BackgroundCommandOutput(texts | {"shares": "ID|FairShare\n3|0.000000\n"}, {}),
    ]
    backend = SlurmBackend(Played(scene), policy=PeriodicSitePolicyReader(asking, clock))
    rounds = []
    for _ in range(8):
        rounds.append([p.job.priority for p in backend.observe().pending])
        clock.now_s += 301
    (changed,) = [at for at in range(1, len(rounds)) if rounds[at] != rounds[at - 1]]
    assert (len(rounds[0]) > 20, changed > 2) == (True, True)
    assert [before - 5000 for before in rounds[0]] == rounds[-1]


def test_basic_ranks_by_arrival(scene: Scene) -> None:
    seen = observed(scene, config=CONFIG.replace("priority/multifactor", "priority/basic"))
    ranks = [p.job.priority for p in seen.pending]
    assert ranks == sorted(ranks, reverse=True)


def test_age_starts_at_submission_with_accrue_always() -> None:
    record = a_slurm_job(submit_time=100, eligible_time=120, priority=0)
    always = CONFIG.replace("PriorityFlags           =", "PriorityFlags = ACCRUE_ALWAYS")
    rules = parse_site_policy(ALL | {"config": always}).policy.priority
    assert compute_age_start_s(record, rules, JobEligibleTimes()) == 100


MACHINE = ClusterSize(4, 32)
RECORD = a_slurm_job(
    7, priority=2605, partition="main", account="lab", user_name="alice", qos="normal", cpus=8, time_limit=60,
    submit_time=1, accrue_time=1000, requested_tres={"cpu": 8},
)  # fmt: skip
SPRIO = "7 {priority} 0 0 {fair_share} 125 20 2000 0 0 cpu=25.00"


def compared(**shown: float) -> Any:
    reading = parse_site_policy(ALL | {"state": state(), "shares": "ID|FairShare\n3|0.043500\n"})
    text = SPRIO.format(**{"priority": 2605, "fair_share": 435} | shown)
    return compare_with_sprio(parse_sprio(text), [RECORD], reading, MACHINE, 1000)


@pytest.mark.parametrize(
    ("shown", "differences"),
    [
        ({}, []),
        ({"priority": 3170, "fair_share": 1000},
         ["job 7: 2,605 instead of 3,170, mainly because fair_share is 435.0 instead of 1,000.0"]),
    ],
)  # fmt: skip
def test_reports_difference_to_sprio_with_its_factor(shown: dict[str, float], differences: list[str]) -> None:
    found = compared(**shown)
    assert (found.jobs, [str(each) for each in found.differences]) == (1, differences)


def test_ignores_jobs_that_sprio_lists_per_partition() -> None:
    line = SPRIO.format(priority=1, fair_share=1)
    assert parse_sprio(f"{line}\n{line}\nJOBID nonsense\n") == {}
    assert parse_sprio(line)[7].tres == 25.0


def test_doctor_reports_what_it_compared(scene: Scene) -> None:
    reading = parse_site_policy(ALL)
    checks = {check.name: check for check in run_policy_checks(reading, {}, "", scene.read())}
    assert checks["site policy"].detail == "multifactor, 5 associations, 2 QOS, limits enforced"
    assert "not compared: every pending job" in checks["priorities"].detail
    assert checks["limits"].detail == "not modelled: UsageThreshold=0.250000 of QOS part-fast"
    assert not any(check.required for check in checks.values())


def test_doctor_reports_why_policy_is_missing(scene: Scene) -> None:
    (check,) = run_policy_checks(None, {"config": "scontrol: refused"}, "", scene.read())
    assert (check.ok, check.detail) == (False, "scontrol: refused")


def test_doctor_reports_jobs_without_association(scene: Scene) -> None:
    reading = parse_site_policy(ALL | {"state": state()})
    scene.only("first", "after").job("first").update(account="lab", user_name="alice", partition="main,other")
    for account, detail in (("lab", "not found for pending jobs of user bob in account lab"), (None, "known for")):
        scene.job("after").update(account=account, user_name="bob")
        checks = {check.name: check for check in run_policy_checks(reading, {}, "", scene.read())}
        assert checks["associations"].detail.startswith(detail)


def test_doctor_warns_of_partly_managed_partitions(scene: Scene) -> None:
    assert not check_partitions_mixing_unmanaged_jobs(scene.only("six").read()).detail.startswith("with both held")
    record = scene.job("six")
    scene.rows["jobs"] = [{**record, "priority": 0}, {**record, "id": 99_999, "priority": 500}]
    assert check_partitions_mixing_unmanaged_jobs(scene.read()).detail.startswith("with both held and unmanaged jobs: ")
