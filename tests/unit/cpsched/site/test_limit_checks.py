"""Which limits a job counts against: a table of Slurm's rules, one site each."""

from __future__ import annotations

import pytest

from cpsched.errors import InvalidValue
from cpsched.site.accounts import AccountingLimits, Association, AssociationTree, Qos, SiteLimitPolicy
from cpsched.site.admission import first_exceeded_limit
from cpsched.site.limit_checks import JobLimitAttributes, JobLimitTable, LimitUsageMinutes
from cpsched.site.limit_reasons import reason_of

NONE = AccountingLimits()


def site(qos=NONE, part=None, root=NONE, account=NONE, user=NONE, safe=False, **of_qos):
    """root -> account lab -> user ada; her jobs have QOS normal, and partition main has one of its own if `part`."""
    known = {"normal": Qos("normal", limits=qos, **of_qos)}
    if part is not None:
        known["main-part"] = Qos("main-part", limits=part)
    rows = (
        Association("root", parent=-1, limits=root),
        Association("lab", parent=0, limits=account),
        Association("lab", "ada", parent=1, limits=user),
        Association("lab", "bob", parent=1),
    )
    return SiteLimitPolicy(AssociationTree(rows), known, {"main": "main-part"} if part is not None else {}, safe=safe)


def asks(user="ada", limit_min=60, **tres):
    amounts = {"cpu": 4, "node": 1, **{name.replace("_", "/"): amount for name, amount in tres.items()}}
    return JobLimitAttributes(user, "lab", "main", "normal", tuple(amounts.items()), limit_min)


def verdict(at, job, running=(), spent=None):
    """Slurm's reason name for a job beside running ones; None where it may start."""
    book = JobLimitTable(at, spent or LimitUsageMinutes())
    standing, others = book.limits_of(job), [book.limits_of(other) for other in running]
    if standing.barred:
        return standing.barred.partition(":")[0]
    check = first_exceeded_limit(standing, book.usage(others))
    return check.reason if check else None


TWO = (asks(), asks())
LIMITED = {"qos": "qos", "user": "user", "account": "account", "root": "root"}


