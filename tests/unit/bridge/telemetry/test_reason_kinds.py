"""Kinds and texts of reasons."""

import pytest

from cpsched.model import PendingCode, PendingReason
from cpsched.model.job import ARGUMENTS
from cpsched.policy_spec import PolicySpec, setting_names
from cpsched.registry import DISPATCHERS
from cpsched_bridge.ports import Hold, Holder, PendingJob
from cpsched_bridge.telemetry.reason_kinds import (
    OTHER,
    REASON_KINDS,
    classify_reason,
    classify_unscheduled_job,
    format_reason,
    redact_reason,
)
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def crowded():
    """Some jobs fit and some do not, one never will, and what is free is needed by others."""
    cluster = a_cluster(nodes=3, cores=4)
    running = [a_running(a_job(90, per_unit=4, walltime_s=50), ((0, 1),))]
    wide = [a_job(1, units=3, per_unit=4, walltime_s=80), a_job(2, units=2, per_unit=4, walltime_s=500)]
    small = [a_job(10 + n, per_unit=1 + n % 4, walltime_s=40 + 300 * (n % 3), submit_s=n) for n in range(20)]
    return a_snapshot(cluster, [*wide, a_job(3, per_unit=9), *small], running, now_s=10)


@pytest.mark.parametrize("name", [listing.name for listing in DISPATCHERS.iterate_registrations()])
def test_built_in_dispatchers_give_no_free_text_reason(name):
    settings = {"limit_s": 0.02} if "limit_s" in setting_names(DISPATCHERS.find(name)) else {}
    decision = PolicySpec.of(name, settings=settings).build(lambda *_: None).decide(crowded(), "plan")
    assert decision.waits
    assert {wait.reason for wait in decision.waits.values() if classify_reason(wait.reason) == OTHER} == set()
    assert classify_reason(decision.waits[3].reason) == "never"


@pytest.mark.parametrize(
    ("code", "arguments", "distinct", "kind", "text"),
    [
        (PendingCode.RESOURCES, (0, 1), True, "resources", "too few nodes have enough free resources: 0 of 1"),
        (PendingCode.RESOURCES, (0, 8), False, "resources", "too few resources are free: enough for 0 of 8 tasks"),
        (PendingCode.RESOURCES, (1, 2), False, "resources", "too few resources are free: enough for 1 of 2 tasks"),
        (PendingCode.WHOLE_NODES, (0, 1), True, "resources", "too few nodes are completely free: 0 of 1"),
        (PendingCode.BLOCKS, (4,), True, "resources", "the free nodes do not fill blocks: requests 4 nodes together"),
        (PendingCode.WHOLE_NODES, (1, 2), True, "resources", "too few nodes are completely free: 1 of 2"),
        (PendingCode.NEVER, ("5 of 4 nodes",), False, "never", "can never run here: 5 of 4 nodes"),
        (PendingCode.RESERVED, (), False, "reserved", "would fit, but would delay a job ahead of it"),
        (PendingCode.PRIORITY, (), False, "priority", "other jobs go first"),
        (PendingCode.OTHER, ("mercury is in retrograde",), False, "other", "mercury is in retrograde"),
    ],
)
def test_reason_has_kind_and_text(code, arguments, distinct, kind, text):
    reason = PendingReason(code, arguments)
    assert (classify_reason(reason), format_reason(reason, distinct)) == (kind, text)


def test_every_code_has_kind_and_text():
    for code in PendingCode:
        reason = PendingReason(code, tuple(kind(8) for kind in ARGUMENTS.get(code, ())))
        assert classify_reason(reason) in REASON_KINDS
        assert format_reason(reason, True)
        assert format_reason(redact_reason(reason), True)


@pytest.mark.parametrize(
    ("code", "arguments", "text", "in_general"),
    [
        (
            PendingCode.DEPENDENCY, (),
            "its dependencies are not satisfied", "its dependencies are not satisfied",
        ),
        (PendingCode.CLUSTER, ("QOSMaxJobs", "8 of 8 of ada"), "QOSMaxJobs: 8 of 8 of ada", "QOSMaxJobs"),
        (PendingCode.BACKED_OFF, ("QOSMaxJobs", "user ada"), "QOSMaxJobs (user ada)", "QOSMaxJobs"),
        (PendingCode.HELD_FOR_JOBS, ("s",), "held (s) until other jobs end", "held"),
        (
            PendingCode.BEFORE_RESERVATION, ("fits not", "reservation ada_1 is over"),
            "fits not, before reservation ada_1 is over", "fits not, before a reservation ends",
        ),
        (PendingCode.UNMODELLED, ("features", "features 'a|b'"), "features 'a|b'", "features"),
        (PendingCode.UNREADABLE, ("user ada",), "cannot be read: user ada", "cannot be read"),
        (PendingCode.OTHER, ("Venus: ada (and ben); all",), "Venus: ada (and ben); all", "Venus"),
    ],
)  # fmt: skip
def test_redacts_reasons_that_name_other_users(code, arguments, text, in_general):
    reason = PendingReason(code, arguments)
    assert (format_reason(reason), format_reason(redact_reason(reason))) == (text, in_general)


def test_classifies_unscheduled_jobs():
    depends = a_job(1, ineligible="Dependency")
    assert classify_unscheduled_job(PendingJob(depends, Hold.USER), False) == "held_by_owner"
    assert (
        classify_unscheduled_job(PendingJob(depends, Hold.USER, holder=Holder.ADMINISTRATOR), False) == "in_transition"
    )
    assert classify_unscheduled_job(PendingJob(depends, Hold.USER, holder=Holder.CLUSTER), False) == "ineligible"
    assert classify_unscheduled_job(PendingJob(depends, Hold.PLUGIN), False) == "ineligible"
    assert classify_unscheduled_job(PendingJob(a_job(1), Hold.ADMIN), False) == "in_transition"
    assert classify_unscheduled_job(PendingJob(a_job(1), Hold.PLUGIN), True) == "ineligible"
    assert {"held_by_owner", "ineligible", "in_transition"} <= set(REASON_KINDS)
