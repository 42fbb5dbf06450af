"""Who holds a pending job according to its record: the complete rule in `docs/safety.md`."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.ports import Hold
from tests.builders import a_slurm_job

USER, ADMIN = "JobHeldUser", "JobHeldAdmin"
WAIT = "bridge:wait"
FORGED = (
    "\u00a0bridge:wait",
    "x\u00a0bridge:wait\u00a0y",
    "x\x1cbridge:wait\x1cy",
    "x\nbridge:wait\ny",
    "bridge:waits",
)


@pytest.mark.parametrize(
    ("reason", "admin_comment", "comment", "restarts", "guarded", "holder"),
    [
        # only the plugin's mark: the job is unchanged since
        (USER, WAIT, None, 0, True, Hold.PLUGIN),
        (USER, WAIT, None, 0, False, Hold.PLUGIN),
        ("Dependency", WAIT, "words", 0, True, Hold.PLUGIN),
        # it was requeued, or shows an administrator's hold: then the bridge's word in the comment must be there too
        (USER, WAIT, None, 1, True, Hold.USER),
        (ADMIN, WAIT, None, 0, True, Hold.ADMIN),
        (ADMIN, WAIT, None, 1, True, Hold.ADMIN),
        (ADMIN, WAIT, "bridge:wait", 0, True, Hold.PLUGIN),
        (ADMIN, WAIT, "bridge:wait words", 3, True, Hold.PLUGIN),
        # the word proves nothing where no plugin guards it, nor without the mark
        (ADMIN, WAIT, "bridge:wait", 0, False, Hold.ADMIN),
        (ADMIN, WAIT, "bridge:wait", 1, False, Hold.ADMIN),
        (ADMIN, None, "bridge:wait", 0, True, Hold.ADMIN),
        (ADMIN, None, "bridge:wait", 0, False, Hold.ADMIN),
        (USER, None, "bridge:wait", 0, True, Hold.USER),
        (ADMIN, "bridge:wait ", "bridge:wait", 0, True, Hold.ADMIN),
        (ADMIN, "x bridge:wait", "bridge:wait", 0, True, Hold.ADMIN),
        # another user holds it, too
        (ADMIN, WAIT, "bridge:wait bridge:admin-held", 0, True, Hold.USER),
        (USER, WAIT, "bridge:user-held", 0, True, Hold.USER),
        (USER, WAIT, "x\tbridge:user-held", 0, True, Hold.USER),
        (ADMIN, None, "bridge:admin-held", 0, True, Hold.USER),
        (ADMIN, WAIT, "bridge:admin-held", 0, False, Hold.USER),
        (ADMIN, None, "bridge:admin-held", 0, False, Hold.ADMIN),
        # no plugin at all: the ledger knows
        (USER, None, None, 0, False, Hold.USER),
        (ADMIN, None, None, 0, False, Hold.ADMIN),
        (None, None, None, None, False, Hold.ADMIN),
        # Slurm itself holds it
        ("BadConstraints", WAIT, None, 0, True, Hold.CLUSTER),
        ("BadConstraints", WAIT, "bridge:wait", 0, True, Hold.CLUSTER),
        ("BadConstraints", None, None, 0, False, Hold.CLUSTER),
        ("BadConstraints", WAIT, "bridge:user-held", 0, True, Hold.USER),
        ("JobHoldMaxRequeue", WAIT, None, 4, True, Hold.CLUSTER),
        *(
            (reason, WAIT, "bridge:pinned()", 1, True, Hold.CLUSTER)
            for reason in sorted(slurm_states.LAUNCH_FAILED_REASONS)
        ),
        ("launch failed requeued held", WAIT, "bridge:admin-held", 1, True, Hold.USER),
        ("job requeued in held state", WAIT, "bridge:pinned()", 1, True, Hold.ADMIN),
        *((ADMIN, WAIT, comment, 0, True, Hold.ADMIN) for comment in FORGED),
    ],
)
def test_classifies_hold_of_priority_0(
    reason: str | None,
    admin_comment: str | None,
    comment: str | None,
    restarts: int | None,
    guarded: bool,
    holder: Hold,
) -> None:
    slurm_job = a_slurm_job(
        priority=0, state_reason=reason, admin_comment=admin_comment, comment=comment, requeue_count=restarts
    )
    assert slurm_states.classify_hold(slurm_job, guarded) is holder


REASONS = (USER, ADMIN, "Dependency", "BadConstraints", None)
COMMENTS = (None, "bridge:wait", "bridge:wait bridge:admin-held", "bridge:user-held", "words", *FORGED)


@pytest.mark.parametrize("guarded", [True, False])
def test_hold_is_ours_only_by_documented_rule(guarded: bool) -> None:
    """Every combination: never the bridge's without the mark, with another's word, or on an administrator's reason."""
    ours = set()
    for reason, mark, comment, restarts in product(REASONS, (WAIT, None, "bridge:wait x"), COMMENTS, (0, 1)):
        slurm_job = a_slurm_job(
            priority=0, state_reason=reason, admin_comment=mark, comment=comment, requeue_count=restarts
        )
        if slurm_states.classify_hold(slurm_job, guarded) is Hold.PLUGIN:
            ours.add((reason, mark, comment, restarts))
    assert {mark for _, mark, _, _ in ours} == {WAIT}
    assert not any("-held" in (comment or "") for _, _, comment, _ in ours)
    assert {comment for reason, _, comment, restarts in ours if restarts or reason == ADMIN} == (
        {"bridge:wait"} if guarded else set()
    )


@pytest.mark.parametrize("priority", [1, 4_294_901_757, None])
def test_only_priority_0_is_hold(priority: int | None) -> None:
    slurm_job = a_slurm_job(priority=priority, state_reason=ADMIN, admin_comment=WAIT, comment="bridge:wait")
    assert slurm_states.classify_hold(slurm_job, True) is Hold.NONE


@pytest.mark.parametrize(
    ("admin_comment", "comment", "guarded", "ours"),
    [
        (None, "bridge:pinned()", True, True),
        (None, "bridge:pinned(n[1-2]) words", True, True),
        (WAIT, "bridge:pinned()", False, True),
        (None, "bridge:pinned()", False, False),
        (None, "\u00a0bridge:pinned()", True, False),
        (None, "bridge:pinned(", True, False),
        (None, None, True, False),
    ],
)
def test_classifies_owner_of_node_list(
    admin_comment: str | None, comment: str | None, guarded: bool, ours: bool
) -> None:
    slurm_job = a_slurm_job(admin_comment=admin_comment, comment=comment)
    assert slurm_states.is_pinned_by_bridge(slurm_job, guarded) is ours


@pytest.mark.parametrize(
    ("changes", "begin_s"),
    [
        ({}, 0),
        ({"comment": "bridge:asked(n1) bridge:begin(1795875296) mine"}, 1795875296),
        ({"priority": 0}, None),
        ({"admin_comment": None}, None),
        ({"comment": "bridge:begin(now)"}, None),
        ({"comment": "mine"}, None),
        ({"comment": None}, None),
    ],
)
def test_only_plugin_delays_jobs(changes: dict[str, Any], begin_s: int | None) -> None:
    """The values of a job that Slurm 26.05 shows as delayed; users cannot write an admin comment."""
    slurm_job = a_slurm_job(**{"priority": 1, "admin_comment": WAIT, "comment": "bridge:begin(0)", **changes})
    assert slurm_states.find_begin_of_delayed_job(slurm_job) == begin_s
