"""Kinds of reasons: every word that a listed dispatcher says has one."""

import pytest

from cpsched.catalogue import DISPATCHERS
from cpsched.dispatchers.cp.answer import PHRASES as SOLVERS
from cpsched.dispatchers.lookahead.dispatcher import PHRASES
from cpsched.policy_spec import PolicySpec, setting_names
from cpsched.reasons import LIST_SCHEDULING
from cpsched_bridge.ports import Hold
from cpsched_bridge.watch.reasons import KINDS, OTHER, kind_of, set_aside
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def crowded():
    """Some jobs fit and some do not, one never will, and what is free is needed by others."""
    cluster = a_cluster(nodes=3, cores=4)
    running = [a_running(a_job(90, per_unit=4, walltime_s=50), ((0, 1),))]
    wide = [a_job(1, units=3, per_unit=4, walltime_s=80), a_job(2, units=2, per_unit=4, walltime_s=500)]
    small = [a_job(10 + n, per_unit=1 + n % 4, walltime_s=40 + 300 * (n % 3), submit_s=n) for n in range(20)]
    return a_snapshot(cluster, [*wide, a_job(3, per_unit=9), *small], running, now_s=10)


@pytest.mark.parametrize("name", [listing.name for listing in DISPATCHERS.all()])
def test_every_reason_of_a_listed_dispatcher_has_a_kind(name):
    options = {"limit_s": 0.02} if "limit_s" in setting_names(DISPATCHERS.find(name)) else {}
    decision = PolicySpec.of(name, options=options).build(lambda *_: None).decide(crowded(), "plan")
    assert decision.waits
    assert {wait.reason for wait in decision.waits.values() if kind_of(wait.reason) == OTHER} == set()
    assert kind_of(decision.waits[3].reason) == "never"


@pytest.mark.parametrize("phrases", [LIST_SCHEDULING, PHRASES, SOLVERS], ids=["lists", "lookahead", "solvers"])
def test_a_job_without_a_plan_waits_for_the_reason_behind_those_words(phrases):
    lacking = phrases.no_plan + "not enough free resources: 0 of 1 units would fit"
    assert kind_of(lacking) == "resources"
    assert kind_of(phrases.no_plan + "others are first") == "priority"
    assert kind_of(phrases.no_plan + phrases.unplanned) == kind_of(phrases.unplanned) != OTHER


def test_what_a_plugin_says_is_other():
    assert kind_of("mercury is in retrograde") == OTHER


def test_jobs_that_are_not_decided_on():
    assert set_aside(Hold.USER, "Dependency") == "held_by_owner"
    assert set_aside(Hold.PLUGIN, "Dependency") == "ineligible"
    assert set_aside(Hold.ADMIN, None) == "set_aside"
    assert {"held_by_owner", "ineligible", "set_aside"} <= set(KINDS)
