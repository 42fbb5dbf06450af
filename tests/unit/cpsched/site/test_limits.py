"""Which limits a job counts against: a table of Slurm's rules, one site each."""

from __future__ import annotations

import pytest

from cpsched.errors import InvalidValue
from cpsched.site.accounts import Accounts, Association, Limits, Qos, Site
from cpsched.site.admission import broken
from cpsched.site.limits import Book, Claimant, Spent
from cpsched.site.reasons import reason_of

NONE = Limits()


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
    return Site(Accounts(rows), known, {"main": "main-part"} if part is not None else {}, safe=safe)


def asks(user="ada", limit_min=60, **tres):
    amounts = {"cpu": 4, "node": 1, **{name.replace("_", "/"): amount for name, amount in tres.items()}}
    return Claimant(user, "lab", "main", "normal", tuple(amounts.items()), limit_min)


def verdict(at, job, running=(), spent=None):
    """Slurm's reason name for a job beside running ones; None where it may start."""
    book = Book(at, spent or Spent())
    standing, others = book.standing(job), [book.standing(other) for other in running]
    if standing.barred:
        return standing.barred.partition(":")[0]
    check = broken(standing, book.usage(others))
    return check.reason if check else None


TWO = (asks(), asks())
LIMITED = {"qos": "qos", "user": "user", "account": "account", "root": "root"}


@pytest.mark.parametrize(
    ("where", "limits", "job", "running", "expected"),
    [
        ("qos", Limits(group_jobs=2), asks(), TWO, "QOSGrpJobsLimit"),
        ("qos", Limits(group_jobs=3), asks(), TWO, None),
        ("qos", Limits(jobs_a_user=2), asks(), TWO, "QOSMaxJobsPerUserLimit"),
        ("qos", Limits(jobs_a_user=2), asks("bob"), TWO, None),
        ("qos", Limits(jobs_an_account=2), asks("bob"), TWO, "MaxJobsPerAccount"),
        ("qos", Limits(group_tres={"cpu": 11}), asks(), TWO, "QOSGrpCpuLimit"),
        ("qos", Limits(group_tres={"cpu": 12}), asks(), TWO, None),
        ("qos", Limits(tres_a_user={"gres/gpu": 1}), asks(gres_gpu=2), (), "QOSMaxGRESPerUser"),
        ("qos", Limits(tres_a_user={"gres/gpu": 0}), asks(), (), None),
        ("qos", Limits(tres_a_user={"cpu": 11}), asks("bob"), TWO, None),
        ("qos", Limits(tres_an_account={"node": 2}), asks("bob"), TWO, "MaxNodePerAccount"),
        ("qos", Limits(tres={"cpu": 3}), asks(), (), "QOSMaxCpuPerJobLimit"),
        ("qos", Limits(tres_a_node={"cpu": 3}), asks(node=2), (), None),
        ("qos", Limits(tres_a_node={"cpu": 3}), asks(), (), "QOSMaxCpuPerNode"),
        ("qos", Limits(least_tres={"cpu": 5}), asks(), (), "QOSMinCpuNotSatisfied"),
        ("qos", Limits(wall_min=59), asks(), (), "QOSMaxWallDurationPerJobLimit"),
        ("qos", Limits(wall_min=60), asks(), (), None),
        ("qos", Limits(tres_minutes={"cpu": 239}), asks(), (), "QOSMaxCpuMinutesPerJobLimit"),
        ("qos", Limits(group_running_minutes={"cpu": 719}), asks(), TWO, "QOSGrpCPURunMinutesLimit"),
        ("qos", Limits(group_running_minutes={"cpu": 720}), asks(), TWO, None),
        ("qos", Limits(running_minutes_a_user={"cpu": 719}), asks(), TWO, "MaxCpuRunMinsPerUser"),
        ("qos", Limits(running_minutes_a_user={"cpu": 719}), asks("bob"), TWO, None),
        ("qos", Limits(running_minutes_an_account={"cpu": 719}), asks("bob"), TWO, "MaxCpuRunMinsPerAccount"),
        ("user", Limits(jobs=2), asks(), TWO, "AssocMaxJobsLimit"),
        ("account", Limits(jobs=2), asks(), TWO, None),
        ("account", Limits(group_jobs=2), asks("bob"), TWO, "AssocGrpJobsLimit"),
        ("root", Limits(group_jobs=2), asks("bob"), TWO, "AssocGrpJobsLimit"),
        ("root", Limits(group_tres={"gres/gpu": 3}), asks(gres_gpu=2), (asks("bob", gres_gpu=2),), "AssocGrpGRES"),
        ("account", Limits(group_tres={"mem": 1000}), asks(mem=1001), (), "AssocGrpMemLimit"),
        ("user", Limits(tres={"node": 1}), asks(node=2), (), "AssocMaxNodePerJobLimit"),
        ("user", Limits(tres_a_node={"mem": 500}), asks(mem=501), (), "AssocMaxMemPerNode"),
        ("user", Limits(tres_minutes={"cpu": 239}), asks(), (), "AssocMaxCpuMinutesPerJobLimit"),
        ("user", Limits(wall_min=59), asks(), (), "AssocMaxWallDurationPerJobLimit"),
        ("account", Limits(group_running_minutes={"cpu": 719}), asks("bob"), TWO, "AssocGrpCPURunMinutesLimit"),
    ],
)
def test_a_limit_keeps_a_job_waiting_for_slurms_reason(where, limits, job, running, expected):
    assert verdict(site(**{where: limits}), job, running) == expected


