"""Parse a site's associations, QOS and shares, as Slurm's commands print them.

slurmctld enforces the state of the association manager (`scontrol show assoc_mgr`), which contains inherited limits and
decayed usage. The state lacks the flags and factors of QOS, and the per-user limits of a QOS that has not been used
yet. These come from `sacctmgr`. Fair-share factors come from `sshare`, because the state shows only two decimals.

An object with an unreadable field is returned with the default of this field, and also as `UnreadablePolicyObject`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from cpsched.errors import InvalidValue, UnreadableOutput
from cpsched.site.accounts import PARTITION_LIMITS, Association, AssociationTree, Qos
from cpsched.site.limit_checks import LimitUsageMinutes
from cpsched.site.site_policy import SitePolicy
from cpsched.slurm_text.limits import (
    parse_accounting_limits,
    parse_slurm_time_s,
    parse_whole_number,
    unsupported_limits,
    unsupported_qos_flags,
)
from cpsched.slurm_text.option_lists import has_flag, parse_flags
from cpsched.slurm_text.output_values import TableRow, parse_headings, parse_name_values, parse_pipe_table
from cpsched.slurm_text.preemption import parse_preempt_exempt_time_s, parse_preempt_mode

QOS_COLUMNS = (
    "Name", "Priority", "Flags", "UsageFactor", "LimitFactor", "UsageThreshold", "MinPrioThresh", "GrpJobs", "GrpTRES",
    "GrpTRESMins", "GrpTRESRunMins", "GrpWall", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "MaxWall", "MaxTRESPU",
    "MaxJobsPU", "MaxTRESPA", "MaxJobsPA", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA", "MinTRES", "MaxJobsAccruePU",
    "MaxJobsAccruePA", "GrpJobsAccrue", "Preempt", "PreemptMode", "PreemptExemptTime", "GraceTime",
)  # fmt: skip
"""Columns of `sacctmgr show qos`."""
ASSOCIATION_COLUMNS = (
    "Account", "User", "Partition", "ParentName", "Share", "Priority", "DefaultQOS", "MaxJobs", "GrpJobs", "GrpTRES",
    "GrpTRESMins", "GrpTRESRunMins", "GrpWall", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "MaxWall", "MaxJobsAccrue",
    "GrpJobsAccrue", "MinPrioThresh",
)  # fmt: skip
"""Columns of `sacctmgr show association`."""
QOS_FLAGS = ("UsageFactorSafe", "OverPartQOS", *PARTITION_LIMITS)
"""Flags of a QOS that `Qos` contains."""
PARENT_SHARES = 0x7FFFFFFF
"""Number that the association manager prints for `fairshare=parent`."""
_USED_AMOUNT = re.compile(r"([^=]+)=[^=(]*\((\d+(?:\.\d+)?)\)", re.ASCII)
"""Pattern for a resource in `GrpTRESMins=cpu=100(40),mem=N(0)`. The groups are its name and its usage."""
_USED_WALL = re.compile(r"[^(]*\((\d+(?:\.\d+)?)\)", re.ASCII)
_NAME_AND_ID = re.compile(r"(.+)\((\d+)\)", re.ASCII)

PolicyObjectKind = Literal["association", "qos", "partition"]
Texts = Mapping[str, str]
"""The values of one printed object, by Slurm's names."""


@dataclass(frozen=True, slots=True)
class UnreadablePolicyObject:
    """An association, QOS or partition with a field that cannot be read."""

    kind: PolicyObjectKind
    name: str
    field: str
    value: str = ""
    rule: str = ""
    line: int = 0
    """Line of the object in a table."""


