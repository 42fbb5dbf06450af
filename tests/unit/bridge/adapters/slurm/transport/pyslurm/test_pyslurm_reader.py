"""The waiting jobs that are singletons, as reported by squeue."""

from __future__ import annotations

from cpsched.slurm_text.jobs import JobDependencies, SlurmJob
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_reader import (
    SINGLETON_OPTIONS,
    JobColumnLookup,
    read_singletons,
)
from tests.builders import a_slurm_job

SHOWN = """\
5 (null)
11 afterok:7(unfulfilled)
12 afterok:7(unfulfilled),singleton(unfulfilled)
13 singleton(unfulfilled)?afterok:7(unfulfilled)
14 singleton
"""


def job(number: int, on: str = "7(unfulfilled)") -> SlurmJob:
    return a_slurm_job(number, dependencies=JobDependencies((("afterok", on),)))


def test_queries_squeue_once_per_dependency_list() -> None:
    asked: list[list[str]] = []
    lookup = JobColumnLookup(SINGLETON_OPTIONS, lambda command: asked.append(command) or SHOWN)
    jobs = [job(number) for number in (11, 12, 13, 14, 15)]
    others = [a_slurm_job(5)]
    expected = {11: False, 12: True, 13: True, 14: True}  # job 15 came after squeue had looked
    for read, found, count in (
        (others, {}, 0), ([*jobs, *others], expected, 1), (jobs[:4], expected, 1),
        ([job(11, on="7(failed)")], {11: False}, 2),
    ):  # fmt: skip
        assert (read_singletons(read, lookup), len(asked)) == (found, count)


def test_unanswered_squeue_is_queried_again() -> None:
    answers = iter([None, SHOWN])
    lookup = JobColumnLookup(SINGLETON_OPTIONS, lambda _: next(answers))
    assert [read_singletons([job(12)], lookup) for _ in range(2)] == [{}, {12: True}]
