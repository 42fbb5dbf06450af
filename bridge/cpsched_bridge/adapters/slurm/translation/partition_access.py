"""Decide which jobs may use a partition, based on its lists of accounts, QOS and Unix groups.

If a list of allowed names is set, Slurm ignores the list of denied names. Unknown facts exclude no job; Slurm's own
answer to a start then decides. These facts may be unknown:

- whether the controller checks accounts: since 23.02 it does so only if associations are enforced,
- the parents of accounts: since 23.02 a partition that allows an account also allows its child accounts,
- the groups of a user who does not exist on this host,
- the hosts from which a partition accepts jobs (`AllocNodes`), which the bridge does not read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from cpsched.errors import abbreviate, escape_controls
from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import SlurmPartition

_SHOWN = 5
"""Maximum number of listed names in a reason."""
_BY_TREE = (23, 2)
"""First release in which a partition that allows an account also allows its child accounts."""


@dataclass(frozen=True, slots=True)
class PartitionAccessContext:
    """Facts beyond the records of the job and the partition.

    - `accounts_count`: whether the controller checks accounts; None if unknown.
    - `by_tree`: whether an account includes its child accounts.
    - `above`: the parent of each account; None if unknown.
    - `outside`: by user, the groups that the user is known not to belong to.
    """

    accounts_count: bool | None = None
    by_tree: bool = True
    above: Mapping[str, str] | None = None
    outside: Mapping[str, Collection[str]] = field(default_factory=dict)


def parse_account_checks(config: Record) -> tuple[bool | None, bool]:
    """Return `PartitionAccessContext.accounts_count` and `.by_tree` for a configuration."""
    version, enforced = _version(config.get("version")), config.get("accounting_storage_enforce")
    if version is not None and version < _BY_TREE:
        return True, False
    if version is None or enforced is None:
        return None, True
    words = " ".join(enforced) if isinstance(enforced, list) else str(enforced)
    return any(word in words.lower() for word in ("associations", "limits", "qos", "safe", "wckeys")), True


def _version(text: object) -> tuple[int, int] | None:
    parts = str(text or "").split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else None


def access_denied_reason(
    record: Record, partition: SlurmPartition, doors: PartitionAccessContext
) -> PendingReason | None:
    """Return why a job may not use its partition, or None if it may or if that is unknown.

    The reason begins with Slurm's name for it.
    """
    return (
        _by_qos(str(record["qos"] or ""), partition)
        or _by_account(str(record["account"] or ""), partition, doors)
        or _by_group(record, partition, doors)
    )


def _by_qos(qos: str, partition: SlurmPartition) -> PendingReason | None:
    if not qos:
        return None
    if partition.allowed_qos is not None:
        kept_out = qos.lower() not in partition.allowed_qos
        return _told("QOSNotAllowed", partition, "takes QOS", partition.allowed_qos, qos) if kept_out else None
    return _told("QOSNotAllowed", partition, "denies QOS", [qos]) if qos.lower() in partition.denied_qos else None


def _by_account(account: str, partition: SlurmPartition, doors: PartitionAccessContext) -> PendingReason | None:
    if not account or not doors.accounts_count:
        return None
    line = list(_upwards(account.lower(), doors))
    if partition.allowed_accounts is not None:
        unknown = doors.by_tree and account.lower() not in (doors.above or {})
        if unknown or not partition.allowed_accounts.isdisjoint(line):
            return None
        return _told("AccountNotAllowed", partition, "takes accounts", partition.allowed_accounts, account)
    denied = [each for each in line if each in partition.denied_accounts]
    return _told("AccountNotAllowed", partition, "denies account", denied) if denied else None


def _upwards(account: str, doors: PartitionAccessContext) -> Iterator[str]:
    """Yield the account and, if parents count, its ancestors."""
    return _climb(account, doors.above if doors.by_tree and doors.above is not None else {})


def _climb(account: str, above: Mapping[str, str]) -> Iterator[str]:
    seen: set[str] = set()
    while account and account not in seen:
        seen.add(account)
        yield account
        account = above.get(account, "")


def account_ancestors(account: str, doors: PartitionAccessContext) -> list[str]:
    """Return the account and its known ancestors, in lower case."""
    return list(_climb(account.lower(), doors.above or {}))


def _by_group(record: Record, partition: SlurmPartition, doors: PartitionAccessContext) -> PendingReason | None:
    user = str(record["user_name"] or "")
    if partition.allowed_groups is None or record["user_id"] == 0 or user not in doors.outside:
        return None
    if not partition.allowed_groups.issubset(doors.outside[user]):
        return None
    return _told("AccountNotAllowed", partition, "takes groups", partition.allowed_groups, f"user {user}")


def _told(name: str, partition: SlurmPartition, rule: str, names: Collection[str], other: str = "") -> PendingReason:
    listed = abbreviate(sorted(names), _SHOWN)
    what = escape_controls(f"partition {partition.name} {rule} {listed or 'none'}" + (other and f", not {other}"))
    return PendingReason(PendingCode.CLUSTER, (name, what))
