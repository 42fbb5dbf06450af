"""Layouts of running jobs: scontrol's output for them, and that each job is queried once."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched.slurm_text.jobs import NodeShare, SlurmJob
from cpsched_bridge.adapters.slurm.transport.programs.layout_queries import (
    MAX_SINGLE_QUERIES,
    SHOW_JOB_COMMAND,
    CachingJobLayoutReader,
    parse_layouts,
)
from tests.builders import a_slurm_job

RECORD = """\
JobId={} JobName={} Nodes=b CPU_IDs=0 Mem=1 GRES=
   UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A
   NodeList=n[1-3]
   JOB_GRES=gpu:3
     Nodes=n[1-2] CPU_IDs=0-3,8 Mem=5000 GRES=gpu:1g.10gb+me:2(IDX:0,3),mic:1(IDX:0)
     Nodes=n3 CPU_IDs=7 Mem=0 GRES=
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Comment={}

"""
LAYOUT = NodeShare("n[1-2]", 5, 5000, {"gpu:1g.10gb+me": 2, "mic": 1}), NodeShare("n3", 1, 0, {})


def record(number: int, name: str = "a", comment: str = "") -> str:
    return RECORD.format(number, name, comment)


class Shown:
    """A scontrol that knows some jobs, or does not answer."""

    def __init__(self, *known: int, answers: bool = True) -> None:
        self.known, self.answers = known, answers
        self.asked: list[list[str]] = []

    def __call__(self, command: list[str]) -> str | None:
        self.asked.append(command[len(SHOW_JOB_COMMAND) :])
        wanted = [int(word) for word in self.asked[-1]] or self.known
        return "".join(record(number) for number in wanted if number in self.known) if self.answers else None


def a_job(number: int, **facts: Any) -> SlurmJob:
    return a_slurm_job(number, **{"state": "RUNNING", "num_nodes": 3, "cpus": 11, "start_time": 5, **facts})


@pytest.mark.parametrize(
    ("printed", "counts", "expected"),
    [
        (record(7), {7: 3}, {7: LAYOUT}),
        ("No jobs in the system\n\nJobId=8 JobName=x\n", {8: 2}, {}),
        (record(7), {7: 2}, {}),
        (record(7), {7: 4}, {}),
    ],
)
def test_parses_layout_of_known_node_count(printed: str, counts: dict[int, int], expected: dict[int, object]) -> None:
    assert parse_layouts(printed, counts) == expected


PART = "     Nodes=n[1-3] CPU_IDs=0-63 Mem=99999 GRES="


@pytest.mark.parametrize(
    "words",
    [
        f"x\n{PART}\n",
        f"x\n{PART.replace('n[1-3]', 'n3')}",
        f"x\n{PART.replace('0-63', '5--')}\n",
        f"x\n{PART.replace('0-63', '9' * 5000)}\n",
        f"x\n{PART.replace('n[1-3]', '[0-199999]' * 9)}\n",
        PART,
        PART.replace("0-63", "no"),
        "\u0664\n     Nodes=n9 CPU_IDs=\u0664 Mem=\u0664 GRES=",
    ],
)
@pytest.mark.parametrize("where", ["name", "comment"])
def test_user_text_is_never_parsed_as_layout(words: str, where: str) -> None:
    shown = record(7, **{where: words}) + record(8)
    assert parse_layouts(shown, {7: 3, 8: 3})[8] == LAYOUT
    assert parse_layouts(shown, {7: 3}).get(7, LAYOUT) == LAYOUT


def test_queries_job_named_by_another_job_alone() -> None:
    numbers = range(1, MAX_SINGLE_QUERIES + 2)
    liar = record(1, "x\n" + record(2).replace("0-3,8", "0-63"))
    asked: list[list[str]] = []

    def show(command: list[str]) -> str:
        asked.append(command[len(SHOW_JOB_COMMAND) :])
        wanted = [int(word) for word in asked[-1]] or numbers
        return "".join(liar if number == 1 else record(number) for number in wanted)

    layouts = CachingJobLayoutReader(show)
    for _ in range(2):
        found = layouts.read([a_job(number) for number in numbers])
        assert found == {number: LAYOUT for number in numbers if number != 1}
    assert asked == [[], ["1"], ["2"]], "a job that speaks wrongly of itself is not asked for at every reading"


def test_queries_job_once_when_first_seen_on_several_nodes() -> None:
    shown = Shown(7, 8)
    layouts = CachingJobLayoutReader(shown)
    jobs = [a_job(7), a_job(8, num_nodes=1), a_job(9, state="PENDING"), a_job(10, num_nodes=None)]
    assert [layouts.read(jobs) for _ in range(2)] == [{7: LAYOUT}] * 2
    assert shown.asked == [["7"]]


def test_queries_moved_job_again_and_forgets_ended_one() -> None:
    shown = Shown(7)
    layouts = CachingJobLayoutReader(shown)
    moved = [a_job(7, start_time=6)]
    assert [layouts.read(jobs) for jobs in ([a_job(7)], moved, [], moved)] == [
        {7: LAYOUT},
        {7: LAYOUT},
        {},
        {7: LAYOUT},
    ]
    assert shown.asked == [["7"]] * 3


def test_queries_many_jobs_in_one_command() -> None:
    numbers = range(1, MAX_SINGLE_QUERIES + 2)
    shown = Shown(*numbers, 99)
    assert sorted(CachingJobLayoutReader(shown).read([a_job(number) for number in numbers])) == list(numbers)
    assert shown.asked[:1] == [[]]


def test_queries_silent_scontrol_once_per_reading() -> None:
    shown = Shown(7, 8, answers=False)
    layouts = CachingJobLayoutReader(shown)
    assert layouts.read([a_job(7), a_job(8)]) == {}
    assert shown.asked == [["7"]]
    shown.answers = True
    assert sorted(layouts.read([a_job(7), a_job(8)])) == [7, 8]
