"""Each of Slurm's reasons, with whom it lies."""

from __future__ import annotations

import pytest

from cpsched_bridge.adapters.slurm.translation import reasons

RECORD = {"array_id": 7, "user_name": "alice", "user_id": 2001, "account": "lab", "qos": "fast", "partition": "main"}

KINDS = ("CPU", "Mem", "Node", "Energy", "GRES", "License", "BB", "Billing", "Unknown")

WHOM = {
    "job 7_3": [
        *("AssocMaxCpuPerJobLimit", "AssocMaxCpuMinutesPerJobLimit", "AssocMaxNodePerJobLimit"),
        *("AssocMaxWallDurationPerJobLimit", "AssocMaxBBMinutesPerJob", "QOSMaxWallDurationPerJobLimit"),
        *("QOSMaxCpuPerJobLimit", "QOSMinCpuNotSatisfied", "QOSMaxCpuPerNode"),
        *(f"AssocMax{kind}Per{what}" for kind in KINDS for what in ("Job", "Node")),
        *(f"AssocMax{kind}MinutesPerJob" for kind in KINDS),
        *(f"QOSMax{kind}Per{what}" for kind in KINDS for what in ("Job", "Node")),
        *(f"QOSMin{kind}" for kind in KINDS),
        *("BadConstraints", "Constraints", "PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig"),
        *("Dependency", "DependencyNeverSatisfied", "BeginTime", "DeadLine", "MaxMemPerLimit", "Licenses"),
        *("AccountNotAllowed", "QOSNotAllowed", "InvalidAccount", "InvalidQOS", "AccountingPolicy"),
        *("Reservation", "ReservationDeleted", "ReservationInvalid", "JobHoldMaxRequeue", "BurstBufferResources"),
    ],
    "array 7": ["JobArrayTaskLimit"],
    "user alice of account lab": [
        *("AssocMaxJobsLimit", "AssocMaxSubmitJobLimit", "AssocGrpJobsLimit", "AssocGrpCpuLimit"),
        *("AssocGrpWallLimit", "AssociationJobLimit", "AssociationResourceLimit", "AssociationTimeLimit"),
        *(f"AssocGrp{kind}{what}" for kind in KINDS for what in ("", "Minutes", "RunMinutes")),
    ],
    "QOS fast": [
        *("QOSGrpCpuLimit", "QOSGrpJobsLimit", "QOSGrpCPURunMinutesLimit", "QOSGrpWallLimit", "QOSUsageThreshold"),
        *("QOSJobLimit", "QOSResourceLimit", "QOSTimeLimit"),
        *(f"QOSGrp{kind}{what}" for kind in KINDS for what in ("", "Minutes", "RunMinutes")),
    ],
    "QOS fast of user alice": [
        *("QOSMaxJobsPerUserLimit", "QOSMaxCpuPerUserLimit", "QOSMaxNodePerUserLimit", "QOSMaxSubmitJobPerUserLimit"),
        *(f"QOSMax{kind}PerUser" for kind in KINDS),
        *(f"Max{kind}RunMinsPerUser" for kind in KINDS),
    ],
    "QOS fast of account lab": [
        "MaxJobsPerAccount",
        *(f"Max{kind}PerAccount" for kind in KINDS),
        *(f"Max{kind}RunMinsPerAccount" for kind in KINDS),
    ],
    "partition main": ["PartitionDown", "PartitionInactive"],
}


@pytest.mark.parametrize("whom", WHOM)
def test_with_whom_a_reason_lies(whom: str) -> None:
    found = {reason: reasons.obstacle_of("7_3", {**RECORD, "state_reason": reason}) for reason in WHOM[whom]}
    assert {reason: each.whom if each else None for reason, each in found.items()} == dict.fromkeys(WHOM[whom], whom)
    assert whom in reasons.groups_of("7_3", RECORD)


@pytest.mark.parametrize(
    "reason",
    [
        *("None", "Priority", "Resources", "ReqNodeNotAvail", "ReqNodeNotAvail, UnavailableNodes:n2", "NodeDown"),
        *("Prolog", "JobHeldUser", "JobHeldAdmin", "SystemFailure", "JobLaunchFailure", "SchedDefer", "", "Novelty"),
    ],
)
def test_reasons_that_lie_with_the_cluster_or_the_bridge(reason: str) -> None:
    """A start that ends with one of these counts as the bridge's failure; so does one that nobody has heard of."""
    assert reasons.obstacle_of("7_3", {**RECORD, "state_reason": reason}) is None
    assert reasons.obstacle_of("7_3", {**RECORD, "state_reason": None}) is None


def test_only_what_the_scheduler_has_not_looked_at_yet_may_pass() -> None:
    passing = {name for names in WHOM.values() for name in names if name in reasons.PASSING}
    assert passing == {"Dependency", "BeginTime"}
    found = reasons.obstacle_of("7", {**RECORD, "state_reason": "Dependency"})
    assert found is not None
    assert found.passes


def test_without_user_account_or_array_there_is_still_a_group() -> None:
    record = {**RECORD, "array_id": None, "user_name": None, "account": None, "state_reason": "JobArrayTaskLimit"}
    found = reasons.obstacle_of("9", record)
    assert found is not None
    assert found.whom == "job 9"
    assert "user 2001 of account " in reasons.groups_of("9", record)
