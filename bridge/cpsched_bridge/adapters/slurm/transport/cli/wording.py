"""Single words of Slurm's programs as plain values, as `records` describes them.

Every function raises `ValueError` for a word that it does not know: a value is never guessed.
"""

from __future__ import annotations

import re
from typing import Any

UNSET = frozenset({"", "N/A", "(null)", "None", "NONE", "Unknown", "NOT_SET", "Partition_Limit"})
"""How Slurm's programs print what nobody has set."""
UNLIMITED = "UNLIMITED"
INFINITE_16 = 0xFFFF
"""Slurm's infinite in fields of 16 bits, where a program prints it as a number."""
MOST_EXACT_MIB = 1 << 24
"""Slurm prints memory by way of a 32-bit float, which is exact up to here (16 TiB)."""
UNSET_MIB = 1 << 40
"""More than that is Slurm's number for memory that nobody asked for, 2**64 - 2."""

_MIB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3, "E": 1024.0**4, "Z": 1024.0**5}
_COUNTS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTPEZ]?)")
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d\d)")
_GRES = re.compile(
    r"((?:gres[/:])?[A-Za-z][\w.-]*(?::[A-Za-z_][\w.-]*)?)(?:[:=](\d+)([KMGTP]?))?(?:\([^)]*\))?", re.ASCII
)
_TRES_GRES = re.compile(r"gres[/:](\w[\w.-]*(?::[A-Za-z_][\w.-]*)?)(?:[:=](\d+))?", re.ASCII)


def text(word: str) -> str | None:
    """Words that somebody chose; None where there are none."""
    return None if word in ("", "(null)") else word


def number(word: str) -> int | None:
    """A number that may be 0."""
    return None if word in UNSET else int(word)


def count(word: str) -> int | None:
    """A number of which 0 says that nobody has set it."""
    return number(word) or None


def count_or_infinite(word: str) -> int | str | None:
    """The same, of 16 bits; "UNLIMITED" for Slurm's infinite, and for "*"'s sake None where there is no number."""
    found = None if word == "*" else count(word)
    return UNLIMITED if found == INFINITE_16 else found


def flag(word: str) -> bool:
    """ "1", "0", "Yes", "NO" as a claim."""
    if word.lower() in ("yes", "no"):
        return word.lower() == "yes"
    return bool(number(word))


def names(word: str) -> list[str]:
    """A list with commas."""
    return [] if text(word) is None else word.split(",")


def minutes(word: str) -> int | None:
    """ "1-02:30:00", "30:00" (minutes and seconds) as minutes; None where there is no limit, or none is set."""
    if word in UNSET or word == UNLIMITED:
        return None
    found = _TIME.fullmatch(word)
    if found is None or int(found[4]):
        raise ValueError(f"time {word[:40]!r}")
    return (int(found[1] or 0) * 24 + int(found[2] or 0)) * 60 + int(found[3])


def mib(word: str) -> int | None:
    """ "4000M", "4G", "0" as MiB; None for 0 and for what nobody asked for."""
    found = _AMOUNT.fullmatch(word)
    if found is None:
        raise ValueError(f"memory {word[:40]!r}")
    amount = float(found[1]) * _MIB[found[2]]
    if amount >= UNSET_MIB:
        return None
    if amount > MOST_EXACT_MIB or amount != int(amount):
        raise ValueError(f"memory {word[:40]!r}: not exact")
    return int(amount) or None


def resources(word: str) -> dict[str, int] | None:
    """ "cpu=4,mem=16G,node=1,gres/gpu:a100=2" with memory in MiB; what is no resource of `records` is left out."""
    if text(word) is None or word == "N/A":
        return None
    found: dict[str, int] = {}
    for item in word.split(","):
        name, equals, amount = item.partition("=")
        if name == "mem":
            found[name] = _whole(amount, _MIB)
        elif name in ("cpu", "node", "billing"):
            found[name] = int(_whole(amount, _COUNTS))
        elif (gres := _TRES_GRES.fullmatch(name)) is not None and equals:
            found[f"gres/{gres[1]}"] = int(_whole(amount, _COUNTS))
        elif name.startswith("gres"):
            key, amount = _gres_asked(item)
            found[key] = found.get(key, 0) + int(amount)
    return found or None


def _gres_asked(item: str) -> tuple[str, str]:
    """ "gres:gpu:a100:2" (22.05), "gres/gpu:2" as a trackable resource and its amount."""
    found = _TRES_GRES.fullmatch(item)
    if found is None:
        raise ValueError(f"resource {item[:40]!r}")
    return f"gres/{found[1]}", found[2] or "1"


def _whole(amount: str, units: Any) -> int:
    found = _AMOUNT.fullmatch(amount)
    if found is None or found[2] not in units:
        raise ValueError(f"amount {amount[:40]!r}")
    return round(float(found[1]) * units[found[2]]) if found[2] or "." in found[1] else int(found[1])


def gres(word: str) -> dict[str, int]:
    """ "gpu:a100:2(S:0-1),mps:200", "gres:gpu:2", "gres/gpu:2" by name, "gres:" left out."""
    found: dict[str, int] = {}
    if text(word) is None or word == "N/A":
        return found
    at = 0
    while at < len(word):
        item = _GRES.match(word, at)
        if item is None or (item.end() < len(word) and word[item.end()] != ","):
            raise ValueError(f"generic resources {word[:60]!r}")
        at = item.end() + 1
        name = item[1].removeprefix("gres:")
        found[name] = int(item[2] or 1) * _COUNTS[item[3] or ""]
    return found


def dependencies(word: str) -> dict[str, Any] | None:
    """A list of dependencies by kind, as `translation.dependencies` reads it."""
    if text(word) is None:
        return None
    kinds: dict[str, list[int | str]] = {
        kind: [] for kind in ("after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok")
    }
    any_will_do = "?" in word
    items = word.split("?" if any_will_do else ",")
    for item in items:
        kind, _, jobs = item.partition(":")
        if kind in kinds and jobs:
            kinds[kind] += [int(job) if job.isdigit() else job for job in jobs.split(":")]
    return {**kinds, "singleton": "singleton" in items, "satisfy": "any" if any_will_do else "all"}
