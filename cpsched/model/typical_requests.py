"""Define a site's typical requests for GPUs. `cpsched.kernels.fragmentation` measures fragmentation by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from cpsched.jit.shared_structs import FixedColumn, FixedMatrix, SharedStruct
from cpsched.model.job import Request

K = TypeVar("K", bound=Hashable)

TYPICAL_SHARE = 0.95
"""The most frequent kinds of requests that together have this share are the typical requests."""
TYPICAL_DAYS = 28
"""Number of days whose ended jobs determine a site's typical requests."""
GPU_RESOURCES = ("gpu", "gpus", "ngpus")
"""Names of the resource that counts a node's GPUs of all types: in Slurm, in system files and in PBS."""
MILLION = 1_000_000


class TypicalRequests(SharedStruct):
    """The kinds of requests for GPUs that are most frequent on a site, most frequent first.

    The amounts are those of one unit, which must fit on one node. Node sets and exclusive use are ignored.
    """

    gpu: int
    """Index of the resource that counts GPUs."""
    amounts: FixedMatrix
    """int64[K, R]: amounts of one unit of each kind."""
    shares: FixedColumn
    """int64[K]: share of each kind in millionths."""


def no_typical_requests(resources: int) -> TypicalRequests:
    """Return typical requests without any kind."""
    return TypicalRequests(0, np.zeros((0, resources), np.int64), np.zeros(0, np.int64))


def typical_shares(counts: Mapping[K, float]) -> dict[K, float]:
    """Return the shares of the most frequent kinds, most frequent first, up to `TYPICAL_SHARE`.

    Of equally frequent kinds, the larger one comes first. The returned shares sum to 1.
    """
    kinds, missing = list[K](), TYPICAL_SHARE * sum(counts.values())
    for kind in sorted(counts, key=lambda kind: (counts[kind], kind), reverse=True):
        if missing <= 0:
            break
        kinds.append(kind)
        missing -= counts[kind]
    total = sum(counts[kind] for kind in kinds)
    return {kind: counts[kind] / total for kind in kinds}


def find_gpu_column(resources: Sequence[str]) -> int | None:
    """Return the index of the resource that counts GPUs, or None without one."""
    return next((resources.index(name) for name in GPU_RESOURCES if name in resources), None)


def find_typical_requests(requests: Iterable[Request], resources: Sequence[str]) -> TypicalRequests | None:
    """Return the typical requests among those for GPUs, or None if there are none."""
    gpu = find_gpu_column(resources)
    if gpu is None:
        return None
    shares = typical_shares(Counter(request.per_unit for request in requests if request.per_unit[gpu]))
    if not shares:
        return None
    millionths = np.array([round(MILLION * share) for share in shares.values()], np.int64)
    return TypicalRequests(gpu, np.array(list(shares), np.int64), millionths)
