"""Filter and sort the jobs and nodes in a view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cpsched_bridge.web.page.node_states import STATES as NODE_STATES
from cpsched_bridge.web.page.page_query import StatusPageQuery
from cpsched_bridge.web.page_schema import (
    JobRequestView,
    NodeView,
    QueuedJobView,
    RunningJobView,
    StatusPageView,
    UnscheduledJobView,
)

Job = QueuedJobView | RunningJobView | UnscheduledJobView

STATE_LABELS = {"waiting": "waiting", "running": "running", "aside": "not considered", "all": "all"}
"""Selectable states and their labels."""
FILTER_FIELDS = ("user", "account", "partition", "qos")
_MAX_CHOICES = 50
"""Maximum number of values offered for a field, most frequent first."""
_NEVER_S = 2**62


def get_job_request(job: Job) -> JobRequestView | None:
    """Return a job's request, or None if it is unknown."""
    return job.asked if isinstance(job, UnscheduledJobView) else job


def get_actual_or_expected_start_s(job: Job) -> int | None:
    """Return a job's actual or expected start in seconds, or None if it is unknown."""
    return (
        job.start_s if isinstance(job, RunningJobView) else job.expected_s if isinstance(job, QueuedJobView) else None
    )


def _submission_key(job: Job) -> Any:
    asked = get_job_request(job)
    return _NEVER_S if asked is None else asked.submit_s


def _size_key(job: Job) -> Any:
    asked = get_job_request(job)
    return (0, 0) if asked is None else (-asked.units * max(asked.per_unit[:1], default=1), -asked.units)


def _walltime_key(job: Job) -> Any:
    asked = get_job_request(job)
    return 0 if asked is None else -asked.walltime_s


def _start_key(job: Job) -> Any:
    found = get_actual_or_expected_start_s(job)
    return _NEVER_S if found is None else found


JOB_ORDERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "queue": ("position in the queue", lambda job: getattr(job, "position", 0)),
    "waited": ("longest wait", _submission_key),
    "start": ("actual start, or median", _start_key),
    "size": ("largest", _size_key),
    "walltime": ("longest time limit", _walltime_key),
    "user": ("user", lambda job: (job.user, job.id)),
    "partition": ("partition", lambda job: (job.partition, job.id)),
    "job": ("job", lambda job: job.id),
}
"""Label and sort key of each sort order for jobs, by name."""

NODE_ORDERS: dict[str, tuple[str, Callable[[NodeView], Any]]] = {
    "node": ("node", lambda node: node.index),
    "state": ("worst state", lambda node: (NODE_STATES.index(node.state), node.index)),
    "use": ("most used", lambda node: (-_get_used_share(node), node.index)),
    "jobs": ("most jobs", lambda node: (-len(node.running), node.index)),
    "next": ("next planned job", lambda node: node.planned[0][1] if node.planned else _NEVER_S),
}
"""Label and sort key of each sort order for nodes, by name."""


@dataclass(frozen=True, slots=True)
class JobFilterField:
    """A field by which jobs can be filtered, with the selected `value`.

    `values` lists the offered values, most frequent first. `whole` states whether the list is complete.
    """

    name: str
    value: str
    values: Sequence[str]
    whole: bool


def filter_jobs(view: StatusPageView, asked: StatusPageQuery) -> list[Job]:
    """Return the selected jobs in the selected order."""
    found = [job for job in select_jobs_by_state(view, asked.state) if _is_job_selected(job, asked)]
    return _sort_by_order(found, asked.sort, JOB_ORDERS)


def select_jobs_by_state(view: StatusPageView, state: str) -> list[Job]:
    """Return all jobs in a state, or the pending jobs if the state is unknown."""
    of: dict[str, Sequence[Job]] = {"running": view.running, "aside": view.aside}
    if state == "all":
        return [*view.queue, *view.running, *view.aside]
    return list(of.get(state, view.queue))


def list_filter_fields(view: StatusPageView, asked: StatusPageQuery) -> list[JobFilterField]:
    """Return the filters for jobs in the selected state."""
    among, found = select_jobs_by_state(view, asked.state), []
    for name in FILTER_FIELDS:
        if not (view.status.users_hidden and name in ("user", "account")):
            common = [
                value
                for value, _ in Counter(getattr(job, name) for job in among).most_common()
                if value and value.isprintable()
            ]
            found.append(JobFilterField(name, getattr(asked, name), common[:_MAX_CHOICES], len(common) <= _MAX_CHOICES))
    return found


def filter_nodes(found: Iterable[NodeView], asked: StatusPageQuery) -> list[NodeView]:
    """Return the selected nodes in the selected order."""
    words = asked.q.lower()
    chosen = [
        node
        for node in found
        if (not asked.state or node.state == asked.state)
        and (words in node.name.lower() or words in node.because.lower())
    ]
    return _sort_by_order(chosen, asked.sort, NODE_ORDERS)


def _is_job_selected(job: Job, asked: StatusPageQuery) -> bool:
    if any(wanted and getattr(job, name) != wanted for name in FILTER_FIELDS if (wanted := getattr(asked, name))):
        return False
    if asked.kind and getattr(job, "kind", "") != asked.kind:
        return False
    if asked.node and not any(name == asked.node for name, _ in getattr(job, "nodes", ())):
        return False
    return not asked.q or _job_contains_text(job, asked.q.lower())


def _job_contains_text(job: Job, words: str) -> bool:
    why = job.why if isinstance(job, QueuedJobView | UnscheduledJobView) else ""
    texts = (job.label, job.user, job.account, job.name, job.partition, job.qos, why)
    return any(words in text.lower() for text in texts) or words == str(job.id)


def _sort_by_order(found: list[Any], sort: str, orders: dict[str, tuple[str, Callable[[Any], Any]]]) -> list[Any]:
    name = sort.removeprefix("-")
    if name in orders:
        found.sort(key=orders[name][1], reverse=sort.startswith("-"))
    return found


def _get_used_share(node: NodeView) -> float:
    return node.in_use[0] / node.capacity[0] if node.capacity and node.capacity[0] else 0.0
