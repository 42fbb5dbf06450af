"""Convert PBS job names to unique numbers.

PBS names a job `7.server`, an array `7[].server`, and a subjob of that array `7[2].server`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

SEQUENCE_BITS = 41
"""Number of bits for a sequence number, which in PBS has at most 12 digits."""
MOST_INDEX = (1 << 20) - 1
STRANGE = 1 << 62
"""Lower bound of the numbers for ambiguous names (same sequence number, different server)."""

NAME = re.compile(r"(\d{1,12})(?:\[(\d{0,7})\])?\.([A-Za-z0-9][A-Za-z0-9._-]{0,254})", re.ASCII)
"""Pattern of sequence number, index of a subjob (empty for the array itself), and server."""


def job_number(name: str) -> int:
    """Return the number of a job, array or subjob; raise `ValueError` if `name` is not a job name."""
    found = NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no name of a job")
    index = int(found[2]) + 1 if found[2] else 0
    if index > MOST_INDEX:
        raise ValueError(f"{name!r}: no array has that index")
    return index << SEQUENCE_BITS | int(found[1])


def job_numbers(names: Iterable[str]) -> dict[str, int]:
    """Return a unique number for each name, which is at least `STRANGE` for text that is not a job name."""
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


def parent_array_name(name: str) -> str | None:
    """Return the name of a subjob's array, or None for other jobs."""
    found = NAME.fullmatch(name)
    return f"{found[1]}[].{found[3]}" if found and found[2] else None


def format_job_number(number: int) -> str:
    """Return a job's name without the server, from its number."""
    sequence, index = number & ((1 << SEQUENCE_BITS) - 1), number >> SEQUENCE_BITS
    if number >= STRANGE or not index:
        return str(sequence)
    return f"{sequence}[{index - 1}]"


def is_array(name: str) -> bool:
    """Return whether a name refers to a whole array."""
    return "[]" in name


def strip_server_name(name: str) -> str:
    """Return the name without the server, as users write it."""
    return name.partition(".")[0]
