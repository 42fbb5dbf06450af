"""Define the values from which the templates and version 1 of the API are built.

Times whose names end in `_s` are in seconds on the cluster's clock (Unix time with Slurm); `at_unix_s` is Unix time.
The names of users, accounts and jobs are empty if `page.users` is `hide`.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from cpsched.model import NodeSetCondition, PendingReason
from cpsched_bridge.telemetry.reason_kinds import classify_reason, format_reason


class PageModelBase(BaseModel):
    """The base class of all values on the page."""

    model_config = ConfigDict(frozen=True)


class ResourceUsageView(PageModelBase):
    """Capacity and use of one resource."""

    name: str
    capacity: int
    in_use: int = Field(description="Used by running and starting jobs.")
    unavailable: int = Field(description="Neither in use nor free: drained, down, reserved, or used by unknown jobs.")
    free: int


class JobView(PageModelBase):
    """The fields common to all jobs."""

    id: int
    label: str = Field(description="Label shown to users; the id if the cluster has no other label.")
    user: str
    account: str
    name: str
    partition: str
    qos: str = Field(description="Empty if the site's priorities are not read.")


class JobRequestView(PageModelBase):
    """A job's request."""

    units: int
    per_unit: list[int] = Field(description="Amounts per unit, in the order of the resources.")
    distinct: bool = Field(description="Whether every unit needs its own node.")
    exclusive: bool = Field(description="Whether the job needs exclusive nodes.")
    nodes_from: tuple[NodeSetCondition, ...] = Field(
        description="Conditions on the job's nodes; empty if all nodes are allowed."
    )
    submit_s: int
    walltime_s: int


class QueuedJobView(JobView, JobRequestView):
    """A pending job that the bridge schedules."""

    position: int = Field(description="Position in the queue, from 1.")
    priority: int = Field(description="The site's priority; 0 if jobs are not ranked.")
    estimate_s: int = Field(description="Predicted run time.")
    reason: PendingReason | None = Field(description="Pending reason; null if the job starts now.")
    starts_on: list[tuple[str, int]] = Field(default_factory=list, description="Node names and units per node.")
    behind: list[int] = Field(description="Ids of jobs that it waits for.")
    expected_s: int | None = Field(description="Expected start; null if unknown.")
    first_expected_s: int | None = Field(description="The first expected start.")
    likely_from_s: int | None = Field(
        default=None, description="Lower end of the 80 % interval for the start; null if not known yet."
    )
    likely_to_s: int | None = Field(default=None, description="Upper end of the 80 % interval for the start.")
    start_quantiles_s: list[int] = Field(
        default_factory=list,
        description="The 5, 10, 25, 50, 75, 90 and 95 % quantiles of the start; empty if not known yet.",
    )
    calibrated: bool = Field(
        default=False, description="Whether enough starts were observed to calibrate the interval."
    )

    @property
    def kind(self) -> str:
        """The kind of the pending reason; empty if the job starts now.

        The metric cpsched_waiting_jobs uses the same kinds.
        """
        return classify_reason(self.reason) if self.reason is not None else ""

    @property
    def why(self) -> str:
        """The pending reason as text; empty if the job starts now."""
        return format_reason(self.reason, self.distinct) if self.reason is not None else ""


class RunningJobView(JobView, JobRequestView):
    """A running job."""

    start_s: int
    expected_end_s: int
    nodes: list[tuple[str, int]] = Field(description="Node names and units per node.")
    preemptors: str = Field(
        default="", description="Group whose jobs may preempt it, such as `QOS high`; empty if none."
    )
    checkpoint_s: int | None = Field(default=None, description="Time of its last checkpoint, if it may be preempted.")


class UnscheduledJobView(JobView):
    """A pending job that the bridge does not schedule."""

    kind: str = Field(description="ineligible, held_by_owner, set_aside or left_to_slurm.")
    reason: PendingReason
    asked: JobRequestView | None = Field(description="null if the bridge does not model the job.")

    @property
    def why(self) -> str:
        """The reason why the job is not scheduled, as text."""
        return format_reason(self.reason)


class CycleView(PageModelBase):
    """The summary of one cycle."""

    round: int
    mode: str
    result: str = Field(description="ok, or the name of the failure.")
    path: str = Field(description="Path of the decision.")
    status: str = Field(description="Status of the solver.")
    considered: int
    variables: int
    gap: float | None = Field(description="Gap between the best plan and its bound, as a share of the plan's value.")
    decide_s: float = Field(description="Duration of the decision in seconds.")
    cycle_s: float = Field(description="Duration of all phases in seconds.")
    queued: int
    started: int


