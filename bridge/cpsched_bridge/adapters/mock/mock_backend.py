"""The ports over a simulated site in the same process."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from typing_extensions import override

from cpsched.model import EndedJob
from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.adapters.mock.simulated_clocks import SiteClock
from cpsched_bridge.ports import (
    Advice,
    Advisable,
    Backend,
    Check,
    Claim,
    Observation,
    Outcome,
    Postponed,
    Rank,
    StartOrder,
)


class MockBackend(Backend, Advisable):
    """A `Backend` over `site`, which is brought up to `clock` at every call."""

    child_starts = 0
    history_missing = False
    speaks = ""
    starts_in_one_change = True

    def __init__(self, site: MockCluster, clock: SiteClock) -> None:
        self.site = site
        self._clock = clock
        self._told = 0

    def _now(self) -> MockCluster:
        self.site.advance(max(self._clock.now_s(), self.site.now_s))
        return self.site

    @override
    def waits_for(self) -> str | None:
        return None

    @override
    def observe(self, pinned: Collection[int] = ()) -> Observation:
        """Observe; the site tells pins from wishes by itself."""
        seen = self.read(self._told)
        self._told += len(seen.ended)
        return seen

    def read(self, since: int) -> Observation:
        """The site now, without the `since` jobs that ended first."""
        return self._now().observe(since)

    @override
    def history(self) -> Sequence[EndedJob]:
        site = self._now()
        self._told = len(site.ended)
        return tuple(site.ended)

    @override
    def settled(self, orders: Sequence[StartOrder]) -> Sequence[StartOrder | Postponed]:
        """Return the orders unchanged: a simulated site uses the nodes of the order."""
        return orders

    @override
    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        return self._now().start(orders)

    @override
    def hold(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        return self._now().hold(job_ids)

    @override
    def hand_back(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        return self._now().hand_back(job_ids)

    @override
    def unpin(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        return self._now().unpin(job_ids)

    @override
    def ranks(self) -> Sequence[Rank]:
        return self._now().ranks()

    @override
    def advise(self, advice: Sequence[Advice]) -> Sequence[Outcome]:
        return self._now().advise(advice)

    @override
    def claim(self, claim: Claim, instead_of: Claim | None) -> bool:
        return self.site.claim(claim, instead_of)

    @override
    def disclaim(self, claim: Claim) -> None:
        self.site.disclaim(claim)

    @override
    def checks(self) -> Sequence[Check]:
        """Return no checks: a simulated site has no prerequisites."""
        return [Check("site", True, f"simulated, {self.site.now_s} s old")]

    @override
    def close(self) -> None:
        pass
