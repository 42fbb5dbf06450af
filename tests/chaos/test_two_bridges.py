"""Test two bridges on one site that are randomly killed, stopped, suspended and made to take over the lease."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched_bridge.cycle.bridge_loop import Bridge
from tests.bridges import a_bridge
from tests.builders import a_job
from tests.chaos import judge
from tests.chaos.site import Death, Site, SiteBackend
from tests.fakes import FakePace

SECONDS = 300
CALM_S = 400
IDLE_S = 60
"""Seconds of the calm period after all jobs have run: twice the time until a lease counts as abandoned."""
GONE_S = 30.0
HISTORIES = 5
CLOCKS_S = (0.0, 7e6)
"""Initial reading of each host's steady clock."""


class Watched(SiteBackend):
    """A backend that records a bridge's commands while another bridge owns the site's lease."""

    def __init__(self, site: Site, wrongs: list[str]) -> None:
        super().__init__(site)
        self.wrongs = wrongs
        self.owner: tuple[str, str] | None = None

    def __getattr__(self, name):
        command = super().__getattr__(name)
        if name not in ("hold", "release", "unpin"):
            return command

        def watched(orders):
            self._look(name, [order.job_id for order in orders])
            return command(orders)

        return watched

    def start(self, orders):
        self._look("start", [order.job_id for order in orders])
        return super().start(orders)

    def _look(self, call, ids):
        if self.site.claimed is None or self.site.claimed.owner != self.owner:
            theirs = [id for id in ids if self.site.jobs[id].held_by == "plugin"]
            if call != "release":
                self.wrongs.append(f"{call} of {ids} by a bridge that is not in control")
            elif theirs and self.site.claimed is not None:
                self.wrongs.append(f"jobs {theirs}, held by the plugin, are released by a bridge not in control")


@dataclass
class Place:
    """A host on which a bridge runs, is suspended, or will start."""

    state_dir: Path
    pace: FakePace
    bridge: Bridge | None = None
    backend: Watched | None = None
    away_s: int = 0
    """Seconds for which the host's bridge remains dead or stopped."""


@dataclass
class Pair:
    """Two hosts with bridges on one site, and random events drawn from a seed."""

    seed: int
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    wrongs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.site = Site(plugin=self.rng.random() < 0.7)
        self.places = [Place(self.folder / str(at), FakePace(at_s=CLOCKS_S[at])) for at in range(2)]
        for place in self.places:
            place.state_dir.mkdir(parents=True)

    def play(self) -> None:
        """Play a period with random events, then a calm period until every job has run."""
        for _ in range(SECONDS):
            self._something_happens()
            self._second()
        self.site.fuse.left = None
        for place in self.places:
            place.away_s = 0
        idle_s = 0
        for _ in range(CALM_S):
            self._second()
            idle_s = 0 if judge.at_the_end(self.site) else idle_s + 1
            if idle_s == IDLE_S:
                break
        self.wrongs += self.site.wrongs + judge.at_the_end(self.site)

    def _second(self) -> None:
        self.site.advance(1)
        for place in self.places:
            place.pace.at_s += 1
            if place.away_s:
                place.away_s -= 1
            else:
                self._cycle(place)

    def _cycle(self, place: Place) -> None:
        try:
            report = self._born(place).cycle()
        except Death:
            self._bury(place)
            self.counts["killed"] += 1
            return
        self.counts[report.role.mode] += 1
        owner = self.site.claimed.owner if self.site.claimed else None
        if report.role.mode == "control" and report.result == "ok" and owner != place.backend.owner:
            self.wrongs.append(f"second {self.site.now_s}: in control without the claim")

    def _born(self, place: Place) -> Bridge:
        if place.bridge is None:
            place.backend = Watched(self.site, self.wrongs)
            breaker, lease = {"failing_users": 10**6}, {"duration_s": GONE_S}
            start = {"timeout_s": 8, "max_failures": 10**6}
            place.bridge = a_bridge(
                place.state_dir,
                place.backend,
                EasyDispatcher(),
                place.pace,
                circuit_breaker=breaker,
                lease=lease,
                start=start,
            )
            place.backend.owner = place.bridge.mode.leader_election.mine.owner
        return place.bridge

    def _bury(self, place: Place) -> None:
        place.bridge = None
        place.away_s = self.rng.choice((0, 0, 2, 10, 60))
        self.site.fuse.left, self.site.fuse.dead = None, False

    def _something_happens(self) -> None:
        happens = self.rng.choice(("nothing",) * 12 + ("submit",) * 6 + ("kill", "sleep", "stop", "take over", "lose"))
        place = self.rng.choice(self.places)
        self.counts[happens] += 1
        if happens == "submit":
            walltime_s = self.rng.choice((5, 20, 60))
            job = a_job(len(self.site.jobs) + 1, 1, self.rng.choice((1, 2, 4)), walltime_s, submit_s=self.site.shown_s)
            self.site.arrive(job, self.rng.randrange(1, walltime_s + 1))
        elif happens == "kill":
            self.site.fuse.left = self.rng.randrange(30)
        elif happens == "sleep":
            place.away_s = self.rng.choice((3, 20, 60))
        elif happens == "take over":
            (place.state_dir / "take-over").touch()
        elif happens == "lose":
            self.site.claimed = None
        elif happens == "stop" and place.bridge is not None and not place.away_s:
            self.site.fuse.left = None
            place.bridge.stop()
            self._bury(place)


def played(seed: int, folder: Path) -> Pair:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        pair = Pair(seed, folder / str(seed))
        pair.play()
    finally:
        structlog.reset_defaults()
    shutil.rmtree(pair.folder)
    return pair


def test_only_lease_owner_acts_and_every_job_runs_once(tmp_path):
    counts: Counter[str] = Counter()
    for seed in range(HISTORIES):
        pair = played(seed, tmp_path)
        assert pair.wrongs == [], f"seed {seed}"
        counts += pair.counts
    assert {"killed", "stop", "take over", "lose", "sleep"} <= set(counts)
    assert counts["paused"] > 500
    assert counts["control"] > 500
