"""Translate the records of the queues that the bridge manages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cpsched_bridge.adapters.pbs.pbs_records import UNREADABLE_KEY, Record, UnreadablePbsObject, get_text_attribute
from cpsched_bridge.adapters.shared.job_not_modelled import UNREADABLE_FIELD_ERRORS


@dataclass(frozen=True, slots=True)
class PbsExecutionQueue:
    """An execution queue. If `started` is true, PBS's scheduler starts its jobs."""

    name: str
    started: bool
    record: Record


def select_managed_queues(records: Mapping[str, Record], names: Collection[str]) -> dict[str, PbsExecutionQueue]:
    """Return the readable execution queues among `names`, by name."""
    found = {}
    for name in names:
        record = records.get(name)
        if record is not None and not find_unreadable_queue_reason(record) and _is_execution_queue(record):
            found[name] = PbsExecutionQueue(name, is_attribute_true(record, "started"), record)
    return found


def _is_execution_queue(record: Record) -> bool:
    return get_text_attribute(record, "queue_type").lower().startswith("e")


def find_unreadable_queue_reason(record: Record) -> str:
    """Return why a queue is unreadable, or "" if it is readable."""
    try:
        for name in ("queue_type", "started", "enabled", "partition"):
            get_text_attribute(record, name)
    except UNREADABLE_FIELD_ERRORS as error:
        return str(error)
    return str(record.get(UNREADABLE_KEY, ""))


def list_unreadable_queues(records: Mapping[str, Record], names: Collection[str]) -> list[UnreadablePbsObject]:
    """Return the unreadable queues among `names`."""
    errors = ((name, find_unreadable_queue_reason(records[name])) for name in names if name in records)
    return [UnreadablePbsObject("queue", name, why) for name, why in errors if why]


def is_attribute_true(record: Record, name: str) -> bool:
    """Return whether a boolean attribute is set and true."""
    return get_text_attribute(record, name).lower() in ("true", "t", "1", "y", "yes")
