"""Translate `select` and `place` to a request, and a placement to `qrun` syntax.

A PBS job requests chunks: `2:ncpus=4:mem=8gb` requests two. PBS places a chunk on one host, possibly on several of its
vnodes. The bridge places a unit on one vnode, which PBS also allows. Different chunks become one unit if they may share
a vnode and fit on it together. Values of `place`:

- `free`: chunks may share a vnode. `pack`: all chunks are on one host. `scatter`: each chunk has its own host.
  `vscatter`: each chunk has its own vnode.
- `excl`, `exclhost`: the job has exclusive use of its vnodes or its hosts. `shared`: the job shares them.
- `group=R`: all vnodes have the same value of resource R. A request has a single set of vnodes, so for each reading the
  bridge chooses the smallest group with sufficient free amounts, as PBS does. If no group has sufficient free amounts,
  it chooses the largest group that can hold the job.

Sources: OpenPBS's manual pages `pbs_resources(7B)` and `qrun(8B)`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np

from cpsched.feasibility import units_fitting_by_row
from cpsched.model import BoolArray, IntArray, NodeSetCondition, Request
from cpsched.pbs_text import PbsPlaceDirective, parse_pbs_place, parse_pbs_select
from cpsched_bridge.adapters.pbs.pbs_objects import parse_resource_amount
from cpsched_bridge.adapters.pbs.translation.vnodes import ConfiguredVnodeTable, VnodeGroups
from cpsched_bridge.adapters.shared.adapter_errors import JobNotModelled

IGNORED_CHUNK_RESOURCES = frozenset({"mpiprocs", "ompthreads", "nodect", "nchunk"})
"""Chunk resources that no vnode provides."""
MAX_CHUNKS = 1 << 20
_AMOUNT = re.compile(r"[0-9A-Za-z.]{1,32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RequestedChunks:
    """`count` equal chunks, with their amounts and the vnode properties they require."""

    count: int
    amounts: tuple[tuple[str, str], ...]
    properties: tuple[tuple[str, str], ...]

    @property
    def amounts_text(self) -> str:
        """The chunk's amounts in PBS's syntax."""
        return ":".join(f"{name}={value}" for name, value in self.amounts)


@dataclass(frozen=True, slots=True)
class CandidateVnodeGroups:
    """Groups of vnodes, of which a job may use only one."""

    groups: VnodeGroups
    holds: BoolArray
    """Whether the job fits into each group when it is idle, bool[G]."""
    allowed: BoolArray
    """Mask of the vnodes that the job may use, bool[N]."""

    def vnode_mask(self, group: int) -> BoolArray:
        """Return a mask of the group's vnodes that the job may use."""
        return self.groups.member_mask(group, len(self.allowed)) & self.allowed

    def is_candidate_group(self, vnodes: BoolArray) -> bool:
        """Return whether `vnodes` are the allowed vnodes of a group that can hold the job."""
        groups = self.groups.groups_of_vnode(int(vnodes.argmax()))
        return any(self.holds[each] and (self.vnode_mask(each) == vnodes).all() for each in groups.tolist())


@dataclass(frozen=True, slots=True)
class ChunkedRequest:
    """A request, and the chunks that make up one of its units."""

    request: Request
    chunks: tuple[str, ...]
    """Amounts of each chunk in one unit, in PBS's syntax."""
    choice: CandidateVnodeGroups | None = None
    """Groups of a job with `group=`, or None for other jobs."""

    def matches_request(self, request: Request, machine: ConfiguredVnodeTable) -> bool:
        """Return whether `request` equals this request.

        Its vnodes may be those of another group in `choice`.
        """
        if request == self.request or self.choice is None:
            return request == self.request
        there = machine.rows[request.node_set]
        return replace(request, node_set=self.request.node_set) == self.request and self.choice.is_candidate_group(
            there
        )

    def format_exec_vnode(self, nodes: tuple[tuple[str, int], ...]) -> str:
        """Return a placement in `qrun -H` syntax."""
        where = (f"({name}:{words})" for name, units in nodes for _ in range(units) for words in self.chunks)
        return "+".join(where)


