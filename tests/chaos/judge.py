"""Compare the ledger with the site's actual state, without the bridge's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from cpsched_bridge.store.ledger import LedgerState, ManagedJobEntry
from tests.chaos.site import Site, SiteJob

OURS = ("plugin", "bridge")
"""Holders whose holds the bridge must eventually undo."""

HELD_STATES = frozenset(
    {LedgerState.HOLDING, LedgerState.HELD, LedgerState.STARTING, LedgerState.ROLLING_BACK, LedgerState.RELEASING}
)
NOT_RUNNING = frozenset({LedgerState.HELD, LedgerState.HOLDING, LedgerState.RELEASING, LedgerState.ROLLING_BACK})


@dataclass
class Verdict:
    """The result of a history: the errors, and how often each event happened."""

    wrongs: list[str]
    log: list[str]
    counts: Counter[str]
    takeovers_s: list[float] = field(default_factory=list)
    """Seconds without a leader before each takeover by another host."""


def after_a_good_cycle(site: Site, entries: Mapping[int, ManagedJobEntry], arrived: frozenset[int]) -> list[str]:
    """Return contradictions between ledger and cluster after a cycle without a failure.

    `arrived` are the jobs submitted since the reading of that cycle.
    """
    found = []
    for id, job in site.jobs.items():
        entry = entries.get(id)
        if (
            job.pending
            and job.held_by in OURS
            and id not in arrived
            and (entry is None or entry.state not in HELD_STATES)
        ):
            found.append(
                f"job {id} is held by the {job.held_by}, and the ledger says {entry.state if entry else 'nothing'}"
            )
        touchable = job.held_by not in ("owner", "admin")
        if (
            job.pending
            and job.pin
            and not touchable
            and entry is not None
            and entry.state is LedgerState.FREE
            and id not in arrived
        ):
            found.append(f"job {id} is held by its {job.held_by}, and our list is on it: {job.pin}")
        seen_running = (
            entry is None or entry.state is not LedgerState.STARTING
        )  # otherwise, the start itself may still succeed
        if job.pending and job.old_pin and touchable and seen_running and id not in arrived:
            found.append(f"job {id} was requeued, and its old list is still on it: {job.pin}")
        if job.pending and job.pin and touchable and (entry is None or not entry.pinned):
            found.append(f"job {id} is pinned to {job.pin}, and the ledger does not know")
    for id, entry in entries.items():
        job = site.jobs[id]
        if entry.state is LedgerState.RUNNING and not job.running:
            found.append(f"job {id} is running by the ledger, and {_word(job)}")
        if entry.state in HELD_STATES and (job.over or job.held_by in ("owner", "admin")):
            found.append(f"job {id} is {entry.state} by the ledger, and {_word(job)}")
        if entry.state in NOT_RUNNING and job.running:
            found.append(f"job {id} is {entry.state} by the ledger, and {_word(job)}")
    return found


def pinned_too_long(site: Site, since_s: int, longest_s: int) -> list[str]:
    """Return jobs pinned for too long although the bridge could have noticed since `since_s`."""
    return [
        f"job {id} {_word(job)} since second {job.released_s}"
        for id, job in site.jobs.items()
        if job.pending and job.pin and job.held_by == "nobody" and site.now_s - max(job.released_s, since_s) > longest_s
    ]


def after_handing_all_back(site: Site, known: frozenset[int]) -> list[str]:
    """Return jobs of `known` that are still held or pinned although the bridge reports no obstacle."""
    return [
        f"job {id} is released, and {_word(job)}"
        for id, job in site.jobs.items()
        if id in known and job.pending and (job.held_by in OURS or (job.pin and job.held_by == "nobody"))
    ]


def points_left(site: Site, spare_s: int = 0) -> list[str]:
    """Return jobs that still have the bridge's points although it reports no obstacle.

    A job requeued less than `spare_s` seconds ago keeps the points of its start.
    """
    return [
        f"job {id} still has {job.points} points"
        for id, job in site.jobs.items()
        if job.pending and job.points and job.points_of == "bridge" and site.now_s - job.released_s >= spare_s
    ]


def held_though_advised(site: Site, known: frozenset[int]) -> list[str]:
    """Return jobs of `known` that the bridge holds although it advises."""
    return [
        f"job {id} is held by the {job.held_by} in mode advise"
        for id, job in site.jobs.items()
        if id in known and job.pending and job.held_by in OURS
    ]


def at_the_end(site: Site) -> list[str]:
    """Return jobs that should have run by now."""
    found = []
    for id, job in site.jobs.items():
        if job.stubborn and job.starts:
            found.append(f"job {id} was started, and cannot be")
        if not job.over and not job.stubborn and job.held_by not in ("owner", "admin"):
            found.append(f"job {id} never ended: {_word(job)}")
        if job.starts > 1 + job.requeues:
            found.append(f"job {id} was started {job.starts} times and requeued {job.requeues} times")
        if job.over == "ended" and not job.starts:
            found.append(f"job {id} ended and never started")
    return found


def _word(job: SiteJob) -> str:
    if job.over:
        return f"has {job.over}"
    if job.running:
        return f"runs on {job.placement}"
    return f"waits, held by {job.held_by}" + (f", pinned to {job.pin}" if job.pin else "")
