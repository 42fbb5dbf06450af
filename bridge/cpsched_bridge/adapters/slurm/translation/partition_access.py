"""Decide which jobs may use a partition by its lists of accounts, QOS and groups.

If a list of allowed names is set, Slurm ignores the list of denied names. A job is not excluded because of an unknown
fact: Slurm then accepts or rejects its start. These facts may be unknown:

- whether the controller checks accounts (since 23.02, only if associations are enforced),
- the parents of accounts (since 23.02, a partition that allows an account also allows its child accounts),
- the groups of a user who does not exist on this host,
- the hosts from which a partition accepts jobs (`AllocNodes`), which the bridge does not read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from cpsched.errors import escape_controls, join_abbreviated
from cpsched.model import PendingCode, PendingReason
from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import PartitionRules

_MAX_LISTED_NAMES = 5
"""Maximum number of names that a reason lists."""
_CHILD_ACCOUNTS_SINCE = (23, 2)
"""First release in which a partition that allows an account also allows its child accounts."""


@dataclass(frozen=True, slots=True)
class PartitionAccessContext:
    """Facts about access that neither the job's nor the partition's record contains.

    - `checks_accounts`: whether the controller checks accounts, or None if unknown.
    - `includes_child_accounts`: whether an account includes its child accounts.
    - `above`: the parent of each account, or None if unknown.
    - `outside`: the groups that each user is known not to belong to, by user.
    """

    checks_accounts: bool | None = None
    includes_child_accounts: bool = True
    above: Mapping[str, str] | None = None
    outside: Mapping[str, Collection[str]] = field(default_factory=dict)


def find_account_check_rules(config: SlurmConfig) -> tuple[bool | None, bool]:
    """Return a configuration's `checks_accounts` and `includes_child_accounts`."""
    version, enforced = _parse_version(config.version), config.accounting_storage_enforce
    if version is not None and version < _CHILD_ACCOUNTS_SINCE:
        return True, False
    if version is None or enforced is None:
        return None, True
    text = " ".join(enforced).lower()
    return any(word in text for word in ("associations", "limits", "qos", "safe", "wckeys")), True


def _parse_version(text: str | None) -> tuple[int, int] | None:
    parts = (text or "").split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else None


def find_access_denied_reason(
    job: SlurmJob, partition: PartitionRules, access_context: PartitionAccessContext
) -> PendingReason | None:
    """Return why a job may not use its partition.

    Return None if it may, or if this is unknown. The reason begins with Slurm's name for it.
    """
    return (
        _find_qos_denial_reason(job.qos, partition)
        or _find_account_denial_reason(job.account, partition, access_context)
        or _find_group_denial_reason(job, partition, access_context)
    )


def _find_qos_denial_reason(qos: str, partition: PartitionRules) -> PendingReason | None:
    if not qos:
        return None
    if partition.allowed_qos is not None:
        kept_out = qos.lower() not in partition.allowed_qos
        return (
            _make_denied_reason("QOSNotAllowed", partition, "allows QOS", partition.allowed_qos, qos)
            if kept_out
            else None
        )
    return (
        _make_denied_reason("QOSNotAllowed", partition, "denies QOS", [qos])
        if qos.lower() in partition.denied_qos
        else None
    )


def _find_account_denial_reason(
    account: str, partition: PartitionRules, access_context: PartitionAccessContext
) -> PendingReason | None:
    if not account or not access_context.checks_accounts:
        return None
    line = list(_list_accounts_for_access(account.lower(), access_context))
    if partition.allowed_accounts is not None:
        unknown = access_context.includes_child_accounts and account.lower() not in (access_context.above or {})
        if unknown or not partition.allowed_accounts.isdisjoint(line):
            return None
        return _make_denied_reason(
            "AccountNotAllowed", partition, "allows accounts", partition.allowed_accounts, account
        )
    denied = [each for each in line if each in partition.denied_accounts]
    return _make_denied_reason("AccountNotAllowed", partition, "denies account", denied) if denied else None


def _list_accounts_for_access(account: str, access_context: PartitionAccessContext) -> Iterator[str]:
    """Yield the account and, if parents count, its ancestors."""
    return _walk_account_and_ancestors(
        account,
        access_context.above if access_context.includes_child_accounts and access_context.above is not None else {},
    )


def _walk_account_and_ancestors(account: str, above: Mapping[str, str]) -> Iterator[str]:
    seen: set[str] = set()
    while account and account not in seen:
        seen.add(account)
        yield account
        account = above.get(account, "")


def list_account_and_ancestors(account: str, access_context: PartitionAccessContext) -> list[str]:
    """Return the account and its known ancestors, in lower case."""
    return list(_walk_account_and_ancestors(account.lower(), access_context.above or {}))


def _find_group_denial_reason(
    job: SlurmJob, partition: PartitionRules, access_context: PartitionAccessContext
) -> PendingReason | None:
    user = job.user_name
    if partition.allowed_groups is None or job.user_id == 0 or user not in access_context.outside:
        return None
    if not partition.allowed_groups.issubset(access_context.outside[user]):
        return None
    return _make_denied_reason(
        "AccountNotAllowed", partition, "allows groups", partition.allowed_groups, f"user {user}"
    )


def _make_denied_reason(
    name: str, partition: PartitionRules, rule: str, names: Collection[str], other: str = ""
) -> PendingReason:
    listed = join_abbreviated(sorted(names), _MAX_LISTED_NAMES)
    what = escape_controls(f"partition {partition.name} {rule} {listed or 'none'}" + (other and f", not {other}"))
    return PendingReason(PendingCode.CLUSTER, (name, what))