def test_the_qos_of_a_partition_comes_before_that_of_the_job():
    at = site(part=Limits(tres_a_user={"cpu": 100}), qos=Limits(tres_a_user={"cpu": 1, "gres/gpu": 1}))
    assert verdict(at, asks()) is None
    assert verdict(at, asks(gres_gpu=2)) == "QOSMaxGRESPerUser"


def test_a_qos_may_come_before_that_of_the_partition():
    at = site(part=Limits(tres_a_user={"cpu": 100}), qos=Limits(tres_a_user={"cpu": 1}), over_partition=True)
    assert verdict(at, asks()) == "QOSMaxCpuPerUserLimit"


@pytest.mark.parametrize(
    ("qos", "below"),
    [
        (Limits(group_jobs=10), {"root": Limits(group_jobs=0)}),
        (Limits(group_tres={"cpu": 99}), {"account": Limits(group_tres={"cpu": 1})}),
        (Limits(wall_min=90), {"user": Limits(wall_min=1)}),
        (Limits(jobs_a_user=5), {"user": Limits(jobs=0)}),
        (Limits(jobs_an_account=5), {"user": Limits(jobs=0)}),
        (Limits(tres={"cpu": 5}), {"user": Limits(tres={"cpu": 1})}),
        (Limits(group_running_minutes={"cpu": 9999}), {"root": Limits(group_running_minutes={"cpu": 1})}),
    ],
)
def test_what_a_qos_sets_switches_the_same_limit_of_associations_off(qos, below):
    assert verdict(site(qos, **below), asks()) is None
    assert verdict(site(**below), asks()) is not None


@pytest.mark.parametrize(
    ("narrow", "wide", "safe", "reason"),
    [
        (Limits(group_jobs=1), Limits(group_jobs=99), False, "AssocGrpJobsLimit"),
        (Limits(group_tres={"cpu": 4}), Limits(group_tres={"cpu": 99}), False, "AssocGrpCpuLimit"),
        (
            Limits(group_running_minutes={"cpu": 240}), Limits(group_running_minutes={"cpu": 9999}), False,
            "AssocGrpCPURunMinutesLimit",
        ),
        (Limits(group_tres_minutes={"cpu": 240}), Limits(group_tres_minutes={"cpu": 9999}), True,
         "AssocGrpCPUMinutesLimit"),
    ],
)  # fmt: skip
def test_a_limit_that_is_switched_off_for_one_job_still_counts_that_job_for_others(narrow, wide, safe, reason):
    rows = (Association("root", parent=-1, limits=narrow), Association("lab", "ada"))
    at = Site(Accounts(rows), {"free": Qos("free", limits=wide), "normal": Qos("normal")}, safe=safe)
    free = asks(limit_min=1)._replace(qos="free")
    assert verdict(at, asks(), [free]) == reason
    assert verdict(at, asks()) is None
    assert verdict(at, free, [free]) is None


