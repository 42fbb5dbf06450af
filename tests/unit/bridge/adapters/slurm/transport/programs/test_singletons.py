"""The waiting jobs that are singletons, as reported by squeue."""

from __future__ import annotations

from cpsched.slurm_text.jobs import JobDependencies, SlurmJob
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_reader import SingletonDependencyLookup
from tests.builders import a_slurm_job

SHOWN = """\
5 (null)
11 afterok:7(unfulfilled)
12 afterok:7(unfulfilled),singleton(unfulfilled)
13 singleton(unfulfilled)?afterok:7(unfulfilled)
14 singleton
"""


def job(number: int, on: str = "7(unfulfilled)", state: str = "PENDING") -> SlurmJob:
    return a_slurm_job(number, state, dependencies=JobDependencies((("afterok", on),)))


def test_queries_squeue_once_per_dependency_list() -> None:
    asked: list[list[str]] = []
    singletons = SingletonDependencyLookup(lambda command: asked.append(command) or SHOWN)
    jobs = [job(number) for number in (11, 12, 13, 14, 15)]
    others = [job(16, state="RUNNING"), a_slurm_job(5)]
    assert singletons.read(others) == {}
    assert not asked
    expected = {11: False, 12: True, 13: True, 14: True}  # job 15 came after squeue had looked
    assert singletons.read([*jobs, *others]) == expected
    assert singletons.read(jobs[:4]) == expected
    assert len(asked) == 1
    assert singletons.read([job(11, on="7(failed)")]) == {11: False}
    assert len(asked) == 2


def test_unanswered_squeue_is_queried_again() -> None:
    answers = iter([None, SHOWN])
    singletons = SingletonDependencyLookup(lambda _: next(answers))
    assert singletons.read([job(12)]) == {}
    assert singletons.read([job(12)]) == {12: True}
