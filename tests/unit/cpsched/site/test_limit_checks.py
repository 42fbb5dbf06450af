"""The limits that apply to a job: a table of Slurm's rules, with one site each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.errors import InvalidValue
from cpsched.site.accounts import AccountingLimits, Association, AssociationTree, Qos
from cpsched.site.admission import admit_jobs, first_exceeded_limit
from cpsched.site.limit_checks import JobLimitAttributes, JobLimitTable, LimitUsageMinutes
from cpsched.site.limit_reasons import slurm_limit_reason
from cpsched.site.site_policy import PartitionPolicy, SitePolicy

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
    return SitePolicy(
        AssociationTree(rows), known, {"main": PartitionPolicy(qos="main-part")} if part is not None else {}, safe=safe
    )


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


MATLAB = asks(license_matlab=3)


@pytest.mark.parametrize("limits_hold", [True, False])
def test_licenses_limit_running_jobs_whatever_is_enforced(limits_hold):
    at = replace(site(user=AccountingLimits(jobs=2)), licenses={"matlab": 5}, limits_hold=limits_hold)
    assert [verdict(at, MATLAB, [asks("bob", license_matlab=used)]) for used in (2, 3)] == [None, "Licenses"]
    assert verdict(at, asks(license_other=9), [asks("bob", license_matlab=5)]) is None
    assert verdict(at, asks(), TWO) == ("AssocMaxJobsLimit" if limits_hold else None)


@pytest.mark.parametrize(
    ("in_use", "reserved", "expected"), [(1, 2, None), (2, 2, "Licenses"), (3, 0, None), (0, 9, "Licenses")]
)
def test_reserved_licenses_stay_free(in_use, reserved, expected):
    job = asks(license_matlab=2, **{"reserved-license/matlab": reserved})
    at = replace(site(), licenses={"matlab": 5})
    assert verdict(at, job, [asks("bob", license_matlab=in_use)]) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12), st.data())
def test_no_subset_of_admitted_jobs_exceeds_licenses(jobs, data):
    totals = {"a": 5, "b": 3}
    book = JobLimitTable(SitePolicy(limits_hold=False, licenses=totals))
    standings = [book.limits_of(asks(license_a=a, license_b=b)) for a, b in jobs]
    running = data.draw(st.integers(0, min(1, len(jobs))))
    used = book.usage(standings[:running])
    order = data.draw(st.permutations(range(running, len(jobs))))
    admitted = admit_jobs(standings, used, order).positions.tolist()
    together = [jobs[at] for at in [*range(running), *admitted]]
    assert [sum(each) <= total for each, total in zip(zip(*together, strict=True), totals.values(), strict=False)] in (
        [True, True], [],
    )  # fmt: skip


TWO = (asks(), asks())


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
def test_limit_delays_job_with_slurm_reason(where, limits, job, running, expected):
    assert verdict(site(**{where: limits}), job, running) == expected


@pytest.mark.parametrize(
    ("limited", "job", "spent", "expected"),
    [
        # The QOS of the partition precedes that of the job, unless the job's has the flag OverPartQOS.
        ({"part": AccountingLimits(tres_a_user={"cpu": 100}),
          "qos": AccountingLimits(tres_a_user={"cpu": 1, "gres/gpu": 1})}, asks(), {}, None),
        ({"part": AccountingLimits(tres_a_user={"cpu": 100}),
          "qos": AccountingLimits(tres_a_user={"cpu": 1, "gres/gpu": 1})}, asks(gres_gpu=2), {}, "QOSMaxGRESPerUser"),
        ({"part": AccountingLimits(tres_a_user={"cpu": 100}), "qos": AccountingLimits(tres_a_user={"cpu": 1}),
          "over_partition": True}, asks(), {}, "QOSMaxCpuPerUserLimit"),
        # Group limits are checked up to the root.
        ({"user": AccountingLimits(group_tres={"cpu": 99}), "root": AccountingLimits(group_tres={"cpu": 3})},
         asks(), {}, "AssocGrpCpuLimit"),
        # The factor of a QOS scales the limits of associations only.
        ({"user": AccountingLimits(group_tres={"cpu": 3}), "limit_factor": 2.0}, asks(), {}, None),
        ({"user": AccountingLimits(group_tres={"cpu": 3}), "limit_factor": 1.0}, asks(), {}, "AssocGrpCpuLimit"),
        ({"qos": AccountingLimits(group_tres={"cpu": 3}), "limit_factor": 2.0}, asks(), {}, "QOSGrpCpuLimit"),
        # Minutes and wall time of associations. Those of a QOS precede them.
        ({"account": AccountingLimits(group_tres_minutes={"cpu": 10})}, asks(),
         {"association_minutes": {1: {"cpu": 10}}}, "AssocGrpCPUMinutesLimit"),
        ({"root": AccountingLimits(group_wall_min=1000)}, asks(), {"association_wall_min": {0: 1000.5}},
         "AssocGrpWallLimit"),
        ({"root": AccountingLimits(group_wall_min=1000)}, asks(), {"association_wall_min": {0: 999.9}}, None),
        ({"root": AccountingLimits(group_wall_min=0)}, asks(), {}, "AssocGrpWallLimit"),
        ({"root": AccountingLimits(group_wall_min=5)}, asks(), {"association_wall_min": {0: 10.0}},
         "AssocGrpWallLimit"),
        ({"qos": AccountingLimits(group_wall_min=99), "root": AccountingLimits(group_wall_min=5)}, asks(),
         {"association_wall_min": {0: 10.0}}, None),
        # With `safe`, wall time that a job would exceed bars it at once.
        ({"qos": AccountingLimits(group_wall_min=100), "safe": True}, asks(), {"qos_wall_min": {"normal": 41.0}},
         "QOSGrpWallLimit"),
        ({"qos": AccountingLimits(group_wall_min=100), "safe": True}, asks(), {"qos_wall_min": {"normal": 40.9}}, None),
        # The usage factor scales minutes only if that is enabled. A free QOS ignores used minutes.
        ({"qos": AccountingLimits(tres_minutes={"cpu": 239}), "usage_factor": 0.5}, asks(), {},
         "QOSMaxCpuMinutesPerJobLimit"),
        ({"qos": AccountingLimits(tres_minutes={"cpu": 239}), "usage_factor": 0.5, "factor_on_limits": True}, asks(),
         {}, None),
        ({"qos": AccountingLimits(group_tres_minutes={"cpu": 1}), "usage_factor": 0.0}, asks(),
         {"qos_minutes": {"normal": {"cpu": 99}}}, None),
        # A job that does not request a resource is within a limit of zero.
        *(({where: AccountingLimits(**{kind: {"gres/gpu": 0}})}, asks(), {}, None)
          for where in ("qos", "user") for kind in ("tres", "tres_a_node", "tres_minutes")),
        ({"user": AccountingLimits(least_tres={"gres/gpu": 2})}, asks(), {}, None),  # an association sets none
    ],
)  # fmt: skip
def test_precedence_factors_and_usage_decide(limited, job, spent, expected):
    assert verdict(site(**limited), job, (), LimitUsageMinutes(**spent)) == expected


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
def test_qos_limit_disables_same_association_limit(qos, below):
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
def test_exempt_job_still_counts_for_others(narrow, wide, safe, reason):
    rows = (Association("root", parent=-1, limits=narrow), Association("lab", "ada"))
    at = SitePolicy(AssociationTree(rows), {"free": Qos("free", limits=wide), "normal": Qos("normal")}, safe=safe)
    free = asks(limit_min=1)._replace(qos="free")
    assert [verdict(at, asks(), [free]), verdict(at, asks()), verdict(at, free, [free])] == [reason, None, None]


def test_job_counts_for_its_qos_although_that_of_its_partition_decides():
    at = site(AccountingLimits(group_jobs=1), part=AccountingLimits(group_jobs=9))
    elsewhere = asks()._replace(partition="other")
    assert verdict(at, elsewhere, [asks()]) == "QOSGrpJobsLimit"
    assert verdict(at, asks(), [elsewhere]) is None


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
def test_counts_used_minutes_and_with_safe_planned_ones(safe, spent_min, running, expected):
    at = site(AccountingLimits(group_tres_minutes={"cpu": 1000}), safe=safe)
    assert verdict(at, asks(), running, LimitUsageMinutes(qos_minutes={"normal": {"cpu": spent_min}})) == expected


@pytest.mark.parametrize(("minutes", "verdict_"), [(240, None), (239, "QOSGrpCPURunMinutesLimit")])
def test_free_qos_allows_exactly_minutes_of_running_jobs(minutes, verdict_):
    at = site(AccountingLimits(group_running_minutes={"cpu": minutes}), usage_factor=0.0)
    assert verdict(at, asks(limit_min=60), TWO) == verdict_


def test_partition_association_precedes_general_one():
    rows = (
        Association("root", parent=-1),
        Association("lab", "ada", limits=AccountingLimits(jobs=0)),
        Association("lab", "ada", "main", limits=AccountingLimits(jobs=1)),
    )
    at = SitePolicy(AssociationTree(rows))
    assert verdict(at, asks()) is None
    assert verdict(at, asks()._replace(partition="other")) == "AssocMaxJobsLimit"


def test_unenforced_limits_do_not_apply():
    assert verdict(replace(site(AccountingLimits(group_jobs=0)), limits_hold=False), asks()) is None


def test_reason_names_limit_owner_and_usage():
    book = JobLimitTable(site(AccountingLimits(jobs_a_user=2)))
    standing = book.limits_of(asks())
    check = first_exceeded_limit(standing, book.usage([standing, standing]))
    assert check.describe(2) == "QOSMaxJobsPerUserLimit: 2 of 2 jobs for user ada in QOS normal are in use"


def test_escapes_user_names_for_terminal():
    book = JobLimitTable(site(AccountingLimits(jobs_a_user=0)))
    assert "\x1b" not in first_exceeded_limit(book.limits_of(asks("\x1b[2Jeve")), book.usage([])).describe(0)


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
def test_reasons_have_slurm_names(owner, scope, tres, expected):
    assert slurm_limit_reason(owner, scope, tres) == expected


def test_rejects_negative_limit():
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
def test_remaining_time_matters_only_for_minute_limits(where, limits, safe, counts):
    assert JobLimitTable(site(**{where: limits}, safe=safe)).counts_time is counts


@pytest.mark.parametrize("spent", [None, {}, {"cpu": 0.0}, {"mem": 9.0}])
def test_limit_of_zero_minutes_is_exhausted(spent):
    at = site(AccountingLimits(group_tres_minutes={"cpu": 0}))
    found = JobLimitTable(at, LimitUsageMinutes(qos_minutes={"normal": spent} if spent is not None else {})).limits_of(
        asks()
    )
    assert found.barred == "QOSGrpCPUMinutesLimit: 0 of 0 cpu minutes for QOS normal are used"
    assert verdict(site(AccountingLimits(group_tres_minutes={"cpu": 1})), asks()) is None
    assert verdict(site(AccountingLimits(group_tres_minutes={"gres/gpu": 0})), asks()) is None, "it asks for none"


@pytest.mark.parametrize(("safe", "takes"), [(False, ()), (True, ((0, 240),))])
def test_counts_minutes_of_running_jobs_only_if_safe(safe, takes):
    standing = JobLimitTable(site(AccountingLimits(group_tres_minutes={"cpu": 1000}), safe=safe)).limits_of(asks())
    assert standing.takes == takes
    assert [(check.amount, check.limit) for check in standing.checks] == ([(240, 1000)] if safe else [])


@pytest.mark.parametrize(
    ("limits", "job", "words"),
    [
        (
            AccountingLimits(wall_min=59),
            asks(),
            "QOSMaxWallDurationPerJobLimit: 60 minutes exceed the limit of 59 for QOS normal",
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
        (  # the first reason is reported
            AccountingLimits(wall_min=59, tres={"cpu": 3}),
            asks(),
            "QOSMaxWallDurationPerJobLimit: 60 minutes exceed the limit of 59 for QOS normal",
        ),
    ],
)
def test_barring_reason_has_both_numbers(limits, job, words):
    assert JobLimitTable(site(limits)).limits_of(job).barred == words


@pytest.mark.parametrize("where", ["qos", "user"])
@pytest.mark.parametrize("kind", ["tres", "tres_a_node", "tres_minutes"])
def test_job_with_resource_exceeds_zero_limit(where, kind):
    assert verdict(site(**{where: AccountingLimits(**{kind: {"gres/gpu": 0}})}), asks(gres_gpu=1)) is not None


@pytest.mark.parametrize(("gpus", "barred"), [(0, True), (1, True), (2, False), (3, False)])
def test_checks_minimum_request(gpus, barred):
    book = JobLimitTable(site(AccountingLimits(least_tres={"gres/gpu": 2})))
    words = f"QOSMinGRES: {gpus} gres/gpu are below the minimum of 2 for QOS normal"
    assert book.limits_of(asks(gres_gpu=gpus)).barred == (words if barred else None)


@pytest.mark.parametrize(
    ("factor", "cores", "most"),
    [(None, 4, 4), (0.0, 4, 4), (-1.0, 4, 4), (0.5, 8, 4), (0.6, 7, 4), (2.0, 2, 4), (1.0, 4, 4)],
)
@pytest.mark.parametrize("kind", ["tres", "group_tres"])
def test_factor_scales_association_limits_and_truncates(factor, cores, most, kind):
    """Fractions are cut off."""
    at = site(user=AccountingLimits(**{kind: {"cpu": cores}}), limit_factor=factor)
    assert [verdict(at, asks(cpu=asked)) is None for asked in (most, most + 1)] == [True, False]


@pytest.mark.parametrize(("part", "own", "most"), [(2.0, 9.0, 8), (None, 3.0, 12), (2.0, None, 8)])
def test_first_qos_with_factor_applies(part, own, most):
    at = site(part=NONE, user=AccountingLimits(tres={"cpu": 4}))
    factors = {"normal": Qos("normal", limit_factor=own), "main-part": Qos("main-part", limit_factor=part)}
    found = [verdict(replace(at, qos=factors), asks(cpu=cores)) for cores in (most, most + 1)]
    assert found == [None, "AssocMaxCpuPerJobLimit"]


def test_equal_requests_share_standing_and_counters():
    book = JobLimitTable(site(AccountingLimits(jobs_a_user=2, group_jobs=9)))
    ada, bob = book.limits_of(asks()), book.limits_of(asks("bob"))
    assert book.limits_of(asks()) is ada
    assert (book.counter_count, book.usage([ada, ada, bob]), book.usage([])) == (3, [3, 2, 1], [0, 0, 0])


def test_reason_names_request_other_than_one():
    book = JobLimitTable(site(AccountingLimits(group_tres={"cpu": 1500})))
    (check,) = book.limits_of(asks(cpu=1200)).checks
    assert check.describe(1000) == (
        "QOSGrpCpuLimit: 1,000 of 1,500 cpu for QOS normal are in use, and the job requests 1,200"
    )


@pytest.mark.parametrize("kind", ["group_running_minutes", "group_tres", "group_tres_minutes", "tres", "tres_minutes"])
@pytest.mark.parametrize("names", [("gres/gpu", "cpu"), ("cpu", "gres/gpu")])
def test_unrequested_resource_does_not_hide_other_limits(kind, names):
    at = site(AccountingLimits(**{kind: dict.fromkeys(names, 3)}), safe=True)
    assert "cpu" in verdict(at, asks()).lower()


def test_settled_resource_does_not_hide_other_limits():
    part = AccountingLimits(
        group_running_minutes={"cpu": 9999}, group_tres_minutes={"cpu": 9999}, group_tres={"cpu": 9999}
    )
    for kind in ("group_running_minutes", "group_tres_minutes", "group_tres"):
        own = AccountingLimits(**{kind: {"cpu": 1, "node": 0}})
        assert "node" in verdict(site(own, part=part, safe=True), asks()).lower()


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("where", ["qos", "account"])
@pytest.mark.parametrize("kind", ["group_running_minutes", "group_tres", "group_tres_minutes"])
def test_job_uses_nothing_of_unrequested_resource(kind, where, safe):
    book = JobLimitTable(site(**{where: AccountingLimits(**{kind: {"gres/gpu": 5}})}, safe=safe))
    standing = book.limits_of(asks())
    assert (standing.takes, standing.checks, standing.barred) == ((), (), None)
    assert book.limits_of(asks(gres_gpu=1)).checks != () or kind == "group_tres_minutes"