@pytest.mark.parametrize(
    ("where", "limits", "job", "running", "expected"),
    [
        ("qos", AccountingLimits(group_jobs=2), asks(), TWO, "QOSGrpJobsLimit"),
        ("qos", AccountingLimits(group_jobs=3), asks(), TWO, None),
        ("qos", AccountingLimits(jobs_a_user=2), asks(), TWO, "QOSMaxJobsPerUserLimit"),
        ("qos", AccountingLimits(jobs_a_user=2), asks("bob"), TWO, None),
        ("qos", AccountingLimits(jobs_an_account=2), asks("bob"), TWO, "MaxJobsPerAccount"),
        ("qos", AccountingLimits(group_tres={"cpu": 11}), asks(), TWO, "QOSGrpCpuLimit"),
        ("qos", AccountingLimits(group_tres={"cpu": 12}), asks(), TWO, None),
        ("qos", AccountingLimits(tres_a_user={"gres/gpu": 1}), asks(gres_gpu=2), (), "QOSMaxGRESPerUser"),
        ("qos", AccountingLimits(tres_a_user={"gres/gpu": 0}), asks(), (), None),
        ("qos", AccountingLimits(tres_a_user={"cpu": 11}), asks("bob"), TWO, None),
        ("qos", AccountingLimits(tres_an_account={"node": 2}), asks("bob"), TWO, "MaxNodePerAccount"),
        ("qos", AccountingLimits(tres={"cpu": 3}), asks(), (), "QOSMaxCpuPerJobLimit"),
        ("qos", AccountingLimits(tres_a_node={"cpu": 3}), asks(node=2), (), None),
        ("qos", AccountingLimits(tres_a_node={"cpu": 3}), asks(), (), "QOSMaxCpuPerNode"),
        ("qos", AccountingLimits(least_tres={"cpu": 5}), asks(), (), "QOSMinCpuNotSatisfied"),
        ("qos", AccountingLimits(wall_min=59), asks(), (), "QOSMaxWallDurationPerJobLimit"),
        ("qos", AccountingLimits(wall_min=60), asks(), (), None),
        ("qos", AccountingLimits(tres_minutes={"cpu": 239}), asks(), (), "QOSMaxCpuMinutesPerJobLimit"),
        ("qos", AccountingLimits(group_running_minutes={"cpu": 719}), asks(), TWO, "QOSGrpCPURunMinutesLimit"),
        ("qos", AccountingLimits(group_running_minutes={"cpu": 720}), asks(), TWO, None),
        ("qos", AccountingLimits(running_minutes_a_user={"cpu": 719}), asks(), TWO, "MaxCpuRunMinsPerUser"),
        ("qos", AccountingLimits(running_minutes_a_user={"cpu": 719}), asks("bob"), TWO, None),
        ("qos", AccountingLimits(running_minutes_an_account={"cpu": 719}), asks("bob"), TWO, "MaxCpuRunMinsPerAccount"),
        ("user", AccountingLimits(jobs=2), asks(), TWO, "AssocMaxJobsLimit"),
        ("account", AccountingLimits(jobs=2), asks(), TWO, None),
        ("account", AccountingLimits(group_jobs=2), asks("bob"), TWO, "AssocGrpJobsLimit"),
        ("root", AccountingLimits(group_jobs=2), asks("bob"), TWO, "AssocGrpJobsLimit"),
        (
            "root",
            AccountingLimits(group_tres={"gres/gpu": 3}),
            asks(gres_gpu=2),
            (asks("bob", gres_gpu=2),),
            "AssocGrpGRES",
        ),
        ("account", AccountingLimits(group_tres={"mem": 1000}), asks(mem=1001), (), "AssocGrpMemLimit"),
        ("user", AccountingLimits(tres={"node": 1}), asks(node=2), (), "AssocMaxNodePerJobLimit"),
        ("user", AccountingLimits(tres_a_node={"mem": 500}), asks(mem=501), (), "AssocMaxMemPerNode"),
        ("user", AccountingLimits(tres_minutes={"cpu": 239}), asks(), (), "AssocMaxCpuMinutesPerJobLimit"),
        ("user", AccountingLimits(wall_min=59), asks(), (), "AssocMaxWallDurationPerJobLimit"),
        (
            "account",
            AccountingLimits(group_running_minutes={"cpu": 719}),
            asks("bob"),
            TWO,
            "AssocGrpCPURunMinutesLimit",
        ),
    ],
)
def test_a_limit_keeps_a_job_waiting_for_slurms_reason(where, limits, job, running, expected):
    assert verdict(site(**{where: limits}), job, running) == expected


def test_the_qos_of_a_partition_comes_before_that_of_the_job():
    at = site(
        part=AccountingLimits(tres_a_user={"cpu": 100}), qos=AccountingLimits(tres_a_user={"cpu": 1, "gres/gpu": 1})
    )
    assert verdict(at, asks()) is None
    assert verdict(at, asks(gres_gpu=2)) == "QOSMaxGRESPerUser"


def test_a_qos_may_come_before_that_of_the_partition():
    at = site(
        part=AccountingLimits(tres_a_user={"cpu": 100}),
        qos=AccountingLimits(tres_a_user={"cpu": 1}),
        over_partition=True,
    )
    assert verdict(at, asks()) == "QOSMaxCpuPerUserLimit"


@pytest.mark.parametrize(
    ("qos", "below"),
    [
        (AccountingLimits(group_jobs=10), {"root": AccountingLimits(group_jobs=0)}),
        (AccountingLimits(group_tres={"cpu": 99}), {"account": AccountingLimits(group_tres={"cpu": 1})}),
        (AccountingLimits(wall_min=90), {"user": AccountingLimits(wall_min=1)}),
        (AccountingLimits(jobs_a_user=5), {"user": AccountingLimits(jobs=0)}),
        (AccountingLimits(jobs_an_account=5), {"user": AccountingLimits(jobs=0)}),
        (AccountingLimits(tres={"cpu": 5}), {"user": AccountingLimits(tres={"cpu": 1})}),
        (
            AccountingLimits(group_running_minutes={"cpu": 9999}),
            {"root": AccountingLimits(group_running_minutes={"cpu": 1})},
        ),
    ],
)
def test_what_a_qos_sets_switches_the_same_limit_of_associations_off(qos, below):
    assert verdict(site(qos, **below), asks()) is None
    assert verdict(site(**below), asks()) is not None