@dataclass(frozen=True, slots=True)
class UnreadablePolicyObjects:
    """The unreadable objects of a site's policy.

    - `associations`: by index. All associations below an unreadable association also count as unreadable.
    - `orphans`: associations without a known parent account, by account and user.
    - `qos`, `partitions`: by name.
    """

    associations: Mapping[int, UnreadablePolicyObject] = field(default_factory=dict)
    orphans: Mapping[tuple[str, str], UnreadablePolicyObject] = field(default_factory=dict)
    qos: Mapping[str, UnreadablePolicyObject] = field(default_factory=dict)
    partitions: Mapping[str, UnreadablePolicyObject] = field(default_factory=dict)

    def list_objects(self) -> tuple[UnreadablePolicyObject, ...]:
        """Return all unreadable objects."""
        groups = (self.associations, self.orphans, self.qos, self.partitions)
        return tuple(each for group in groups for each in group.values())

    def find_object_of_job(
        self, user: str, account: str, partition: str, qos: str, policy: SitePolicy
    ) -> UnreadablePolicyObject | None:
        """Return the first unreadable object that a job depends on, or None."""
        if partition in self.partitions:
            return self.partitions[partition]
        for name in (qos, policy.partition(partition).qos):
            if name in self.qos:
                return self.qos[name]
        if (account, user) in self.orphans:
            return self.orphans[account, user]

        at = policy.accounts.find(account, user, partition) if self.associations else None
        chain = policy.accounts.association_chain(at) if at is not None else ()
        return next((self.associations[index] for index in chain if index in self.associations), None)


def make_unreadable(kind: PolicyObjectKind, name: str, error: InvalidValue, line: int = 0) -> UnreadablePolicyObject:
    """Return an object with the field that has this error."""
    return UnreadablePolicyObject(kind, name, error.field, str(error.value), error.rule, line)


def _parse_number(name: str, text: str, default: float) -> float:
    try:
        return float(text) if text else default
    except ValueError as error:
        raise InvalidValue(name, text, "must be a number") from error


def parse_readable_fields(
    texts: Texts, parsers: Mapping[str, Callable[[Texts], object]]
) -> tuple[dict[str, Any], InvalidValue | None]:
    """Return the readable fields, and the error of the first unreadable one."""
    fields: dict[str, Any] = {}
    first_error: InvalidValue | None = None
    for name, parse in parsers.items():
        try:
            fields[name] = parse(texts)
        except InvalidValue as error:
            first_error = first_error or error
    return fields, first_error


# ------------------------------------------------------------------------------------------ QOS

_QOS_PARSERS: Mapping[str, Callable[[Texts], object]] = {
    "priority": lambda texts: parse_whole_number("Priority", texts.get("Priority", "")),
    "limits": parse_accounting_limits,
    "usage_factor": lambda texts: _parse_number("UsageFactor", texts.get("UsageFactor", ""), 1.0),
    "factor_on_limits": lambda texts: has_flag(parse_flags(texts.get("Flags", "")), "UsageFactorSafe"),
    "limit_factor": lambda texts: _parse_number("LimitFactor", texts.get("LimitFactor", ""), 0.0) or None,
    "over_partition": lambda texts: has_flag(parse_flags(texts.get("Flags", "")), "OverPartQOS"),
    "preempts": lambda texts: frozenset(filter(None, texts.get("Preempt", "").split(","))),
    "preempts_within": lambda texts: has_flag(parse_flags(texts.get("PreemptMode", "")), "WITHIN"),
    "preempt_mode": lambda texts: parse_preempt_mode(texts.get("PreemptMode", "")),
    "preempt_exempt_s": lambda texts: parse_preempt_exempt_time_s(texts.get("PreemptExemptTime", "")),
    "grace_s": lambda texts: parse_slurm_time_s(texts.get("GraceTime", "")) or 0,
    "exempt_from": lambda texts: frozenset(
        limit for limit in PARTITION_LIMITS if has_flag(parse_flags(texts.get("Flags", "")), limit)
    ),
}


class ParsedQos(NamedTuple):
    """The QOS in a table, and the unreadable ones, by name."""

    qos: dict[str, Qos]
    unreadable: dict[str, UnreadablePolicyObject]


def parse_qos(text: str, limits_hold: bool = True) -> ParsedQos:
    """Return the QOS in the output of `sacctmgr -P show qos`. Limits are parsed only if Slurm enforces them."""
    parsers = {name: parse for name, parse in _QOS_PARSERS.items() if limits_hold or name != "limits"}
    found = ParsedQos({}, {})
    for line, texts, missing in parse_pipe_table(text):
        name = texts.get("Name", "")
        if missing:
            rule = "sacctmgr prints no value"
            found.unreadable[name] = UnreadablePolicyObject("qos", name, missing, rule=rule, line=line)
            continue
        fields, error = parse_readable_fields(texts, parsers)
        found.qos[name] = Qos(name, **fields)
        if error is not None:
            found.unreadable[name] = make_unreadable("qos", name, error, line)
    return found


