"""Parse generic resources in Slurm's syntax, on nodes and in jobs.

Examples are `gpu:a100:2(S:0-1)` on a node, and `gres/gpu:a100=2` or `gres:gpu:2` in a job.

Slurm does not restrict names and types: only commas, colons, equal signs and the bracket at the end are special
(`slurm_get_next_tres`, `_get_gres_cnt` and `_build_node_gres_str`, unchanged from 22.05 to 26.05). The text after the
last separator is a count if it consists of digits and an optional unit, otherwise a type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cpsched.model.gpu_parts import GPU_PART_KINDS
from cpsched.slurm_text.jobs import parse_task_ranges

NO_CONSUME = "no_consume"
"""Slurm's flag, after or instead of a type, for a resource that any number of jobs may share."""
MAX_COUNT = (1 << 64) - 1

_NUMBER = re.compile(r"(\d+)([a-z]*)", re.ASCII)
_PREFIX = re.compile(r"gres[/:](?=.)")
_UNITS: dict[str, int] = {"": 1} | {
    unit + end: base**power
    for power, unit in enumerate("kmgtp", start=1)
    for end, base in (("", 1024), ("ib", 1024), ("b", 1000))
}


@dataclass(frozen=True, slots=True)
class Gres:
    """A generic resource on a node or in a request. `type` is empty if it has no type."""

    name: str
    type: str = ""
    count: int = 1
    is_consumable: bool = True
    """Whether jobs consume the resource."""

    @property
    def key(self) -> str:
        """Name and type, such as `gpu:a100`."""
        return f"{self.name}:{self.type}" if self.type else self.name


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Return generic resources, or raise `ValueError` for text that Slurm rejects.

    >>> [(each.key, each.count) for each in parse_gres("gpu:2080ti:8(S:0,2),gpu:1g.10gb+me:7,shard:1K")]
    [('gpu:2080ti', 8), ('gpu:1g.10gb+me', 7), ('shard', 1024)]
    >>> [(each.key, each.is_consumable) for each in parse_gres("scratch:fast:no_consume:1,gres/gpu")]
    [('scratch:fast', False), ('gpu', True)]
    """
    if text in ("", "(null)", "N/A"):
        return ()
    return tuple(_parse_gres_item(item) for item in _split_gres_items(text))


def is_gpu_part(name: str) -> bool:
    """Return whether a generic resource, with or without a type, is a part of a GPU."""
    return name.partition(":")[0] in GPU_PART_KINDS


class SharedGpus(NamedTuple):
    """The GPUs of a node, which jobs use as a whole or in parts."""

    name: str
    """Name of the parts, such as "shard"."""
    parts: int
    """Number of parts of each GPU."""
    used: tuple[int | None, ...]
    """Used parts of each GPU, or None for a GPU that a job uses as a whole."""


_PARTS = re.compile(rf"({'|'.join(GPU_PART_KINDS)})(?::[^()]*)?:\d+\((\S+)\)")
_WHOLE_GPUS = re.compile(r"gpu(?::[^()]*)?:\d+\(IDX:(\S+)\)")


def parse_shared_gpus(text: str) -> SharedGpus | None:
    """Return the GPUs of a node from `GresUsed`, or None if their state is not shown.

    Their state counts as not shown if the GPUs are of several types, or have parts of several kinds or numbers. Only
    release 26.05 marks the GPUs that jobs use as a whole among the parts.

    >>> parse_shared_gpus("gpu:a100:1(IDX:2),shard:a100:7(4/4,3/4,-/4)")
    SharedGpus(name='shard', parts=4, used=(4, 3, None))
    """
    items = list(_split_gres_items(text))
    whole = [found[1] for found in map(_WHOLE_GPUS.fullmatch, items) if found]
    parts = [found for found in map(_PARTS.fullmatch, items) if found]
    if len(whole) != 1 or len(parts) != 1:
        return None
    used, counts = zip(*(item.split("/") for item in parts[0][2].split(",")), strict=True)
    taken = {at for span in parse_task_ranges(whole[0].replace("N/A", "")) for at in span}
    marked = {at for at, count in enumerate(used) if count == "-"}
    if len(set(counts)) > 1 or (marked and marked != taken) or any(used[at] not in "-0" for at in taken):
        return None
    return SharedGpus(
        parts[0][1], int(counts[0]), tuple(None if at in taken else int(count) for at, count in enumerate(used))
    )


def parse_slurm_count(word: str) -> int | None:
    """Return a count in Slurm's syntax, such as `1K` or `5GB`, or None.

    >>> parse_slurm_count("2K"), parse_slurm_count("2kb"), parse_slurm_count("2080ti")
    (2048, 2000, None)
    """
    found = _NUMBER.fullmatch(word.lower())
    if found is None or found[2] not in _UNITS or len(found[1]) > len(str(MAX_COUNT)):
        return None
    return int(found[1]) * _UNITS[found[2]]


def _split_gres_items(text: str) -> Iterator[str]:
    """Yield the items between commas outside brackets. Like Slurm, skip empty items."""
    depth = start = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth not in (0, 1):
            break
        if sign == "," and not depth:
            if start < at:
                yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError(f"generic resources {text[:60]!r}: brackets do not match")
    if start < len(text):
        yield text[start:]


def _parse_gres_item(item: str) -> Gres:
    body = item[: item.rindex("(")] if item.endswith(")") else item
    body = _PREFIX.sub("", body, count=1) if _PREFIX.match(body) else body
    sign = "=" if "=" in body else ":"
    head, sep, last = body.rpartition(sign)
    count = parse_slurm_count(last) if sep else None
    if count is None:
        if sep and (not last or sign == "="):
            raise ValueError(f"generic resource {item[:40]!r}: {last[:20]!r} is not a count")
        head, count = body, 1
    name, _, kind = head.partition(":")
    if not name or count > MAX_COUNT:
        raise ValueError(f"generic resource {item[:40]!r}: must be NAME[:TYPE][:COUNT]")
    kinds = [each for each in kind.split(":") if each not in ("", "(null)")]
    types = [each for each in kinds if each.lower() != NO_CONSUME]
    return Gres(name, ":".join(types), count, len(types) == len(kinds))
