"""Preemption rules in Slurm's output."""

from __future__ import annotations

import pytest

from cpsched.site.preemption import PreemptionRules, VictimOrder
from cpsched.slurm_text.site_policy import parse_site_policy
from tests.slurm_replies import ALL, CONFIG, PARTITIONS

BY_QOS = "PreemptType = preempt/qos\nPreemptMode = REQUEUE\n"
BY_TIER = "PreemptType = preempt/partition_prio\nPreemptMode = REQUEUE\n"
QOS = "Name|Preempt|PreemptMode|PreemptExemptTime\nhigh|normal,low|cluster|\nnormal||cluster|\nlow||cancel|00:10:00\n"


def policy(config: str, **texts: str) -> PreemptionRules | None:
    return parse_site_policy(ALL | {"config": CONFIG + config} | texts).policy.preemption


@pytest.mark.parametrize(
    ("preempt", "scheduler", "expected"),
    [
        ("", "", VictimOrder()),
        ("youngest_first,reorder_count=3", "", VictimOrder(True, False, 3)),
        ("STRICT_ORDER", "", VictimOrder(strict_order=True)),
        ("", "bf_window=60, preempt_youngest_first,preempt_reorder_count=3", VictimOrder(True, False, 3)),
        ("reorder_count=2", "preempt_reorder_count=3,preempt_strict_order", VictimOrder(False, True, 2)),
        ("", "youngest_first", VictimOrder()),
        ("min_exempt_priority=5", "", None),
        ("send_user_signal", "", None),
        ("new_option", "", None),
        ("reorder_count=2nd", "", VictimOrder(reorder_count=2)),
        ("", "preempt_reorder_count=-1", VictimOrder()),
    ],
)
def test_parameters_give_slurms_order_or_none(preempt: str, scheduler: str, expected: VictimOrder | None) -> None:
    """Releases before 23.02 have only `SchedulerParameters`; later ones read both."""
    config = (
        CONFIG + BY_QOS + f"PreemptParameters = {preempt or '(null)'}\nSchedulerParameters = {scheduler or '(null)'}\n"
    )
    assert parse_site_policy(ALL | {"config": config}).policy.preemption.victim_order == expected


def test_grace_times_are_read() -> None:
    headings, *lines = QOS.splitlines()
    times = ("", "00:00:00", "00:02:00")
    qos = "\n".join([f"{headings}|GraceTime", *(f"{line}|{time}" for line, time in zip(lines, times, strict=True))])
    partitions = PARTITIONS.replace("PriorityTier=1", "PriorityTier=1 GraceTime=45")
    found = parse_site_policy(ALL | {"config": CONFIG + BY_QOS, "qos": qos, "partitions": partitions})
    assert {name: each.grace_s for name, each in found.policy.qos.items()} == {"high": 0, "normal": 0, "low": 120}
    assert found.policy.partitions["main"].grace_s == 45


def test_qos_that_preempt_are_read() -> None:
    config = CONFIG + BY_QOS + "PreemptExemptTime = 00:01:00\n"
    found = parse_site_policy(ALL | {"config": config, "qos": QOS}).policy
    rules = found.preemption
    assert rules.preemptible_classes_of("high") == ("low", "normal")
    assert (rules.mode_of("low"), rules.mode_of("normal")) == ("cancel", "requeue")
    assert (found.preempt_exempt_s("high", "main"), found.preempt_exempt_s("low", "main")) == (60, 600)


@pytest.mark.parametrize(
    ("config", "texts", "preemptible"),
    [
        (BY_TIER, {}, {"fast": ("main",), "main": ()}),
        (BY_TIER, {"partitions": PARTITIONS.replace("PriorityTier=1", "PriorityTier=1 PreemptMode=OFF")}, {"fast": ()}),
        (BY_QOS, {"qos": QOS}, {"high": ("low", "normal"), "low": ()}),
        # WITHIN lets a QOS preempt itself.
        (BY_QOS, {"qos": QOS.replace("high|normal,low|cluster", "high|low|requeue,within")}, {"high": ("high", "low")}),
        (BY_QOS.replace("REQUEUE", "REQUEUE,WITHIN"), {"qos": QOS},
         {"high": ("high", "low", "normal"), "low": ("low",)}),
    ],
)  # fmt: skip
def test_lower_tiers_or_listed_qos_are_preemptible(
    config: str, texts: dict[str, str], preemptible: dict[str, tuple[str, ...]]
) -> None:
    rules = policy(config, **texts)
    assert {name: rules.preemptible_classes_of(name) for name in preemptible} == preemptible


@pytest.mark.parametrize(
    "config", ["", "PreemptType = preempt/qos\nPreemptMode = OFF\n", "PreemptType = preempt/none\n"]
)
def test_a_site_without_preemption_has_no_rules(config: str) -> None:
    assert policy(config, qos=QOS) is None


def test_a_qos_with_an_unknown_mode_is_unusable() -> None:
    found = parse_site_policy(ALL | {"config": CONFIG + BY_QOS, "qos": QOS.replace("cancel", "freeze")})
    assert (found.unreadable.qos["low"].field, found.unreadable.qos["low"].value) == ("PreemptMode", "freeze")


def test_qos_with_mode_off_has_mode_of_cluster() -> None:
    """Slurm prints it for a QOS with the option WITHIN alone."""
    rules = policy(BY_QOS, qos=QOS.replace("normal||cluster", "normal||WITHIN,OFF"))
    assert rules.mode_of("normal") == "requeue"


@pytest.mark.parametrize(("text", "kill_wait_s"), [("KillWait = 120 sec\n", 120), ("", 30)])
def test_kill_wait_is_read(text: str, kill_wait_s: int) -> None:
    assert policy(BY_QOS + text).kill_wait_s == kill_wait_s
