"""Policy files: their meaning, and errors with file, line, field, value and rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cpsched.model import Job, Request
from cpsched.site.accounts import AccountingLimits
from cpsched.site.multifactor_priority import PriorityWeights
from cpsched_sim.errors import InputError, InvalidPolicy
from cpsched_sim.site.policy_file import load_site_policy_file, parse_site_policy_file
from cpsched_sim.traces.trace_jobs import TraceJob

WHOLE = """\
accounts:
  physics: { shares: 80, users: [ada, 17], limits: { MaxJobs: 4, GrpTRES: cpu=64 } }
  laser: { shares: 3, parent: physics, users: { eve: { shares: parent, limits: { MaxWall: "2:00:00" } } } }
  biology: { shares: 20 }
qos:
  normal: { priority: 10, limits: { MaxTRESPU: "cpu=32,gres/gpu=2" } }
  long: { usage_factor: 0.5, over_partition: true }
partitions: { "1": { tier: 2, factor: 10, qos: long } }
priority: { fair_share: 1000, age: 10, max_age: "1-00:00:00", favor_small: true, raw_qos: true }
users: { others: spread, qos: normal, qos_by_queue: { "9": long } }
enforce: [limits, safe]
"""


def policy(text):
    return parse_site_policy_file(Path("site.yaml"), text)


def trace_job(id, user, queue="2", account=""):
    return TraceJob(Job(id, id, 60, Request(1, (1,)), user=user, queue=queue, account=account), 30)


def test_reads_complete_file():
    found = policy(WHOLE)
    accounts, qos = found.policy.accounts, found.policy.qos
    assert [row.label for row in accounts.associations if row.user] == [
        "user ada in account physics", "user 17 in account physics", "user eve in account laser",
    ]  # fmt: skip
    eve = accounts.associations[accounts.find("laser", "eve")]
    assert (eve.shares, eve.limits) == (None, AccountingLimits(wall_min=120))
    assert [accounts.associations[at].account for at in accounts.association_chain(accounts.find("laser", "eve"))] == [
        "laser", "laser", "physics", "root",
    ]  # fmt: skip
    assert qos["normal"].limits.tres_a_user == {"cpu": 32, "gres/gpu": 2}
    assert qos["long"].over_partition
    assert found.policy.safe
    weights = found.policy.priority.weights
    assert weights == PriorityWeights(fair_share=1000, age=10, max_age_s=86_400, favor_small=True, raw_qos=True)


def test_keeps_recorded_run_and_start():
    item = TraceJob(trace_job(1, "ada").job, 30, recorded_start_s=7)
    (placed,) = policy(WHOLE).with_users_of([item])[1]
    assert (placed.job.account, placed.run_s, placed.recorded_start_s) == ("physics", 30, 7)


def test_account_passes_on_job_and_user_but_not_group_limits():
    accounts = policy(WHOLE).policy.accounts
    assert accounts.associations[accounts.find("physics", "ada")].limits == AccountingLimits(jobs=4)


def test_assigns_unlisted_users_to_account_below_its_share():
    found, jobs = policy(WHOLE).with_users_of(trace_job(id, f"u{id}") for id in range(12))
    heads = [item.job.account for item in jobs]
    assert set(heads) == {"laser", "biology"}
    assert heads.count("laser") > heads.count("biology")
    assert all(found.policy.accounts.find(item.job.account, item.job.user) is not None for item in jobs)


def test_first_unlisted_user_joins_account_with_largest_share():
    _, (item,) = policy("accounts: { small: { shares: 1 }, large: { shares: 9 } }").with_users_of([trace_job(1, "u")])
    assert item.job.account == "large"


def test_qos_of_queue_precedes_default_of_user():
    found = policy(
        "accounts: { lab: { users: { ada: { qos: own } } } }\n"
        "qos: { own: {}, of_queue: {}, other: {} }\n"
        'users: { qos: other, qos_by_queue: { "9": of_queue } }\n'
    )
    _, jobs = found.with_users_of([trace_job(1, "ada", "9"), trace_job(2, "ada"), trace_job(3, "eve")])
    assert [item.job.qos for item in jobs] == ["of_queue", "own", "other"]


def test_jobs_get_account_qos_and_tier():
    _, jobs = policy(WHOLE).with_users_of([trace_job(1, "ada", "1"), trace_job(2, "17", "9"), trace_job(3, "eve")])
    assert [(item.job.account, item.job.qos, item.job.tier) for item in jobs] == [
        ("physics", "normal", 2), ("physics", "long", 1), ("laser", "normal", 1),
    ]  # fmt: skip


def test_job_keeps_its_named_qos():
    items = [trace_job(id, "ada", "1") for id in range(4)]
    named = [
        replace(i, job=replace(i.job, qos=qos)) for i, qos in zip(items, ["long", "", "normal", "long"], strict=True)
    ]
    _, jobs = policy(WHOLE).with_users_of(named)
    assert [item.job.qos for item in jobs] == ["long", "normal", "normal", "long"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"site.yaml:1: file: empty: must set accounts"),
        ("accounts:\n  a:\n    shares: -1\n", r"site.yaml:3: accounts\.a\.shares: -1: must be"),
        ("accounts:\n  a: {}\nqoss: {}\n", r"site.yaml:3: qoss: .*no such setting; did you mean 'qos'\?"),
        ("qos:\n  q:\n    limits: { MaxJobsPU: many }\n", r"site.yaml:3: qos\.q\.limits: .*MaxJobsPU=many: .*number"),
        ("qos:\n  q:\n    limits: { MaxJob: 2 }\n", r"site.yaml:3: qos\.q\.limits: .*MaxJob is not a known limit"),
        ("qos: { q: { limits: { UsageThreshold: 1 } } }", r"UsageThreshold is not modelled"),
        ("accounts: { a: { parent: b } }", r"accounts\.a\.parent is b, which is not an account"),
        ("accounts: { a: { parent: b }, b: { parent: a } }", r"accounts: no path to the root from a, b"),
        ("accounts: { root: {} }", r"accounts\.root must not be set"),
        ("users: { others: nobody }", r"users\.others is nobody"),
        ("partitions: { p: { qos: gone } }", r"qos gone is used"),
        ("priority: { max_age: soon }", r"site.yaml:1: priority\.max_age: soon: .*time"),
        ("fair_share: { half_life_days: 0.0001 }", r"fair_share\.half_life_days: 0\.0001: .*at least 0\.001"),
        ("qos: { q: { preempt_mode: off } }", r"site.yaml:1: qos\.q\.preempt_mode: .*requeue' or 'cancel'"),
        ("enforce: [nothing]", r"site.yaml:1: enforce\.0: nothing"),
        ("dumps: { qos: there-is-none.txt }", r"there-is-none.txt: No such file"),
    ],
)
def test_error_names_invalid_setting(text, message):
    with pytest.raises((InvalidPolicy, InputError), match=message):
        policy(text)


def test_missing_file_is_input_error():
    with pytest.raises(InputError, match=r"nowhere\.yaml: No such file"):
        load_site_policy_file(Path("nowhere.yaml"))


ASSOC = """\
Cluster|Account|User|Partition|Share|Priority|GrpJobs|GrpTRES|MaxJobs|MaxTRES|MaxWall|QOS|Def QOS|ParentName
lab|root|||1|||||||normal||
lab|physics|||80|5||cpu=64||||normal||root
lab|laser|||parent|||||||normal||physics
lab|physics|ada||1||||2||1-00:00:00|normal|long|
lab|laser|eve||parent|||||cpu=8||normal||
"""
QOS = """\
Name|Priority|Flags|UsageFactor|LimitFactor|MaxTRESPU|MaxJobsPU|MaxWall
normal|0||1.000000||cpu=32||
long|7|OverPartQOS,UsageFactorSafe|0.500000|2.000000||3|7-00:00:00
"""
SSHARE = """\
Account|User|RawShares|NormShares|RawUsage|NormUsage|EffectvUsage|FairShare|LevelFS|GrpTRESMins|TRESRunMins
root||||7200||1.000000||||
 physics||80|0.8|7200|1.0|1.0||0.8||
  physics|ada|1|1.0|7200|1.0|1.0|0.5|1.0||