class PendingReasonCount(PageModelBase):
    """A kind of pending reason and the number of jobs with it."""

    kind: str
    words: str
    jobs: int
    most: list[tuple[str, int]] = Field(description="The most frequent reasons, without numbers and names.")


class PageAlert(PageModelBase):
    """A problem that needs an operator's attention."""

    urgent: bool = Field(description="Whether the bridge starts no jobs, or may start none.")
    words: str
    details: list[str]


class BridgeStatusView(PageModelBase):
    """The key figures of the bridge and the cluster."""

    version: str
    cluster: str = Field(default="", description="The cluster's name; empty if it has none.")
    host: str = Field(default="", description="Host of the bridge.")
    round: int
    at_unix_s: float
    now_s: int
    mode: str
    dispatcher: str
    predictor: str
    interval_s: float
    users_hidden: bool
    reader: str = Field(
        default="", description="The user whose jobs are shown (`page.user_header`); empty if all jobs are shown."
    )
    nodes: int
    unavailable_nodes: int
    queued: int
    running: int
    aside: int
    held: int = Field(description="Jobs that the bridge may hold.")
    resources: list[ResourceUsageView]
    causes: list[PendingReasonCount] = Field(description="Pending reasons, the most frequent first.")
    alarms: list[PageAlert] = Field(description="Alerts, urgent ones first.")
    easy_ratios: dict[str, float] = Field(
        default_factory=dict, description="Results of recent jobs relative to EASY, and the weight that follows."
    )


class GanttBar(PageModelBase):
    """A bar that represents a job on some nodes for an interval."""

    id: int
    label: str
    user: str
    kind: str = Field(description="past, running or planned.")
    begin_s: int
    end_s: int
    nodes: list[tuple[int, int]] = Field(description="Node indices and processors in use; empty if unknown.")


class NodeOutageView(PageModelBase):
    """A period, current or future, in which some nodes accept no jobs."""

    kind: str = Field(description="reserved, drained, down, or unknown.")
    name: str = Field(description="The cluster's name for it: the reservation's name, or the nodes' state.")
    nodes: list[int] = Field(description="Indices of the nodes.")
    from_s: int
    to_s: int | None = Field(description="null if unknown.")


class GanttChartView(PageModelBase):
    """A chart of past, running and planned jobs by node and time.

    The nodes of planned jobs are estimates.
    """

    now_s: int
    node_names: list[str]
    processors: list[int] = Field(description="Processors of each node.")
    unavailable: list[int] = Field(description="Indices of nodes that are drained, down or reserved.")
    outages: list[NodeOutageView]
    bars: list[GanttBar]


class ResourceUsageSample(PageModelBase):
    """The use of each resource at one time."""

    now_s: int
    in_use: list[float] = Field(description="Shares, in the order of the resources.")


class NodeCapacitiesView(PageModelBase):
    """The total and free amounts of each node.

    Nodes are in the order of `GanttChartView.node_names`, and amounts in the order of the resources.
    """

    capacity: list[list[int]]
    free: list[list[int]]


class NodeView(PageModelBase):
    """A node with its running jobs and its next jobs."""

    index: int
    name: str
    state: str = Field(description="down, drained, reserved, unavailable, full, in use or idle.")
    because: str = Field(description="The reservation's name, or the cluster's name for the node's state.")
    until_s: int | None = Field(
        description="Time at which it accepts jobs again; null if it accepts jobs now, or if unknown."
    )
    capacity: list[int] = Field(description="Amounts, in the order of the resources.")
    in_use: list[int] = Field(description="Amounts used by known jobs.")
    running: list[int] = Field(description="Ids of running jobs.")
    planned: list[tuple[int, int]] = Field(description="Id and start of the next planned jobs.")


class IntervalCoverageView(PageModelBase):
    """The coverage of the 80 % intervals in the past week."""

    ahead: str = Field(description="Time from the forecast to the start; `all` is any time.")
    told: int = Field(description="Number of intervals whose jobs have started.")
    held: int
    early: int = Field(description="Jobs that started before their interval.")
    late: int = Field(description="Jobs that started after their interval.")


class StatusPageView(PageModelBase):
    """The complete view at one instant."""

    status: BridgeStatusView
    queue: list[QueuedJobView]
    running: list[RunningJobView]
    aside: list[UnscheduledJobView]
    decisions: list[CycleView] = Field(description="The last cycles, newest first.")
    history: list[ResourceUsageSample] = Field(description="The past hour, oldest first.")
    chart: GanttChartView
    machine: NodeCapacitiesView
    promises: list[IntervalCoverageView] = Field(
        default_factory=list, description="Interval coverage in the past week; empty before the first start."
    )
