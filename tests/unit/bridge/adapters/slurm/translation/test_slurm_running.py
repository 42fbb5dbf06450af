"""Running jobs in an observation: as requested, as allocated by Slurm, and the report if the two differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cpsched.model import Job, Request, RunningJob
from cpsched.slurm_text.jobs import NodeShare
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.translation.slurm_running import adjust_to_state, drop_overcommitted_nodes
from cpsched_bridge.ports import Observation
from tests.builders import a_node
from tests.unit.bridge.adapters.slurm.scenes import Scene


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


def test_job_allocated_as_requested_keeps_its_request() -> None:
    site = Site()
    (waiting,) = site.observe().pending
    site.runs_on("n[1,3]", n1=16, n3=1)
    seen = site.observe(layout=[["n1", 16, 16000, {}], ["n3", 1, 1000, {}]])
    (running,) = seen.running
    assert running.job is waiting.job
    assert running.placement == ((0, 16), (2, 1))
    assert seen.otherwise == {}
    assert [cores for cores, *_ in seen.free.tolist()] == [0, 16, 15, 16]


def test_suspended_job_gives_back_its_cpus_only_while_it_is_suspended() -> None:
    """It keeps its memory, and it is not reported as allocated differently."""
    site = Site()
    (waiting,) = site.observe().pending
    site.runs_on("n[1,3]", n1=16, n3=1)
    layout = [["n1", 16, 16000, {}], ["n3", 1, 1000, {}]]
    for state, cores in (("RUNNING", (16, 1)), ("SUSPENDED", (0, 0)), ("RUNNING", (16, 1))):
        site.job.update(state=state)
        site.scene.node("n1").update(allocated_cpus=cores[0])
        site.scene.node("n3").update(allocated_cpus=cores[1])
        seen = site.observe(layout=layout)
        (running,) = seen.running
        assert running.job.request.per_unit[1:] == waiting.job.request.per_unit[1:]
        assert [free[0] for free in seen.free.tolist()] == [16 - cores[0], 16, 16 - cores[1], 16]
        assert seen.free.tolist()[0][1] == seen.cluster.capacity.tolist()[0][1] - 16000
        assert seen.otherwise == {}


def test_suspended_job_of_whole_nodes_without_memory_gives_back_its_nodes() -> None:
    running = RunningJob(Job(1, 0, 60, Request(2, (16,), exclusive=True)), 0, ((0, 1), (1, 1)))
    assert adjust_to_state("SUSPENDED", running, 9).placement == ()
    assert adjust_to_state("RUNNING", running, 9) is running


def test_reports_different_allocation_once_and_uses_it() -> None:
    site = Site()
    site.observe()
    site.runs_on("n[1,3]", n1=9, n3=9)
    layout = [["n[1,3]", 9, 9000, {}]]
    for _ in range(2):
        seen = site.observe(layout=layout)
        (running,) = seen.running
        assert running.job.request == Request(2, (9, 9000, 0), distinct=True)
        assert seen.otherwise == {site.job["id"]: "n1: 9 cores, 9000 MiB; n3: 9 cores, 9000 MiB"}
    site.scene.rows["jobs"].clear()
    assert site.observe().otherwise == {}


def test_allocation_with_known_sum_uses_equal_shares() -> None:
    site = Site()
    site.observe()
    site.runs_on("n[1,3]", n1=16, n3=1)
    seen = site.observe()
    (running,) = seen.running
    assert (running.job.request.units, running.placement) == (2, ((0, 1), (2, 1)))
    assert seen.otherwise == {}
    known = site.observe(layout=[["n1", 16, 16000, {}], ["n3", 1, 1000, {}]])
    assert known.running[0].placement == ((0, 16), (2, 1)), "read later"


def test_reports_no_difference_for_job_never_seen_pending() -> None:
    site = Site()
    site.runs_on("n[1,3]", n1=16, n3=1)
    seen = site.observe(layout=[["n1", 16, 16000, {}], ["n3", 1, 1000, {}]])
    assert seen.otherwise == {}
    assert seen.running[0].job.request == Request(17, (1, 1000, 0))


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
