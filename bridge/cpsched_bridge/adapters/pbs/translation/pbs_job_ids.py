"""Job numbers: PBS's sequence numbers, and one made here for each subjob of an array.

PBS names a job `7.server`, an array `7[].server` and one of its subjobs `7[2].server`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

SEQUENCE_BITS = 41
"""PBS's sequence numbers have 12 digits at most."""
MOST_INDEX = (1 << 20) - 1
STRANGE = 1 << 62
"""Numbers from here on are of jobs that PBS's own do not tell apart: of another server, with the same sequence."""

NAME = re.compile(r"(\d{1,12})(?:\[(\d{0,7})\])?\.([A-Za-z0-9][A-Za-z0-9._-]{0,254})", re.ASCII)
"""Sequence number, index of a subjob (empty: the array itself), server."""


def job_number(name: str) -> int:
    """The number of a job, an array or a subjob; raises `ValueError` for what is no job's name."""
    found = NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no name of a job")
    index = int(found[2]) + 1 if found[2] else 0
    if index > MOST_INDEX:
        raise ValueError(f"{name!r}: no array has that index")
    return index << SEQUENCE_BITS | int(found[1])


def job_numbers(names: Iterable[str]) -> dict[str, int]:
    """Numbers of jobs, by name, each of them once; for what is no job's name, one from `STRANGE` on."""
    found: dict[str, int] = {}
    taken: set[int] = set()
    for name in sorted(names):
        try:
            number = job_number(name)
        except ValueError:
            number = STRANGE | zlib.crc32(name.encode())
        while number in taken:
            number = STRANGE | zlib.crc32(f"{number} {name}".encode())
        taken.add(number)
        found[name] = number
    return found


def parent_of(name: str) -> str | None:
    """The name of a subjob's array; None for other jobs."""
    found = NAME.fullmatch(name)
    return f"{found[1]}[].{found[3]}" if found and found[2] else None


def label_of(number: int) -> str:
    """The name without the server, by the number alone."""
    sequence, index = number & ((1 << SEQUENCE_BITS) - 1), number >> SEQUENCE_BITS
    if number >= STRANGE or not index:
        return str(sequence)
    return f"{sequence}[{index - 1}]"


def is_array(name: str) -> bool:
    """Whether a name is that of a whole array."""
    return "[]" in name


def label(name: str) -> str:
    """The name without the server, as people write it."""
    return name.partition(".")[0]
