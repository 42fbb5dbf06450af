"""Define the values from which the page's templates are built.

Times whose names end in `_s` are in seconds on the cluster's clock (Unix time with Slurm); `at_unix_s` is Unix time.
The names of users, accounts and jobs are empty if `page.users` is `hide`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cpsched_bridge.views.job_view import JobsView


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUsageView:
    """Capacity and use of one resource."""

    name: str
    capacity: int
    in_use: int
    """Used by running and starting jobs."""
    unavailable: int
    """Neither in use nor free: drained, down, reserved, or used by unknown jobs."""
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleView:
    """The summary of one cycle."""

    round: int
    mode: str
    result: str
    """ok, or the name of the failure."""
    path: str
    """Path of the decision."""
    status: str
    """Status of the solver."""
    considered: int
    variables: int
    gap: float | None
    """Gap between the best plan and its bound, as a share of the plan's value."""
    decide_s: float
    """Duration of the decision in seconds."""
    cycle_s: float
    """Duration of all phases in seconds."""
    queued: int
    started: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingReasonCount:
    """A kind of pending reason and the number of jobs with it."""

    kind: str
    text: str
    jobs: int
    common_reasons: list[tuple[str, int]]
    """The most frequent reasons, without numbers and names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAlert:
    """A problem that needs an operator's attention."""

    urgent: bool
    """Whether the bridge starts no jobs, or may start none."""
    text: str
    details: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeStatusView:
    """The key figures of the bridge and the cluster."""

    version: str
    cluster: str = ""
    """The cluster's name; empty if it has none."""
    host: str = ""
    """Host of the bridge."""
    round: int
    at_unix_s: float
    dispatcher: str
    interval_s: float
    users_hidden: bool
    held: int
    """Jobs that the bridge may hold."""
    resources: list[ResourceUsageView]
    stranded_gpus: float | None = None
    """Expected number of idle GPUs that the next typical job cannot use; null without typical jobs."""
    pending_reasons: list[PendingReasonCount]
    """Pending reasons, the most frequent first."""
    alerts: list[PageAlert]
    """Alerts, urgent ones first."""
    easy_ratios: dict[str, float] = field(default_factory=dict)
    """Results of recent jobs relative to EASY, and the weight that follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GanttBar:
    """A bar that represents a job on some nodes for an interval."""

    id: int
    label: str
    user: str
    kind: str
    """past, running or planned."""
    begin_s: int
    end_s: int
    nodes: list[tuple[int, int]]
    """Node indices and processors in use; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutageView:
    """A period, current or future, in which some nodes accept no jobs."""

    kind: str
    """reserved, drained, down, or unknown."""
    name: str
    """The cluster's name for it: the reservation's name, or the nodes' state."""
    nodes: list[int]
    """Indices of the nodes."""
    from_s: int
    to_s: int | None
    """null if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GanttChartView:
    """A chart of past, running and planned jobs by node and time.

    The nodes of planned jobs are estimates.
    """

    now_s: int
    node_names: list[str]
    processors: list[int]
    """Processors of each node."""
    unavailable: list[int]
    """Indices of nodes that are drained, down or reserved."""
    outages: list[NodeOutageView]
    bars: list[GanttBar]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUsageSample:
    """The use of each resource at one time."""

    now_s: int
    in_use: list[float]
    """Shares, in the order of the resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacitiesView:
    """The total and free amounts of each node.

    Nodes are in the order of `GanttChartView.node_names`, and amounts in the order of the resources.
    """

    capacity: list[list[int]]
    free: list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node with its running jobs and its next jobs."""

    index: int
    name: str
    state: str
    """down, drained, reserved, unavailable, full, in use or idle."""
    because: str
    """The reservation's name, or the cluster's name for the node's state."""
    until_s: int | None
    """Time at which it accepts jobs again; null if it accepts jobs now, or if unknown."""
    capacity: list[int]
    """Amounts, in the order of the resources."""
    in_use: list[int]
    """Amounts used by known jobs."""
    running: list[int]
    """Ids of running jobs."""
    planned: list[tuple[int, int]]
    """Id and start of the next planned jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalCoverageView:
    """The coverage of the 80 % intervals in the past week."""

    forecast: str
    """Class of the forecast, such as the time from the forecast to the start."""
    count: int
    """Number of intervals whose jobs have started."""
    covered: int
    early: int
    """Jobs that started before their interval."""
    late: int
    """Jobs that started after their interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPageView:
    """The complete view at one instant."""

    status: BridgeStatusView
    jobs: JobsView
    decisions: list[CycleView]
    """The last cycles, newest first."""
    history: list[ResourceUsageSample]
    """The past hour, oldest first."""
    chart: GanttChartView
    capacities: NodeCapacitiesView
    coverage: list[IntervalCoverageView] = field(default_factory=list)
    """Interval coverage in the past week; empty before the first start."""