def test_groups_are_checked_up_to_the_root_whatever_an_association_below_allows():
    at = site(user=Limits(group_tres={"cpu": 99}), root=Limits(group_tres={"cpu": 3}))
    assert verdict(at, asks()) == "AssocGrpCpuLimit"


def test_a_qos_multiplies_the_limits_of_associations_but_not_those_of_a_qos():
    limits = Limits(group_tres={"cpu": 3})
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
    at = site(Limits(group_tres_minutes={"cpu": 1000}), safe=safe)
    assert verdict(at, asks(), running, Spent(qos_minutes={"normal": {"cpu": spent_min}})) == expected


def test_minutes_of_an_association_and_its_wall_time():
    at = site(account=Limits(group_tres_minutes={"cpu": 10}), root=Limits(group_wall_min=100))
    assert verdict(at, asks(), (), Spent(association_minutes={1: {"cpu": 10}})) == "AssocGrpCPUMinutesLimit"
    assert verdict(at, asks(), (), Spent(association_wall_min={0: 100.5})) == "AssocGrpWallLimit"
    assert verdict(at, asks(), (), Spent(association_wall_min={0: 99.9})) is None


def test_with_safe_wall_time_that_would_be_too_long_is_refused_at_once():
    at = site(Limits(group_wall_min=100), safe=True)
    assert verdict(at, asks(limit_min=60), (), Spent(qos_wall_min={"normal": 41.0})) == "QOSGrpWallLimit"
    assert verdict(at, asks(limit_min=60), (), Spent(qos_wall_min={"normal": 40.9})) is None


def test_a_usage_factor_scales_minutes_only_where_the_qos_says_so():
    limits = Limits(tres_minutes={"cpu": 239})
    assert verdict(site(limits, usage_factor=0.5), asks()) == "QOSMaxCpuMinutesPerJobLimit"
    assert verdict(site(limits, usage_factor=0.5, factor_on_limits=True), asks()) is None


def test_under_a_qos_that_costs_nothing_what_is_spent_does_not_count():
    at = site(Limits(group_tres_minutes={"cpu": 10}), usage_factor=0.0)
    assert verdict(at, asks(), (), Spent(qos_minutes={"normal": {"cpu": 99}})) is None


def test_an_association_for_one_partition_comes_before_the_general_one():
    rows = (
        Association("root", parent=-1),
        Association("lab", "ada", limits=Limits(jobs=0)),
        Association("lab", "ada", "main", limits=Limits(jobs=1)),
    )
    at = Site(Accounts(rows))
    assert verdict(at, asks()) is None
    assert verdict(at, asks()._replace(partition="other")) == "AssocMaxJobsLimit"


def test_where_limits_are_not_enforced_none_holds():
    at = Site(site(Limits(group_jobs=0)).accounts, {"normal": Qos("normal", limits=Limits(group_jobs=0))}, {}, False)
    assert verdict(at, asks()) is None


def test_why_tells_which_limit_whose_and_how_full():
    book = Book(site(Limits(jobs_a_user=2)))
    standing = book.standing(asks())
    check = broken(standing, book.usage([standing, standing]))
    assert check.says(2) == "QOSMaxJobsPerUserLimit: 2 of 2 jobs of user ada in QOS normal are taken"


def test_names_of_users_cannot_steer_a_terminal():
    book = Book(site(Limits(jobs_a_user=0)))
    standing = book.standing(asks("\x1b[2Jeve"))
    assert "\x1b" not in broken(standing, book.usage([])).says(0)


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
        Limits(tres={"cpu": -1})
