"""Why a job waits, in words for people."""

from __future__ import annotations

from cpsched.model import IntArray, Snapshot, Starts, Wait


def explain(snapshot: Snapshot, starts: Starts, plan_s: IntArray) -> dict[int, Wait]:
    """A wait for every queued job that does not start, by job id; `plan_s` follows the queue."""
    return {}
