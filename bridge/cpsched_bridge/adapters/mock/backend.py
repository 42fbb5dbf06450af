"""The ports over a simulated site in the same process."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cpsched.model import EndedJob
from cpsched_bridge.adapters.mock.clocks import SiteClock
from cpsched_bridge.adapters.mock.site import MockCluster
from cpsched_bridge.ports import Advice, Check, Claim, Observation, Outcome, Postponed, Rank, StartOrder


class MockBackend:
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

    def waits_for(self) -> str | None:
        """See `Backend.waits_for`."""
        return None

    def observe(self, pinned: Collection[int] = ()) -> Observation:
        """See `Backend.observe`; the site tells pins from wishes by itself."""
        seen = self.read(self._told)
        self._told += len(seen.ended)
        return seen

    def read(self, since: int) -> Observation:
        """The site now, without the `since` jobs that ended first."""
        return self._now().observe(since)

    def history(self) -> Sequence[EndedJob]:
        """See `Backend.history`."""
        site = self._now()
        self._told = len(site.ended)
        return tuple(site.ended)

    def settled(self, orders: Sequence[StartOrder]) -> Sequence[StartOrder | Postponed]:
        """See `Backend.settled`: a simulated site puts every unit where it is told."""
        return orders

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        """See `Backend.start`."""
        return self._now().start(orders)

    def hold(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """See `Backend.hold`."""
        return self._now().hold(job_ids)

    def hand_back(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """See `Backend.hand_back`."""
        return self._now().hand_back(job_ids)

    def unpin(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """See `Backend.unpin`."""
        return self._now().unpin(job_ids)

    def ranks(self) -> Sequence[Rank]:
        """See `Advisable.ranks`."""
        return self._now().ranks()

    def advise(self, advice: Sequence[Advice]) -> Sequence[Outcome]:
        """See `Advisable.advise`."""
        return self._now().advise(advice)

    def claim(self, claim: Claim, instead_of: Claim | None) -> bool:
        """See `Backend.claim`."""
        return self.site.claim(claim, instead_of)

    def disclaim(self, claim: Claim) -> None:
        """See `Backend.disclaim`."""
        self.site.disclaim(claim)

    def checks(self) -> Sequence[Check]:
        """See `Backend.checks`: nothing can be wrong with a simulated site."""
        return [Check("site", True, f"simulated, {self.site.now_s} s old")]

    def close(self) -> None:
        """See `Backend.close`."""
