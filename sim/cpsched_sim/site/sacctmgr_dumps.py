"""Read files with the output of `sacctmgr show assoc`, `sacctmgr show qos` and `sshare`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cpsched.errors import InvalidValue
from cpsched.site.accounts import Association, Qos
from cpsched.slurm_text.accounts import (
    UnreadablePolicyObject,
    find_row_of_second_cluster,
    parse_associations,
    parse_qos,
    parse_share_usage,
)
from cpsched.slurm_text.output_values import parse_headings, parse_pipe_table
from cpsched_sim.errors import InputError, InvalidPolicy

MAX_DUMP_BYTES = 64 * 1024 * 1024

ONE_CLUSTER_RULE = "must be from one cluster: print its associations with sacctmgr -P show assoc Cluster=NAME"


def read_associations(path: Path) -> list[Association]:
    """Return the associations in a dump, parents first.

    Raise `InvalidPolicy`, or `InputError` if the file is missing.
    """
    text = _read_dump(path, ("Account", "User", "Share"))
    if row := find_row_of_second_cluster(text):
        raise InvalidPolicy(path, row.line, "Cluster", row.values.get("Cluster") or "a second root", ONE_CLUSTER_RULE)
    parsed = parse_associations(text)
    _require_readable(path, parsed.unreadable.values())
    for orphan in parsed.orphans.values():
        raise InvalidPolicy(path, orphan.line, "ParentName", orphan.value, "must be an account in this dump")
    return parsed.associations or [Association("root", parent=-1)]


def read_qos(path: Path) -> dict[str, Qos]:
    """Return the QOSes in a dump by name."""
    parsed = parse_qos(_read_dump(path, ("Name", "Priority")))
    _require_readable(path, parsed.unreadable.values())
    return parsed.qos


def read_sshare_usage(path: Path) -> dict[tuple[str, str], float]:
    """Return past usage in processor seconds by (account, user)."""
    text = _read_dump(path, ("Account", "User", "RawUsage"))
    try:
        return parse_share_usage(text)
    except InvalidValue as error:
        raise InvalidPolicy(path, 1, error.field, error.value, error.rule) from error


def _require_readable(path: Path, unreadable: Iterable[UnreadablePolicyObject]) -> None:
    for each in sorted(unreadable, key=lambda each: each.line):
        raise InvalidPolicy(path, each.line, each.field, each.value, each.rule)


def _read_dump(path: Path, needed: tuple[str, ...]) -> str:
    try:
        if path.stat().st_size > MAX_DUMP_BYTES:
            raise InvalidPolicy(path, 1, "file", path.name, f"must not be larger than {MAX_DUMP_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}") from problem
    headings = parse_headings(text)
    for name in needed:
        if name not in headings:
            rule = f"must be a column: run sacctmgr with -P and the columns {', '.join(needed)}"
            raise InvalidPolicy(path, 1, name, headings[0], rule)
    for row in parse_pipe_table(text):
        if row.missing:
            raise InvalidPolicy(path, row.line, row.missing, "", "must have a value, as each column of the table")
    return text
