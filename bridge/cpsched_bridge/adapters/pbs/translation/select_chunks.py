"""`select` and `place` as a request: units on vnodes, and what a start says of each of them.

PBS counts a job's wishes in chunks: `2:ncpus=4:mem=8gb` are two. A chunk fits onto one host, over several of its vnodes
where need be; here a unit fits onto one vnode, which is a choice among those that PBS has. Chunks of several kinds
become one unit where all of them together fit onto one vnode, and may be there. `place` says

- `free`: chunks may share a vnode; `pack`: all on one host; `scatter`: each on a host of its own; `vscatter`: each on
  a vnode of its own;
- `excl`, `exclhost`: vnodes, or whole hosts, for this job alone; `shared`: not so;
- `group=R`: all on vnodes that have one value of the resource R. A request here is for one set of vnodes. So each
  reading chooses the smallest group that has room now, as PBS does; where none has, the largest one is waited for.

Sources: OpenPBS's manual pages `pbs_resources(7B)` and `qrun(8B)`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np

from cpsched.feasibility import units_by_node
from cpsched.model import BoolArray, IntArray, NodeSetPart, Request
from cpsched.parsing.pbs_select import ChunkPlacement, parse_place, parse_select
from cpsched_bridge.adapters.pbs.translation.pbs_units import amount
from cpsched_bridge.adapters.pbs.translation.vnodes import VnodeGroups, VnodeTable
from cpsched_bridge.adapters.shared.not_modelled import NotModelled

SILENT = frozenset({"mpiprocs", "ompthreads", "nodect", "nchunk"})
"""What a chunk may say that no vnode has."""
MOST_CHUNKS = 1 << 20
_AMOUNT = re.compile(r"[0-9A-Za-z.]{1,32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Chunk:
    """So many equal chunks: what each uses up, and what its vnode must have."""

    count: int
    amounts: tuple[tuple[str, str], ...]
    properties: tuple[tuple[str, str], ...]

    @property
    def words(self) -> str:
        """What the chunk uses up, in PBS's words."""
        return ":".join(f"{name}={value}" for name, value in self.amounts)


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """The groups of vnodes, in any one of which a job may run."""

    groups: VnodeGroups
    holds: BoolArray
    """Whether a group holds the job when it is empty."""
    allowed: BoolArray
    """The vnodes that the job may use."""

    def members(self, group: int) -> BoolArray:
        """The vnodes of one group that the job may use."""
        return self.groups.members(group, len(self.allowed)) & self.allowed

    def has(self, vnodes: BoolArray) -> bool:
        """Whether these are all that the job may use of a group that holds it."""
        around = self.groups.around(int(vnodes.argmax()))
        return any(self.holds[each] and (self.members(each) == vnodes).all() for each in around.tolist())


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """A request, and by unit the chunks in it."""

    request: Request
    chunks: tuple[str, ...]
    """What one unit uses up, chunk by chunk, in PBS's words."""
    choice: GroupChoice | None = None
    """For a job with `group=`, where else it may run."""

    def may_be(self, request: Request, machine: VnodeTable) -> bool:
        """Whether a request is this one, or the same in another of its groups."""
        if request == self.request or self.choice is None:
            return request == self.request
        there = machine.rows[request.node_set]
        return replace(request, node_set=self.request.node_set) == self.request and self.choice.has(there)

    def placed(self, nodes: tuple[tuple[str, int], ...]) -> str:
        """Where the units are, as `qrun -H` wants it told."""
        where = (f"({name}:{words})" for name, units in nodes for _ in range(units) for words in self.chunks)
        return "+".join(where)


def placement_of(text: str) -> ChunkPlacement:
    """Return what `place` says. Raises `NotModelled` for words that PBS's manual does not name."""
    found = parse_place(text)
    if found.unknown:
        raise NotModelled(f"place={text[:60]}")
    return found


def parse_chunks(select: str, machine: VnodeTable) -> list[Chunk]:
    """Return the chunks of a `select`, equal neighbours together. Raises `NotModelled`, `ValueError`."""
    found: list[Chunk] = []
    for part in parse_select(select):
        if not part.count:
            raise ValueError("a chunk that is wanted 0 times")
        amounts, properties = [], []
        for name, value in part.asked.items():
            if name in SILENT:
                continue
            if name in machine.resources:
                if not _AMOUNT.fullmatch(value):
                    raise ValueError(f"{name}={value[:40]!r} in a select")
                amounts.append((name, value))
            elif machine.knows(name):
                properties.append((name, value))
            else:
                raise NotModelled(f"asks for {name}, which no vnode has")
        chunk = Chunk(part.count, tuple(amounts) or (("ncpus", "1"),), tuple(properties))
        last = found[-1] if found else None
        if last is not None and (last.amounts, last.properties) == (chunk.amounts, chunk.properties):
            found[-1] = Chunk(last.count + chunk.count, chunk.amounts, chunk.properties)
        else:
            found.append(chunk)
    if sum(chunk.count for chunk in found) > MOST_CHUNKS:
        raise ValueError("more chunks than there can be")
    return found


