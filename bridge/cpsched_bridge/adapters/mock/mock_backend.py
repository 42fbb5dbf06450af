"""Implement the ports for a simulated site in the same process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from typing_extensions import override

from cpsched.model import EndedJob
from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.ports import (
    Backend,
    BoostCommand,
    Lease,
    Observation,
    Outcome,
    QueueRank,
    ReadinessCheck,
    StartOrder,
    SupportsBoost,
    UndoOrder,
)


class MockBackend(Backend, SupportsBoost):
    """A backend for the simulated cluster `site`.

    Calls that need the cluster's state first advance it to the time that `now_s` returns. By default, only the caller
    advances it.
    """

    def __init__(self, site: MockCluster, now_s: Callable[[], int] | None = None) -> None:
        self.site = site
        self._now_s = now_s or (lambda: site.now_s)
        self._reported_count = 0

    def _advance_site(self) -> MockCluster:
        self.site.advance(max(self._now_s(), self.site.now_s))
        return self.site

    @override
    def observe(self, pinned: Collection[int] = ()) -> Observation:
        """Return an observation. `pinned` is ignored because the site itself records pins."""
        seen = self.read(self._reported_count)
        self._reported_count += len(seen.ended)
        return seen

    def read(self, since: int) -> Observation:
        """Return an observation that omits the first `since` ended jobs."""
        return self._advance_site().observe(since)

    @override
    def read_history(self) -> Sequence[EndedJob]:
        site = self._advance_site()
        self._reported_count = len(site.ended)
        return tuple(site.ended)

    @override
    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        return self._advance_site().start(orders)

    @override
    def hold(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        return self._advance_site().hold([order.job_id for order in orders])

    @override
    def release(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        return self._advance_site().release([order.job_id for order in orders])

    @override
    def unpin(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        return self._advance_site().unpin([order.job_id for order in orders])

    @override
    def read_ranks(self) -> Sequence[QueueRank]:
        return self._advance_site().list_queue_ranks()

    @override
    def set_boosts(self, commands: Sequence[BoostCommand]) -> Sequence[Outcome]:
        return self._advance_site().set_boosts(commands)

    @override
    def acquire_lease(self, lease: Lease, expected: Lease | None) -> bool:
        return self.site.acquire_lease(lease, expected)

    @override
    def run_checks(self) -> Sequence[ReadinessCheck]:
        """Return one passing check, because a simulated site has no prerequisites."""
        return [ReadinessCheck("site", True, f"simulated cluster, running for {self.site.now_s} s")]