@pytest.mark.parametrize(
    ("narrow", "wide", "safe", "reason"),
    [
        (AccountingLimits(group_jobs=1), AccountingLimits(group_jobs=99), False, "AssocGrpJobsLimit"),
        (AccountingLimits(group_tres={"cpu": 4}), AccountingLimits(group_tres={"cpu": 99}), False, "AssocGrpCpuLimit"),
        (
            AccountingLimits(group_running_minutes={"cpu": 240}), AccountingLimits(group_running_minutes={"cpu": 9999}), False,  # noqa: E501
            "AssocGrpCPURunMinutesLimit",
        ),
        (AccountingLimits(group_tres_minutes={"cpu": 240}), AccountingLimits(group_tres_minutes={"cpu": 9999}), True,
         "AssocGrpCPUMinutesLimit"),
    ],
)  # fmt: skip
def test_a_limit_that_is_switched_off_for_one_job_still_counts_that_job_for_others(narrow, wide, safe, reason):
    rows = (Association("root", parent=-1, limits=narrow), Association("lab", "ada"))
    at = SiteLimitPolicy(AssociationTree(rows), {"free": Qos("free", limits=wide), "normal": Qos("normal")}, safe=safe)
    free = asks(limit_min=1)._replace(qos="free")
    assert verdict(at, asks(), [free]) == reason
    assert verdict(at, asks()) is None
    assert verdict(at, free, [free]) is None


def test_groups_are_checked_up_to_the_root_whatever_an_association_below_allows():
    at = site(user=AccountingLimits(group_tres={"cpu": 99}), root=AccountingLimits(group_tres={"cpu": 3}))
    assert verdict(at, asks()) == "AssocGrpCpuLimit"


def test_a_qos_multiplies_the_limits_of_associations_but_not_those_of_a_qos():
    limits = AccountingLimits(group_tres={"cpu": 3})
    assert verdict(site(user=limits, limit_factor=2.0), asks()) is None
    assert verdict(site(user=limits, limit_factor=1.0), asks()) == "AssocGrpCpuLimit"
    assert verdict(site(qos=limits, limit_factor=2.0), asks()) == "QOSGrpCpuLimit"


@pytest.mark.parametrize(
    ("safe", "spent_min", "running", "expected"),
    [
        (False, 999, TWO, None),
        (False, 1000, (), "QOSGrpCPUMinutesLimit"),
        (True, 760, (), None),
        (True, 761, (), "QOSGrpCPUMinutesLimit"),
        (True, 280, TWO, None),
        (True, 281, TWO, "QOSGrpCPUMinutesLimit"),
    ],
)
def test_minutes_that_are_spent_and_with_safe_those_that_jobs_may_still_spend(safe, spent_min, running, expected):
    at = site(AccountingLimits(group_tres_minutes={"cpu": 1000}), safe=safe)
    assert verdict(at, asks(), running, LimitUsageMinutes(qos_minutes={"normal": {"cpu": spent_min}})) == expected


def test_minutes_of_an_association_and_its_wall_time():
    at = site(account=AccountingLimits(group_tres_minutes={"cpu": 10}), root=AccountingLimits(group_wall_min=100))
    assert verdict(at, asks(), (), LimitUsageMinutes(association_minutes={1: {"cpu": 10}})) == "AssocGrpCPUMinutesLimit"
    assert verdict(at, asks(), (), LimitUsageMinutes(association_wall_min={0: 100.5})) == "AssocGrpWallLimit"
    assert verdict(at, asks(), (), LimitUsageMinutes(association_wall_min={0: 99.9})) is None


def test_with_safe_wall_time_that_would_be_too_long_is_refused_at_once():
    at = site(AccountingLimits(group_wall_min=100), safe=True)
    assert verdict(at, asks(limit_min=60), (), LimitUsageMinutes(qos_wall_min={"normal": 41.0})) == "QOSGrpWallLimit"
    assert verdict(at, asks(limit_min=60), (), LimitUsageMinutes(qos_wall_min={"normal": 40.9})) is None