"""


def dumped(folder, assoc=ASSOC, qos=QOS, shares=SSHARE):
    for name, text in (("assoc.txt", assoc), ("qos.txt", qos), ("sshare.txt", shares)):
        (folder / name).write_text(text)
    (folder / "site.yaml").write_text("dumps: { associations: assoc.txt, qos: qos.txt, shares: sshare.txt }\n")
    return load_site_policy_file(folder / "site.yaml")


def test_reads_slurm_dumps(tmp_path):
    found = dumped(tmp_path)
    accounts = found.policy.accounts
    ada = accounts.associations[accounts.find("physics", "ada")]
    assert (ada.limits, ada.default_qos) == (AccountingLimits(jobs=2, wall_min=1440), "long")
    assert [accounts.associations[at].account for at in accounts.association_chain(accounts.find("laser", "eve"))][1:] == [  # noqa: E501
        "laser", "physics", "root",
    ]  # fmt: skip
    assert accounts.associations[1].limits.group_tres == {"cpu": 64}
    long = found.policy.qos["long"]
    assert (long.over_partition, long.factor_on_limits, long.usage_factor, long.limit_factor) == (True, True, 0.5, 2.0)
    assert long.limits == AccountingLimits(jobs_a_user=3, wall_min=7 * 1440)
    assert found.used_s == {("physics", "ada"): 7200.0}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"assoc": ASSOC.replace("|80|5|", "|80|five|")}, r"assoc.txt:3: Priority: five: must be a whole number"),
        ({"assoc": ASSOC.replace("cpu=64", "cpu=lots")}, r"assoc.txt:3: GrpTRES: lots: must be a whole number"),
        ({"assoc": ASSOC.replace("normal||physics", "normal||nobody")}, r"assoc.txt:4: ParentName: nobody"),
        ({"assoc": ASSOC + ASSOC.partition("\n")[2]}, r"Cluster: .*: must be from one cluster: print its assoc"),
        (
            {"assoc": "Cluster|Account|User|Share\nlab|root||1\ngpu|phys||1\n"},
            r"assoc.txt:3: Cluster: gpu: must be from one cluster",
        ),
        ({"assoc": "Account  User\n"}, r"assoc.txt:1: Account: .*must be a column: run sacctmgr with -P"),
        ({"qos": QOS + "short|7\n"}, r"qos.txt:4: Flags: : must have a value"),
        ({"qos": QOS.replace("0.500000", "half")}, r"qos.txt:3: UsageFactor: half: must be a number"),
    ],
)
def test_bad_dump_names_its_own_line(tmp_path, changed, message):
    with pytest.raises(InvalidPolicy, match=message):
        dumped(tmp_path, **changed)
