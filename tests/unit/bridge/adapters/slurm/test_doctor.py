"""The checks before control mode, on recorded facts."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.doctor import checks_of
from tests.unit.bridge.adapters.slurm.scenes import Scene


def failing(facts: dict[str, Any]) -> dict[str, bool]:
    """Names of failing checks, and whether they are required."""
    return {check.name: check.required for check in checks_of(facts) if not check.ok}


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
    broken = [check for check in checks_of(facts) if not check.ok]
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
    """A level that nobody can tell is a warning; one that is too low, by whoever tells it, is not enough."""
    facts = changed(accounting_storage_type="accounting_storage/slurmdbd")
    facts |= {"uid": 2100, "user": "cpsched", "admin_level": level, "accounting_answers": False}
    assert failing(facts) == {"generic resources": False, **expected}
