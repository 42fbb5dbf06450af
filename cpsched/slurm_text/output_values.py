"""Split the tables and NAME=VALUE lists that Slurm's programs print, and convert their values.

The functions raise `ValueError` for an unexpected value. Values are users' text and may contain any line separator but
a line feed, so no function uses `str.splitlines`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from cpsched.slurm_text.gres import NO_CONSUME, parse_gres
from cpsched.slurm_text.jobs import UNLIMITED, JobDependencies, TimeLimit

_NAME = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w:/()-]*)=")


class TableRow(NamedTuple):
    """A row of a table: its line number, and its values by heading.

    `missing` is the first heading without a value, or "".
    """

    line: int
    values: Mapping[str, str]
    missing: str = ""


def parse_headings(text: str) -> list[str]:
    """Return the headings of a Slurm command's `-P` output."""
    return text.partition("\n")[0].removesuffix("\r").split("|")


def parse_pipe_table(text: str) -> Iterator[TableRow]:
    """Yield the rows of a Slurm command's `-P` output: headings, then values."""
    headings = parse_headings(text)
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n")[1:], start=2):
        if line.strip():
            values = line.split("|")
            missing = headings[len(values)] if len(values) < len(headings) else ""
            yield TableRow(number, dict(zip(headings, values, strict=False)), missing)


def parse_name_values(line: str, text_names: Collection[str] = ()) -> dict[str, str]:
    """Return the NAME=VALUE pairs in a line from `scontrol`.

    A value may be empty or contain spaces. If a name appears more than once, its first value counts. The value of a
    name in `text_names` is the rest of the line. A line that does not begin with a name has no pairs, because it
    continues a user's text.

    >>> parse_name_values("OS=Linux 6.1 #1 State=IDLE Comment= State=DOWN")
    {'OS': 'Linux 6.1 #1', 'State': 'IDLE', 'Comment': ''}
    """
    line = line.strip()
    names = list(_NAME.finditer(line))
    values: dict[str, str] = {}
    if names and names[0].start():
        return values
    for at, name in enumerate(names, start=1):
        if name[1] in text_names:
            values.setdefault(name[1], line[name.end() :])
            break
        end = names[at].start() if at < len(names) else None
        values.setdefault(name[1], line[name.end() : end].strip())
    return values


UNSET_VALUES = frozenset({"", "N/A", "(null)", "None", "NONE", "Unknown", "NOT_SET", "Partition_Limit"})
"""Forms in which Slurm's programs print values that are not set."""
INFINITE_16 = 0xFFFF
"""Infinity in 16-bit fields of Slurm, which programs print as this number."""
MAX_EXACT_MIB = 1 << 24
"""Maximum exact amount in MiB (16 TiB), because Slurm converts memory to a 32-bit float before printing it."""
UNSET_MIB = 1 << 40
"""Minimum amount in MiB that stands for 2**64 - 2, Slurm's number for memory that was not requested."""

_MIB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3, "E": 1024.0**4, "Z": 1024.0**5}
_COUNTS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTPEZ]?)")
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d\d)")
_KIND = re.compile(r"[^/:=]*")
_DEPENDENCY_STATE = re.compile(r"\(\w+\)$")
_JOB_DEPENDENCIES = ("after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok")


def parse_text_or_none(word: str) -> str | None:
    """Return the text, or None if it is empty."""
    return None if word in ("", "(null)") else word


def parse_number_or_none(word: str) -> int | None:
    """Return a number, which may be 0, or None if it is not set."""
    return None if word in UNSET_VALUES else int(word)


def parse_number(word: str) -> int:
    """Return a number, or 0 if it is not set."""
    return 0 if word in UNSET_VALUES else int(word)


def parse_nonzero_or_none(word: str) -> int | None:
    """Return a number, or None for 0, which means not set."""
    return parse_number(word) or None


def parse_count(word: str) -> int:
    """Return a 16-bit number, or 0 for any number: "*", infinity or not set."""
    found = 0 if word == "*" else parse_number(word)
    return 0 if found == INFINITE_16 else found


def parse_flag(word: str) -> bool:
    """Return whether a flag such as "1", "0", "Yes" or "NO" is set."""
    if word.lower() in ("yes", "no"):
        return word.lower() == "yes"
    return bool(parse_number_or_none(word))


