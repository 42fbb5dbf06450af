"""Running jobs in an observation: as requested, as allocated by Slurm, and the report if the two differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cpsched.model import Job, Request, RunningJob
from cpsched.slurm_text.jobs import NodeShare
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.translation.slurm_placed_jobs import (
    add_gres_types,
    adjust_to_state,
    drop_overcommitted_nodes,
)
from cpsched_bridge.ports import Observation
from tests.builders import a_node, a_slurm_job
from tests.unit.bridge.adapters.slurm.scenes import Scene

LAYOUT = [["n1", 16, 16000, {}], ["n3", 1, 1000, {}]]


class Site:
    """Four idle nodes, and a job of 17 tasks that waits and then runs."""

    def __init__(self) -> None:
        self.scene = Scene().only("six")
        self.job = self.scene.job("six")
        self.job.update(ntasks=17, cpus=17, num_nodes=2, max_nodes=17)
        self.translator = SlurmTranslator()

    def observe(self, **layouts: Any) -> Observation:
        records = self.scene.read()
        layout = tuple(NodeShare(*share) for share in layouts.get("layout", ()))
        return self.translator.observe(replace(records, jobs=[job._replace(layout=layout) for job in records.jobs]))

    def runs_on(self, nodes: str, **cores: int) -> None:
        allocated = {"cpu": 17, "mem": 17000}
        self.job.update(state="RUNNING", allocated_nodes=nodes, start_time=self.scene.now_s, allocated_tres=allocated)
        for name, count in cores.items():
            self.scene.node(name).update(allocated_cpus=count, allocated_memory=1000 * count)


def test_job_keeps_its_request_and_gives_back_its_cpus_only_while_it_is_suspended() -> None:
    """A suspended job keeps its memory, and it is not reported as allocated differently."""
    site = Site()
    (waiting,) = site.observe().pending
    site.runs_on("n[1,3]", n1=16, n3=1)
    for state, cores in (("RUNNING", (16, 1)), ("SUSPENDED", (0, 0)), ("RUNNING", (16, 1))):
        site.job.update(state=state)
        site.scene.with_node("n1", allocated_cpus=cores[0]).with_node("n3", allocated_cpus=cores[1])
        seen = site.observe(layout=LAYOUT)
        (running,) = seen.running
        assert (running.job is waiting.job, running.placement) == (state == "RUNNING", ((0, 16), (2, 1)))
        assert (running.job.request.per_unit[1:], seen.otherwise) == (waiting.job.request.per_unit[1:], {})
        assert [free[0] for free in seen.free.tolist()] == [16 - cores[0], 16, 16 - cores[1], 16]
        assert seen.free[0, 1] == seen.cluster.capacity[0, 1] - 16000


def test_suspended_job_of_whole_nodes_without_memory_gives_back_its_nodes() -> None:
    running = RunningJob(Job(1, 0, 60, Request(2, (16,), exclusive=True)), 0, ((0, 1), (1, 1)))
    assert adjust_to_state("SUSPENDED", running, 9).placement == ()
    assert adjust_to_state("RUNNING", running, 9) is running


def test_reports_different_allocation_once_and_uses_it() -> None:
    site = Site()
    site.observe()
    site.runs_on("n[1,3]", n1=9, n3=9)
    different = {site.job["id"]: "n1: 9 cores, 9000 MiB; n3: 9 cores, 9000 MiB"}
    for _ in range(2):
        seen = site.observe(layout=[["n[1,3]", 9, 9000, {}]])
        (running,) = seen.running
        assert (running.job.request, seen.otherwise) == (Request(2, (9, 9000, 0), distinct=True), different)
    site.scene.rows["jobs"].clear()
    assert site.observe().otherwise == {}


def test_allocation_with_known_sum_uses_equal_shares() -> None:
    site = Site()
    site.observe()
    site.runs_on("n[1,3]", n1=16, n3=1)
    seen = site.observe()
    (running,) = seen.running
    assert (running.job.request.units, running.placement, seen.otherwise) == (2, ((0, 1), (2, 1)), {})
    assert site.observe(layout=LAYOUT).running[0].placement == ((0, 16), (2, 1)), "read later"


def test_reports_no_difference_for_job_never_seen_pending() -> None:
    site = Site()
    site.runs_on("n[1,3]", n1=16, n3=1)
    seen = site.observe(layout=LAYOUT)
    assert (seen.otherwise, seen.running[0].job.request) == ({}, Request(17, (1, 1000, 0)))


@pytest.mark.parametrize("is_seen_pending", [True, False])
def test_running_job_has_its_current_time_limit(is_seen_pending: bool) -> None:
    """An administrator may change it. A record without a limit changes nothing, and the ended job keeps the first."""
    site = Site()
    if is_seen_pending:
        site.observe()
    site.runs_on("n[1,3]", n1=16, n3=1)
    first_min = site.job["time_limit"]
    walltimes_s = []
    for limit_min in (first_min, 999, None, 5):
        site.job["time_limit"] = limit_min
        walltimes_s.append(site.observe(layout=LAYOUT).running[0].job.walltime_s)
    assert walltimes_s == [60 * first_min, 60 * 999, 60 * first_min, 300]
    site.job.update(state="COMPLETED", end_time=site.scene.now_s)
    assert site.observe().ended[0].job.walltime_s == 60 * first_min


def test_start_in_future_of_controller_is_now() -> None:
    """Clocks of two hosts differ: a job that runs has not begun later than it was read."""
    site = Site()
    site.runs_on("n1", n1=17)
    site.job["start_time"] = site.scene.now_s + 30
    (running,) = site.observe().running
    assert running.start_s == site.scene.now_s


def test_drops_overcommitted_node_from_multi_node_job() -> None:
    machine = SlurmNodeTable.from_records([a_node("n1", effective_cpus=16), a_node("n2", effective_cpus=16)])
    alone = RunningJob(Job(1, 0, 60, Request(1, (10, 0))), 0, ((0, 1),))
    several = RunningJob(Job(2, 0, 60, Request(2, (9, 0), distinct=True)), 0, ((0, 1), (1, 1)))
    for order in ((alone, several), (several, alone)):
        kept = {each.job.id: each.placement for each in drop_overcommitted_nodes(machine, order)}
        assert kept == {1: ((0, 1),), 2: ((1, 1),)}


ONE_TYPE, TWO_TYPES, ONE_OF_EACH = ((0, 1),), ((1, 1),), ((0, 1), (1, 1))
UNKNOWN, A100, MIG, BOTH = (2, 0, 0), (2, 0, 2), (2, 2, 0), (2, 1, 1)
GPUS_OF_BOTH = {"gpu:a100": 1, "gpu:1g.5gb": 1}


@pytest.mark.parametrize(
    ("placement", "facts", "known", "expected"),
    [
        (ONE_TYPE, {"gres_per_node": {"gpu": 2}}, UNKNOWN, A100),
        (ONE_TYPE, {"gres_per_job": {"gpu": 2}}, UNKNOWN, A100),
        (TWO_TYPES, {"gres_per_node": {"gpu": 2}}, UNKNOWN, UNKNOWN),
        (TWO_TYPES, {"gres_per_node": {"gres/gpu:1g.5gb": 2}}, UNKNOWN, MIG),
        (TWO_TYPES, {"gres_per_job": {"gpu:a100": 2}}, UNKNOWN, A100),
        (TWO_TYPES, {"tres_per_task": {"cpu": 2, "gres/gpu:1g.5gb": 1}}, UNKNOWN, MIG),
        (TWO_TYPES, {"allocated_tres": {"cpu": 2, "gres/gpu": 2, "gres/gpu:1g.5gb": 2}}, UNKNOWN, MIG),
        (TWO_TYPES, {"allocated_tres": {"gres/gpu": 2, "gres/gpu:1g.5gb": 1}}, UNKNOWN, UNKNOWN),
        (TWO_TYPES, {"gres_per_node": GPUS_OF_BOTH}, UNKNOWN, UNKNOWN),
        (ONE_TYPE, {"gres_per_node": GPUS_OF_BOTH}, BOTH, BOTH),
        (TWO_TYPES, {"gres_per_node": {"gpu:a100": 2}}, MIG, MIG),
        (ONE_OF_EACH, {"gres_per_node": {"gpu": 2}}, UNKNOWN, UNKNOWN),
        (ONE_OF_EACH, {"gres_per_job": {"gpu:a100": 2}}, UNKNOWN, A100),
        (ONE_OF_EACH, {"gres_per_job": {"gpu:1g.5gb": 2}}, UNKNOWN, UNKNOWN),
        (((1, 2),), {"gres_per_job": {"gpu:a100": 4}}, UNKNOWN, A100),
        (((1, 2),), {"gres_per_job": {"gpu:1g.5gb": 4}}, UNKNOWN, UNKNOWN),
        ((), {"gres_per_node": {"gpu:a100": 2}}, (0, 0, 0), (0, 0, 0)),
    ],
)
def test_running_job_has_the_only_possible_gpu_type(
    placement: Any, facts: dict[str, Any], known: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """A type is not added if it is ambiguous, or if the nodes have too few GPUs of it, as in a forged request."""
    gpus = {"configured_gres": {"gpu:a100": 4}}, {"configured_gres": {"gpu:a100": 4, "gpu:1g.5gb": 3}}
    machine = SlurmNodeTable.from_records([a_node("n1", **gpus[0]), a_node("n2", **gpus[1])])
    assert machine.resources[2:] == ("gpu", "gpu:1g.5gb", "gpu:a100")
    running = RunningJob(Job(1, 0, 60, Request(len(placement) or 1, (1, 5, *known))), 9, placement)
    found = add_gres_types(running, a_slurm_job(1, "RUNNING", **facts), machine)
    assert found.job.request.per_unit == (1, 5, *expected)
    assert (found is running) == (known == expected)
    assert replace(found, job=running.job) == running


@pytest.mark.parametrize("is_seen_pending", [True, False])
def test_gpu_type_is_free_again_at_the_end_of_the_job(is_seen_pending: bool) -> None:
    """Accounting tracks no types. The job itself keeps its request, which predictors compare."""
    scene = Scene().only("gpu-task").with_node("n3", configured_gres={"gpu:a100": 2})
    scene.node("n4").update(configured_gres={"gpu:a100": 1, "gpu:1g.5gb": 7})
    request = {"gres_per_node": {"gpu": 1}, "tres_per_task": {}, "requested_tres": None}
    job = scene.with_job("gpu-task", ntasks=1, cpus=1, num_nodes=1, max_nodes=None, **request).job("gpu-task")
    translator = SlurmTranslator()
    waiting = translator.observe(scene.read()).pending if is_seen_pending else ()

    job.update(state="RUNNING", allocated_nodes="n3", start_time=scene.now_s)
    job["allocated_tres"] = {"cpu": 1, "mem": job["memory_per_cpu"], "gres/gpu": 1}
    scene.with_node("n3", used_gres={"gpu:a100": 1})
    for _ in range(2):
        seen = translator.observe(scene.read())
        (running,) = seen.running
        assert seen.cluster.resources[2:] == ("gpu", "gpu:1g.5gb", "gpu:a100")
        assert (running.job.request.per_unit[2:], seen.free[2, 2:].tolist()) == ((1, 0, 1), [1, 0, 1])
        assert seen.otherwise == {}

    job.update(state="COMPLETED", end_time=scene.now_s)
    (ended,) = translator.observe(scene.read()).ended
    assert ended.job.request.per_unit[2:] == (1, 0, 0)
    assert not waiting or ended.job is waiting[0].job
