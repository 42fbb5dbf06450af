"""The checks before control mode, on recorded facts."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest
from pytest_mock import MockerFixture

from cpsched.site.multifactor_priority import ClusterSize, PriorityPolicy
from cpsched.site.preemption import PreemptionRules
from cpsched.site.site_policy import SitePolicy
from cpsched.slurm_text.option_lists import find_unmodelled_options, parse_config
from cpsched.slurm_text.site_policy import SitePolicyReading
from cpsched_bridge.adapters.slurm.policy.sprio_comparison import PriorityDifference, SprioComparison
from cpsched_bridge.adapters.slurm.slurm_doctor import (
    MAX_LISTED_ITEMS,
    check_partitions_mixing_unmanaged_jobs,
    check_policy_reading,
    check_preempt_modes,
    check_preemption,
    check_priorities_match_sprio,
    check_unmodelled_limits,
    run_policy_checks,
    run_slurm_doctor_checks,
)
from cpsched_bridge.cycle.mode_and_readiness import require_ready, select_checks_for_mode
from cpsched_bridge.errors import NotReady
from cpsched_bridge.ports import ReadinessCheck
from tests.builders import a_slurm_job
from tests.unit.bridge.adapters.slurm.scenes import Scene


def failing(facts: dict[str, Any]) -> dict[str, bool]:
    """Names of failing checks, and whether they are required."""
    return {check.name: check.required for check in run_slurm_doctor_checks(facts) if not check.ok}


def changed(**config: Any) -> dict[str, Any]:
    """Facts of the recorded cluster, with other settings."""
    scene = Scene()
    return {**scene.facts, "config": replace(scene.config(), **config)}


def test_documented_cluster_passes_all_required_checks() -> None:
    assert failing(changed()) == {"generic resources": False}


@pytest.mark.parametrize(("level", "ok"), [("None", False), (None, False), ("Operator", True), ("Administrator", True)])
def test_requires_operator_level_of_ordinary_user(level: str | None, ok: bool) -> None:
    facts = {**changed(), "uid": 2100, "user": "cpsched", "admin_level": level}
    assert ("privilege" not in failing(facts)) is ok


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("Operator", {"accounting": False}),
        ("None", {"accounting": False, "privilege": True}),
        ("", {"accounting": False, "privilege": True}),
        (None, {"accounting": False, "privilege": False}),
    ],
)
def test_accepts_admin_level_from_controller_without_accounting(level: str | None, expected: dict[str, bool]) -> None:
    """An unknown level is a warning; one that is too low is insufficient, from either source."""
    facts = changed(accounting_storage_type="accounting_storage/slurmdbd")
    facts |= {"uid": 2100, "user": "cpsched", "admin_level": level, "accounting_answers": False}
    assert failing(facts) == {"generic resources": False, **expected}


def check_of(name: str, facts: dict[str, Any]) -> ReadinessCheck:
    return next(check for check in run_slurm_doctor_checks(facts) if check.name == name)


GOOD = {
    "controller": (True, "lab, Slurm 26.05.5"),
    "privilege": (True, "root: superuser"),
    "accounting": (False, "no accounting database configured"),
    "versions": (True, "controller 26.05.5, clients on this host 26.05.5, pyslurm 25.11.2, nodes 26.05.5"),
    "job shrink": (True, "disabled"),
    "scheduler parameters": (False, "every word is a known option"),
    "scheduler intervals": (True, "sched_interval 5 s, bf_interval 5 s"),
    "preemption": (True, "none, mode OFF"),
    "node selection": (True, "select/cons_tres CR_CORE_MEMORY"),
    "job fields": (False, "no setting changes what a job's fields mean"),
    "controller options": (False, "none changes starts"),
    "topology": (False, "none: does not affect jobs"),
    "generic resources": (False, "tracked"),
    "clocks": (True, "slurmctld's clock differs from this host's by +0 s"),
    "submit plugin": (False, "JobSubmitPlugins contains lua"),
    "fallback": (False, "sched/backfill"),
    "start latency": (False, "default_queue_depth 10000, batch_sched_delay 0 s"),
    "job memory": (False, "MinJobAge 300 s"),
    "priority type": (True, "priority/multifactor"),
    "site factor": (True, "no plugin sets it"),
    "boosts": (False, "backfill keeps them"),
}
"""What each check says on a cluster where all is well, and whether control mode needs it."""


def test_each_check_has_expected_detail_and_requirement() -> None:
    facts = changed(accounting_storage_tres=["cpu", "gres/gpu"])
    assert {c.name: (c.required, c.detail) for c in run_slurm_doctor_checks(facts)} == GOOD
    assert all(check.ok and not check.fix for check in run_slurm_doctor_checks(facts))


SHALLOW = "batch_sched_delay=0"
BOUNDARIES: list[tuple[str, dict[str, Any], bool, str]] = [
    ("job memory", {"min_job_age": 60}, True, "MinJobAge 60 s"),
    ("job memory", {"min_job_age": 59}, False, "MinJobAge 59 s"),
    ("job memory", {"min_job_age": None}, False, "MinJobAge 0 s"),
    ("start latency", {"scheduler_parameters": f"{SHALLOW},default_queue_depth=1000"}, True, "depth 1000"),
    ("start latency", {"scheduler_parameters": f"{SHALLOW},default_queue_depth=999"}, False, "depth 999"),
    ("start latency", {"scheduler_parameters": SHALLOW}, False, "default_queue_depth 100, batch_sched_delay 0 s"),
    ("start latency", {"scheduler_parameters": "default_queue_depth=5000"}, False, "batch_sched_delay 3 s"),
    (
        "start latency",
        {"scheduler_parameters": "default_queue_depth=5000,batch_sched_delay=1"},
        False,
        "delay 1 s",
    ),
    ("start latency", {"scheduler_parameters": ""}, False, "default_queue_depth 100, batch_sched_delay 3 s"),
    ("start latency", {"scheduler_parameters": "batch_sched_delay=0s,default_queue_depth=10_000"}, False, "depth 10,"),
    ("scheduler parameters", {"scheduler_parameters": "defer,no_such"}, False, "no_such is unknown here"),
    ("scheduler parameters", {"scheduler_parameters": "batch_sched_delay=0s"}, False, "=0s: Slurm reads 0"),
    ("job shrink", {"scheduler_parameters": ""}, False, "allowed"),
    ("fallback", {"scheduler_type": "sched/builtin"}, False, "sched/builtin"),
    ("scheduler intervals", {"scheduler_parameters": "sched_interval=-1"}, False, "sched_interval -1 s"),
    ("scheduler intervals", {"scheduler_parameters": "bf_interval=-1"}, False, "bf_interval -1 s"),
    ("scheduler intervals", {"scheduler_parameters": ""}, True, "sched_interval 60 s, bf_interval 30 s"),
    ("preemption", {"preempt_type": ""}, True, "none, mode OFF"),
    ("preemption", {"preempt_type": "preempt/none", "preempt_mode": "off"}, True, "preempt/none, mode OFF"),
    ("preemption", {"preempt_type": "preempt/none", "preempt_mode": None}, True, "preempt/none, mode OFF"),
    ("preemption", {"preempt_type": "preempt/qos"}, True, "preempt/qos, mode OFF"),
    ("preemption", {"preempt_type": "preempt/qos", "preempt_mode": "REQUEUE"}, True, "preempt/qos, mode REQUEUE"),
    ("preemption", {"preempt_type": "preempt/partition_prio", "preempt_mode": "CANCEL"}, True, "mode CANCEL"),
    ("preemption", {"preempt_type": "preempt/qos", "preempt_mode": "REQUEUE,PRIORITY"}, True, "REQUEUE,PRIORITY"),
    ("preemption", {"preempt_type": "preempt/qos", "preempt_mode": "REQUEUE,WITHIN"}, False, "mode REQUEUE,WITHIN"),
    ("preemption", {"preempt_type": "preempt/qos", "preempt_mode": "GANG,SUSPEND"}, False, "mode GANG,SUSPEND"),
    ("preemption", {"preempt_type": "preempt/new", "preempt_mode": "REQUEUE"}, False, "preempt/new, mode REQUEUE"),
    ("preemption", {"preempt_mode": "SUSPEND"}, False, "none, mode SUSPEND"),
    ("node selection", {"select_type_parameters": None}, True, "select/cons_tres "),
    ("node selection", {"select_type": "select/linear", "select_type_parameters": ["A", "B"]}, True, "linear A, B"),
    ("node selection", {"select_type": "select/cons_res"}, False, "select/cons_res"),
    ("node selection", {"select_type_parameters": ["CR_CPU_MEMORY", "CR_LLN"]}, True, "CR_CPU_MEMORY, CR_LLN"),
    ("node selection", {"select_type_parameters": ["CR_SOCKET_MEMORY"]}, True, "cons_tres CR_SOCKET_MEMORY"),
    ("node selection", {"select_type_parameters": ["CR_BOARD"]}, False, "cons_tres CR_BOARD"),
    ("generic resources", {"gres_types": None}, True, "tracked"),
    ("generic resources", {"accounting_storage_tres": None, "gres_types": ["a", "b"]}, False, "gres/a, gres/b"),
    ("submit plugin", {"job_submit_plugins": ["lua", "other"]}, True, "JobSubmitPlugins contains lua"),
    ("submit plugin", {"job_submit_plugins": ["other"]}, False, "JobSubmitPlugins lacks lua"),
    ("versions", {"version": "26.05.1"}, True, "controller 26.05.1"),
    ("versions", {"version": "26.04.9"}, False, "controller 26.04.9"),
    ("versions", {"version": "27.01.0"}, True, "controller 27.01.0"),
    ("versions", {"version": None}, True, "controller , clients on this host 26.05.5"),
    ("accounting", {"accounting_storage_type": "a/slurmdbd"}, True, "a/slurmdbd responds"),
    ("priority type", {"priority_type": "priority/basic"}, False, "priority/basic"),
    ("priority type", {"priority_type": None}, False, "priority/basic"),
    ("boosts", {"version": "26.05.2"}, True, "26.05.2: backfill may undo a boost"),
    ("boosts", {"version": "25.11.9"}, True, "25.11.9: backfill may undo a boost"),
    ("boosts", {"version": "26.05.3"}, True, "backfill keeps them"),
    ("boosts", {"version": "26.05.2", "scheduler_type": "sched/builtin"}, True, "backfill keeps them"),
    ("job fields", {"scheduler_parameters": "defer,Extra_Constraints"}, False, "jobs with --extra are left to Slurm"),
    ("job fields", {"select_type_parameters": ["ENFORCE_BINDING_GRES"]}, False, "generic resources"),
    ("site factor", {"priority_site_factor_plugin": "site_factor/none"}, True, "no plugin"),
    ("site factor", {"priority_site_factor_plugin": "site_factor/ours"}, False, "set by site_factor/ours"),
]


@pytest.mark.parametrize(("name", "config", "ok", "words"), BOUNDARIES)
def test_each_check_decides_at_its_boundary(name: str, config: dict[str, Any], ok: bool, words: str) -> None:
    check = check_of(name, changed(**config))
    assert (check.ok, words in check.detail, bool(check.fix)) == (ok, True, not ok)
    assert ok or check.required is GOOD[name][0]


@pytest.mark.parametrize(("ahead_s", "ok"), [(3, True), (-3, True), (4, False), (-4, False)])
def test_clocks_may_differ_by_3_seconds(ahead_s: int, ok: bool) -> None:
    check = check_of("clocks", {**changed(), "clock_ahead_s": ahead_s})
    assert (check.ok, check.required) == (ok, True)


def test_names_options_that_are_not_modelled() -> None:
    text = "SlurmctldParameters=cloud_dns,MAX_powered_nodes=7,later\nTopologyParam=Dragonfly,RouteTree"
    found = list(find_unmodelled_options(parse_config(text)))
    check = check_of("controller options", {**changed(), "unmodelled_options": found})
    assert check.detail.split("; ") == [
        "SlurmctldParameters: max_powered_nodes is not modelled: Slurm starts no job that would power up more nodes",
        "SlurmctldParameters: later is unknown here, and Slurm ignores unknown options",
        "TopologyParam: dragonfly is not modelled: Slurm spreads large jobs over leaf switches",
    ]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"clients": None, "node_versions": []},
         (True, "controller 26.05.5, clients on this host unknown, pyslurm 25.11.2, nodes unknown", "")),
        ({"pyslurm": ""}, (True, "controller 26.05.5, clients on this host 26.05.5, nodes 26.05.5", "")),
        ({"pyslurm": "", "clients": "27.05.1"},
         (False, "controller 26.05.5, clients on this host 27.05.1, nodes 26.05.5",
          "install Slurm clients that are not newer than slurmctld")),
    ],
)  # fmt: skip
def test_reports_known_versions(facts: dict[str, Any], expected: tuple[bool, str, str]) -> None:
    check = check_of("versions", {**changed(), **facts})
    assert (check.ok, check.detail, check.fix) == expected


def test_reports_transport_with_reason() -> None:
    checks = run_slurm_doctor_checks(changed(), "cli: pyslurm is not installed")
    assert ("transport", True, "cli: pyslurm is not installed") in [
        (each.name, each.ok, each.detail) for each in checks
    ]


@pytest.mark.parametrize(
    ("uid", "user", "words"),
    [(0, "root", "root: superuser"), (7, "slurm", "slurm: superuser"), (7, "ada", "ada: AdminLevel Operator")],
)
def test_root_and_slurm_user_need_no_admin_level(uid: int, user: str, words: str) -> None:
    facts = changed(slurm_user_name="slurm") | {"uid": uid, "user": user, "admin_level": "Operator"}
    assert check_of("privilege", facts).detail == words
    facts["admin_level"] = None
    assert check_of("privilege", facts).ok is (user != "ada")


def test_names_disabled_scheduler_interval() -> None:
    facts = changed(scheduler_parameters="sched_interval=-1,bf_interval=-1,disable_job_shrink")
    assert (
        check_of("scheduler intervals", facts).fix
        == "remove sched_interval=-1, bf_interval=-1 from SchedulerParameters"
    )


# ------------------------------------------------------------------------------------------------ the site's policy


@pytest.mark.parametrize(
    ("limits_hold", "failures", "ok", "detail"),
    [
        (None, {"config": "refused", "qos": "no"}, False, "refused; no"),
        (None, {}, False, "no response"),
        (False, {}, True, "{read}, limits not enforced"),
        (False, {"qos": "refused"}, True, "{read}, limits not enforced"),
        (True, {"config": "refused"}, True, "{read}, limits enforced"),
        (True, {"qos": "refused", "shares": "silent", "partitions": "odd"}, False,
         "{read}, limits enforced; not available: qos (refused), shares (silent)"),
    ],
)  # fmt: skip
def test_reports_readable_part_of_policy(
    limits_hold: bool | None, failures: dict[str, str], ok: bool, detail: str
) -> None:
    reading = None if limits_hold is None else SitePolicyReading(SitePolicy(limits_hold=limits_hold))
    check = check_policy_reading(reading, failures)
    expected = detail.format(read=f"{PriorityPolicy().kind}, 1 associations, 0 QOS")
    assert (check.ok, check.required, check.detail) == (ok, False, expected)


@pytest.mark.parametrize("count", [1, MAX_LISTED_ITEMS, MAX_LISTED_ITEMS + 1])
def test_names_limited_number_of_priority_differences(count: int) -> None:
    different = tuple(PriorityDifference(id, 10, 12, "age", 1.0, 3.0) for id in range(count))
    check = check_priorities_match_sprio(SprioComparison(9, different), PriorityPolicy())
    assert (check.ok, check.required, check.detail.count("job ")) == (False, False, min(count, MAX_LISTED_ITEMS))
    assert check.detail.startswith(f"equal to sprio's for {9 - count} of 9 jobs without a hold; job 0: 10 instead")


@pytest.mark.parametrize(
    ("jobs", "kind", "ok", "detail"),
    [
        (0, "multifactor", True, "not compared: every pending"),
        (None, "multifactor", False, "not compared: sprio did not respond"),
        (None, "basic", True, "priority/basic: jobs are ordered by arrival"),
        (0, "basic", True, "priority/basic: jobs are ordered by arrival"),
        (2, "multifactor", True, "equal to sprio's for 2 of 2 jobs without a hold"),
    ],
)
def test_reports_if_no_priorities_can_be_compared(jobs: int | None, kind: str, ok: bool, detail: str) -> None:
    comparison = None if jobs is None else SprioComparison(jobs, ())
    check = check_priorities_match_sprio(comparison, PriorityPolicy(kind=kind))
    assert (check.ok, check.required, check.detail[: len(detail)]) == (ok, False, detail)


@pytest.mark.parametrize(
    ("count", "detail"),
    [
        (0, "all limits that are set are modelled"),
        (1, "not modelled: l0"),
        (MAX_LISTED_ITEMS, "not modelled: l0, l1, l2, l3, l4"),
        (MAX_LISTED_ITEMS + 2, "not modelled: l0, l1, l2, l3, l4 and 2 more"),
    ],
)
def test_names_limited_number_of_unmodelled_limits(count: int, detail: str) -> None:
    check = check_unmodelled_limits(SitePolicyReading(unmodelled=tuple(f"l{i}" for i in range(count))))
    assert (check.ok, check.required, check.detail) == (not count, False, detail)


@pytest.mark.parametrize(
    ("held", "other", "state", "mixed"),
    [
        ("a", "b", "PENDING", None),
        ("a", "a", "RUNNING", None),
        ("b,a", "a,c", "PENDING", "a"),
        ("", "", "PENDING", ""),
        ("a,b,c,d,e,f", "a,b,c,d,e,f", "PENDING", "a, b, c, d, e"),
    ],
)
def test_names_limited_number_of_partly_managed_partitions(
    held: str, other: str, state: str, mixed: str | None
) -> None:
    jobs = [
        a_slurm_job(state="PENDING", partition=held, priority=0), a_slurm_job(state=state, partition=other, priority=1)
    ]  # fmt: skip
    check = check_partitions_mixing_unmanaged_jobs(dataclasses.replace(Scene().read(), jobs=jobs))
    detail = (
        "none with both held and unmanaged jobs" if mixed is None else f"with both held and unmanaged jobs: {mixed}"
    )
    assert (check.ok, check.required, check.detail) == (mixed is None, False, detail)


def test_priority_check_uses_all_nodes_as_cluster_size(mocker: MockerFixture) -> None:
    compared = mocker.patch(
        "cpsched_bridge.adapters.slurm.slurm_doctor.compare_with_sprio", return_value=SprioComparison(0, ())
    )
    records = Scene().read()
    nodes = [
        dataclasses.replace(node, effective_cpus=cpus)
        for node, cpus in zip(records.nodes, (8, None, 4, 2), strict=True)
    ]
    names = [
        check.name
        for check in run_policy_checks(SitePolicyReading(), {}, "", dataclasses.replace(records, nodes=nodes))
    ]
    assert names == ["site policy", "priorities", "limits", "associations", "partitions"]
    assert compared.call_args.args[3] == ClusterSize(4, 14)
    assert [check.name for check in run_policy_checks(None, {}, "", records)] == ["site policy"]
    assert all(not check.fix for check in run_policy_checks(SitePolicyReading(), {}, "", records) if check.ok)


def test_names_topology_plugin_that_chooses_nodes() -> None:
    plugins = ["topology/block", "topology/tree"]
    found = check_of("topology", {**changed(topology_plugin="topology/flat"), "topology_plugins": plugins})
    assert (found.ok, found.required, found.mode) == (False, False, "control")
    assert found.detail.startswith("topology/block, topology/tree: the bridge chooses leaf switches and blocks")
    assert check_of("topology", changed(topology_plugin="topology/tree")).ok  # with TopoOptional


def test_selects_checks_of_each_mode() -> None:
    found = run_slurm_doctor_checks(changed(priority_type="priority/basic", scheduler_parameters=""))
    control, advise = ({check.name for check in select_checks_for_mode(found, mode)} for mode in ("control", "advise"))
    assert {"job shrink", "preemption", "topology", "submit plugin", "start latency"} == control - advise
    assert {"priority type", "site factor", "boosts"} == advise - control
    with pytest.raises(NotReady, match="mode=advise: these checks must pass"):
        require_ready(select_checks_for_mode(found, "advise"), "advise")
    shadow = {check.name: check.required for check in select_checks_for_mode(found, "shadow")}
    assert (shadow["priority type"], shadow["job shrink"]) == (False, True)


@pytest.mark.parametrize(
    ("per_s", "pyslurm", "required"), [(2.0, "", False), (8 / 60, "", False), (0.1, "", True), (2.0, "25.11.2", True)]
)
def test_reports_call_limit_with_fix(per_s: float, pyslurm: str, required: bool) -> None:
    """Where not even a reading a minute is accepted, there is nothing to control with. pyslurm keeps to no limit."""
    facts = {**changed(), "pyslurm": pyslurm, "rate_limit": {"bucket": 30, "per_s": per_s}}
    check = check_of("call limit", facts)
    assert (check.ok, check.required, "SlurmUser" in check.fix) == (False, required, True)
    assert check.detail == f"rl_enable: bursts of up to 30 calls, otherwise {per_s:g} calls per second"


def test_reports_no_call_limit_if_disabled() -> None:
    assert "call limit" not in {check.name for check in run_slurm_doctor_checks({**changed(), "rate_limit": None})}


def test_preemption_requires_that_the_policy_is_read() -> None:
    config = changed(preempt_type="preempt/qos", preempt_mode="REQUEUE")["config"]
    assert check_preemption(config).ok
    unread = check_preemption(config, reads_policy=False)
    assert not unread.ok
    assert "options.site_policy" in unread.fix


RULES = PreemptionRules("qos", "requeue", {"high": frozenset({"low"})})


@pytest.mark.parametrize(
    ("rules", "failures", "ok", "detail"),
    [
        (RULES, {}, True, "requeued or cancelled by Slurm: low"),
        (RULES, {"qos": "no answer"}, False, "QOS cannot be read: no answer"),
        (replace(RULES, modes={"low": "suspend"}), {}, False, "qos low: PreemptMode=SUSPEND"),
        (replace(RULES, modes={"high": "suspend"}), {}, True, "requeued or cancelled by Slurm: low"),
    ],
)
def test_which_jobs_give_way_and_how(rules: PreemptionRules, failures: dict[str, str], ok: bool, detail: str) -> None:
    check = check_preempt_modes(rules, failures)
    assert (check.ok, check.detail, check.mode) == (ok, detail, "control")


def test_doctor_reports_that_preempt_parameters_forbid_choosing() -> None:
    check = check_preempt_modes(replace(RULES, victim_order=None), {})
    assert check.ok
    assert check.detail.endswith("low; preemption.choose has no effect with these PreemptParameters")
