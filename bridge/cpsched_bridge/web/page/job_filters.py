"""Filter and sort the jobs and nodes of a view, in one or two passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cpsched_bridge.web.page.node_states import STATES as NODE_STATES
from cpsched_bridge.web.page.page_query import StatusPageQuery
from cpsched_bridge.web.page_schema import (
    NodeView,
    QueuedJobView,
    RequestView,
    RunningJobView,
    StatusPageView,
    UnscheduledJobView,
)

Job = QueuedJobView | RunningJobView | UnscheduledJobView

STATES = {"waiting": "waiting", "running": "running", "aside": "not decided on", "all": "all"}
"""Selectable states and their labels."""
FIELDS = ("user", "account", "partition", "qos")
_MOST_CHOICES = 50
"""Maximum number of values offered for a field, most frequent first."""
_NEVER_S = 2**62


def get_request(job: Job) -> RequestView | None:
    """Return the request of a job, or None if it is unknown."""
    return job.asked if isinstance(job, UnscheduledJobView) else job


def get_begin_s(job: Job) -> int | None:
    """Return the actual or expected start of a job in seconds, or None if it is unknown."""
    return (
        job.start_s if isinstance(job, RunningJobView) else job.expected_s if isinstance(job, QueuedJobView) else None
    )


def _by_submission(job: Job) -> Any:
    asked = get_request(job)
    return _NEVER_S if asked is None else asked.submit_s


def _by_size(job: Job) -> Any:
    asked = get_request(job)
    return (0, 0) if asked is None else (-asked.units * max(asked.per_unit[:1], default=1), -asked.units)


def _by_walltime(job: Job) -> Any:
    asked = get_request(job)
    return 0 if asked is None else -asked.walltime_s


def _by_start(job: Job) -> Any:
    found = get_begin_s(job)
    return _NEVER_S if found is None else found


ORDERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "queue": ("place in the queue", lambda job: getattr(job, "position", 0)),
    "waited": ("longest in the system", _by_submission),
    "start": ("start, expected or real", _by_start),
    "size": ("largest", _by_size),
    "walltime": ("longest limit of time", _by_walltime),
    "user": ("user", lambda job: (job.user, job.id)),
    "partition": ("partition", lambda job: (job.partition, job.id)),
    "job": ("job", lambda job: job.id),
}
"""Label and sort key of each sort order for jobs, by name."""

NODE_ORDERS: dict[str, tuple[str, Callable[[NodeView], Any]]] = {
    "node": ("node", lambda node: node.index),
    "state": ("trouble first", lambda node: (NODE_STATES.index(node.state), node.index)),
    "use": ("most in use", lambda node: (-_share(node), node.index)),
    "jobs": ("most jobs", lambda node: (-len(node.running), node.index)),
    "next": ("next planned job", lambda node: node.planned[0][1] if node.planned else _NEVER_S),
}
"""Label and sort key of each sort order for nodes, by name."""


@dataclass(frozen=True, slots=True)
class JobFilterField:
    """A field by which jobs can be filtered: its values, most frequent first, and whether they are complete."""

    name: str
    value: str
    values: Sequence[str]
    whole: bool


def filter_jobs(view: StatusPageView, asked: StatusPageQuery) -> list[Job]:
    """Return the selected jobs in the selected order."""
    found = [job for job in select_by_state(view, asked.state) if _is_asked_for(job, asked)]
    return _ordered(found, asked.sort, ORDERS)


def select_by_state(view: StatusPageView, state: str) -> list[Job]:
    """Return all jobs in a state; pending jobs if the state is unknown."""
    of: dict[str, Sequence[Job]] = {"running": view.running, "aside": view.aside}
    if state == "all":
        return [*view.queue, *view.running, *view.aside]
    return list(of.get(state, view.queue))


def list_filter_fields(view: StatusPageView, asked: StatusPageQuery) -> list[JobFilterField]:
    """Return the filters for the jobs of the selected state."""
    among, found = select_by_state(view, asked.state), []
    for name in FIELDS:
        if not (view.status.users_hidden and name in ("user", "account")):
            common = [
                value
                for value, _ in Counter(getattr(job, name) for job in among).most_common()
                if value and value.isprintable()
            ]
            found.append(
                JobFilterField(name, getattr(asked, name), common[:_MOST_CHOICES], len(common) <= _MOST_CHOICES)
            )
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
    return _ordered(chosen, asked.sort, NODE_ORDERS)


def _is_asked_for(job: Job, asked: StatusPageQuery) -> bool:
    if any(wanted and getattr(job, name) != wanted for name in FIELDS if (wanted := getattr(asked, name))):
        return False
    if asked.kind and getattr(job, "kind", "") != asked.kind:
        return False
    if asked.node and not any(name == asked.node for name, _ in getattr(job, "nodes", ())):
        return False
    return not asked.q or _says(job, asked.q.lower())


def _says(job: Job, words: str) -> bool:
    why = job.why if isinstance(job, QueuedJobView | UnscheduledJobView) else ""
    texts = (job.label, job.user, job.account, job.name, job.partition, job.qos, why)
    return any(words in text.lower() for text in texts) or words == str(job.id)


def _ordered(found: list[Any], sort: str, orders: dict[str, tuple[str, Callable[[Any], Any]]]) -> list[Any]:
    name = sort.removeprefix("-")
    if name in orders:
        found.sort(key=orders[name][1], reverse=sort.startswith("-"))
    return found


def _share(node: NodeView) -> float:
    return node.in_use[0] / node.capacity[0] if node.capacity and node.capacity[0] else 0.0