def parse_names(word: str) -> list[str]:
    """Return the items of a comma-separated list."""
    return [] if parse_text_or_none(word) is None else word.split(",")


def parse_time_limit(word: str) -> TimeLimit:
    """Return a time limit in minutes, "UNLIMITED" for no limit, or None if it is not set.

    Examples: "1-02:30:00", and "30:00" for 30 minutes. A job whose limit is not set gets its partition's limit.
    """
    if word in UNSET_VALUES:
        return None
    if word in (UNLIMITED, "INFINITE"):
        return UNLIMITED
    found = _DURATION.fullmatch(word)
    if found is None or int(found[4]):
        raise ValueError(f"invalid time {word[:40]!r}")
    return (int(found[1] or 0) * 24 + int(found[2] or 0)) * 60 + int(found[3])


def parse_mib(word: str) -> int | None:
    """Return an amount such as "4000M" or "4G" in MiB, or None.

    None means 0 or not requested.
    """
    found = _AMOUNT.fullmatch(word)
    if found is None:
        raise ValueError(f"invalid amount of memory {word[:40]!r}")
    amount = float(found[1]) * _MIB[found[2]]
    if amount >= UNSET_MIB:
        return None
    if amount > MAX_EXACT_MIB or amount != int(amount):
        raise ValueError(f"amount of memory {word[:40]!r} is not exact")
    return int(amount) or None


@lru_cache(maxsize=8192)
def parse_tres_amounts(word: str) -> Mapping[str, int] | None:
    """Return the amounts in a list of resources, with memory in MiB.

    Example: "cpu=4,mem=16G,node=1,gres/gpu:a100=2". Skip items other than cpu, mem, node, billing and gres. Generic
    resources may have any spelling that `parse_gres` accepts.
    """
    if parse_text_or_none(word) is None or word == "N/A":
        return None
    found: dict[str, int] = {}
    for item in filter(None, word.split(",")):
        kind = _KIND.match(item)[0]  # type: ignore[index]  # the pattern matches any text
        amount = item[len(kind) + 1 :]
        if kind == "mem":
            found[kind] = _parse_whole_amount(amount, _MIB)
        elif kind in ("cpu", "node", "billing"):
            found[kind] = _parse_whole_amount(amount, _COUNTS)
        elif kind == "gres":
            for each in parse_gres(item):
                found[f"gres/{each.key}"] = found.get(f"gres/{each.key}", 0) + each.count
    return found or None


def _parse_whole_amount(amount: str, units: Mapping[str, float]) -> int:
    found = _AMOUNT.fullmatch(amount)
    if found is None or found[2] not in units:
        raise ValueError(f"invalid amount {amount[:40]!r}")
    return round(float(found[1]) * units[found[2]]) if found[2] or "." in found[1] else int(found[1])


@lru_cache(maxsize=8192)
def parse_gres_counts(word: str) -> Mapping[str, int]:
    """Return the counts in a list of generic resources, by name and type.

    Examples: "gpu:a100:2(S:0-1),mps:200" or "gres/gpu:2". Names of resources that jobs share end with `NO_CONSUME`.
    """
    found: dict[str, int] = {}
    for each in parse_gres(word):
        key = each.key if each.is_consumable else f"{each.key}:{NO_CONSUME}"
        found[key] = found.get(key, 0) + each.count
    return found


def parse_dependencies(word: str) -> JobDependencies | None:
    """Return a job's dependencies by kind. Raise `ValueError` for an unknown kind."""
    if parse_text_or_none(word) is None:
        return None
    is_any_sufficient, singleton = "?" in word, False
    conditions: list[tuple[str, str]] = []
    for item in word.split("?" if is_any_sufficient else ","):
        kind, colon, jobs = item.partition(":")
        if not colon and _DEPENDENCY_STATE.sub("", kind) == "singleton":
            singleton = True
        elif kind in _JOB_DEPENDENCIES and jobs:
            conditions += [(kind, job) for job in jobs.split(":")]
        elif kind != "expand":  # "expand" concerns the job's own nodes and is satisfied immediately
            raise ValueError(f"unknown dependency {item[:40]!r}")
    return JobDependencies(tuple(sorted(conditions, key=itemgetter(0))), singleton, is_any_sufficient)
