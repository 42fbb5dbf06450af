"""Select the jobs and nodes of a page: parse the query from its address, filter and sort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlencode

from cpsched_bridge.views.job_view import JobState, JobsView, JobView
from cpsched_bridge.views.status_view import NodeView
from cpsched_bridge.web.page.node_list import NODE_STATES

CHART_RANGES_H = (1, 6, 24)
"""Selectable ranges of the chart, in hours."""
_MAX_QUERY_TEXT_CHARS = 100
STATE_LABELS = ("waiting", "running", "unscheduled", "all")
"""Selectable states."""
FILTER_FIELDS = ("user", "account", "partition", "qos")
_MAX_CHOICES = 50
"""Maximum number of values offered for a field, most frequent first."""
_NEVER_S = 2**62


@dataclass(frozen=True, slots=True)
class StatusPageQuery:
    """The selection of nodes and jobs for a page. Invalid parameters are ignored."""

    ahead: int = 6
    first: int | None = None
    last: int | None = None
    page: int = 1
    q: str = ""
    """Text to search for."""
    state: str = ""
    kind: str = ""
    """Kind of pending reason."""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    node: str = ""
    sort: str = ""
    """Name of a sort order, reversed by a leading minus."""

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> StatusPageQuery:
        """Return the query from the parameters of an address."""
        ahead = _parse_number(query.get("ahead"))
        words = {each.name: _clean_text(query.get(each.name, "")) for each in fields(cls) if each.type == "str"}
        return cls(
            ahead=ahead if ahead in CHART_RANGES_H else 6,
            first=_parse_number(query.get("first")),
            last=_parse_number(query.get("last")),
            page=max(1, _parse_number(query.get("page")) or 1),
            **words,
        )

    @property
    def is_zoomed(self) -> bool:
        """Whether the chart shows only some of the nodes."""
        return self.first is not None

    @property
    def is_filtered(self) -> bool:
        """Whether the query may exclude jobs or nodes."""
        return any((self.q, self.kind, self.user, self.account, self.partition, self.qos, self.node))

    def make_address(self, **changes: object) -> str:
        """Return the page's address with changes applied, at its first page."""
        values = asdict(self) | {"page": 1} | changes
        plain = asdict(StatusPageQuery())
        return "?" + urlencode({name: value for name, value in values.items() if value != plain[name]})

    def make_other_page_query(self, **choices: object) -> str:
        """Return the query of another page with these selections."""
        return "?" + urlencode(choices)


def _clean_text(text: str) -> str:
    return "".join(filter(str.isprintable, text[:_MAX_QUERY_TEXT_CHARS])).strip()


def _parse_number(text: str | None) -> int | None:
    return int(text) if text and len(text) < 16 and text.removeprefix("-").isdecimal() and text.isascii() else None


def _size_key(job: JobView) -> tuple[int, int]:
    if job.request is None:
        return 0, 0
    largest_first = -job.request.units
    return largest_first * next(iter(job.request.amounts.values()), 1), largest_first


def _time_key(at_s: int | None) -> int:
    return _NEVER_S if at_s is None else at_s


JOB_ORDERS: dict[str, tuple[str, Callable[[JobView], Any]]] = {
    "queue": ("position in the queue", lambda job: job.position or 0),
    "waited": ("longest wait", lambda job: _time_key(job.submit_s)),
    "start": ("start or planned start", lambda job: _time_key(job.planned_s if job.start_s is None else job.start_s)),
    "size": ("largest", _size_key),
    "walltime": ("longest time limit", lambda job: -_time_key(job.walltime_s) if job.request is not None else 0),
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

    `values` lists the offered values, most frequent first. `complete` states whether the list is complete.
    """

    name: str
    value: str
    values: Sequence[str]
    complete: bool


def filter_jobs(jobs: JobsView, query: StatusPageQuery) -> list[JobView]:
    """Return the selected jobs in the selected order."""
    selected = [job for job in select_jobs_by_state(jobs, query.state) if _is_job_selected(job, query)]
    return _sort_by_order(selected, query.sort, JOB_ORDERS)


def select_jobs_by_state(jobs: JobsView, state: str) -> list[JobView]:
    """Return all jobs in a state, or the waiting jobs if the state is unknown."""
    if state == "all":
        return [*jobs.waiting, *jobs.running, *jobs.unscheduled]
    return list({"running": jobs.running, "unscheduled": jobs.unscheduled}.get(state, jobs.waiting))


def list_filter_fields(jobs: JobsView, query: StatusPageQuery, users_hidden: bool) -> list[JobFilterField]:
    """Return the filters for jobs in the selected state."""
    selected, found = select_jobs_by_state(jobs, query.state), []
    for name in FILTER_FIELDS:
        if not (users_hidden and name in ("user", "account")):
            counts = Counter(getattr(job, name) for job in selected)
            common = [value for value, _ in counts.most_common() if value and value.isprintable()]
            is_complete = len(common) <= _MAX_CHOICES
            found.append(JobFilterField(name, getattr(query, name), common[:_MAX_CHOICES], is_complete))
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


def _is_job_selected(job: JobView, query: StatusPageQuery) -> bool:
    if any(wanted and getattr(job, name) != wanted for name in FILTER_FIELDS if (wanted := getattr(query, name))):
        return False
    if query.kind and job.kind != query.kind:
        return False
    runs_on = [name for name, _ in job.nodes] if job.state is JobState.RUNNING else []
    if query.node and query.node not in runs_on:
        return False
    return not query.q or _job_contains_text(job, query.q.lower())


def _job_contains_text(job: JobView, text: str) -> bool:
    fields = (job.label, job.user, job.account, job.name, job.partition, job.qos, job.reason_text)
    return any(text in field.lower() for field in fields) or text == str(job.id)


def _sort_by_order(found: list[Any], sort: str, orders: dict[str, tuple[str, Callable[[Any], Any]]]) -> list[Any]:
    name = sort.removeprefix("-")
    if name in orders:
        found.sort(key=orders[name][1], reverse=sort.startswith("-"))
    return found


def _get_used_share(node: NodeView) -> float:
    return node.in_use[0] / node.capacity[0] if node.capacity and node.capacity[0] else 0.0