def test_a_usage_factor_scales_minutes_only_where_the_qos_says_so():
    limits = AccountingLimits(tres_minutes={"cpu": 239})
    assert verdict(site(limits, usage_factor=0.5), asks()) == "QOSMaxCpuMinutesPerJobLimit"
    assert verdict(site(limits, usage_factor=0.5, factor_on_limits=True), asks()) is None


def test_under_a_qos_that_costs_nothing_what_is_spent_does_not_count():
    at = site(AccountingLimits(group_tres_minutes={"cpu": 10}), usage_factor=0.0)
    assert verdict(at, asks(), (), LimitUsageMinutes(qos_minutes={"normal": {"cpu": 99}})) is None


@pytest.mark.parametrize(("minutes", "verdict_"), [(240, None), (239, "QOSGrpCPURunMinutesLimit")])
def test_under_a_qos_that_costs_nothing_a_job_may_ask_for_just_what_running_jobs_may_use(minutes, verdict_):
    at = site(AccountingLimits(group_running_minutes={"cpu": minutes}), usage_factor=0.0)
    assert verdict(at, asks(limit_min=60), TWO) == verdict_


def test_an_association_for_one_partition_comes_before_the_general_one():
    rows = (
        Association("root", parent=-1),
        Association("lab", "ada", limits=AccountingLimits(jobs=0)),
        Association("lab", "ada", "main", limits=AccountingLimits(jobs=1)),
    )
    at = SiteLimitPolicy(AssociationTree(rows))
    assert verdict(at, asks()) is None
    assert verdict(at, asks()._replace(partition="other")) == "AssocMaxJobsLimit"


def test_where_limits_are_not_enforced_none_holds():
    at = SiteLimitPolicy(
        site(AccountingLimits(group_jobs=0)).accounts,
        {"normal": Qos("normal", limits=AccountingLimits(group_jobs=0))},
        {},
        False,
    )
    assert verdict(at, asks()) is None


def test_why_tells_which_limit_whose_and_how_full():
    book = JobLimitTable(site(AccountingLimits(jobs_a_user=2)))
    standing = book.limits_of(asks())
    check = first_exceeded_limit(standing, book.usage([standing, standing]))
    assert check.describe(2) == "QOSMaxJobsPerUserLimit: 2 of 2 jobs of user ada in QOS normal are in use"


def test_names_of_users_cannot_steer_a_terminal():
    book = JobLimitTable(site(AccountingLimits(jobs_a_user=0)))
    standing = book.limits_of(asks("\x1b[2Jeve"))
    assert "\x1b" not in first_exceeded_limit(standing, book.usage([])).describe(0)


@pytest.mark.parametrize(
    ("owner", "scope", "tres", "expected"),
    [
        ("QOS", "group", "mem", "QOSGrpMemLimit"),
        ("QOS", "minutes", "gres/gpu:a100", "QOSGrpGRESMinutes"),
        ("QOS", "user", "mem", "QOSMaxMemoryPerUser"),
        ("QOS", "account", "billing", "MaxBillingPerAccount"),
        ("Assoc", "group", "license/matlab", "AssocGrpLicense"),
        ("Assoc", "running-minutes", "node", "AssocGrpNodeRunMinutes"),
        ("Assoc", "node", "fs/disk", "AssocMaxUnknownPerNode"),
    ],
)
def test_reasons_have_slurms_names(owner, scope, tres, expected):
    assert reason_of(owner, scope, tres) == expected


def test_a_limit_is_not_negative():
    with pytest.raises(InvalidValue, match=r"limits\.tres"):
        AccountingLimits(tres={"cpu": -1})


@pytest.mark.parametrize("where", ["qos", "account"])
@pytest.mark.parametrize(
    ("limits", "safe", "counts"),
    [
        (NONE, False, False),
        (NONE, True, False),
        (AccountingLimits(group_jobs=1, wall_min=5, group_tres={"cpu": 1}, tres_minutes={"cpu": 1}), True, False),
        (AccountingLimits(group_running_minutes={"cpu": 1}), False, True),
        (AccountingLimits(running_minutes_a_user={"cpu": 1}), False, True),
        (AccountingLimits(running_minutes_an_account={"cpu": 1}), False, True),
        (AccountingLimits(group_tres_minutes={"cpu": 1}), False, False),
        (AccountingLimits(group_tres_minutes={"cpu": 1}), True, True),
    ],
)
def test_how_long_jobs_may_still_run_matters_where_a_limit_on_minutes_counts_them(where, limits, safe, counts):
    assert JobLimitTable(site(**{where: limits}, safe=safe)).counts_time is counts


