"""The simulated cluster with priorities like Slurm's: advice becomes the order of starts."""

from __future__ import annotations

from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher
from cpsched_bridge.adapters.mock.mock_backend import MockBackend
from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.adapters.mock.simulated_clocks import EventDrivenClock
from cpsched_bridge.ports import BoostCommand
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.bridges import a_bridge
from tests.builders import a_cluster, a_job
from tests.unit.bridge.cycle.test_booster import LargestFirst


def a_site() -> MockCluster:
    """One node, a job of 100 s on it, and five that wait for it."""
    jobs = [TraceJob(a_job(9, per_unit=4, walltime_s=100), 100)]
    jobs += [TraceJob(a_job(id, per_unit=4, walltime_s=50, submit_s=1, priority=10), 50) for id in range(1, 6)]
    return MockCluster(a_cluster(1, 4), jobs, plugin=False, scheduler=SlurmTwinDispatcher())


def test_boost_requires_expected_previous_points():
    site = a_site()
    site.advance(10)
    assert {rank.id: (rank.own, rank.points) for rank in site.list_queue_ranks()} == dict.fromkeys(range(1, 6), (10, 0))
    found = site.set_boosts(
        [
            BoostCommand(1, 5),
            BoostCommand(1, 7, (4,)),
            BoostCommand(1, 8, (5,)),
            BoostCommand(9, 1),
            BoostCommand(2, 0),
        ]
    )
    assert [each.result for each in found] == ["done", "refused", "done", "refused", "done"]
    assert site.points == {1: 8}


def test_jobs_start_in_boosted_order_without_holds(tmp_path):
    site = a_site()
    backend = MockBackend(site)
    bridge = a_bridge(
        tmp_path, backend, LargestFirst(), EventDrivenClock(site), mode="advise", advise={"every_s": 0.001}
    )
    order: list[int] = []
    while len(site.ended) < 6:
        bridge.cycle()
        assert not any(outcome_kind != "boost" for outcome_kind, _ in bridge.cycle().outcomes)
        event_s = site.next_event_s()
        site.advance(site.now_s + 1 if event_s is None else event_s)
        order += [id for id in site.starts if id not in order]
    assert order == [9, 5, 4, 3, 2, 1]
    assert site.points == {}
