"""Convert PBS job names to unique numbers.

PBS names a job `7.server`, an array `7[].server`, and a subjob of that array `7[2].server`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

SEQUENCE_BITS = 41
"""Number of bits for a sequence number, which has at most 12 digits in PBS."""
MAX_SUBJOB_INDEX = (1 << 20) - 1
FIRST_AMBIGUOUS_NUMBER = 1 << 62
"""Lower bound for the numbers of ambiguous names (same sequence number, different server)."""

JOB_NAME_PATTERN = re.compile(r"(\d{1,12})(?:\[(\d{0,7})\])?\.([A-Za-z0-9][A-Za-z0-9._-]{0,254})", re.ASCII)
"""Pattern for a job name: sequence number, subjob index (empty for the array itself), and server."""


def parse_job_number(name: str) -> int:
    """Return the number of a job, array or subjob.

    Raise `ValueError` if `name` is not a job name.
    """
    found = JOB_NAME_PATTERN.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not a job name")
    index = int(found[2]) + 1 if found[2] else 0
    if index > MAX_SUBJOB_INDEX:
        raise ValueError(f"{name!r}: the array index is too large")
    return index << SEQUENCE_BITS | int(found[1])


def assign_job_numbers(names: Iterable[str]) -> dict[str, int]:
    """Return a unique number for each name.

    Text that is not a job name gets a number of at least `FIRST_AMBIGUOUS_NUMBER`.
    """
    found: dict[str, int] = {}
    taken: set[int] = set()
    for name in sorted(names):
        try:
            number = parse_job_number(name)
        except ValueError:
            number = FIRST_AMBIGUOUS_NUMBER | zlib.crc32(name.encode())
        while number in taken:
            number = FIRST_AMBIGUOUS_NUMBER | zlib.crc32(f"{number} {name}".encode())
        taken.add(number)
        found[name] = number
    return found


def find_parent_array_name(name: str) -> str | None:
    """Return the name of a subjob's array, or None for other jobs."""
    found = JOB_NAME_PATTERN.fullmatch(name)
    return f"{found[1]}[].{found[3]}" if found and found[2] else None


def format_job_number(number: int) -> str:
    """Return the job name for a number, without the server."""
    sequence, index = number & ((1 << SEQUENCE_BITS) - 1), number >> SEQUENCE_BITS
    if number >= FIRST_AMBIGUOUS_NUMBER or not index:
        return str(sequence)
    return f"{sequence}[{index - 1}]"


def is_array_job_name(name: str) -> bool:
    """Return whether a name refers to a whole array."""
    return "[]" in name


def strip_server_name(name: str) -> str:
    """Return the job name without the server, as users write it."""
    return name.partition(".")[0]