@pytest.mark.parametrize("spent", [None, {}, {"cpu": 0.0}, {"mem": 9.0}])
def test_of_a_limit_of_nothing_all_is_spent(spent):
    at = site(AccountingLimits(group_tres_minutes={"cpu": 0}))
    found = JobLimitTable(at, LimitUsageMinutes(qos_minutes={"normal": spent} if spent is not None else {})).limits_of(
        asks()
    )
    assert found.barred == "QOSGrpCPUMinutesLimit: 0 of 0 cpu minutes of QOS normal are used"
    assert verdict(site(AccountingLimits(group_tres_minutes={"cpu": 1})), asks()) is None
    assert verdict(site(AccountingLimits(group_tres_minutes={"gres/gpu": 0})), asks()) is None, "it asks for none"


@pytest.mark.parametrize(("safe", "takes"), [(False, ()), (True, ((0, 240),))])
def test_minutes_are_counted_of_running_jobs_only_where_the_site_is_safe(safe, takes):
    standing = JobLimitTable(site(AccountingLimits(group_tres_minutes={"cpu": 1000}), safe=safe)).limits_of(asks())
    assert standing.takes == takes
    assert [(check.amount, check.limit) for check in standing.checks] == ([(240, 1000)] if safe else [])


@pytest.mark.parametrize(
    ("limits", "job", "words"),
    [
        (
            AccountingLimits(wall_min=59),
            asks(),
            "QOSMaxWallDurationPerJobLimit: 60 minutes are more than the limit of 59 for QOS normal",
        ),
        (AccountingLimits(tres={"cpu": 3}), asks(), "QOSMaxCpuPerJobLimit: 4 cpu exceed the limit of 3 for QOS normal"),
        (
            AccountingLimits(tres_a_node={"cpu": 3}),
            asks(cpu=8, node=2),
            "QOSMaxCpuPerNode: 4 cpu exceed the limit of 3 for QOS normal",
        ),
        (
            AccountingLimits(tres_minutes={"cpu": 239}),
            asks(),
            "QOSMaxCpuMinutesPerJobLimit: 240 cpu exceed the limit of 239 for QOS normal",
        ),
    ],
)
def test_what_bars_a_job_is_told_with_both_numbers(limits, job, words):
    assert JobLimitTable(site(limits)).limits_of(job).barred == words


def test_the_first_thing_that_bars_a_job_is_told():
    limits = AccountingLimits(wall_min=59, tres={"cpu": 3})
    assert JobLimitTable(site(limits)).limits_of(asks()).barred.startswith("QOSMaxWallDurationPerJobLimit")


@pytest.mark.parametrize("where", ["qos", "user"])
@pytest.mark.parametrize("kind", ["tres", "tres_a_node", "tres_minutes"])
def test_a_job_that_asks_for_none_of_a_resource_is_within_a_limit_of_none(where, kind):
    at = site(**{where: AccountingLimits(**{kind: {"gres/gpu": 0}})})
    assert verdict(at, asks()) is None
    assert verdict(at, asks(gres_gpu=1)) is not None


@pytest.mark.parametrize(("gpus", "barred"), [(0, True), (1, True), (2, False), (3, False)])
def test_what_a_job_must_ask_for_at_least(gpus, barred):
    book = JobLimitTable(site(AccountingLimits(least_tres={"gres/gpu": 2})))
    words = book.limits_of(asks(gres_gpu=gpus)).barred
    told = f"QOSMinGRES: {gpus} gres/gpu are below the minimum of 2 for QOS normal"
    assert words == (told if barred else None)
    assert verdict(site(user=AccountingLimits(least_tres={"gres/gpu": 2})), asks()) is None, (
        "an association sets no such limit"
    )