def parse_place_text(text: str) -> PbsPlaceDirective:
    """Return the parsed `place` value.

    Raise `JobNotModelled` for values that PBS's manual does not list.
    """
    found = parse_pbs_place(text)
    if found.unknown:
        raise JobNotModelled(f"place={text[:60]}")
    return found


def parse_chunks(select: str, machine: ConfiguredVnodeTable) -> list[RequestedChunks]:
    """Return the chunks in a `select` value, with equal neighbors merged.

    Raise `JobNotModelled` or `ValueError`.
    """
    found: list[RequestedChunks] = []
    for part in parse_pbs_select(select):
        if not part.count:
            raise ValueError("requests a chunk 0 times")
        amounts, properties = [], []
        for name, value in part.asked.items():
            if name in IGNORED_CHUNK_RESOURCES:
                continue
            if name in machine.resources:
                if not _AMOUNT.fullmatch(value):
                    raise ValueError(f"select: {name}={value[:40]!r}: not a valid amount")
                amounts.append((name, value))
            elif machine.has_resource(name):
                properties.append((name, value))
            else:
                raise JobNotModelled(f"requests {name}, which no vnode has")
        chunk = RequestedChunks(part.count, tuple(amounts) or (("ncpus", "1"),), tuple(properties))
        last = found[-1] if found else None
        if last is not None and (last.amounts, last.properties) == (chunk.amounts, chunk.properties):
            found[-1] = RequestedChunks(last.count + chunk.count, chunk.amounts, chunk.properties)
        else:
            found.append(chunk)
    if sum(chunk.count for chunk in found) > MAX_CHUNKS:
        raise ValueError(f"requests more than {MAX_CHUNKS} chunks")
    return found


def build_chunk_request(
    select: str, place: str, machine: ConfiguredVnodeTable, allowed: BoolArray, free: IntArray
) -> ChunkedRequest:
    """Return a job's request on the `allowed` vnodes.

    `free`, int64[N, R], determines the group of a job with `group=`. Raise `JobNotModelled`, or `ValueError` for
    malformed text.
    """
    chunks, how = parse_chunks(select, machine), parse_place_text(place)
    mask = allowed.copy()
    named = []
    for name, value in dict.fromkeys(each for chunk in chunks for each in chunk.properties):
        mask &= machine.mask_vnodes_with_value(name, value)
        named.append(f"{name}={value}")
    if len({chunk.properties for chunk in chunks}) > 1:
        raise JobNotModelled("requests chunks on different kinds of vnodes")
    if not mask.any():
        raise JobNotModelled(f"no vnode has {', '.join(named)}" if named else "no vnode is available to its queue")
    count = sum(chunk.count for chunk in chunks)
    together = count > 1 and (how.arrangement == "pack" or len(chunks) > 1)
    if count > 1 and not together:
        mask &= ~machine.single_host
    if len(chunks) > 1 and how.arrangement in ("scatter", "vscatter"):
        raise JobNotModelled(f"requests different chunks with place={how.arrangement}")
    if count > 1 and how.arrangement == "scatter" and not machine.has_one_vnode_per_host:
        raise JobNotModelled("requests place=scatter, but hosts have several vnodes")
    exclusive = _has_exclusive_vnodes(how, machine, mask)
    vectors = [(chunk.count, _to_amount_vector(chunk, machine)) for chunk in chunks]
    parts = [NodeSetCondition("resource", each) for each in named] or [NodeSetCondition("partition", "its queue's")]
    node_set = machine.intern_node_set(mask, *parts)
    if together:
        if not any(any(vector) for _, vector in vectors):
            raise JobNotModelled("requests no amount of any resource")
        whole = np.sum([np.array(vector, dtype=object) * times for times, vector in vectors], axis=0)
        if not (machine.capacity[mask] >= whole).all(axis=1).any():
            what = "different chunks" if len(chunks) > 1 else "place=pack"
            raise JobNotModelled(f"requests {what}, but no single vnode can hold all chunks")
        words = tuple(chunk.amounts_text for chunk in chunks for _ in range(chunk.count))
        return ChunkedRequest(Request(1, tuple(map(int, whole)), False, exclusive, node_set), words)
    per_unit = vectors[0][1]
    if not any(per_unit):
        raise JobNotModelled("requests no amount of any resource")
    if not (machine.capacity[mask] >= np.array(per_unit, dtype=object)).all(axis=1).any():
        raise JobNotModelled("requests a chunk that does not fit on any vnode")
    distinct = count > 1 and how.arrangement in ("scatter", "vscatter")
    found = ChunkedRequest(Request(count, per_unit, distinct, exclusive, node_set), (chunks[0].amounts_text,))
    if how.group and count > 1:
        return _restrict_to_one_group(found, how.group, machine, mask, free)
    if count > 1 and not request_fits_free_amounts(found.request, machine.capacity, machine):
        raise JobNotModelled("requests more chunks than fit on its vnodes")
    return found


