"""The queues that the bridge manages: whether PBS's own scheduler may start their jobs, and what they set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cpsched_bridge.adapters.pbs.records import Record, text_of


@dataclass(frozen=True, slots=True)
class ExecutionQueue:
    """An execution queue. `started`: PBS's own scheduler starts its jobs, so that they are not the bridge's."""

    name: str
    started: bool
    record: Record


def managed(records: Mapping[str, Record], names: Collection[str]) -> dict[str, ExecutionQueue]:
    """Those of the queues `names` that are there and have jobs of their own, by name."""
    found = {}
    for name in names:
        record = records.get(name)
        if record is not None and text_of(record, "queue_type").lower().startswith("e"):
            found[name] = ExecutionQueue(name, is_true(record, "started"), record)
    return found


def is_true(record: Record, name: str) -> bool:
    """Whether a truth value is set and true."""
    return text_of(record, name).lower() in ("true", "t", "1", "y", "yes")
