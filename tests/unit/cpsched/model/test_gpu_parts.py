"""Parts of GPUs: a start fits alone exactly if its amounts fit, and with others whichever GPUs Slurm chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpsched.feasibility import drop_starts_without_gpus, verify
from cpsched.model import Cluster, Decision, Effort, IntArray, Placement, Request, Snapshot, Starts
from cpsched.model.gpu_parts import GpuPartsColumns, GpuUse, find_amounts_returned_by_last_jobs
from tests.builders import a_job

SIZE, PER_GPU = 4, 6
"""Parts of each GPU, and the amount of a whole GPU, which is larger if another node's GPUs have more parts."""


class Start(NamedTuple):
    parts: int
    gpus: int

    def per_unit(self, gpus: int) -> tuple[int, ...]:
        return (self.gpus, self.gpus * PER_GPU + self.parts, self.parts, *([0] * gpus))


def a_cluster(kind: str, gpus: int) -> Cluster:
    names = ("gpu", f"gpu@{kind}", kind, *(f"{kind}@gpu{at}" for at in range(gpus)))
    return Cluster.of([[gpus, gpus * PER_GPU, gpus * SIZE, *([SIZE] * gpus)]], names)


def free_amounts(cluster: Cluster, used: Sequence[int | None]) -> IntArray:
    free = cluster.capacity.copy()
    free[0, 0] -= sum(parts is None for parts in used)
    for columns in GpuPartsColumns.of(cluster.resources):
        columns.set_free_amounts(used, free[0], cluster.capacity[0])
    return free


def choices(kind: str, used: tuple[int | None, ...], start: Start) -> list[tuple[int | None, ...]]:
    """Return every state in which Slurm may leave the GPUs by starting a job, as its source decides."""
    found = []
    if start.gpus:
        for chosen in range(1 << len(used)):
            gpus = [at for at in range(len(used)) if chosen >> at & 1]
            if len(gpus) == start.gpus and all(used[at] == 0 for at in gpus):
                found.append(tuple(None if at in gpus else parts for at, parts in enumerate(used)))
        return found
    for at, parts in enumerate(used):
        is_busy_if_needed = kind != "mps" or parts or not any(used)
        if parts is not None and is_busy_if_needed and parts + start.parts <= SIZE:
            found.append((*used[:at], parts + start.parts, *used[at + 1 :]))
    return found


STARTS = st.one_of(
    st.builds(Start, st.integers(1, SIZE + 1), st.just(0)), st.builds(Start, st.just(0), st.integers(1, 4))
)
USES = st.lists(st.none() | st.integers(0, SIZE), min_size=1, max_size=4)


@given(st.sampled_from(["shard", "mps"]), USES, STARTS)
def test_start_alone_fits_exactly_if_amounts_fit(kind: str, used: list[int | None], start: Start) -> None:
    if kind == "mps":  # one shared GPU at a time
        used = [parts if at == used.index(parts) or not parts else 0 for at, parts in enumerate(used)]
        used = [parts if not parts or not any(used[:at]) else 0 for at, parts in enumerate(used)]
    cluster = a_cluster(kind, len(used))
    free = free_amounts(cluster, used)
    amounts = np.array(start.per_unit(len(used)), np.int64)
    fits = start.parts <= SIZE and bool((amounts <= free[0]).all())
    assert fits == bool(choices(kind, tuple(used), start))
    if fits:
        one = np.array([0]), np.array([1])
        assert GpuUse(cluster, free).add_start(amounts, *one) == []


@given(st.sampled_from(["shard", "mps"]), USES, st.lists(STARTS, max_size=5))
@example("shard", [0, 0], [Start(1, 0), Start(1, 0), Start(0, 1)])
@example("mps", [0, 0], [Start(3, 0), Start(2, 0)])
def test_starts_fit_whichever_gpus_slurm_chooses(kind: str, used: list[int | None], starts: list[Start]) -> None:
    cluster = a_cluster(kind, len(used))
    free = free_amounts(cluster, used)
    use, states, left = GpuUse(cluster, free), {tuple(used)}, free[0].copy()
    for start in starts:
        amounts = np.array(start.per_unit(len(used)), np.int64)
        if start.parts > SIZE or (amounts > left).any():
            continue
        if use.add_start(amounts, np.array([0]), np.array([1])):
            continue
        left -= amounts
        found = [choices(kind, state, start) for state in states]
        assert all(found)
        states = {state for each in found for state in each}