def _restrict_to_one_group(
    found: ChunkedRequest, resource: str, machine: ConfiguredVnodeTable, mask: BoolArray, free: IntArray
) -> ChunkedRequest:
    """Return the request restricted to one group of vnodes that can hold the job."""
    request, groups = found.request, machine.group_by_resource(resource)
    choice = CandidateVnodeGroups(
        groups,
        groups.sum_by_group(_count_units_by_vnode(request, machine.capacity, machine, mask)) >= request.units,
        mask,
    )
    if not choice.holds.any():
        what = f"place=group={resource[:40]}"
        raise JobNotModelled(what, f"{what}: no group of vnodes can hold the job")
    now = groups.sum_by_group(_count_units_by_vnode(request, free, machine, mask)) >= request.units
    group = int(now.argmax() if now.any() else np.flatnonzero(choice.holds)[-1])
    node_set = machine.intern_node_set(
        choice.vnode_mask(group), NodeSetCondition("resource", f"{resource}={groups.names[group]}")
    )
    return ChunkedRequest(replace(request, node_set=node_set), found.chunks, choice)


def request_fits_free_amounts(request: Request, free: IntArray, machine: ConfiguredVnodeTable) -> bool:
    """Return whether a request fits into the amounts `free`, int64[N, R]."""
    return int(_count_units_by_vnode(request, free, machine, machine.rows[request.node_set]).sum()) >= request.units


def _count_units_by_vnode(request: Request, free: IntArray, machine: ConfiguredVnodeTable, mask: BoolArray) -> IntArray:
    """Return how many units fit on each vnode, int64[N], or 0 outside the mask."""
    units = units_fitting_by_row(request, free)
    units[~mask] = 0
    if request.exclusive:
        units[(free != machine.capacity).any(axis=1)] = 0
    return units


def _to_amount_vector(chunk: RequestedChunks, machine: ConfiguredVnodeTable) -> tuple[int, ...]:
    amounts = {name: math.ceil(parse_resource_amount(value, name in machine.sizes)) for name, value in chunk.amounts}
    return tuple(amounts.get(name, 0) for name in machine.resources)


def _has_exclusive_vnodes(how: PbsPlaceDirective, machine: ConfiguredVnodeTable, mask: BoolArray) -> bool:
    """Return whether the job has exclusive use of its vnodes.

    This depends on `place` and on the vnodes' `sharing`.
    """
    found = {_get_exclusive_scope(how.sharing, machine.sharing[row]) for row in np.flatnonzero(mask).tolist()}
    if len(found) > 1:
        raise JobNotModelled("may use vnodes with different sharing")
    alone = found.pop()
    if alone == "host" and not machine.has_one_vnode_per_host:
        raise JobNotModelled("requests whole hosts, which have several vnodes")
    return bool(alone)


def _get_exclusive_scope(wish: str, sharing: str) -> str:
    """Return the scope of exclusive use: "vnode", "host", or "" for none."""
    if sharing == "ignore_excl":
        return ""
    if sharing.startswith("force_") or not wish:
        return {"excl": "vnode", "exclhost": "host"}.get(sharing.partition("_")[2], "")
    return {"excl": "vnode", "exclhost": "host"}.get(wish, "")
