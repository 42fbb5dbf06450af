"""The checks before control mode, on recorded facts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pytest_mock import MockerFixture

from cpsched.site.accounts import SiteLimitPolicy
from cpsched.site.multifactor import ClusterSize, PriorityPolicy
from cpsched_bridge.adapters.slurm.policy.policy_parsing import SitePolicySnapshot
from cpsched_bridge.adapters.slurm.policy.sprio_comparison import PriorityDifference, SprioComparison
from cpsched_bridge.adapters.slurm.slurm_doctor import (
    MOST_NAMED,
    check_policy_reading,
    check_priorities,
    check_unmanaged_jobs,
    check_unmodelled_limits,
    run_checks,
    run_policy_checks,
)
from cpsched_bridge.cycle.bridge_health import require_ready, select_checks
from cpsched_bridge.errors import NotReady
from cpsched_bridge.ports import Check
from tests.unit.bridge.adapters.slurm.scenes import Scene


def failing(facts: dict[str, Any]) -> dict[str, bool]:
    """Names of failing checks, and whether they are required."""
    return {check.name: check.required for check in run_checks(facts) if not check.ok}


def changed(**config: Any) -> dict[str, Any]:
    facts = Scene().facts
    facts["config"] = {**facts["config"], **config}
    return facts


def test_a_cluster_set_up_as_documented_passes_all_that_is_required() -> None:
    assert failing(Scene().facts) == {"generic resources": False}


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"disable_job_shrink": None}, "job shrink"),
        ({"sched_interval": "-1"}, "scheduler intervals"),
        ({"bf_interval": -1}, "scheduler intervals"),
    ],
)
def test_scheduler_parameters_that_would_harm(parameters: dict[str, object], name: str) -> None:
    known = Scene().facts["config"]["scheduler_parameters"]
    assert failing(changed(scheduler_parameters={**known, **parameters}))[name]


@pytest.mark.parametrize(
    ("config", "name", "required"),
    [
        ({"preempt_type": "preempt/qos", "preempt_mode": "REQUEUE"}, "preemption", True),
        ({"select_type": "select/linear"}, "node selection", True),
        ({"version": "24.11.5"}, "versions", True),
        ({"job_submit_plugins": None}, "submit plugin", False),
        ({"scheduler_type": "sched/builtin"}, "fallback", False),
        ({"min_job_age": 2}, "job memory", False),
        ({"scheduler_parameters": {"disable_job_shrink": True}}, "start latency", False),
    ],
)
def test_configurations_that_fail(config: dict[str, object], name: str, required: bool) -> None:
    assert failing(changed(**config))[name] is required


@pytest.mark.parametrize(("level", "ok"), [("None", False), (None, False), ("Operator", True), ("Administrator", True)])
def test_an_ordinary_user_needs_to_be_operator(level: str | None, ok: bool) -> None:
    facts = {**Scene().facts, "uid": 2100, "user": "cpsched", "admin_level": level}
    assert ("privilege" not in failing(facts)) is ok


def test_clocks_must_agree() -> None:
    assert failing({**Scene().facts, "clock_ahead_s": -30})["clocks"]


def test_every_check_that_fails_says_how_to_mend_it() -> None:
    facts = changed(scheduler_parameters={}, select_type="x", preempt_type="preempt/qos", version="1.2", min_job_age=0)
    broken = [check for check in run_checks(facts) if not check.ok]
    assert len(broken) >= 6
    assert all(check.mend for check in broken)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("Operator", {"accounting": False}),
        ("None", {"accounting": False, "privilege": True}),
        ("", {"accounting": False, "privilege": True}),
        (None, {"accounting": False, "privilege": False}),
    ],
)
def test_without_the_accounting_database_control_mode_starts_with_what_the_controller_tells(
    level: str | None, expected: dict[str, bool]
) -> None:
    """An unknown level is a warning; one that is too low is insufficient, from either source."""
    facts = changed(accounting_storage_type="accounting_storage/slurmdbd")
    facts |= {"uid": 2100, "user": "cpsched", "admin_level": level, "accounting_answers": False}
    assert failing(facts) == {"generic resources": False, **expected}


def check_of(name: str, facts: dict[str, Any]) -> Check:
    return next(check for check in run_checks(facts) if check.name == name)


GOOD = {
    "controller": (True, "lab, Slurm 26.05.5"),
    "privilege": (True, "root: super user"),
    "accounting": (False, "no accounting database configured"),
    "versions": (True, "controller 26.05.5, clients here 26.05.5, pyslurm 25.11.2, nodes 26.05.5"),
    "job shrink": (True, "disabled"),
    "scheduler intervals": (True, "sched_interval 5 s, bf_interval 5 s"),
    "preemption": (True, "none, mode OFF"),
    "node selection": (True, "select/cons_tres CR_CORE_MEMORY"),
    "topology": (False, "none: decides on no job"),
    "generic resources": (False, "tracked"),
    "clocks": (True, "the controller's clock is +0 s from this host's"),
    "submit plugin": (False, "JobSubmitPlugins has lua"),
    "fallback": (False, "sched/backfill"),
    "start latency": (False, "default_queue_depth 10000, batch_sched_delay 0 s"),
    "job memory": (False, "MinJobAge 300 s"),
    "priority type": (True, "priority/multifactor"),
    "site factor": (True, "no plugin sets it"),
}
"""What each check says on a cluster where all is well, and whether control mode needs it."""


def test_what_each_check_says_and_which_of_them_control_mode_needs() -> None:
    facts = changed(accounting_storage_tres=["cpu", "gres/gpu"])
    assert {c.name: (c.required, c.detail) for c in run_checks(facts)} == GOOD
    assert all(check.ok and not check.mend for check in run_checks(facts))


SHALLOW = {"disable_job_shrink": True, "batch_sched_delay": 0}
BOUNDARIES: list[tuple[str, dict[str, Any], bool, str]] = [
    ("job memory", {"min_job_age": 60}, True, "MinJobAge 60 s"),
    ("job memory", {"min_job_age": 59}, False, "MinJobAge 59 s"),
    ("job memory", {"min_job_age": None}, False, "MinJobAge 0 s"),
    ("start latency", {"scheduler_parameters": {**SHALLOW, "default_queue_depth": 1000}}, True, "depth 1000"),
    ("start latency", {"scheduler_parameters": {**SHALLOW, "default_queue_depth": 999}}, False, "depth 999"),
    ("start latency", {"scheduler_parameters": SHALLOW}, False, "default_queue_depth 100, batch_sched_delay 0 s"),
    ("start latency", {"scheduler_parameters": {"default_queue_depth": 5000}}, False, "batch_sched_delay 3 s"),
    (
        "start latency",
        {"scheduler_parameters": {"default_queue_depth": 5000, "batch_sched_delay": 1}},
        False,
        "delay 1 s",
    ),
    ("start latency", {"scheduler_parameters": None}, False, "default_queue_depth 100, batch_sched_delay 3 s"),
    ("job shrink", {"scheduler_parameters": None}, False, "allowed"),
    ("scheduler intervals", {"scheduler_parameters": None}, True, "sched_interval 60 s, bf_interval 30 s"),
    ("preemption", {"preempt_type": ""}, True, "none, mode OFF"),
    ("preemption", {"preempt_type": "preempt/none", "preempt_mode": "off"}, True, "preempt/none, mode OFF"),
    ("preemption", {"preempt_type": "preempt/none", "preempt_mode": None}, True, "preempt/none, mode OFF"),
    ("preemption", {"preempt_type": "preempt/qos"}, False, "preempt/qos, mode OFF"),
    ("preemption", {"preempt_mode": "SUSPEND"}, False, "none, mode SUSPEND"),
    ("node selection", {"select_type_parameters": None}, True, "select/cons_tres "),
    ("node selection", {"select_type": "select/linear", "select_type_parameters": ["A", "B"]}, False, "linear A, B"),
    ("node selection", {"select_type_parameters": ["CR_CPU_MEMORY", "CR_LLN"]}, True, "CR_CPU_MEMORY, CR_LLN"),
    ("node selection", {"select_type_parameters": ["CR_SOCKET_MEMORY"]}, False, "cons_tres CR_SOCKET_MEMORY"),
    ("node selection", {"select_type_parameters": ["CR_BOARD"]}, False, "cons_tres CR_BOARD"),
    ("generic resources", {"gres_types": None}, True, "tracked"),
    ("generic resources", {"accounting_storage_tres": None, "gres_types": ["a", "b"]}, False, "gres/a, gres/b"),
    ("submit plugin", {"job_submit_plugins": ["lua", "other"]}, True, "JobSubmitPlugins has lua"),
    ("submit plugin", {"job_submit_plugins": ["other"]}, False, "no lua in JobSubmitPlugins"),
    ("versions", {"version": "26.05.1"}, True, "controller 26.05.1"),
    ("versions", {"version": "26.04.9"}, False, "controller 26.04.9"),
    ("versions", {"version": "27.01.0"}, True, "controller 27.01.0"),
    ("versions", {"version": None}, True, "controller , clients here 26.05.5"),
    ("accounting", {"accounting_storage_type": "a/slurmdbd"}, True, "a/slurmdbd answers"),
    ("priority type", {"priority_type": "priority/basic"}, False, "priority/basic"),
    ("priority type", {"priority_type": None}, False, "priority/basic"),
    ("site factor", {"priority_site_factor_plugin": "site_factor/none"}, True, "no plugin"),
    ("site factor", {"priority_site_factor_plugin": "site_factor/ours"}, False, "set by site_factor/ours"),
]


@pytest.mark.parametrize(("name", "config", "ok", "words"), BOUNDARIES)
def test_each_check_on_both_sides_of_its_boundary(name: str, config: dict[str, Any], ok: bool, words: str) -> None:
    check = check_of(name, changed(**config))
    assert check.ok is ok
    assert words in check.detail
    assert bool(check.mend) is not ok


@pytest.mark.parametrize(("ahead_s", "ok"), [(3, True), (-3, True), (4, False), (-4, False)])
def test_clocks_may_differ_by_three_seconds(ahead_s: int, ok: bool) -> None:
    assert check_of("clocks", {**Scene().facts, "clock_ahead_s": ahead_s}).ok is ok


def test_clients_and_nodes_of_which_no_version_is_known_are_said_to_be_unknown() -> None:
    check = check_of("versions", {**Scene().facts, "clients": None, "node_versions": []})
    assert check.ok
    assert check.detail == "controller 26.05.5, clients here unknown, pyslurm 25.11.2, nodes unknown"


def test_without_pyslurm_its_version_is_not_told() -> None:
    check = check_of("versions", {**Scene().facts, "pyslurm": ""})
    assert check.detail == "controller 26.05.5, clients here 26.05.5, nodes 26.05.5"
    newer = check_of("versions", {**Scene().facts, "pyslurm": "", "clients": "27.05.1"})
    assert newer.mend == "install Slurm clients that are not newer than slurmctld"


def test_the_transport_is_told_with_the_reason() -> None:
    (check,) = (each for each in run_checks(Scene().facts, "cli: pyslurm is not installed") if each.name == "transport")
    assert (check.ok, check.detail) == (True, "cli: pyslurm is not installed")


@pytest.mark.parametrize(
    ("uid", "user", "words"),
    [(0, "root", "root: super user"), (7, "slurm", "slurm: super user"), (7, "ada", "ada: AdminLevel Operator")],
)
def test_root_and_the_user_of_slurm_need_no_level(uid: int, user: str, words: str) -> None:
    facts = changed(slurm_user_name="slurm") | {"uid": uid, "user": user, "admin_level": "Operator"}
    assert check_of("privilege", facts).detail == words
    facts["admin_level"] = None
    assert check_of("privilege", facts).ok is (user != "ada")


def test_an_interval_that_is_switched_off_is_named() -> None:
    facts = changed(scheduler_parameters={"sched_interval": -1, "bf_interval": "-1", "disable_job_shrink": True})
    assert (
        check_of("scheduler intervals", facts).mend
        == "remove sched_interval=-1, bf_interval=-1 from SchedulerParameters"
    )


# ------------------------------------------------------------------------------------------------ the site's policy


def a_picture(**fields: Any) -> SitePolicySnapshot:
    return dataclasses.replace(SitePolicySnapshot(), **fields)


@pytest.mark.parametrize(
    ("limits_hold", "failures", "ok", "detail"),
    [
        (None, {"config": "refused", "qos": "no"}, False, "refused; no"),
        (None, {}, False, "no answer"),
        (False, {}, True, "{read}, limits not enforced"),
        (False, {"qos": "refused"}, True, "{read}, limits not enforced"),
        (True, {"config": "refused"}, True, "{read}, limits enforced"),
        (True, {"qos": "refused", "shares": "silent", "partitions": "odd"}, False,
         "{read}, limits enforced; no qos (refused), shares (silent)"),
    ],
)  # fmt: skip
def test_what_of_the_policy_could_be_read(
    limits_hold: bool | None, failures: dict[str, str], ok: bool, detail: str
) -> None:
    picture = None if limits_hold is None else a_picture(site=SiteLimitPolicy(limits_hold=limits_hold))
    check = check_policy_reading(picture, failures)
    assert (check.ok, check.required) == (ok, False)
    assert check.detail == detail.format(read=f"{SitePolicySnapshot().rules.kind}, 1 associations, 0 QOS")


def a_difference(job_id: int) -> PriorityDifference:
    return PriorityDifference(job_id, 10, 12, "age", 1.0, 3.0)


@pytest.mark.parametrize("count", [1, MOST_NAMED, MOST_NAMED + 1])
def test_differing_priorities_are_named_up_to_a_bound(count: int) -> None:
    check = check_priorities(SprioComparison(9, tuple(a_difference(id) for id in range(count))), a_picture())
    assert not check.ok
    assert not check.required
    assert check.detail.startswith(f"equal to sprio on {9 - count} of 9 jobs not held; job 0: 10 here")
    assert check.detail.count("job ") == min(count, MOST_NAMED)


def test_where_there_is_nothing_to_compare_that_is_said() -> None:
    basic = a_picture(rules=PriorityPolicy(kind="basic"))
    assert check_priorities(SprioComparison(0, ()), a_picture()).detail.startswith("no pending job that is not held")
    assert check_priorities(SprioComparison(0, ()), basic).detail == "priority/basic: jobs go in order of arrival"
    same = check_priorities(SprioComparison(2, ()), a_picture())
    assert (same.ok, same.detail) == (True, "equal to sprio on 2 of 2 jobs not held")


@pytest.mark.parametrize(
    ("count", "detail"),
    [
        (0, "all that are set are modelled"),
        (1, "not modelled: l0"),
        (MOST_NAMED, "not modelled: l0, l1, l2, l3, l4"),
        (MOST_NAMED + 2, "not modelled: l0, l1, l2, l3, l4 and 2 more"),
    ],
)
def test_limits_that_are_not_modelled_are_named_up_to_a_bound(count: int, detail: str) -> None:
    check = check_unmodelled_limits(a_picture(unmodelled=tuple(f"l{i}" for i in range(count))))
    assert (check.ok, check.required, check.detail) == (not count, False, detail)


def test_partitions_in_which_held_and_free_jobs_wait_are_named_up_to_a_bound() -> None:
    def waiting(partition: str | None, priority: int, state: str = "PENDING") -> dict[str, Any]:
        return {"state": state, "partition": partition, "priority": priority}

    def detail(*jobs: dict[str, Any]) -> str:
        records = dataclasses.replace(Scene().read(), jobs=list(jobs))
        check = check_unmanaged_jobs(records)
        assert not check.required
        assert check.ok is (check.detail == "none managed in part")
        return check.detail

    assert detail(waiting("a", 0), waiting("b", 1)) == "none managed in part"
    assert detail(waiting("a", 0), waiting("a", 1, "RUNNING")) == "none managed in part"
    assert detail(waiting("b,a", 0), waiting("a,c", 1)) == "held and free jobs wait side by side in a"
    assert detail(waiting(None, 0), waiting("", 1)).endswith("side by side in ")
    names = "abcdef"
    both = [waiting(",".join(names), 0), waiting(",".join(names), 1)]
    assert detail(*both).endswith("in a, b, c, d, e")


def test_the_machine_beside_which_priorities_are_compared_is_that_of_all_nodes(mocker: MockerFixture) -> None:
    compared = mocker.patch(
        "cpsched_bridge.adapters.slurm.slurm_doctor.compare_with_sprio", return_value=SprioComparison(0, ())
    )
    records = Scene().read()
    nodes = [{**node, "effective_cpus": cpus} for node, cpus in zip(records.nodes, (8, None, 4, 2), strict=True)]
    names = [check.name for check in run_policy_checks(a_picture(), {}, "", dataclasses.replace(records, nodes=nodes))]
    assert names == ["site policy", "priorities", "limits", "partitions"]
    assert compared.call_args.args[3] == ClusterSize(4, 14)
    assert [check.name for check in run_policy_checks(None, {}, "", records)] == ["site policy"]
    assert all(not check.mend for check in run_policy_checks(a_picture(), {}, "", records) if check.ok)


def test_a_topology_plugin_that_decides_is_named() -> None:
    plugins = ["topology/block", "topology/tree"]
    found = check_of("topology", {**changed(topology_plugin="topology/flat"), "topology_plugins": plugins})
    assert (found.ok, found.required, found.mode) == (False, False, "control")
    assert found.detail.startswith("topology/block, topology/tree: the bridge chooses nodes without it")
    assert check_of("topology", changed(topology_plugin="topology/tree")).ok  # with TopoOptional


def test_each_mode_has_its_own_checks() -> None:
    found = run_checks(changed(priority_type="priority/basic", scheduler_parameters={}))
    control, advise = ({check.name for check in select_checks(found, mode)} for mode in ("control", "advise"))
    assert {"job shrink", "preemption", "topology", "submit plugin", "start latency"} == control - advise
    assert {"priority type", "site factor"} == advise - control
    with pytest.raises(NotReady, match="advise mode is refused"):
        require_ready(select_checks(found, "advise"), "advise")
    shadow = {check.name: check.required for check in select_checks(found, "shadow")}
    assert (shadow["priority type"], shadow["job shrink"]) == (False, True)


@pytest.mark.parametrize(
    ("per_s", "pyslurm", "required"), [(2.0, "", False), (8 / 60, "", False), (0.1, "", True), (2.0, "25.11.2", True)]
)
def test_a_limit_on_calls_is_told_with_what_the_site_can_set(per_s: float, pyslurm: str, required: bool) -> None:
    """Where not even a reading a minute is accepted, there is nothing to control with. pyslurm keeps to no limit."""
    facts = {**Scene().facts, "pyslurm": pyslurm, "rate_limit": {"bucket": 30, "per_s": per_s}}
    check = check_of("call limit", facts)
    assert (check.ok, check.required) == (False, required)
    assert check.detail == f"rl_enable: 30 calls at once, {per_s:g} more each second"
    assert "SlurmUser" in check.mend


def test_without_a_limit_on_calls_nothing_is_told() -> None:
    assert not [check for check in run_checks({**Scene().facts, "rate_limit": None}) if check.name == "call limit"]