def test_equal_shards_fill_all_gpus_in_one_decision() -> None:
    cluster = a_cluster("shard", 4)
    use = GpuUse(cluster, cluster.capacity)
    amounts = np.array(Start(1, 0).per_unit(4))
    full = [use.add_start(amounts, np.array([0]), np.array([1])) for _ in range(17)]
    assert full == [[]] * 16 + [[0]]


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ([0, 0, 0, 0], (24, 16, 4, 4, 4, 4)),
        ([1, 0, 0, None], (12, 11, 3, 4, 4, 0)),
        ([1, 3, 4, None], (3, 3, 3, 1, 0, 0)),
    ],
)
def test_free_amounts(used: list[int | None], expected: tuple[int, ...]) -> None:
    """Without an unused GPU, only the GPU with most free parts counts."""
    assert tuple(free_amounts(a_cluster("shard", 4), used)[0, 1:].tolist()) == expected


def test_policy_drops_what_verify_refuses() -> None:
    """A GPU that the first job may use is not given to the second, which starts at the next decision."""
    cluster = a_cluster("shard", 2)
    starts = [Start(3, 0), Start(3, 0), Start(0, 1)]
    jobs = [a_job(number, per_unit=start.per_unit(2)) for number, start in enumerate(starts)]
    snapshot = Snapshot.of(0, cluster, cluster.capacity, jobs, estimates={job.id: 60 for job in jobs})
    decision = Decision(Starts.of({0: ((0, 1),), 2: ((0, 1),), 1: ((0, 1),)}), Effort("test"))
    assert [str(each) for each in verify(decision, snapshot)] == [
        "job 1: n0 may lack free GPUs of the type or with enough parts"
    ]
    kept = drop_starts_without_gpus(decision, snapshot)
    assert (list(kept.starts.placements()), kept.again_s) == ([0, 2], 1)
    assert verify(kept, snapshot) == []


@pytest.mark.parametrize(
    ("requests", "kept"),
    [
        ([(1, 0, 0), (1, 1, 0)], [0]),
        ([(1, 1, 0), (1, 0, 0)], [0, 1]),
        ([(1, 0, 0), (2, 0, 2)], [0]),
        ([(1, 0, 0), (1, 0, 1)], [0, 1]),
        ([(1, 0, 0), (1, 0, 0), (1, 0, 1)], [0, 1]),
    ],
)
def test_job_without_a_type_may_use_each_type(requests: list[tuple[int, ...]], kept: list[int]) -> None:
    """A node has one GPU of a type and two of another, like a MIG node. Later starts must fit in the worst case."""
    cluster = Cluster.of([[3, 1, 2]], ["gpu", "gpu:a100", "gpu:1g.5gb"])
    jobs = [a_job(number, per_unit=request) for number, request in enumerate(requests)]
    snapshot = Snapshot.of(0, cluster, cluster.capacity, jobs, estimates={job.id: 60 for job in jobs})
    decision = Decision(Starts.of(dict.fromkeys(range(len(jobs)), ((0, 1),))), Effort("test"))
    assert list(drop_starts_without_gpus(decision, snapshot).starts.placements()) == kept
    assert len(verify(decision, snapshot)) == len(requests) - len(kept)


def test_rejected_start_uses_no_gpus() -> None:
    """The second start fits on the first node but not on the second, so a third one may use the first node."""
    cluster = Cluster.of([[2, 1, 1], [1, 0, 1]], ["gpu", "gpu:a100", "gpu:1g.5gb"])
    use, typed = GpuUse(cluster, cluster.capacity), np.array([1, 1, 0])
    assert use.add_start(typed, np.array([0, 1]), np.array([1, 1])) == [1]
    assert use.add_start(typed, np.array([0]), np.array([1])) == []
    assert use.add_start(typed, np.array([0]), np.array([1])) == [0]


def test_last_job_that_shares_a_gpu_returns_what_is_missing() -> None:
    """A job on whole nodes and one on several nodes return their own amounts alone, and so does a job without parts."""
    parts, no_parts = (1, 0, 2, 2, 0), (1, 0, 0, 0, 0)
    jobs: dict[int, tuple[Request, Placement]] = {
        10: (Request(1, parts), ((0, 1),)),
        11: (Request(1, parts), ((1, 1),)),
        12: (Request(1, parts), ((0, 1),)),
        13: (Request(1, parts, exclusive=True), ((0, 1),)),
        14: (Request(2, parts), ((0, 1), (1, 1))),
        15: (Request(1, no_parts), ((1, 1),)),
    }
    missing = np.array([[9, 8, 7, 6, 5], [4, 3, 2, 1, 0]])
    found = find_amounts_returned_by_last_jobs(("cores", "gpu", "gpu@shard", "shard", "shard@gpu0"), missing, jobs)
    assert {job: amounts.tolist() for job, amounts in found.items()} == {12: [0, 0, 7, 6, 0], 11: [0, 0, 2, 1, 0]}
