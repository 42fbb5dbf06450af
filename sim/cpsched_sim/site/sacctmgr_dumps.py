"""Parse the output of `sacctmgr show assoc`, `sacctmgr show qos` and `sshare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cpsched.errors import InvalidValue
from cpsched.site.accounts import AccountingLimits, Association, Qos
from cpsched.slurm_text.limits import parse_accounting_limits, parse_slurm_time_s
from cpsched.slurm_text.option_lists import has_flag, parse_flags
from cpsched.slurm_text.preemption import parse_preempt_exempt_time_s, parse_preempt_mode
from cpsched.slurm_text.tables import parse_pipe_table
from cpsched_sim.errors import InputError, InvalidPolicy

MAX_DUMP_BYTES = 64 * 1024 * 1024

ONE_CLUSTER_RULE = "must be from one cluster: print its associations with sacctmgr -P show assoc Cluster=NAME"

Row = Mapping[str, str]


def read_associations(path: Path) -> list[Association]:
    """Return the associations in a dump, parents first.

    Raise `InvalidPolicy`, or `InputError` if the file is missing.
    """
    rows: list[Association] = []
    accounts: dict[str, int] = {}
    users: list[tuple[int, Row]] = []
    waiting: list[tuple[int, Row]] = []
    cluster, roots = "", 0
    for line, row in _read_dump_rows(path, ("Account", "User", "Share")):
        theirs = row.get("Cluster", "")
        roots += row["Account"] == "root" and not row["User"]
        if (cluster and theirs != cluster) or roots > 1:
            raise InvalidPolicy(path, line, "Cluster", theirs or "a second root", ONE_CLUSTER_RULE)
        cluster = theirs
        (users if row["User"] else waiting).append((line, row))
    while waiting:
        left = [(line, row) for line, row in waiting if not _add_account(rows, accounts, path, line, row)]
        if len(left) == len(waiting):
            line, row = left[0]
            raise InvalidPolicy(path, line, "ParentName", row.get("ParentName", ""), "must be an account in this dump")
        waiting = left
    for line, row in users:
        if row["Account"] not in accounts:
            raise InvalidPolicy(path, line, "Account", row["Account"], "must be an account in this dump")
        rows.append(_parse_association(path, line, row, accounts[row["Account"]]))
    return rows or [Association("root", parent=-1)]


def _add_account(rows: list[Association], accounts: dict[str, int], path: Path, line: int, row: Row) -> bool:
    """Add an account if its parent exists. Return whether it was added.

    sacctmgr does not print a parent for accounts directly below the root.
    """
    name, parent = row["Account"], row.get("ParentName") or row.get("Par Name") or "root"
    if name != "root" and parent not in accounts:
        return False
    accounts[name] = len(rows)
    rows.append(_parse_association(path, line, row, -1 if name == "root" else accounts[parent]))
    return True


def _parse_association(path: Path, line: int, row: Row, parent: int) -> Association:
    return Association(
        row["Account"], row["User"], row.get("Partition", ""), parent, _parse_shares(path, line, row["Share"]),
        _parse_whole_number(path, line, "Priority", row.get("Priority", "")), _parse_limits(path, line, row),
        row.get("Def QOS") or row.get("DefaultQOS") or "",
    )  # fmt: skip


def read_qos(path: Path) -> dict[str, Qos]:
    """Return the QOSes in a dump by name."""
    found = {}
    for line, row in _read_dump_rows(path, ("Name", "Priority")):
        flags = parse_flags(row.get("Flags", ""))
        try:
            mode = parse_preempt_mode(row.get("PreemptMode", ""))
            exempt_s = parse_preempt_exempt_time_s(row.get("PreemptExemptTime", ""))
            grace_s = parse_slurm_time_s(row.get("GraceTime", "")) or 0
        except InvalidValue as error:
            raise InvalidPolicy(path, line, error.field, error.value, error.rule) from error
        found[row["Name"]] = Qos(
            row["Name"],
            _parse_whole_number(path, line, "Priority", row["Priority"]),
            _parse_limits(path, line, row),
            _parse_number(path, line, "UsageFactor", row.get("UsageFactor", "")) if row.get("UsageFactor") else 1.0,
            has_flag(flags, "UsageFactorSafe"),
            _parse_number(path, line, "LimitFactor", row.get("LimitFactor", "")) or None,
            has_flag(flags, "OverPartQOS"),
            frozenset(filter(None, row.get("Preempt", "").split(","))),
            mode,
            exempt_s,
            grace_s,
        )
    return found


def read_sshare_usage(path: Path) -> dict[tuple[str, str], float]:
    """Return past usage in processor seconds by (account, user)."""
    rows = _read_dump_rows(path, ("Account", "User", "RawUsage"))
    return {
        (row["Account"].strip(), row["User"]): _parse_number(path, line, "RawUsage", row["RawUsage"])
        for line, row in rows
        if row["User"]
    }


def _read_dump_rows(path: Path, needed: tuple[str, ...]) -> list[tuple[int, Row]]:
    try:
        if path.stat().st_size > MAX_DUMP_BYTES:
            raise InvalidPolicy(path, 1, "file", path.name, f"must not be larger than {MAX_DUMP_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}") from problem
    headings = text.partition("\n")[0].split("|")  # split lines as `parse_pipe_table` does
    for name in needed:
        if name not in headings:
            rule = f"must be a column: run sacctmgr with -P and the columns {', '.join(needed)}"
            raise InvalidPolicy(path, 1, name, headings[0], rule)
    return list(enumerate(parse_pipe_table(text), start=2))


def _parse_limits(path: Path, line: int, row: Row) -> AccountingLimits:
    try:
        return parse_accounting_limits(row)
    except InvalidValue as error:
        raise InvalidPolicy(path, line, error.field, error.value, error.rule) from error


def _parse_shares(path: Path, line: int, text: str) -> int | None:
    return None if text == "parent" else _parse_whole_number(path, line, "Share", text or "1")


def _parse_whole_number(path: Path, line: int, field: str, text: str) -> int:
    if not text:
        return 0
    if not text.isdigit():
        raise InvalidPolicy(path, line, field, text, "must be a whole number")
    return int(text)


def _parse_number(path: Path, line: int, field: str, text: str) -> float:
    try:
        return float(text or 0)
    except ValueError as error:
        raise InvalidPolicy(path, line, field, text, "must be a number") from error