def list_unmodelled_qos_settings(text: str, flags: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield (QOS, setting) for each limit, and for each flag but `flags`, that is not modelled."""
    for _, texts, missing in parse_pipe_table(text):
        if not missing:
            for limit in unsupported_limits(texts):
                yield texts["Name"], f"{limit}={texts[limit]}"
            for flag in unsupported_qos_flags(texts.get("Flags", ""), flags):
                yield texts["Name"], f"flag {flag}"


# ------------------------------------------------------------------------------------------ associations

_ASSOCIATION_PARSERS: Mapping[str, Callable[[Texts], object]] = {
    "shares": lambda texts: _parse_shares(texts.get("Share", "")),
    "priority": lambda texts: parse_whole_number("Priority", texts.get("Priority", "")),
    "limits": parse_accounting_limits,
}


def _parse_shares(text: str) -> int | None:
    return None if text == "parent" else parse_whole_number("Share", text, 1)


class AssociationRow(NamedTuple):
    """A printed association. `parent` is the name of the parent account."""

    account: str
    user: str
    parent: str
    texts: Texts
    line: int = 0


@dataclass(slots=True)
class ParsedAssociations:
    """Associations, their rows in the same order, and the unreadable and orphaned ones.

    The root is first, then accounts below their parents, then users. Orphans have no known parent account.
    """

    associations: list[Association] = field(default_factory=list)
    rows: list[AssociationRow] = field(default_factory=list)
    unreadable: dict[int, UnreadablePolicyObject] = field(default_factory=dict)
    orphans: dict[tuple[str, str], UnreadablePolicyObject] = field(default_factory=dict)

    def add(self, row: AssociationRow, parent: int, parsers: Mapping[str, Callable[[Texts], object]]) -> None:
        """Add an association below the one with index `parent`, which is -1 for the root."""
        default_qos = row.texts.get("Def QOS") or row.texts.get("DefaultQOS") or ""
        fields, error = parse_readable_fields(row.texts, parsers)
        association = Association(
            row.account, row.user, row.texts.get("Partition", ""), parent, default_qos=default_qos, **fields
        )
        if error is not None:
            at = len(self.associations)
            self.unreadable[at] = make_unreadable("association", association.label, error, row.line)
        self.associations.append(association)
        self.rows.append(row)


def parse_associations(text: str) -> ParsedAssociations:
    """Return the associations in the output of `sacctmgr -P show association`.

    sacctmgr does not print a parent for accounts directly below the root.
    """
    return _build_associations([_make_sacctmgr_row(row) for row in parse_pipe_table(text)], limits_hold=True)


def find_row_of_second_cluster(text: str) -> TableRow | None:
    """Return the first row of a second cluster, in the output of `sacctmgr -P show association`, or None.

    Without a column `Cluster`, this is the second root.
    """
    cluster, has_root = None, False
    for row in parse_pipe_table(text):
        is_root = row.values.get("Account") == "root" and not row.values.get("User")
        if (cluster is not None and row.values.get("Cluster", "") != cluster) or (is_root and has_root):
            return row
        cluster, has_root = row.values.get("Cluster", ""), has_root or is_root
    return None


def _make_sacctmgr_row(row: TableRow) -> AssociationRow:
    texts = row.values
    parent = texts.get("ParentName") or texts.get("Par Name") or "root"
    return AssociationRow(texts.get("Account", ""), texts.get("User", ""), parent, texts, row.line)


def _build_associations(rows: Sequence[AssociationRow], limits_hold: bool) -> ParsedAssociations:
    """Return the associations. Without a root, every row is an orphan. The first row of an account counts."""
    parsers = {name: parse for name, parse in _ASSOCIATION_PARSERS.items() if limits_hold or name != "limits"}
    found = ParsedAssociations()
    accounts: dict[str, int] = {}
    for row in [row for row in rows if row.account == "root" and not row.user][:1]:
        accounts["root"] = 0
        found.add(row, -1, parsers)

    waiting = [row for row in rows if not row.user and row.account not in ("root", "")]
    is_complete = False
    while not is_complete:
        is_complete = True
        for row in waiting:
            if row.parent in accounts and row.account not in accounts:
                accounts[row.account] = len(found.rows)
                found.add(row, accounts[row.parent], parsers)
                is_complete = False
    for row in rows:
        if row.user and row.account in accounts:
            found.add(row, accounts[row.account], parsers)

    known = set(map(id, found.rows))
    for row in rows:
        if id(row) not in known and (row.account, row.user) != ("root", ""):
            label = Association(row.account, row.user).label
            found.orphans[row.account, row.user] = UnreadablePolicyObject(
                "association", label, "ParentAccount", row.parent, line=row.line
            )
    return found


@dataclass(frozen=True, slots=True)
class AssociationManagerState:
    """The association manager's state."""

    accounts: AssociationTree
    usage: LimitUsageMinutes
    ids: Mapping[int, int]
    """Association indices by Slurm's association number."""
    user_names: Mapping[int, str]
    """User names by user id."""
    unmodelled: tuple[str, ...]
    unreadable: UnreadablePolicyObjects


def parse_assoc_mgr(text: str, limits_hold: bool = True) -> AssociationManagerState:
    """Return the state in the output of `scontrol -o show assoc_mgr flags=assoc,qos`.

    Limits and usage are parsed only if Slurm enforces limits.
    """
    lines = [_parse_pairs_before_limits(line) for line in text.split("\n") if line.startswith(("ClusterName=", "QOS="))]
    found = _build_associations([_make_assoc_mgr_row(line) for line in lines if "ClusterName" in line], limits_hold)
    if not found.associations:
        raise UnreadableOutput(
            "scontrol show assoc_mgr: the root account is missing; the bridge's user needs AdminLevel=Operator"
        )

    labels = [association.label for association in found.associations]
    qos_rows = {_strip_number(line["QOS"]): line for line in lines if "QOS" in line}
    association_minutes: dict[int, Mapping[str, int]] = {}
    association_wall_min: dict[int, float] = {}
    qos_minutes: dict[str, Mapping[str, int]] = {}
    qos_wall_min: dict[str, float] = {}
    unreadable_qos: dict[str, UnreadablePolicyObject] = {}
    for at, row in enumerate(found.rows if limits_hold else ()):
        try:
            association_minutes[at], association_wall_min[at] = _parse_usage(row.texts)
        except InvalidValue as error:
            found.unreadable.setdefault(at, make_unreadable("association", labels[at], error))
    for name, texts in qos_rows.items() if limits_hold else ():
        try:
            qos_minutes[name], qos_wall_min[name] = _parse_usage(texts)
        except InvalidValue as error:
            unreadable_qos[name] = make_unreadable("qos", name, error)

    unmodelled = [
        f"{limit} of {labels[at]}" for at, row in enumerate(found.rows) for limit in unsupported_limits(row.texts)
    ]
    unmodelled += [
        f"{limit} of QOS {name}"
        for name, texts in qos_rows.items()
        for limit in unsupported_limits(texts)
        if limit not in QOS_COLUMNS
    ]

    user_ids = [_NAME_AND_ID.fullmatch(row.texts.get("UserName", "")) for row in found.rows]
    return AssociationManagerState(
        AssociationTree(tuple(found.associations)),
        LimitUsageMinutes(qos_minutes, association_minutes, qos_wall_min, association_wall_min),
        {int(row.texts["ID"]): at for at, row in enumerate(found.rows) if row.texts.get("ID", "").isdecimal()},
        {int(match[2]): match[1] for match in user_ids if match},
        tuple(unmodelled),
        UnreadablePolicyObjects(found.unreadable, found.orphans, unreadable_qos),
    )


def _parse_pairs_before_limits(line: str) -> Texts:
    """Return a line's NAME=VALUE pairs before its account limits or its comment."""
    return parse_name_values(line.partition("Account Limits=")[0].partition("Comment=")[0])


def _strip_number(word: str) -> str:
    """Return a name without the parenthesised number that Slurm appends."""
    return word.rpartition("(")[0] if word.endswith(")") else word


def _make_assoc_mgr_row(line: Texts) -> AssociationRow:
    """Return an association in the names of sacctmgr. The state's `MaxWall` is not the limit, which is `MaxWallPJ`."""
    shares = line.get("SharesRaw/Norm/Level/Factor", "").partition("/")[0]
    texts = {name: value for name, value in line.items() if name != "MaxWall"}
    texts["Share"] = "parent" if shares == str(PARENT_SHARES) else shares
    user = _strip_number(line.get("UserName", ""))
    return AssociationRow(line.get("Account", ""), user, _strip_number(line.get("ParentAccount", "")), texts)


def _parse_usage(texts: Texts) -> tuple[dict[str, int], float]:
    """Return decayed usage in minutes, by resource and of the wall time."""
    return _parse_used_minutes(texts.get("GrpTRESMins", "")), _parse_used_wall(texts.get("GrpWall", ""))


def _parse_used_minutes(text: str) -> dict[str, int]:
    minutes: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        match = _USED_AMOUNT.fullmatch(item)
        if match is None:
            raise InvalidValue("GrpTRESMins", item, "must be NAME=LIMIT(USED)")
        minutes[match[1]] = int(float(match[2]))
    return minutes


def _parse_used_wall(text: str) -> float:
    match = _USED_WALL.fullmatch(text)
    if text and match is None:
        raise InvalidValue("GrpWall", text, "must be LIMIT(USED)")
    return float(match[1]) if match else 0.0


# ------------------------------------------------------------------------------------------ shares


class FairShareFactors(NamedTuple):
    """The fair-share factors, and the texts of the unreadable ones, by association index."""

    factors: dict[int, float]
    unreadable: dict[int, str]


def parse_fair_share_factors(text: str, ids: Mapping[int, int]) -> FairShareFactors:
    """Return the factors in the output of `sshare -a --json` or of `sshare -a -P -o ID,FairShare`.

    `ids` maps Slurm's association numbers to indices. Raise `UnreadableOutput` for any other text.
    """
    if text.lstrip().startswith("{"):
        try:
            rows = list(json.loads(text)["shares"]["shares"])
        except (ValueError, LookupError, TypeError) as error:
            raise UnreadableOutput(f"sshare --json: {type(error).__name__}: {error}") from error
        pairs = [_parse_json_factor(row) for row in rows]
    else:
        if text.strip() and "FairShare" not in parse_headings(text):
            raise UnreadableOutput("sshare: column FairShare is missing")
        table = [row.values for row in parse_pipe_table(text)]
        pairs = [(row["ID"].strip(), row["FairShare"]) for row in table if row.get("FairShare")]
    found = FairShareFactors({}, {})
    for number, word in pairs:
        at = ids.get(int(number)) if number.isdecimal() else None
        if at is None:
            continue
        factor = _parse_factor(word)
        if factor is None:
            found.unreadable[at] = word
        else:
            found.factors[at] = factor
    return found


def _parse_factor(word: str) -> float | None:
    try:
        factor = float(word)
    except ValueError:
        return None
    return factor if factor >= 0 else None


def _parse_json_factor(row: Any) -> tuple[str, str]:
    """Return the texts of an association's number and factor, or of the row instead of an unreadable factor."""
    try:
        number = str(int(row["id"]))
    except (ValueError, LookupError, TypeError):
        return "", ""
    try:
        value = row["fairshare"]["factor"]
        if isinstance(value, dict):  # newer releases wrap numbers in an object
            value = value.get("number", 0) if value.get("set", True) else 0
        return number, str(float(value or 0))
    except (ValueError, LookupError, TypeError):
        return number, str(row)


def parse_share_usage(text: str) -> dict[tuple[str, str], float]:
    """Return past usage in processor seconds by (account, user) in the output of `sshare -a -l -P`.

    Raise `InvalidValue`.
    """
    rows = (row.values for row in parse_pipe_table(text))
    return {
        (row["Account"].strip(), row["User"]): _parse_number("RawUsage", row.get("RawUsage", ""), 0.0)
        for row in rows
        if row.get("User")
    }
