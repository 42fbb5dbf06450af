"""Slurm's reasons why a job waits: with whom each of them lies, with the job, its user, its QOS, ..., or with nobody.

The names are those of Slurm 26.05 (`src/common/job_state_reason.c`). Rules instead of 200 rows, since Slurm forms the
names of its limits by rule. A name that no rule knows lies with nobody: a start that ends with it is the bridge's own
failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.ports import Obstacle

Group = Callable[[str, Record], str]
"""The group that a reason is about, of a job with this label and record."""


def of_job(label: str, record: Record) -> str:
    """The job alone."""
    return f"job {label}"


def of_array(label: str, record: Record) -> str:
    """The array that the job is a task of."""
    return f"array {record['array_id']}" if record["array_id"] else f"job {label}"


def of_association(label: str, record: Record) -> str:
    """The user in an account. A limit of the account itself is met by each of its users separately."""
    return f"user {_user(record)} of account {record['account'] or ''}"


def of_qos(label: str, record: Record) -> str:
    """All jobs of the QOS."""
    return f"QOS {record['qos'] or ''}"


def of_qos_by_user(label: str, record: Record) -> str:
    """The user's jobs of the QOS."""
    return f"QOS {record['qos'] or ''} of user {_user(record)}"


def of_qos_by_account(label: str, record: Record) -> str:
    """The account's jobs of the QOS."""
    return f"QOS {record['qos'] or ''} of account {record['account'] or ''}"


def of_partition(label: str, record: Record) -> str:
    """All jobs of the partition."""
    return f"partition {record['partition'] or ''}"


def _user(record: Record) -> str:
    return record["user_name"] or str(record["user_id"])


GROUPS: tuple[Group, ...] = (
    of_job,
    of_array,
    of_association,
    of_qos,
    of_qos_by_user,
    of_qos_by_account,
    of_partition,
)

RULES: tuple[tuple[str, Group], ...] = (
    (r"(Assoc|QOS)Max.*Per(Job|Node)(Limit)?|AssocMaxBBMinutesPerJob|QOSMin.*", of_job),
    (r"Assoc(Grp.*|MaxJobsLimit|MaxSubmitJobLimit|iation(Job|Resource|Time)Limit)", of_association),
    (r"(QOS)?Max.*PerUser(Limit)?", of_qos_by_user),
    (r"(QOS)?Max.*PerAccount(Limit)?", of_qos_by_account),
    (r"QOS(Grp.*|(Job|Resource|Time)Limit|UsageThreshold)", of_qos),
    (r"Partition(Down|Inactive)", of_partition),
    (r"JobArrayTaskLimit", of_array),
    (r"Dependency(NeverSatisfied)?|BeginTime|DeadLine", of_job),
    (r"(Bad)?Constraints|Partition(NodeLimit|TimeLimit|Config)|MaxMemPerLimit|Licenses", of_job),
    (r"AccountNotAllowed|AccountingPolicy|QOSNotAllowed|Invalid(Account|QOS)", of_job),
    (r"Reservation(Deleted|Invalid)?|BurstBuffer.*|JobHoldMaxRequeue|MpiPortsBusy|NvidiaImexChannels", of_job),
)
"""The first rule that matches a whole name counts."""

PASSING = frozenset({"Dependency", "BeginTime"})
"""Slurm may show these for a moment after a release, until its scheduler has looked at the job."""


@lru_cache(maxsize=512)
def group_of(reason: str | None) -> Group | None:
    """Who is concerned by a reason; None where the reason lies with the cluster (resources, priority, nodes)."""
    return next((group for pattern, group in RULES if re.fullmatch(pattern, reason or "")), None)


def obstacle_of(label: str, record: Record) -> Obstacle | None:
    """The reason of a pending record, where it lies with the job or its like."""
    reason = record["state_reason"]
    group = group_of(reason)
    return None if group is None else Obstacle(reason, group(label, record), reason in PASSING)


def groups_of(label: str, record: Record) -> tuple[str, ...]:
    """Every group that a reason of this job could be about, each once."""
    return tuple(dict.fromkeys(group(label, record) for group in GROUPS))