def chunk_request(select: str, place: str, machine: VnodeTable, allowed: BoolArray, free: IntArray) -> ChunkRequest:
    """What a job asks for, on the vnodes that are `allowed`. Raises `NotModelled`, and `ValueError` for odd words.

    `free`, int64[N, R], says which group of vnodes has room for a job that wants to be in one.
    """
    chunks, how = parse_chunks(select, machine), placement_of(place)
    mask = allowed.copy()
    named = []
    for name, value in dict.fromkeys(each for chunk in chunks for each in chunk.properties):
        mask &= machine.having(name, value)
        named.append(f"{name}={value}")
    if len({chunk.properties for chunk in chunks}) > 1:
        raise NotModelled("chunks that are to be on vnodes of several kinds")
    if not mask.any():
        raise NotModelled(f"no vnode has {', '.join(named)}" if named else "no vnode is there for its queue")
    count = sum(chunk.count for chunk in chunks)
    together = count > 1 and (how.arrangement == "pack" or len(chunks) > 1)
    if len(chunks) > 1 and how.arrangement in ("scatter", "vscatter"):
        raise NotModelled(f"chunks of several kinds with place={how.arrangement}")
    if count > 1 and how.arrangement == "scatter" and not machine.one_vnode_per_host:
        raise NotModelled("place=scatter where hosts have several vnodes")
    exclusive = _exclusive(how, machine, mask)
    vectors = [(chunk.count, _vector(chunk, machine)) for chunk in chunks]
    parts = [NodeSetPart("resource", each) for each in named] or [NodeSetPart("partition", "its queue's")]
    node_set = machine.node_set(mask, *parts)
    if together:
        whole = np.sum([np.array(vector, dtype=object) * times for times, vector in vectors], axis=0)
        if not (machine.capacity[mask] >= whole).all(axis=1).any():
            what = "chunks of several kinds" if len(chunks) > 1 else "place=pack"
            raise NotModelled(f"{what} that together fit onto no vnode")
        words = tuple(chunk.words for chunk in chunks for _ in range(chunk.count))
        return ChunkRequest(Request(1, tuple(map(int, whole)), False, exclusive, node_set), words)
    per_unit = vectors[0][1]
    if not (machine.capacity[mask] >= np.array(per_unit, dtype=object)).all(axis=1).any():
        raise NotModelled("a chunk that fits onto no vnode")
    distinct = count > 1 and how.arrangement in ("scatter", "vscatter")
    found = ChunkRequest(Request(count, per_unit, distinct, exclusive, node_set), (chunks[0].words,))
    return _in_one_group(found, how.group, machine, mask, free) if how.group and count > 1 else found


def _in_one_group(
    found: ChunkRequest, resource: str, machine: VnodeTable, mask: BoolArray, free: IntArray
) -> ChunkRequest:
    """The same on the vnodes of one group, among those groups that could hold the job."""
    request, groups = found.request, machine.groups(resource)
    choice = GroupChoice(groups, groups.sums(_room(request, machine.capacity, machine, mask)) >= request.units, mask)
    if not choice.holds.any():
        what = f"place=group={resource[:40]}"
        raise NotModelled(what, f"{what}: no group of vnodes holds it")
    now = groups.sums(_room(request, free, machine, mask)) >= request.units
    group = int(now.argmax() if now.any() else np.flatnonzero(choice.holds)[-1])
    node_set = machine.node_set(choice.members(group), NodeSetPart("resource", f"{resource}={groups.names[group]}"))
    return ChunkRequest(replace(request, node_set=node_set), found.chunks, choice)


def chunks_fit(request: Request, free: IntArray, machine: VnodeTable) -> bool:
    """Whether the vnodes of a request hold all of it where `free`, int64[N, R], is free."""
    return int(_room(request, free, machine, machine.rows[request.node_set]).sum()) >= request.units


def _room(request: Request, free: IntArray, machine: VnodeTable, mask: BoolArray) -> IntArray:
    """How many units each of the vnodes holds where `free` is free, int64[N]; 0 outside the mask."""
    units = units_by_node(request, free)
    units[~mask] = 0
    if request.exclusive:
        units[(free != machine.capacity).any(axis=1)] = 0
    return units


def _vector(chunk: Chunk, machine: VnodeTable) -> tuple[int, ...]:
    amounts = {name: math.ceil(amount(value, name in machine.sizes)) for name, value in chunk.amounts}
    return tuple(amounts.get(name, 0) for name in machine.resources)


def _exclusive(how: ChunkPlacement, machine: VnodeTable, mask: BoolArray) -> bool:
    """Whether the job's vnodes are its alone: by its own word, or by that of the vnodes, if they agree."""
    found = {_alone(how.sharing, machine.sharing[row]) for row in np.flatnonzero(mask).tolist()}
    if len(found) > 1:
        raise NotModelled("vnodes that differ in whether they are shared")
    alone = found.pop()
    if alone == "host" and not machine.one_vnode_per_host:
        raise NotModelled("whole hosts, which have several vnodes")
    return bool(alone)


def _alone(wish: str, sharing: str) -> str:
    """ "vnode", "host", or nothing, where the job shares; `sharing` is a vnode's own word."""
    if sharing == "ignore_excl":
        return ""
    if sharing.startswith("force_") or not wish:
        return {"excl": "vnode", "exclhost": "host"}.get(sharing.partition("_")[2], "")
    return {"excl": "vnode", "exclhost": "host"}.get(wish, "")
