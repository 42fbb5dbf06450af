"""Slurm's output, parsed into a snapshot of a site's policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpsched.errors import InvalidValue
from cpsched.site.accounts import AccountingLimits
from cpsched_bridge.adapters.slurm.policy.site_policy_parsing import (
    PartitionPriorityProperties,
    UnreadablePolicyOutput,
    parse_site_policy,
)
from cpsched_sim.site.fair_share import FairShareTree, fair_tree_factors
from tests.unit.bridge.adapters.slurm.policy.replies import ALL, CONFIG, SHARES_TEXT, STATE, association


def test_parses_weights_and_flags() -> None:
    rules = parse_site_policy(ALL | {"config": CONFIG.replace("PriorityFlags           =", "PriorityFlags = ACCRUE_ALWAYS,"  # noqa: E501
                                                       "SMALL_RELATIVE_TO_TIME,NO_NORMAL_QOS")}).rules  # fmt: skip
    weights = rules.weights
    assert (weights.age, weights.fair_share, weights.job_size, weights.partition, weights.qos) == (
        1000, 10_000, 500, 200, 2000,
    )  # fmt: skip
    assert weights.tres == {"cpu": 100.0, "gres/gpu": 300.0}
    assert weights.max_age_s == 7 * 86_400
    assert (rules.always_accrues, weights.size_over_time, weights.raw_qos, weights.raw_tres) == (
        True,
        True,
        True,
        False,
    )


def test_distinguishes_basic_from_multifactor() -> None:
    assert parse_site_policy(ALL).rules.kind == "multifactor"
    assert (
        parse_site_policy(ALL | {"config": CONFIG.replace("priority/multifactor", "priority/basic")}).rules.kind
        == "basic"
    )


def test_parses_partitions() -> None:
    found = parse_site_policy(ALL)
    present = {"cpu": 32, "mem": 64_000, "node": 4, "billing": 32, "gres/gpu": 4}
    assert found.partitions["main"] == PartitionPriorityProperties(1, 1, "", present)
    assert found.partitions["fast"].qos == "part-fast"
    assert found.partitions["fast"].tier == 5
    assert found.highest_partition_factor == 10
    assert found.site.partition_qos == {"fast": "part-fast"}


def test_parses_associations_with_parents_first() -> None:
    accounts = parse_site_policy(ALL).site.accounts
    ada, bob = accounts.find("physics", "ada"), accounts.find("biology", "bob")
    assert ada is not None
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
    ada = found.site.accounts.find("physics", "ada")
    assert found.spent.association_minutes[ada]["cpu"] == 40
    assert found.spent.association_wall_min[ada] == 12.5
    assert found.spent.qos_minutes["normal"] == {"cpu": 77, "mem": 0}
    assert found.spent.qos_wall_min["normal"] == 33.25


def test_reads_qos_and_reports_unmodelled_settings() -> None:
    found = parse_site_policy(ALL)
    normal, fast = found.site.qos["normal"], found.site.qos["part-fast"]
    assert normal.limits == AccountingLimits(tres_a_user={"cpu": 16}, jobs_a_user=2)
    assert (fast.over_partition, fast.usage_factor, fast.limit_factor) == (True, 0.5, 2.0)
    assert fast.limits == AccountingLimits(jobs_a_user=3, wall_min=1440)
    assert found.unmodelled == ("UsageThreshold=0.250000 of QOS part-fast",)


@pytest.mark.parametrize("shares", [ALL["shares"], SHARES_TEXT])
def test_reads_fair_share_factors_from_json_and_text(shares: str) -> None:
    found = parse_site_policy(ALL | {"shares": shares})
    accounts = found.site.accounts
    assert found.fair_share[accounts.find("physics", "ada")] == 0.25
    assert found.fair_share[accounts.find("biology", "bob")] == 1.0


@pytest.mark.parametrize(
    ("enforced", "limits_hold", "safe"),
    [("associations,limits,qos", True, False), ("associations,limits,safe", True, True), ("associations", False, False),
     ("none", False, False), ("all", True, False), ("safe", True, True), ("limits", True, False), ("", False, False)],
)  # fmt: skip
def test_reads_whether_limits_are_enforced(enforced: str, limits_hold: bool, safe: bool) -> None:
    site = parse_site_policy(ALL | {"config": CONFIG.replace("associations,limits,qos", enforced)}).site
    assert (site.limits_hold, site.safe) == (limits_hold, safe)


def test_ranks_without_limits_if_accounting_is_missing() -> None:
    found = parse_site_policy({"config": CONFIG, "partitions": ALL["partitions"]})
    assert not found.site.limits_hold
    assert found.partitions["fast"].tier == 5


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config", "no configuration", "PriorityType is missing"),
        ("config", CONFIG.replace("CPU=100", "CPU=much"), "'CPU=much' must have the form NAME=WEIGHT"),
        ("state", "slurm_load_assoc_mgr_info error", "the root account is missing"),
        ("shares", '{"shares": []}', "sshare --json: TypeError"),
        ("shares", "{", "sshare --json: "),
        ("shares", "Account|User\nroot|\n", "column FairShare is missing"),
    ],
)
def test_rejects_reply_of_unknown_form(name: str, text: str, message: str) -> None:
    with pytest.raises((UnreadablePolicyOutput, InvalidValue), match=message):
        parse_site_policy(ALL | {name: text})


def left_out(**texts: str) -> tuple[list[str], list[str]]:
    """What cannot be used of the site with other texts, and whose jobs are left to Slurm for it."""
    policy_snapshot = parse_site_policy(ALL | texts)
    jobs = [("ada", "physics", "main", "normal"), ("bob", "biology", "fast", "normal"), ("eve", "art", "main", "quick")]
    whose = [
        job[0]
        for job in jobs
        if policy_snapshot.trouble.find_unusable_object_of_job(*job, policy_snapshot.site) is not None
    ]
    return [str(each) for each in policy_snapshot.trouble.list_objects()], whose


PART_FAST = "QOS=part-fast(1) UsageRaw=240.000000 GrpJobs=N(1) GrpJobsAccrue=N(0) GrpSubmitJobs=N(1) GrpWall=N(33.25)"
NO_NUMBER = "must be a whole number"


@pytest.mark.parametrize(
    ("name", "before", "after", "told", "whose"),
    [
        ("state", "", "", [], []),
        ("state", "cpu=64(", "cpu=lots(",
         [f"association account physics: GrpTRES cannot be read: lots: {NO_NUMBER}"], ["ada"]),
        ("state", "MaxJobs=2(1)", "MaxJobs=two(1)",
         [f"association user ada in account physics: MaxJobs cannot be read: two(1): {NO_NUMBER}"], ["ada"]),
        ("state", "ClusterName=lab Account=biology UserName= ", "ClusterName=lab UserName= ",
         ["association account : ParentAccount cannot be read: root(1)",
          "association user bob in account biology: ParentAccount cannot be read"], ["bob"]),
        ("state", PART_FAST, "QOS=part-fast(1) GrpWall=N",
         ["qos part-fast: GrpWall cannot be read: N: must be LIMIT(USED)"], ["bob"]),
        ("qos", "cpu=16", "cpu=?", ["qos normal: MaxTRESPU cannot be read: "], ["ada", "bob"]),
        ("partitions", "cpu=32", "cpu=?",
         [f"partition main: tres cpu cannot be read: ?: {NO_NUMBER}, optionally with K, M, G or T"], ["ada", "eve"]),
        ("shares", '"number": 0.25', '"number": "much"',
         ["association user ada in account physics: FairShare cannot be read: "], ["ada"]),
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
        ["qos quick: Flags cannot be read: sacctmgr prints no value"],
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
    at = found.site.accounts.find("my lab", "a (b)")
    assert at is not None
    above = found.site.accounts.associations[at].parent
    assert found.site.accounts.associations[at].limits.tres == {"gres/gpu:1g.10gb+me": 2}
    assert found.spent.association_minutes[above] == {"cpu": 40, "gres/gpu:1g.10gb+me": 7, "mem": 0}
    assert found.trouble.list_objects() == ()


RECORDED = Path(__file__).parents[5] / "data" / "slurm" / "policy"
"""What Slurm 26.05.5 of the test cluster printed, with twenty jobs of alice running."""


def recorded(shares: str) -> dict[str, str]:
    files = {"config": "config.txt", "partitions": "partitions.txt", "state": "state.txt", "qos": "qos.txt"}
    return {name: (RECORDED / file).read_text() for name, file in {**files, "shares": shares}.items()}


@pytest.mark.parametrize("shares", ["shares.json", "shares.txt"])
def test_parses_recorded_slurm_replies(shares: str) -> None:
    found = parse_site_policy(recorded(shares))
    accounts = found.site.accounts
    alice = accounts.find("lab", "alice")
    assert [accounts.associations[at].label for at in accounts.association_chain(alice)] == [
        "user alice in account lab", "account lab", "account root",
    ]  # fmt: skip
    assert found.rules.always_accrues
    assert found.rules.weights.age == 1000
    assert found.fair_share[alice] == 0.2
    assert found.spent.association_minutes[alice]["cpu"] == 99
    assert {name: qos.limits for name, qos in found.site.qos.items()} == {
        "normal": AccountingLimits(),
        "pair": AccountingLimits(jobs_a_user=2),
        "cores": AccountingLimits(tres_a_user={"cpu": 16}),
        "quick": AccountingLimits(wall_min=2),
    }
    assert found.partitions["gpu"].tres["gres/gpu"] == 4
    assert found.unmodelled == ()


def test_fair_tree_matches_recorded_slurm_factors() -> None:
    found = parse_site_policy(recorded("shares.txt"))
    tree = FairShareTree.from_accounts(found.site.accounts)
    used = {"alice": 5949.85, "bob": 49.94}
    usage = [used.get(row.user, 0.0) for row in found.site.accounts.associations]
    factors = fair_tree_factors(tree, usage)
    assert {at: factors[at] for at in found.fair_share} == pytest.approx(found.fair_share)


def configured(**settings: str) -> dict[str, str]:
    """The replies with other settings: a line is replaced, or added where there is none."""
    lines = [line for line in CONFIG.splitlines() if line.partition("=")[0].strip() not in settings]
    return ALL | {"config": "\n".join([*lines, *(f"{name} = {value}" for name, value in settings.items())])}


@pytest.mark.parametrize(
    ("flags", "raw"),
    [
        ("", (False, False, False, False)),
        ("NO_NORMAL_PART", (True, False, False, False)),
        ("NO_NORMAL_QOS", (False, True, False, False)),
        ("NO_NORMAL_ASSOC", (False, False, True, False)),
        ("NO_NORMAL_TRES", (False, False, False, True)),
        ("NO_NORMAL_ALL", (True, True, True, True)),
        ("NO_NORMAL_QOS,NO_NORMAL_TRES", (False, True, False, True)),
    ],
)
def test_reads_which_factors_are_raw(flags: str, raw: tuple[bool, ...]) -> None:
    found = parse_site_policy(configured(PriorityFlags=flags)).rules
    weights = found.weights
    assert (weights.raw_partition, weights.raw_qos, weights.raw_association, weights.raw_tres) == raw
    assert (weights.size_over_time, found.always_accrues) == (False, False)


@pytest.mark.parametrize(
    ("said", "small"),
    [("Yes", True), ("YES", True), ("1", True), ("true", True), ("No", False), ("0", False), ("", False)],
)
def test_reads_favor_small_setting(said: str, small: bool) -> None:
    assert parse_site_policy(configured(PriorityFavorSmall=said)).rules.weights.favor_small is small


@pytest.mark.parametrize(
    ("settings", "age", "fair_share", "association", "max_age_s", "period_s"),
    [
        ({}, 1000, 10_000, 0, 7 * 86_400, 300),
        ({"PriorityMaxAge": "1-00:00:00", "PriorityCalcPeriod": "00:01:00"}, 1000, 10_000, 0, 86_400, 60),
        ({"PriorityMaxAge": "(null)", "PriorityCalcPeriod": "(null)"}, 1000, 10_000, 0, 7 * 86_400, 300),
        ({"PriorityWeightAge": "(null)", "PriorityWeightAssoc": "7"}, 0, 10_000, 7, 7 * 86_400, 300),
        ({"PriorityWeightFairShare": "(null)", "PriorityWeightFairshare": "3"}, 1000, 3, 0, 7 * 86_400, 300),
        ({"PriorityWeightFairShare": "5", "PriorityWeightFairshare": "3"}, 1000, 5, 0, 7 * 86_400, 300),
    ],
)
def test_uses_settings_or_slurm_defaults(
    settings: dict[str, str], age: int, fair_share: int, association: int, max_age_s: int, period_s: int
) -> None:
    found = parse_site_policy(configured(**settings))
    weights = found.rules.weights
    assert (weights.age, weights.fair_share, weights.association) == (age, fair_share, association)
    assert (weights.max_age_s, found.period_s) == (max_age_s, period_s)


def test_reports_unmodelled_settings_if_limits_are_enforced() -> None:
    odd = {"state": STATE.replace("MaxJobsAccrue= ", "MaxJobsAccrue=3 ", 1)}
    words = "UsageThreshold=0.250000 of QOS part-fast"
    found = parse_site_policy(ALL | odd).unmodelled
    assert len(found) == 2
    assert found[0].startswith("MaxJobsAccrue")
    assert found[1] == words
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
        ("PartitionName=x", PartitionPriorityProperties(1, 1, "", {})),
        ("PartitionName=x QoS=(null) TRES=(null)", PartitionPriorityProperties(1, 1, "", {})),
        ("PartitionName=x PriorityTier=7 PriorityJobFactor=0 TRES=N/A", PartitionPriorityProperties(7, 0, "", {})),
        ("PartitionName=x QoS=q PriorityTier=many TRES=cpu=3", PartitionPriorityProperties(0, 1, "q", {"cpu": 3})),
    ],
)
def test_missing_partition_settings_have_slurm_defaults(line: str, found: PartitionPriorityProperties) -> None:
    seen = parse_site_policy(ALL | {"partitions": f"a line without a name\n{line}"})
    assert seen.partitions == {"x": found}
    assert seen.highest_partition_factor == found.factor
    assert parse_site_policy(ALL | {"partitions": ""}).highest_partition_factor == 1


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
    found = shares(factor)
    assert list(found.values()) == ([] if value is None else [value])


@pytest.mark.parametrize(("said", "value"), [("0.5", 0.5), (" 0.5", 0.5), ("0", 0.0), ("", None), ("none", None)])
def test_reads_fair_share_factor_from_text(said: str, value: float | None) -> None:
    found = parse_site_policy(ALL | {"shares": f"ID|FairShare\n 3|{said}\n"}).fair_share
    assert list(found.values()) == ([] if value is None else [value])
    assert parse_site_policy(ALL | {"shares": ""}).fair_share == {}


def test_missing_state_means_no_fair_share_and_no_usage() -> None:
    found = parse_site_policy(ALL | {"state": ""})
    assert (found.site.limits_hold, found.fair_share, found.unmodelled, found.period_s) == (False, {}, (), 300)
    assert found.spent.qos_minutes == {}


def test_ignores_duplicate_and_orphan_accounts() -> None:
    more = [
        association("physics", id=77, parent="root(1)"),
        association("lost", id=78, parent="nowhere(9)"),
        association("root", id=79, parent="physics(2)"),
    ]
    accounts = parse_site_policy(ALL | {"state": "\n".join([STATE, *more])}).site.accounts
    named = sorted((each.account, each.user) for each in accounts.associations)
    assert named == [("biology", ""), ("biology", "bob"), ("physics", ""), ("physics", "ada"), ("root", "")]


@pytest.mark.parametrize(
    ("said", "spent"), [("N(12.50)", 12.5), ("60(7)", 7.0), ("N", 0.0), ("", 0.0), ("N(none)", 0.0)]
)
def test_reads_wall_time_usage_in_brackets(said: str, spent: float) -> None:
    text = STATE.replace("GrpWall=N(12.50)", f"GrpWall={said}").replace("GrpWall=N(33.25)", f"GrpWall={said}")
    found = parse_site_policy(ALL | {"state": text}).spent
    assert set(found.association_wall_min.values()) == set(found.qos_wall_min.values()) == {spent}


def test_counts_licences_that_jobs_may_hold() -> None:
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
    assert parse_site_policy(ALL | {"licenses": text}).site.licenses == expected
    assert parse_site_policy(ALL | {"licenses": text, "state": ""}).site.licenses == expected
    assert parse_site_policy(ALL).site.licenses == {}
