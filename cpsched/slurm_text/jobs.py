"""Define the job that a reading of Slurm delivers, and parse lists of array tasks, such as `0-5,9` and `0-8:2`.

Memory is in MiB, times are in Unix seconds, and time limits are in minutes. A field that Slurm does not set or that
cannot be read has its default. Trackable resources have the form {"cpu": 4, "mem": 4000, "gres/gpu": 2}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

UNLIMITED: Literal["UNLIMITED"] = "UNLIMITED"
TimeLimit = int | Literal["UNLIMITED"] | None
"""A time limit in minutes, "UNLIMITED", or None if the limit of the partition applies."""
NO_AMOUNTS: Mapping[str, int] = MappingProxyType({})


class JobDependencies(NamedTuple):
    """The dependencies of a job."""

    conditions: Sequence[tuple[str, str]] = ()
    """Kind and target of each dependency on a job, with Slurm's state of it: ("afterok", "14_7(unfulfilled)")."""
    singleton: bool | None = False
    """Whether the job waits for the user's jobs of its name, or None if this is unknown."""
    is_any_sufficient: bool = False
    """Whether one satisfied dependency suffices ("?" instead of ",")."""


class NodeShare(NamedTuple):
    """A job's allocation on some of its nodes, which is the same on each of them."""

    nodes: str
    """Hostlist of the nodes."""
    cpus: int
    memory: int
    gres: Mapping[str, int]


class SlurmJob(NamedTuple):
    """A job or, while several tasks of an array wait, the common record of these tasks.

    It is a tuple, because a frozen dataclass with 55 fields takes several times as long to construct.
    """

    id: int
    """Slurm's own number."""
    state: str
    state_reason: str = ""
    priority: int | None = None
    name: str = ""
    user_id: int | None = None
    user_name: str = ""
    account: str = ""
    partition: str = ""
    """The partition, or a comma-separated list of partitions."""
    qos: str = ""
    submit_time: int = 0
    eligible_time: int = 0
    accrue_time: int = 0
    start_time: int = 0
    end_time: int = 0
    time_limit: TimeLimit = None
    num_nodes: int = 1
    max_nodes: int | None = None
    """The maximum number of nodes, or None if the job requests none."""
    cpus: int = 1
    ntasks: int = 0
    """The number of tasks, or 0 if it is unknown."""
    ntasks_per_node: int = 0
    cpus_per_task: int = 1
    """The CPUs of each task, or 0 if the job requests CPUs per GPU."""
    min_cpus_per_node: int = 0
    memory_per_cpu: int = 0
    memory_per_node: int = 0
    """The memory on each node, or 0 if the job requests none, or all of it."""
    resource_sharing: str = "OK"
    """How the job shares its nodes, in the form that Slurm releases before 26.05 print."""
    gres_per_node: Mapping[str, int] = NO_AMOUNTS
    gres_per_job: Mapping[str, int] = NO_AMOUNTS
    """Generic resources requested in total (`--gpus`), by name and type, or empty if Slurm does not show them."""
    tres_per_task: Mapping[str, int] = NO_AMOUNTS
    requested_tres: Mapping[str, int] = NO_AMOUNTS
    allocated_tres: Mapping[str, int] = NO_AMOUNTS
    licenses: Sequence[str] = ()
    """The licenses that the job requests or, if Slurm shows them, those that it holds."""
    array_id: int = 0
    """The number of the job's array, or 0."""
    array_task_id: int = 0
    array_tasks_waiting: str = ""
    """The indices of the tasks that wait in this record, such as "0-5,9"."""
    array_tasks_parallel: int = 0
    """The maximum number of running tasks of the array, or 0 if it is unlimited."""
    heterogeneous_id: int = 0
    admin_comment: str = ""
    comment: str = ""
    requeue_count: int = 0
    required_nodes: str = ""
    excluded_nodes: str = ""
    allocated_nodes: str = ""
    """Hostlist of the nodes that the job has or had."""
    dependencies: JobDependencies | None = None
    """The dependencies of a pending job, or None."""
    constraints: Sequence[str] = ()
    reservation: str = ""
    special_requests: frozenset[str] = frozenset()
    """The requests in `SPECIAL_REQUESTS` that the job makes."""
    segment_size: int = 0
    """Number of nodes of each segment, or 0. Only some topology plugins use it."""
    spread_segments: bool = False
    consolidate_segments: bool = False
    ntasks_per_core: int = 0
    nice: int = 0
    is_requeueable: bool | None = None
    is_batch_job: bool | None = None
    layout: Sequence[NodeShare] = ()
    """The allocation on each node of a job on several nodes, or empty if it is unknown."""
    unreadable: Sequence[str] = ()
    """The fields that cannot be read."""
    unknown_state: str = ""
    """The state that Slurm shows, if the adapter does not list it. `state` is then "UNKNOWN"."""
    listed_partitions: str = ""
    """All partitions of a job that names several, if `partition` is the one that was chosen."""
    cpus_per_gpu: int = 0
    memory_per_gpu: int = 0
    """The partition's defaults per GPU, if they apply to the job."""

    def in_partition(self, name: str) -> SlurmJob:
        """Return the pending job as if `name` were its only partition."""
        if self.partition == name:
            return self
        return self._replace(partition=name, listed_partitions=self.partition)


