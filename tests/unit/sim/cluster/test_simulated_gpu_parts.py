"""Simulated jobs on parts of GPUs: no GPU is shared beyond its parts, and every job runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.errors import InvalidValue
from cpsched.model import NEVER, Job, Request
from cpsched.policy_spec import PolicySpec
from cpsched_sim.cluster.replay import ReplayOptions, replay
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from cpsched_sim.systems.system_file import System, SystemFile
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.traces.trace_record import UnitsRequest

GPUS, PARTS = 2, 4
DISPATCHERS = ["easy", "fcfs", "ebf", "greedy", "lookahead", "pcp", "slurm"]


def a_system(kind: str = "shard", **more: Any) -> System:
    """Return a system with two nodes whose GPUs jobs share, and one other node."""
    shared = {"cores": 16, "gpu": GPUS, kind: GPUS * PARTS}
    types = {"shared": {"count": 2, "each": shared}, "whole": {"count": 1, "each": {"cores": 16, "gpu": GPUS}}, **more}
    file = {"name": "parts", "resources": ["cores", "gpu", kind], "node_types": types, "units": {"rule": "cores"}}
    return System(SystemFile.model_validate(file))


def a_parts_request(system: System, parts: int = 0, gpus: int = 0, units: int = 1, **facts: bool) -> Request:
    amounts = tuple(zip(system.file.resources, (1, gpus, parts), strict=True))
    return system.request(UnitsRequest(units, amounts, **facts))


def free(cluster: SimulatedCluster, node: int = 0) -> list[int]:
    return cluster.state.free[node, 1:].tolist()


def test_follows_slurms_choice_of_gpus() -> None:
    """The columns are gpu, shard, gpu@shard, and the GPUs."""
    system = a_system()
    assert system.cluster.resources == ("cores", "gpu", "shard", "gpu@shard", "shard@gpu0", "shard@gpu1")
    cluster = SimulatedCluster(system.cluster)
    requests = [(3, 0), (2, 0), (0, 1), (1, 0), (2, 0)]
    for number, (parts, gpus) in enumerate(requests):
        cluster.submit(Job(number, 0, 100, a_parts_request(system, parts, gpus)), 10 + number)
    assert free(cluster) == [2, 8, 8, 4, 4]
    cluster.start(0, ((0, 1),))
    assert free(cluster) == [2, 5, 4, 1, 4]
    cluster.start(2, ((0, 1),))
    assert free(cluster) == [1, 1, 1, 1, 0]
    with pytest.raises(InvalidValue, match="does not fit"):
        cluster.start(1, ((0, 1),))
    cluster.start(3, ((0, 1),))
    assert free(cluster) == [1, 0, 0, 0, 0]
    cluster.advance(10)
    assert free(cluster) == [1, 3, 3, 3, 0]
    assert cluster.table.per_unit[3, 2:4].tolist() == [5, 1], "the last job returns what no other job returns"
    cluster.advance(12)
    assert free(cluster) == [2, 7, 4, 3, 4]
    cluster.preempt(3, requeue=True)
    assert free(cluster) == [2, 8, 8, 4, 4]
    assert cluster.table.per_unit[3, 2:4].tolist() == [1, 1]


def test_shares_one_gpu_by_mps() -> None:
    system = a_system("mps")
    cluster = SimulatedCluster(system.cluster)
    for number, parts in enumerate((1, 3, 1)):
        cluster.submit(Job(number, 0, 100, a_parts_request(system, parts)), 10)
    cluster.start(0, ((0, 1),))
    assert free(cluster) == [2, 3, 7, 3, 0]
    cluster.start(1, ((0, 1),))
    assert free(cluster) == [2, 0, 4, 0, 0]


@pytest.mark.parametrize("dispatcher", DISPATCHERS)
@given(data=st.data())
def test_every_job_runs_within_the_parts(dispatcher: str, data: st.DataObject) -> None:
    """The simulated cluster gives each started job GPUs that fit, and fails if there are none."""
    system = a_system(data.draw(st.sampled_from(["shard", "mps"])))
    kinds = st.one_of(
        st.tuples(st.integers(1, PARTS), st.just(0), st.integers(1, 2)),
        st.tuples(st.just(0), st.integers(1, 2), st.just(1)),
    )
    trace = []
    for number, (parts, gpus, units) in enumerate(data.draw(st.lists(kinds, min_size=1, max_size=12))):
        request = a_parts_request(system, parts, gpus, units, distinct=True)
        job = Job(number, data.draw(st.integers(0, 20)), 60, request)
        trace.append(TraceJob(job, data.draw(st.integers(1, 60))))
    done = replay(trace, system.cluster, PolicySpec.parse(dispatcher).build(), ReplayOptions(strict=True))
    assert not done.violations
    assert (done.start_s != NEVER).all()


def test_rejects_unequal_parts() -> None:
    with pytest.raises(InvalidValue, match="equal for all nodes"):
        a_system(other={"count": 1, "each": {"gpu": 2, "shard": 4}})
    with pytest.raises(InvalidValue, match="exceeds"):
        a_parts_request(a_system(), PARTS + 1)
