"""Slurm's output, parsed into a snapshot of a site's policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpsched.errors import InvalidValue, UnreadableOutput
from cpsched.site.accounts import AccountingLimits
from cpsched.site.multifactor_priority import PriorityPolicy, PriorityWeights
from cpsched.site.site_policy import PartitionPolicy
from cpsched.slurm_text.site_policy import parse_site_policy
from cpsched_sim.site.fair_share import FairShareTree, fair_tree_factors
from tests.slurm_replies import ALL, CONFIG, SHARES_TEXT, STATE, association


def configured(**settings: str) -> dict[str, str]:
    """The replies with other settings: a line is replaced, or added where there is none."""
    lines = [line for line in CONFIG.splitlines() if line.partition("=")[0].strip() not in settings]
    return ALL | {"config": "\n".join([*lines, *(f"{name} = {value}" for name, value in settings.items())])}


WEIGHTS = PriorityWeights(
    age=1000, fair_share=10_000, job_size=500, partition=200, qos=2000, tres={"cpu": 100.0, "gres/gpu": 300.0}
)
RAW = ("raw_partition", "raw_qos", "raw_association", "raw_tres")


@pytest.mark.parametrize(
    ("settings", "rules", "weights"),
    [
        ({}, {}, {}),
        ({"PriorityType": "priority/basic"}, {"kind": "basic"}, {}),
        ({"PriorityFlags": "ACCRUE_ALWAYS,SMALL_RELATIVE_TO_TIME,NO_NORMAL_QOS"},
         {"always_accrues": True}, {"size_over_time": True, "raw_qos": True}),
        ({"PriorityFlags": "NO_NORMAL_PART"}, {}, {"raw_partition": True}),
        ({"PriorityFlags": "NO_NORMAL_QOS"}, {}, {"raw_qos": True}),
        ({"PriorityFlags": "NO_NORMAL_ASSOC"}, {}, {"raw_association": True}),
        ({"PriorityFlags": "NO_NORMAL_TRES"}, {}, {"raw_tres": True}),
        ({"PriorityFlags": "NO_NORMAL_ALL"}, {}, dict.fromkeys(RAW, True)),
        ({"PriorityFlags": "NO_NORMAL_QOS,NO_NORMAL_TRES"}, {}, {"raw_qos": True, "raw_tres": True}),
        *(({"PriorityFavorSmall": said}, {}, {"favor_small": True}) for said in ("Yes", "YES", "1", "true")),
        *(({"PriorityFavorSmall": said}, {}, {}) for said in ("No", "0", "")),
        ({"PriorityMaxAge": "1-00:00:00", "PriorityCalcPeriod": "00:01:00"}, {"period_s": 60}, {"max_age_s": 86_400}),
        ({"PriorityMaxAge": "(null)", "PriorityCalcPeriod": "(null)"}, {}, {}),
        ({"PriorityWeightAge": "(null)", "PriorityWeightAssoc": "7"}, {}, {"age": 0, "association": 7}),
        ({"PriorityWeightFairShare": "(null)", "PriorityWeightFairshare": "3"}, {}, {"fair_share": 3}),
        ({"PriorityWeightFairShare": "5", "PriorityWeightFairshare": "3"}, {}, {"fair_share": 5}),
    ],
)  # fmt: skip
def test_reads_rules_of_priority_or_slurm_defaults(
    settings: dict[str, str], rules: dict[str, Any], weights: dict[str, Any]
) -> None:
    expected = replace(PriorityPolicy(weights=replace(WEIGHTS, **weights)), **rules)
    assert parse_site_policy(configured(**settings)).policy.priority == expected


def test_parses_partitions() -> None:
    found = parse_site_policy(ALL).policy
    present = {"cpu": 32, "mem": 64_000, "node": 4, "billing": 32, "gres/gpu": 4}
    assert (found.partitions["main"], found.partitions["fast"].qos) == (PartitionPolicy(1, 1, "", present), "part-fast")
    assert (found.partitions["fast"].tier, found.highest_partition_factor) == (5, 10)


def test_parses_associations_with_parents_first() -> None:
    accounts = parse_site_policy(ALL).policy.accounts
    ada, bob = accounts.find("physics", "ada"), accounts.find("biology", "bob")
    assert bob is not None
    assert [accounts.associations[at].account for at in accounts.association_chain(ada)] == [
        "physics",
        "physics",
        "root",
    ]
    assert accounts.associations[ada].limits == AccountingLimits(jobs=2, wall_min=120, tres={"cpu": 8})
    assert accounts.associations[bob].shares is None
    assert accounts.associations[accounts.association_chain(ada)[1]].limits == AccountingLimits(
        group_tres={"cpu": 64}, group_tres_minutes={"cpu": 100}
    )
    assert accounts.highest_priority == 40


def test_reads_usage_in_brackets_except_in_user_limits() -> None:
    found = parse_site_policy(ALL)
    ada = found.policy.accounts.find("physics", "ada")
    assert (found.usage.association_minutes[ada]["cpu"], found.usage.association_wall_min[ada]) == (40, 12.5)
    assert (found.usage.qos_minutes["normal"], found.usage.qos_wall_min["normal"]) == ({"cpu": 77, "mem": 0}, 33.25)


def test_reads_qos_and_reports_unmodelled_settings() -> None:
    found = parse_site_policy(ALL)
    normal, fast = found.policy.qos["normal"], found.policy.qos["part-fast"]
    assert normal.limits == AccountingLimits(tres_a_user={"cpu": 16}, jobs_a_user=2)
    assert (fast.over_partition, fast.usage_factor, fast.limit_factor) == (True, 0.5, 2.0)
    assert fast.limits == AccountingLimits(jobs_a_user=3, wall_min=1440)
    assert found.unmodelled == ("UsageThreshold=0.250000 of QOS part-fast",)


@pytest.mark.parametrize("shares", [ALL["shares"], SHARES_TEXT])
def test_reads_fair_share_factors_from_json_and_text(shares: str) -> None:
    found = parse_site_policy(ALL | {"shares": shares})
    accounts = found.policy.accounts
    assert found.fair_share[accounts.find("physics", "ada")] == 0.25
    assert found.fair_share[accounts.find("biology", "bob")] == 1.0


@pytest.mark.parametrize(
    ("enforced", "limits_hold", "safe"),
    [("associations,limits,qos", True, False), ("associations,limits,safe", True, True), ("associations", False, False),
     ("none", False, False), ("all", True, True), ("safe", True, True), ("limits", True, False), ("", False, False)],
)  # fmt: skip
def test_reads_whether_limits_are_enforced(enforced: str, limits_hold: bool, safe: bool) -> None:
    site = parse_site_policy(ALL | {"config": CONFIG.replace("associations,limits,qos", enforced)}).policy
    assert (site.limits_hold, site.safe) == (limits_hold, safe)


def test_ranks_without_limits_if_accounting_is_missing() -> None:
    found = parse_site_policy({"config": CONFIG, "partitions": ALL["partitions"]})
    assert (found.policy.limits_hold, found.policy.partitions["fast"].tier) == (False, 5)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config", "no configuration", "PriorityType is missing"),
        ("config", CONFIG.replace("CPU=100", "CPU=much"), "PriorityWeightTRES=CPU=much: must be NAME=WEIGHT"),
        ("state", "slurm_load_assoc_mgr_info error", "the root account is missing"),
        ("shares", '{"shares": []}', "sshare --json: TypeError"),
        ("shares", "{", "sshare --json: "),
        ("shares", "Account|User\nroot|\n", "column FairShare is missing"),
    ],
)
def test_rejects_reply_of_unknown_form(name: str, text: str, message: str) -> None:
    with pytest.raises((UnreadableOutput, InvalidValue), match=message):
        parse_site_policy(ALL | {name: text})


def left_out(**texts: str) -> tuple[list[str], list[str]]:
    """What cannot be read of the site with other texts, and whose jobs depend on it."""
    reading = parse_site_policy(ALL | texts)
    jobs = [("ada", "physics", "main", "normal"), ("bob", "biology", "fast", "normal"), ("eve", "art", "main", "quick")]
    whose = [job[0] for job in jobs if reading.unreadable.find_object_of_job(*job, reading.policy) is not None]
    unreadable = reading.unreadable.list_objects()
    return [f"{each.kind} {each.name}: {each.field}={each.value}: {each.rule}" for each in unreadable], whose


PART_FAST = "QOS=part-fast(1) UsageRaw=240.000000 GrpJobs=N(1) GrpJobsAccrue=N(0) GrpSubmitJobs=N(1) GrpWall=N(33.25)"
NO_NUMBER = "must be a whole number"


@pytest.mark.parametrize(
    ("name", "before", "after", "told", "whose"),
    [
        ("state", "", "", [], []),
        ("state", "cpu=64(", "cpu=lots(",
         [f"association account physics: GrpTRES=lots: {NO_NUMBER}"], ["ada"]),
        ("state", "MaxJobs=2(1)", "MaxJobs=two(1)",
         [f"association user ada in account physics: MaxJobs=two(1): {NO_NUMBER}"], ["ada"]),
        ("state", "ClusterName=lab Account=biology UserName= ", "ClusterName=lab UserName= ",
         ["association account : ParentAccount=root: ",
          "association user bob in account biology: ParentAccount=: "], ["bob"]),
        ("state", PART_FAST, "QOS=part-fast(1) GrpWall=N",
         ["qos part-fast: GrpWall=N: must be LIMIT(USED)"], ["bob"]),
        ("qos", "cpu=16", "cpu=?", ["qos normal: MaxTRESPU=?: "], ["ada", "bob"]),
        ("partitions", "cpu=32", "cpu=?",
         [f"partition main: tres=: tres cpu=?: {NO_NUMBER}, optionally with K, M, G or T"], ["ada", "eve"]),
        ("partitions", "PriorityTier=5", "PriorityTier=many",
         [f"partition fast: priority_tier=: PriorityTier=many: {NO_NUMBER}"], ["bob"]),
        ("qos", "0.500000", "half", ["qos part-fast: UsageFactor=half: must be a number"], ["bob"]),
        ("state", "Priority=40", "Priority=4O",
         [f"association account biology: Priority=4O: {NO_NUMBER}"], ["bob"]),
        ("shares", '"number": 0.25', '"number": "much"',
         ["association user ada in account physics: FairShare={"], ["ada"]),
    ],
)  # fmt: skip
def test_unreadable_object_excludes_only_its_jobs(
    name: str, before: str, after: str, told: list[str], whose: list[str]
) -> None:
    assert before in ALL[name]
    found, left = left_out(**{name: ALL[name].replace(before, after)})
    assert len(found) == len(told)
    assert all(each.startswith(words) for each, words in zip(found, told, strict=True)), found
    assert left == whose


def test_qos_without_flags_excludes_its_jobs() -> None:
    assert left_out(qos=ALL["qos"] + "quick|3\n") == (
        ["qos quick: Flags=: sacctmgr prints no value"],
        ["eve"],
    )


def test_unreadable_unenforced_limits_exclude_no_job() -> None:
    config = CONFIG.replace("associations,limits,qos", "associations")
    broken = {"config": config, "state": STATE.replace("cpu=64(", "?("), "qos": ALL["qos"].replace("cpu=16", "cpu=?")}
    assert left_out(**broken) == ([], [])


def test_names_may_contain_blanks_brackets_and_signs() -> None:
    rows = [
        association("my lab", id=70, parent="root(1)", minutes="9"),
        association("my lab", "a (b)", 71, cpu="8", per_job="gres/gpu:1g.10gb+me=2"),
    ]
    state = "\n".join([STATE, *rows]).replace("GrpTRESMins=cpu=9(40)", "GrpTRESMins=cpu=9(40),gres/gpu:1g.10gb+me=N(7)")
    found = parse_site_policy(ALL | {"state": state})
    at = found.policy.accounts.find("my lab", "a (b)")
    assert at is not None
    above = found.policy.accounts.associations[at].parent
    assert found.policy.accounts.associations[at].limits.tres == {"gres/gpu:1g.10gb+me": 2}
    assert found.usage.association_minutes[above] == {"cpu": 40, "gres/gpu:1g.10gb+me": 7, "mem": 0}
    assert found.unreadable.list_objects() == ()


RECORDED = Path(__file__).parents[3] / "data" / "slurm" / "policy"
"""What Slurm 26.05.5 of the test cluster printed, with twenty jobs of alice running."""


def recorded(shares: str) -> dict[str, str]:
    files = {"config": "config.txt", "partitions": "partitions.txt", "state": "state.txt", "qos": "qos.txt"}
    return {name: (RECORDED / file).read_text() for name, file in {**files, "shares": shares}.items()}


@pytest.mark.parametrize("shares", ["shares.json", "shares.txt"])
def test_parses_recorded_slurm_replies(shares: str) -> None:
    found = parse_site_policy(recorded(shares))
    accounts = found.policy.accounts
    alice = accounts.find("lab", "alice")
    assert [accounts.associations[at].label for at in accounts.association_chain(alice)] == [
        "user alice in account lab", "account lab", "account root",
    ]  # fmt: skip
    assert found.policy.priority.always_accrues
    assert (found.policy.priority.weights.age, found.fair_share[alice]) == (1000, 0.2)
    assert found.usage.association_minutes[alice]["cpu"] == 99
    assert {name: qos.limits for name, qos in found.policy.qos.items()} == {
        "normal": AccountingLimits(),
        "pair": AccountingLimits(jobs_a_user=2),
        "cores": AccountingLimits(tres_a_user={"cpu": 16}),
        "quick": AccountingLimits(wall_min=2),
    }
    assert (found.policy.partitions["gpu"].tres["gres/gpu"], found.unmodelled) == (4, ())


def test_fair_tree_matches_recorded_slurm_factors() -> None:
    found = parse_site_policy(recorded("shares.txt"))
    tree = FairShareTree.from_accounts(found.policy.accounts)
    used = {"alice": 5949.85, "bob": 49.94}
    usage = [used.get(row.user, 0.0) for row in found.policy.accounts.associations]
    factors = fair_tree_factors(tree, usage)
    assert {at: factors[at] for at in found.fair_share} == pytest.approx(found.fair_share)


def test_reports_unmodelled_settings_if_limits_are_enforced() -> None:
    odd = {"state": STATE.replace("MaxJobsAccrue= ", "MaxJobsAccrue=3 ", 1)}
    words = "UsageThreshold=0.250000 of QOS part-fast"
    first, second = parse_site_policy(ALL | odd).unmodelled
    assert (first.partition(" ")[0], second) == ("MaxJobsAccrue", words)
    assert parse_site_policy(configured(AccountingStorageEnforce="associations") | odd).unmodelled == ()


def test_reports_each_unmodelled_setting_of_recorded_replies() -> None:
    """Limits and flags that are not modelled are named, also those of later releases. Harmless ones are not."""
    texts = recorded("shares.json")
    harmless = "DenyOnLimit,NoDecay,PartitionTimeLimit,RequiresReservation,UsageFactorSafe"
    texts["qos"] = texts["qos"].replace("pair|0||", f"pair|0|{harmless},NoReserve,Relative,LaterFlag|")
    texts["state"] = (
        texts["state"]
        .replace("UserName=alice(2001) ", "UserName=alice(2001) LaterText=7 MaxLaterTRES=cpu=N(4),mem=8(1) ")
        .replace("QOS=quick(4) ", "QOS=quick(4) GrpLaterJobs=2(0) MaxLaterWall= ")
    )
    texts["licenses"] = "LicenseName=disk Total=4 Used=0 Free=4 Reserved=0 Remote=no Nodes=n1 Mode=1\n"
    assert parse_site_policy(texts).unmodelled == (
        "MaxLaterTRES of user alice in account lab",
        "GrpLaterJobs of QOS quick",
        "flag NoReserve of QOS pair",
        "flag Relative of QOS pair",
        "flag LaterFlag of QOS pair",
        "license disk, whose jobs are left to Slurm",
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("PartitionName=x", PartitionPolicy(1, 1, "", {})),
        ("PartitionName=x QoS=(null) TRES=(null)", PartitionPolicy(1, 1, "", {})),
        ("PartitionName=x PriorityTier=7 PriorityJobFactor=0 TRES=N/A", PartitionPolicy(7, 0, "", {})),
    ],
)
def test_missing_partition_settings_have_slurm_defaults(line: str, found: PartitionPolicy) -> None:
    seen = parse_site_policy(ALL | {"partitions": f"a line without a name\n{line}"}).policy
    assert (seen.partitions, seen.highest_partition_factor) == ({"x": found}, found.factor)
    assert parse_site_policy(ALL | {"partitions": ""}).policy.highest_partition_factor == 1


def shares(factor: str) -> dict[int, float]:
    rows = f'{{"shares": {{"shares": [{{"id": 3, "fairshare": {{"factor": {factor}}}}}]}}}}'
    return dict(parse_site_policy(ALL | {"shares": rows}).fair_share)


@pytest.mark.parametrize(
    ("factor", "value"),
    [
        ("0.5", 0.5),
        ("0", 0.0),
        ("null", 0.0),
        ('{"set": true, "number": 0.5}', 0.5),
        ('{"set": false, "number": 0.5}', 0.0),
        ('{"number": 0.5}', 0.5),
        ('{"set": true}', 0.0),
        ("-1", None),
    ],
)
def test_reads_plain_or_wrapped_fair_share_factor(factor: str, value: float | None) -> None:
    assert list(shares(factor).values()) == ([] if value is None else [value])


@pytest.mark.parametrize(("said", "value"), [("0.5", 0.5), (" 0.5", 0.5), ("0", 0.0), ("", None), ("none", None)])
def test_reads_fair_share_factor_from_text(said: str, value: float | None) -> None:
    found = parse_site_policy(ALL | {"shares": f"ID|FairShare\n 3|{said}\n"}).fair_share
    assert list(found.values()) == ([] if value is None else [value])
    assert parse_site_policy(ALL | {"shares": ""}).fair_share == {}


def test_missing_state_means_no_fair_share_and_no_usage() -> None:
    found = parse_site_policy(ALL | {"state": ""})
    assert (found.policy.limits_hold, found.fair_share, found.unmodelled) == (False, {}, ())
    assert found.usage.qos_minutes == {}


def test_ignores_duplicate_and_orphan_accounts() -> None:
    more = [
        association("physics", id=77, parent="root(1)"),
        association("lost", id=78, parent="nowhere(9)"),
        association("root", id=79, parent="physics(2)"),
    ]
    accounts = parse_site_policy(ALL | {"state": "\n".join([STATE, *more])}).policy.accounts
    named = sorted((each.account, each.user) for each in accounts.associations)
    assert named == [("biology", ""), ("biology", "bob"), ("physics", ""), ("physics", "ada"), ("root", "")]


@pytest.mark.parametrize(
    ("said", "spent"), [("N(12.50)", 12.5), ("60(7)", 7.0), ("N", 0.0), ("", 0.0), ("N(none)", 0.0)]
)
def test_reads_wall_time_usage_in_brackets(said: str, spent: float) -> None:
    text = STATE.replace("GrpWall=N(12.50)", f"GrpWall={said}").replace("GrpWall=N(33.25)", f"GrpWall={said}")
    reading = parse_site_policy(ALL | {"state": text})
    rows = range(len(reading.policy.accounts.associations))
    assert {reading.usage.association_wall_min.get(at, 0.0) for at in rows} == {spent}
    assert {reading.usage.qos_wall_min.get(name, 0.0) for name in reading.policy.qos} == {spent}


def test_counts_licenses_that_jobs_may_hold() -> None:
    text = """
LicenseName=matlab Total=8 Used=2 Free=6 Reserved=1 Remote=no
LicenseName=flex@server Total=4 Used=0 Free=4 Reserved=0 Remote=yes
LicenseName=perNode Total=4 Used=0 Free=4 Reserved=0 Remote=no Mode=1
LicenseName=twice Total=4 Used=0 Free=4
LicenseName=twice Total=4 Used=0 Free=4
LicenseName=odd Total=4 Used=none Free=4
No licenses configured in Slurm.
"""
    expected = {"matlab": 7, "flex@server": 4}
    assert parse_site_policy(ALL | {"licenses": text}).policy.licenses == expected
    assert parse_site_policy(ALL | {"licenses": text, "state": ""}).policy.licenses == expected
    assert parse_site_policy(ALL).policy.licenses == {}
