"""One reading of PBS as plain data, as the transport delivers it and the translation takes it.

A record holds an object's attributes by PBS's own names, such as `job_state`. Values are texts, whatever JSON made of
them (see `Unquoted`); `Resource_List` and its like are dicts of texts; a list, or an attribute that PBS prints several
times (limits), is a tuple of texts. What a user writes into a job's environment is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Value = str | tuple[str, ...] | dict[str, "str | tuple[str, ...]"]
Record = dict[str, Value]

UNREADABLE = "unreadable"
"""The attribute of a record that could not be read as what it is; its value says why."""


class Unquoted(str):
    """A value that was printed without quotes.

    Releases differ in what they print for a text that looks like a number: `07` may stand there as 7, `1e5` as 100000.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that PBS shows and that cannot be read. It is left out, and nothing else is."""

    kind: str
    """vnode, job, queue, reservation."""
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A custom resource, as `qmgr` lists it."""

    type: str
    flags: str = ""

    @property
    def counted_by_vnode(self) -> bool:
        """Whether jobs use up what a vnode has."""
        return "n" in self.flags or "f" in self.flags


NO_TEXTS = frozenset({"long", "float", "size", "boolean"})
"""Types of resources whose values mean the same however they are written."""
BUILT_IN_NO_TEXTS = frozenset({
    "accelerator", "accelerator_memory", "energy", "hbmem", "mem", "naccelerators", "ncpus", "pcap_accelerator",
    "pcap_node", "pmem", "pvmem", "vmem",
})  # fmt: skip
"""Resources of such types that PBS itself defines."""


def is_text(resource: str, kinds: Mapping[str, ResourceKind]) -> bool:
    """Whether values of a resource are texts: `07` is not `7`."""
    return kinds[resource].type not in NO_TEXTS if resource in kinds else resource not in BUILT_IN_NO_TEXTS


@dataclass(frozen=True, slots=True)
class PbsReading:
    """What PBS showed; records by name, jobs with those of array parents and subjobs."""

    now_s: int
    server: Record
    jobs: Mapping[str, Record] = field(default_factory=dict)
    queues: Mapping[str, Record] = field(default_factory=dict)
    vnodes: Mapping[str, Record] = field(default_factory=dict)
    reservations: Mapping[str, Record] = field(default_factory=dict)
    resources: Mapping[str, ResourceKind] = field(default_factory=dict)
    schedulers: Mapping[str, Record] = field(default_factory=dict)
    """PBS's own; only where they were asked for."""
    unreadable: tuple[Unreadable, ...] = ()
    """Objects that are in none of the records above."""


def text_of(record: Mapping[str, Value], name: str, default: str = "") -> str:
    """An attribute as text; `default` where there is none. Raises `ValueError` where it is more than one text."""
    value = record.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value


def parts_of(record: Mapping[str, Value], name: str) -> dict[str, str | tuple[str, ...]]:
    """An attribute with parts, such as `Resource_List`, by their names; empty where there is none."""
    value = record.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"{name} has no parts")
    return value


def texts_of(record: Mapping[str, Value], name: str) -> dict[str, str]:
    """The parts of an attribute that are one text each."""
    return {key: value for key, value in parts_of(record, name).items() if isinstance(value, str)}


def all_of(value: Value | None) -> tuple[str, ...]:
    """A value that may be printed several times, as texts."""
    if value is None or isinstance(value, dict):
        return ()
    return (value,) if isinstance(value, str) else value
