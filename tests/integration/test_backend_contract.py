"""Run the contract of `Backend` on the simulated clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from cpsched_bridge.adapters.mock.mock_backend import MockBackend
from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.ports import Backend
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.backend_contract import CHECKS, Site
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster
from tests.pbs.commands import ServersClock, StandIn
from tests.pbs.server import Server

JOBS = [a_job(id, walltime_s=5000, user="ada") for id in (1, 2, 3)]


@dataclass
class FakeSite:
    cluster: FakeCluster = field(default_factory=lambda: FakeCluster.of(*JOBS, cluster=a_cluster(3, 4), now_s=100))

    def connect(self) -> Backend:
        return self.cluster

    def wait(self) -> None:
        self.cluster.advance()

    def end(self, job_id: int) -> None:
        self.cluster.end(job_id)


@dataclass
class MockSite:
    cluster: MockCluster = field(
        default_factory=lambda: MockCluster(a_cluster(3, 4), [TraceJob(job, 30) for job in JOBS])
    )

    def connect(self) -> Backend:
        return MockBackend(self.cluster)

    def wait(self) -> None:
        self.cluster.advance(self.cluster.now_s + 1)

    def end(self, job_id: int) -> None:
        self.cluster.advance(self.cluster.now_s + 30)


@dataclass
class PbsSite:
    server: Server = field(default_factory=Server.of)

    def __post_init__(self) -> None:
        self.server.queues["workq"].started = False
        for _ in JOBS:
            self.server.submit(runs_s=5000, walltime_s=5000)

    def connect(self) -> Backend:
        programs = StandIn(self.server)
        return PbsBackend(programs, ("workq",), "leftq", reader=ServersClock(programs))

    def wait(self) -> None:
        self.server.tick()

    def end(self, job_id: int) -> None:
        self.server.jobs[f"{job_id}.vm"].runs_s = 1
        self.server.tick(2)


@pytest.mark.parametrize("make_site", [FakeSite, MockSite, PbsSite])
@pytest.mark.parametrize("check", CHECKS)
def test_simulated_cluster_keeps_promise(check: str, make_site: Callable[[], Site]) -> None:
    CHECKS[check](make_site())
