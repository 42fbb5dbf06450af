"""Define one reading of PBS as plain data.

The transport returns a reading, which is the input to the translation. A record maps PBS's attribute names, such as
`job_state`, to values:

- Scalars are text, even if the JSON contains numbers (see `UnquotedValue`).
- Attributes with parts, such as `Resource_List`, are dicts of text values.
- Lists, and attributes that PBS prints several times (limits), are tuples of text values.

Records omit each job's environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Value = str | tuple[str, ...] | dict[str, "str | tuple[str, ...]"]
Record = dict[str, Value]

UNREADABLE_KEY = "unreadable"
"""Attribute that marks an unreadable record. Its value is the reason."""


class UnquotedValue(str):
    """A value that PBS printed without quotes.

    Some releases print text that looks like a number as a number: `07` as 7, `1e5` as 100000.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class UnreadablePbsObject:
    """A PBS object that the reader omits because it is unreadable."""

    kind: str
    """Kind of the object: vnode, job, queue or reservation."""
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class PbsCustomResource:
    """A custom resource as listed by `qmgr`."""

    type: str
    flags: str = ""

    @property
    def is_consumable(self) -> bool:
        """Whether jobs consume a vnode's amount of the resource."""
        return "n" in self.flags or "f" in self.flags


NON_TEXT_TYPES = frozenset({"long", "float", "size", "boolean"})
"""Resource types whose values are not text, so that one value may have several spellings."""
BUILT_IN_NON_TEXT_RESOURCES = frozenset({
    "accelerator", "accelerator_memory", "energy", "hbmem", "mem", "naccelerators", "ncpus", "pcap_accelerator",
    "pcap_node", "pmem", "pvmem", "vmem",
})  # fmt: skip
"""PBS's built-in resources with a type in `NON_TEXT_TYPES`."""


def is_text_resource(resource: str, kinds: Mapping[str, PbsCustomResource]) -> bool:
    """Return whether a resource's values are text, so that `07` differs from `7`."""
    return (
        kinds[resource].type not in NON_TEXT_TYPES if resource in kinds else resource not in BUILT_IN_NON_TEXT_RESOURCES
    )


@dataclass(frozen=True, slots=True)
class PbsRecords:
    """PBS's records by name. Jobs include array parents and subjobs."""

    now_s: int
    server: Record
    jobs: Mapping[str, Record] = field(default_factory=dict)
    queues: Mapping[str, Record] = field(default_factory=dict)
    vnodes: Mapping[str, Record] = field(default_factory=dict)
    reservations: Mapping[str, Record] = field(default_factory=dict)
    resources: Mapping[str, PbsCustomResource] = field(default_factory=dict)
    schedulers: Mapping[str, Record] = field(default_factory=dict)
    """PBS's schedulers, which are read only on request."""
    unreadable: tuple[UnreadablePbsObject, ...] = ()
    """Objects omitted from the records above."""


def get_text_attribute(record: Mapping[str, Value], name: str, default: str = "") -> str:
    """Return an attribute as text, or `default` if it is missing.

    Raise `ValueError` if the attribute is not a single text value.
    """
    value = record.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a single text value")
    return value


def get_attribute_parts(record: Mapping[str, Value], name: str) -> dict[str, str | tuple[str, ...]]:
    """Return the parts of an attribute, such as `Resource_List`, or {}.

    Raise `ValueError` if the attribute has no parts.
    """
    value = record.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"{name} has no parts")
    return value


def get_attribute_part_texts(record: Mapping[str, Value], name: str) -> dict[str, str]:
    """Return the parts of an attribute whose values are single texts."""
    return {key: value for key, value in get_attribute_parts(record, name).items() if isinstance(value, str)}


def list_text_values(value: Value | None) -> tuple[str, ...]:
    """Return all text values of an attribute that PBS may print several times."""
    if value is None or isinstance(value, dict):
        return ()
    return (value,) if isinstance(value, str) else value