SPECIAL_REQUESTS: Mapping[str, str] = {
    "preferred_features": "prefers features",
    "burst_buffer": "requests a burst buffer",
    "network": "requests network resources",
    "deadline": "has a deadline",
    "time_limit_min": "has a minimum time limit",
    "requires_contiguous_nodes": "requests contiguous nodes",
    "requires_node_reboot": "requests a reboot of its nodes",
    "spreads_over_nodes": "requests to be spread over nodes",
    "required_switches": "requests a maximum number of switches",
    "extra": "filters nodes by --extra (extra_constraints)",
    "node_counts": "lists several numbers of nodes",
    "cores_reserved_for_system": "requests core specialisation",
    "boards_per_node": "requests a number of boards per node",
    "sockets_per_board": "requests a number of sockets per board",
    "sockets_per_node": "requests a number of sockets per node",
    "cores_per_socket": "requests a number of cores per socket",
    "threads_per_core": "requests a number of threads per core",
    "ntasks_per_board": "requests a number of tasks per board",
    "ntasks_per_socket": "requests a number of tasks per socket",
    "ntasks_per_core": "requests a number of tasks per core",
    "ntasks_per_gpu": "requests a number of tasks per GPU",
    "tres_per_socket": "requests resources per socket",
    "temporary_disk_per_node": "requests local disk",
    "cluster_constraints": "requests cluster features",
    "mcs_label": "uses multi-category security",
    "is_cronjob": "is a scrontab job",
    "gres_binding": "requests generic resources on the sockets of its CPUs",
}
"""What a job may request that no field of `SlurmJob` contains, in words.

- `ntasks_per_core`: more than one. One task per core is a field, because Slurm shows it for every job if
  `SelectTypeParameters` contains CR_ONE_TASK_PER_CORE.
- `extra`: only if SchedulerParameters contains extra_constraints. Otherwise, the option is a comment.
- `gres_binding`: `--gres-flags=enforce-binding`, which ENFORCE_BINDING_GRES makes the default.
- `node_counts`: `--nodes` lists several numbers. pyslurm does not show it.
"""


MAX_TASK_INDEX = 1 << 22


@lru_cache(maxsize=1024)
def parse_task_ranges(waiting: str | None) -> tuple[range, ...]:
    """Return an array's waiting tasks as ranges, because there may be millions.

    `waiting` has a form such as "0-5,9" or "0-8:2" (every second task). Raise `ValueError` for any other form.
    """
    if not waiting:
        return ()
    ranges: list[range] = []
    for part in waiting.strip("[]").split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        ranges.append(range(_parse_task_index(low), _parse_task_index(high or low) + 1, _parse_task_index(step or "1")))
    return tuple(ranges)


def _parse_task_index(text: str) -> int:
    number = int(text)
    if not 0 <= number <= MAX_TASK_INDEX:
        raise ValueError(f"array task {text[:20]}: must be from 0 to {MAX_TASK_INDEX}")
    return number


def format_ranges(numbers: list[int]) -> str:
    """Return numbers as ascending ranges, such as "1-3,7" for [1, 2, 3, 7]."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


_CHECKPOINT = re.compile(r"(?<!\S)checkpoint=([0-9]{1,12})(?!\S)")
"""Pattern for a mark delimited by whitespace. More than 12 digits are not a Unix time."""


def last_checkpoint_s(comment: str, start_s: int, now_s: int) -> int | None:
    """Return the latest `checkpoint=<unix time>` in a job's comment, or None.

    Times before the job's start or in the future are ignored, because users write the comment.
    """
    times = (int(digits) for digits in _CHECKPOINT.findall(comment))
    return max((at_s for at_s in times if start_s <= at_s <= now_s), default=None)