@pytest.mark.parametrize(
    ("factor", "cores", "most"),
    [(None, 4, 4), (0.0, 4, 4), (-1.0, 4, 4), (0.5, 8, 4), (0.6, 7, 4), (2.0, 2, 4), (1.0, 4, 4)],
)
@pytest.mark.parametrize("kind", ["tres", "group_tres"])
def test_a_factor_multiplies_the_limits_of_associations_if_it_is_one(factor, cores, most, kind):
    """Fractions are cut off."""
    at = site(user=AccountingLimits(**{kind: {"cpu": cores}}), limit_factor=factor)
    assert verdict(at, asks(cpu=most)) is None
    assert verdict(at, asks(cpu=most + 1)) is not None


def test_of_several_qos_the_first_that_has_a_factor_counts():
    rows = (
        Association("root", parent=-1),
        Association("lab", "ada", parent=0, limits=AccountingLimits(tres={"cpu": 4})),
    )
    for part, own, most in ((2.0, 9.0, 8), (None, 3.0, 12), (2.0, None, 8)):
        known = {"normal": Qos("normal", limit_factor=own), "main-part": Qos("main-part", limit_factor=part)}
        at = SiteLimitPolicy(AssociationTree(rows), known, {"main": "main-part"})
        assert verdict(at, asks(cpu=most)) is None
        assert verdict(at, asks(cpu=most + 1)) == "AssocMaxCpuPerJobLimit"


def test_jobs_that_ask_for_the_same_share_a_standing_and_sums_keep_their_numbers():
    book = JobLimitTable(site(AccountingLimits(jobs_a_user=2, group_jobs=9)))
    ada, bob = book.limits_of(asks()), book.limits_of(asks("bob"))
    assert book.limits_of(asks()) is ada
    assert book.counter_count == 3
    assert book.usage([ada, ada, bob]) == [3, 2, 1]
    assert book.usage([]) == [0, 0, 0]


def test_words_say_what_a_job_asks_for_where_that_is_not_one():
    book = JobLimitTable(site(AccountingLimits(group_tres={"cpu": 1500})))
    (check,) = book.limits_of(asks(cpu=1200)).checks
    assert check.describe(1000) == (
        "QOSGrpCpuLimit: 1,000 of 1,500 cpu of QOS normal are in use, and the job requests 1,200"
    )


def test_what_a_qos_says_of_the_wall_time_of_all_counts_before_what_associations_say():
    spent = LimitUsageMinutes(association_wall_min={0: 10.0})
    assert verdict(site(root=AccountingLimits(group_wall_min=5)), asks(), (), spent) == "AssocGrpWallLimit"
    assert (
        verdict(site(AccountingLimits(group_wall_min=99), root=AccountingLimits(group_wall_min=5)), asks(), (), spent)
        is None
    )


@pytest.mark.parametrize("kind", ["group_running_minutes", "group_tres", "group_tres_minutes", "tres", "tres_minutes"])
@pytest.mark.parametrize("names", [("gres/gpu", "cpu"), ("cpu", "gres/gpu")])
def test_a_resource_that_a_job_does_not_ask_for_keeps_no_other_from_being_looked_at(kind, names):
    at = site(AccountingLimits(**{kind: dict.fromkeys(names, 3)}), safe=True)
    assert "cpu" in verdict(at, asks()).lower()


def test_a_resource_that_an_earlier_qos_has_settled_keeps_no_other_from_being_looked_at():
    part = AccountingLimits(
        group_running_minutes={"cpu": 9999}, group_tres_minutes={"cpu": 9999}, group_tres={"cpu": 9999}
    )
    for kind in ("group_running_minutes", "group_tres_minutes", "group_tres"):
        own = AccountingLimits(**{kind: {"cpu": 1, "node": 0}})
        assert "node" in verdict(site(own, part=part, safe=True), asks()).lower()


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("where", ["qos", "account"])
@pytest.mark.parametrize("kind", ["group_running_minutes", "group_tres", "group_tres_minutes"])
def test_a_job_that_asks_for_none_of_a_resource_takes_nothing_of_it(kind, where, safe):
    book = JobLimitTable(site(**{where: AccountingLimits(**{kind: {"gres/gpu": 5}})}, safe=safe))
    standing = book.limits_of(asks())
    assert (standing.takes, standing.checks, standing.barred) == ((), (), None)
    assert book.limits_of(asks(gres_gpu=1)).checks != () or kind == "group_tres_minutes"
