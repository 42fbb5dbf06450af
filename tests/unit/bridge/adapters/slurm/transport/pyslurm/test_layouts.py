"""Layouts of running jobs: what scontrol prints of them, and that each job is asked for once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cpsched_bridge.adapters.slurm.transport.pyslurm.layouts import ONE_BY_ONE, SHOW, Layouts, layouts_in

LINE = (
    "JobId={} JobName=a Nodes=b CPU_IDs=no UserId=alice(2001) NumNodes=3 NodeList=n[1-3] JOB_GRES=gpu:3   "
    "Nodes=n[1-2] CPU_IDs=0-3,8 Mem=5000 GRES=gpu:a100:2(IDX:0-1),mic:1(IDX:0)   Nodes=n3 CPU_IDs=7 Mem=0 GRES= "
    "MinCPUsNode=1\n"
)
LAYOUT = [["n[1-2]", 5, 5000, {"gpu:a100": 2, "mic": 1}], ["n3", 1, 0, {}]]


class Shown:
    """A scontrol that knows some jobs, or does not answer."""

    def __init__(self, *known: int, answers: bool = True) -> None:
        self.known, self.answers = known, answers
        self.asked: list[list[str]] = []

    def __call__(self, command: list[str]) -> str | None:
        self.asked.append(command[len(SHOW) :])
        wanted = [int(word) for word in self.asked[-1]] or self.known
        return "".join(LINE.format(number) for number in wanted if number in self.known) if self.answers else None


def a_job(number: int, **facts: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"id": number, "state": "RUNNING", "num_nodes": 3, "cpus": 11, "start_time": 5, **facts})


def test_nodes_cpus_memory_and_generic_resources_are_read() -> None:
    assert layouts_in(LINE.format(7)) == {7: LAYOUT}
    assert layouts_in("No jobs in the system\n\nJobId=8 JobName=x\n") == {}


def test_a_job_is_asked_for_when_it_is_first_seen_on_several_nodes() -> None:
    shown = Shown(7, 8)
    layouts = Layouts(shown)
    jobs = [a_job(7), a_job(8, num_nodes=1), a_job(9, state="PENDING"), a_job(10, num_nodes=None)]
    assert layouts.of(jobs) == {7: LAYOUT}
    assert layouts.of(jobs) == {7: LAYOUT}
    assert shown.asked == [["7"]]


def test_a_job_on_other_nodes_is_asked_for_again_and_one_that_is_gone_is_forgotten() -> None:
    shown = Shown(7)
    layouts = Layouts(shown)
    layouts.of([a_job(7)])
    assert layouts.of([a_job(7, start_time=6)]) == {7: LAYOUT}
    assert layouts.of([]) == {}
    layouts.of([a_job(7, start_time=6)])
    assert shown.asked == [["7"]] * 3


def test_many_jobs_are_asked_for_in_one_command() -> None:
    numbers = range(1, ONE_BY_ONE + 2)
    shown = Shown(*numbers, 99)
    assert sorted(Layouts(shown).of([a_job(number) for number in numbers])) == list(numbers)
    assert shown.asked == [[]]


def test_an_scontrol_that_does_not_answer_is_asked_once_a_reading() -> None:
    shown = Shown(7, 8, answers=False)
    layouts = Layouts(shown)
    assert layouts.of([a_job(7), a_job(8)]) == {}
    assert shown.asked == [["7"]]
    shown.answers = True
    assert sorted(layouts.of([a_job(7), a_job(8)])) == [7, 8]


def test_a_job_whose_facts_cannot_be_read_hinders_no_other() -> None:
    class Broken:
        id, state, num_nodes = 6, "RUNNING", 2

        @property
        def cpus(self) -> int:
            raise OverflowError

    assert Layouts(Shown(7)).of([Broken(), a_job(7)]) == {7: LAYOUT}
