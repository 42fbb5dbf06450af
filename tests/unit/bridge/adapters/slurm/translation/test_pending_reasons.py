"""Each of Slurm's pending reasons, and who must act on it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cpsched_bridge.adapters.slurm.translation import pending_reasons, slurm_states
from cpsched_bridge.adapters.slurm.translation.pending_reasons import PendingJobWithReason
from cpsched_bridge.backoff_groups import BackoffGroupKey
from tests.builders import a_slurm_job

JOB = a_slurm_job(7, array_id=7, user_name="alice", user_id=2001, account="lab", qos="fast", partition="main")
ALIKE = BackoffGroupKey("alike", ("alice", "", "main", "fast", "one node"))

KINDS = ("CPU", "Mem", "Node", "Energy", "GRES", "License", "BB", "Billing", "Unknown")


def subject(reason: str = "", label: str = "7_3", **facts: Any) -> PendingJobWithReason:
    return PendingJobWithReason(label, JOB._replace(state_reason=reason, **facts), ALIKE)


WHOM = {
    "job 7_3": [
        *("Dependency", "DependencyNeverSatisfied", "BeginTime", "DeadLine", "JobHoldMaxRequeue"),
        *("Reservation", "ReservationDeleted", "ReservationInvalid", "BurstBufferResources", "BurstBufferStageIn"),
    ],
    "jobs of user alice, QOS fast that request one node": [
        *("AssocMaxCpuPerJobLimit", "AssocMaxCpuMinutesPerJobLimit", "AssocMaxNodePerJobLimit"),
        *("AssocMaxWallDurationPerJobLimit", "AssocMaxBBMinutesPerJob", "QOSMaxWallDurationPerJobLimit"),
        *("QOSMaxCpuPerJobLimit", "QOSMinCpuNotSatisfied", "QOSMaxCpuPerNode"),
        *(f"AssocMax{kind}Per{what}" for kind in KINDS for what in ("Job", "Node")),
        *(f"AssocMax{kind}MinutesPerJob" for kind in KINDS),
        *(f"QOSMax{kind}Per{what}" for kind in KINDS for what in ("Job", "Node")),
        *(f"QOSMin{kind}" for kind in KINDS),
        *("BadConstraints", "Constraints", "PartitionNodeLimit", "PartitionTimeLimit", "MaxMemPerLimit", "Licenses"),
    ],
    "array 7": ["JobArrayTaskLimit"],
    "user alice in account lab": [
        *("AssocMaxJobsLimit", "AssocMaxSubmitJobLimit", "AssocGrpJobsLimit", "AssocGrpCpuLimit"),
        *("AssocGrpWallLimit", "AssociationJobLimit", "AssociationResourceLimit", "AssociationTimeLimit"),
        *(f"AssocGrp{kind}{what}" for kind in KINDS for what in ("", "Minutes", "RunMinutes")),
    ],
    "QOS fast of user alice": [
        *("QOSGrpCpuLimit", "QOSGrpJobsLimit", "QOSGrpCPURunMinutesLimit", "QOSGrpWallLimit"),
        *("QOSJobLimit", "QOSResourceLimit", "QOSTimeLimit"),
        *(f"QOSGrp{kind}{what}" for kind in KINDS for what in ("", "Minutes", "RunMinutes")),
        *("QOSMaxJobsPerUserLimit", "QOSMaxCpuPerUserLimit", "QOSMaxNodePerUserLimit", "QOSMaxSubmitJobPerUserLimit"),
        *(f"QOSMax{kind}PerUser" for kind in KINDS),
        *(f"Max{kind}RunMinsPerUser" for kind in KINDS),
        "MaxJobsPerAccount",
        *(f"Max{kind}PerAccount" for kind in KINDS),
        *(f"Max{kind}RunMinsPerAccount" for kind in KINDS),
    ],
    "partition main of user alice": ["PartitionDown", "PartitionInactive"],
    "partition main of user alice with account lab and QOS fast": [
        *("AccountNotAllowed", "QOSNotAllowed", "InvalidAccount", "InvalidQOS", "AccountingPolicy", "PartitionConfig"),
        "QOSUsageThreshold",
    ],
}


@pytest.mark.parametrize("whom", WHOM)
def test_maps_each_reason_to_its_owner(whom: str) -> None:
    """Names of limits that no version of Slurm has yet are among them: they are formed by rule."""
    found = {reason: pending_reasons.find_cluster_reason(subject(reason)) for reason in WHOM[whom]}
    assert {reason: str(each.scope) if each else None for reason, each in found.items()} == dict.fromkeys(
        WHOM[whom], whom
    )
    assert whom in map(str, pending_reasons.list_backoff_keys(subject()))


def test_reason_delays_no_job_of_other_users() -> None:
    """What one user's job meets says nothing of another's: it may ask for too much."""
    alices = {reason: pending_reasons.find_cluster_reason(subject(reason, array_id=0))
              for reason in pending_reasons.REASONS}  # fmt: skip
    others = JOB._replace(array_id=0, user_name="bob", user_id=2002)
    bobs = pending_reasons.list_backoff_keys(
        PendingJobWithReason("8", others, BackoffGroupKey("alike", ("bob", "", "", "", "")))
    )
    assert [reason for reason, found in alices.items() if found is not None and found.scope in bobs] == []
    assert sum(found is not None for found in alices.values()) > 150


def test_reason_table_has_219_unique_names() -> None:
    names = [name for _, row in pending_reasons._NAMES_BY_MEANING for name in row.split()]  # noqa: SLF001
    assert len(names) == len(set(names)) == 219
    assert len(pending_reasons.REASONS) == 219 + len(slurm_states.LAUNCH_FAILED_REASONS)


def test_reason_table_contains_every_slurm_hold() -> None:
    assert (
        slurm_states.SLURM_HOLD_REASONS | {slurm_states.HELD_BY_ADMIN_REASON, slurm_states.HELD_BY_USER_REASON}
        <= pending_reasons.REASONS.keys()
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Job's QOS not permitted to use this partition (main allows fast not normal)", "QOSNotAllowed"),
        ("Job's QOS not known, so it can't use this partition (main allows fast)", "QOSNotAllowed"),
        ("Job's account not permitted to use this partition (main allows a not b)", "AccountNotAllowed"),
        ("Job's account not known, so it can't use this partition (main allows a)", "AccountNotAllowed"),
        ("uid 2001 not in group permitted to use this partition (main). groups allowed: a", "AccountNotAllowed"),
        ("ReqNodeNotAvail, UnavailableNodes:n2", "ReqNodeNotAvail"),
        ("ReqNodeNotAvail, Reserved for maintenance", "ReqNodeNotAvail"),
        ("ReqNodeNotAvail, May be reserved for other job", "Priority"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "Resources"),
        ("Reservation night was deleted", "ReservationDeleted"),
        ("Reservation night is invalid", "ReservationInvalid"),
        *((sentence, sentence) for sentence in sorted(slurm_states.LAUNCH_FAILED_REASONS)),
        ("job requeued in special exit state", "JobHeldUser"),
        ("License request 'a:1' is no longer valid, holding job", "JobHeldAdmin"),
        ("burst_buffer/lua: stage in failed", "BurstBufferOperation"),
        ("Job is at or exceeds QOS fast's group wall limit of 5 with 6", "TimeLimit"),
        ("something else that nobody has heard of", "something else that nobody has heard of"),
    ],
)
def test_maps_reason_sentence_to_its_name(text: str, name: str) -> None:
    """scontrol writes the same sentence with underscores."""
    assert pending_reasons.normalize_reason_name(text) == name
    written = pending_reasons.normalize_reason_name(text.replace(" ", "_"))
    assert name not in pending_reasons.REASONS or written == name


@pytest.mark.parametrize(
    "reason",
    [
        *("None", "Resources", "ReqNodeNotAvail", "ReqNodeNotAvail, UnavailableNodes:n2", "NodeDown"),
        *("Prolog", "JobHeldUser", "JobHeldAdmin", "SystemFailure", "JobLaunchFailure", "SchedDefer", ""),
        "Priority",
    ],
)
def test_cluster_and_bridge_reasons_block_no_job_group(reason: str) -> None:
    """A start that ends with one of these counts as failed."""
    assert pending_reasons.find_cluster_reason(subject(reason)) is None
    assert pending_reasons.get_reason_meaning(reason).lower_priority == (reason == "Priority")


@pytest.mark.parametrize(
    "reason", ["Novelty", "No suitable topology unit found", "Required_nodes_do_not_fit_topology", "something else"]
)
def test_unlisted_reason_delays_equivalent_jobs_without_failure(reason: str) -> None:
    found = pending_reasons.find_cluster_reason(subject(reason))
    assert found is not None
    assert (found.reason, found.scope, found.transient, found.clears_on_end) == (reason, ALIKE, True, False)


def test_flags_of_reasons() -> None:
    """Only unevaluated reasons are transient. `Resources` may pass: what ended there may still be cleaned up."""
    by_flag = {
        flag: {name for name, meaning in pending_reasons.REASONS.items() if getattr(meaning, flag)}
        for flag in ("refused", "transient", "clears_on_end")
    }
    assert (by_flag["refused"], by_flag["transient"]) == ({"ReqNodeNotAvail"}, {"Dependency", "BeginTime"})
    assert all(re.match(r"Assoc|QOS|Max|JobArray", name) for name in by_flag["clears_on_end"])
    assert not any(re.search(r"PerJob|PerNode|NotAllowed|QOSMin", name) for name in by_flag["clears_on_end"])


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("Dependency", (True, False)), ("AssocMaxJobsLimit", (False, True))],
)
def test_cluster_reason_has_flags_of_its_name(reason: str, expected: tuple[bool, bool]) -> None:
    found = pending_reasons.find_cluster_reason(subject(reason))
    assert found is not None
    assert (found.transient, found.clears_on_end) == expected


def test_groups_job_without_user_account_or_array() -> None:
    nobody = subject("JobArrayTaskLimit", "9", array_id=0, user_name="", account="")
    found = pending_reasons.find_cluster_reason(nobody)
    assert found is not None
    assert found.scope == ("job", ("9",))
    assert ("association", ("2001", "")) in pending_reasons.list_backoff_keys(nobody)
