"""Slurm's replies as a picture of a site's policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpsched.errors import InvalidValue
from cpsched.site.accounts import Limits
from cpsched.site.fair_share import fair_tree
from cpsched_bridge.adapters.slurm.policy.answers import PartitionPolicy, Unreadable, picture_of
from tests.unit.bridge.adapters.slurm.policy.replies import ALL, CONFIG, SHARES_TEXT, STATE


def test_weights_and_flags() -> None:
    rules = picture_of(ALL | {"config": CONFIG.replace("PriorityFlags           =", "PriorityFlags = ACCRUE_ALWAYS,"
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


def test_basic_is_told_from_multifactor() -> None:
    assert picture_of(ALL).rules.kind == "multifactor"
    assert picture_of(ALL | {"config": CONFIG.replace("priority/multifactor", "priority/basic")}).rules.kind == "basic"


def test_partitions() -> None:
    found = picture_of(ALL)
    present = {"cpu": 32, "mem": 64_000, "node": 4, "billing": 32, "gres/gpu": 4}
    assert found.partitions["main"] == PartitionPolicy(1, 1, "", present)
    assert found.partitions["fast"].qos == "part-fast"
    assert found.partitions["fast"].tier == 5
    assert found.highest_factor == 10
    assert found.site.partition_qos == {"fast": "part-fast"}


def test_associations_come_parents_first_whatever_the_order_of_the_lines() -> None:
    accounts = picture_of(ALL).site.accounts
    ada, bob = accounts.find("physics", "ada"), accounts.find("biology", "bob")
    assert ada is not None
    assert bob is not None
    assert [accounts.associations[at].account for at in accounts.chain(ada)] == ["physics", "physics", "root"]
    assert accounts.associations[ada].limits == Limits(jobs=2, wall_min=120, tres={"cpu": 8})
    assert accounts.associations[bob].shares is None
    assert accounts.associations[accounts.chain(ada)[1]].limits == Limits(
        group_tres={"cpu": 64}, group_tres_minutes={"cpu": 100}
    )
    assert accounts.highest_priority == 40


def test_what_is_spent_is_what_stands_in_brackets_and_not_in_the_limits_of_users() -> None:
    found = picture_of(ALL)
    ada = found.site.accounts.find("physics", "ada")
    assert found.spent.association_minutes[ada]["cpu"] == 40
    assert found.spent.association_wall_min[ada] == 12.5
    assert found.spent.qos_minutes["normal"] == {"cpu": 77, "mem": 0}
    assert found.spent.qos_wall_min["normal"] == 33.25


def test_qos_and_what_of_it_is_not_modelled() -> None:
    found = picture_of(ALL)
    normal, fast = found.site.qos["normal"], found.site.qos["part-fast"]
    assert normal.limits == Limits(tres_a_user={"cpu": 16}, jobs_a_user=2)
    assert (fast.over_partition, fast.usage_factor, fast.limit_factor) == (True, 0.5, 2.0)
    assert fast.limits == Limits(jobs_a_user=3, wall_min=1440)
    assert found.unmodelled == ("UsageThreshold=0.250000 of QOS part-fast",)


@pytest.mark.parametrize("shares", [ALL["shares"], SHARES_TEXT])
def test_factors_of_fair_share_as_json_and_as_text(shares: str) -> None:
    found = picture_of(ALL | {"shares": shares})
    accounts = found.site.accounts
    assert found.fair_share[accounts.find("physics", "ada")] == 0.25
    assert found.fair_share[accounts.find("biology", "bob")] == 1.0


@pytest.mark.parametrize(
    ("enforced", "limits_hold", "safe"),
    [("associations,limits,qos", True, False), ("associations,limits,safe", True, True), ("associations", False, False),
     ("none", False, False)],
)  # fmt: skip
def test_whether_limits_are_enforced(enforced: str, limits_hold: bool, safe: bool) -> None:
    site = picture_of(ALL | {"config": CONFIG.replace("associations,limits,qos", enforced)}).site
    assert (site.limits_hold, site.safe) == (limits_hold, safe)


def test_without_accounting_there_is_an_order_and_no_limits() -> None:
    found = picture_of({"config": CONFIG, "partitions": ALL["partitions"]})
    assert not found.site.limits_hold
    assert found.partitions["fast"].tier == 5


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config", "no configuration", "names no PriorityType"),
        ("config", CONFIG.replace("CPU=100", "CPU=much"), "CPU=much has no weight"),
        ("state", "slurm_load_assoc_mgr_info error", "shows no root account"),
        ("state", STATE.replace("cpu=64(", "cpu=lots("), "GrpTRES=lots"),
        ("shares", '{"shares": []}', "sshare --json: TypeError"),
        ("shares", "{", "sshare --json: "),
        ("shares", "Account|User\nroot|\n", "no column FairShare"),
    ],
)
def test_what_has_another_form_is_told(name: str, text: str, message: str) -> None:
    with pytest.raises((Unreadable, InvalidValue), match=message):
        picture_of(ALL | {name: text})


RECORDED = Path(__file__).parents[5] / "data" / "slurm" / "policy"
"""What Slurm 26.05.5 of the test cluster printed, with twenty jobs of alice running."""


def recorded(shares: str) -> dict[str, str]:
    files = {"config": "config.txt", "partitions": "partitions.txt", "state": "state.txt", "qos": "qos.txt"}
    return {name: (RECORDED / file).read_text() for name, file in {**files, "shares": shares}.items()}


@pytest.mark.parametrize("shares", ["shares.json", "shares.txt"])
def test_recorded_replies_of_a_real_slurm(shares: str) -> None:
    found = picture_of(recorded(shares))
    accounts = found.site.accounts
    alice = accounts.find("lab", "alice")
    assert [accounts.associations[at].label for at in accounts.chain(alice)] == [
        "user alice in account lab", "account lab", "account root",
    ]  # fmt: skip
    assert found.rules.always_accrues
    assert found.rules.weights.age == 1000
    assert found.fair_share[alice] == 0.2
    assert found.spent.association_minutes[alice]["cpu"] == 99
    assert {name: qos.limits for name, qos in found.site.qos.items()} == {
        "normal": Limits(),
        "pair": Limits(jobs_a_user=2),
        "cores": Limits(tres_a_user={"cpu": 16}),
        "quick": Limits(wall_min=2),
    }
    assert found.partitions["gpu"].tres["gres/gpu"] == 4
    assert found.unmodelled == ()


def test_fair_tree_worked_out_here_is_what_that_slurm_showed() -> None:
    found = picture_of(recorded("shares.txt"))
    tree = found.site.accounts.tree
    used = {"alice": 5949.85, "bob": 49.94}
    usage = [used.get(row.user, 0.0) for row in found.site.accounts.associations]
    factors = fair_tree(tree, usage)
    assert {at: factors[at] for at in found.fair_share} == pytest.approx(found.fair_share)
