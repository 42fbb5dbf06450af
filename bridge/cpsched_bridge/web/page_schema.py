"""The values that the page's templates and version 1 of the API are made of.

All times ending in `_s` are seconds of the cluster's own clock (Unix time beside Slurm); `at_unix_s` is Unix time.
Names of users, accounts and jobs are empty where `page.users` is `hide`.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from cpsched.model import NodeSetPart, PendingReason
from cpsched_bridge.telemetry.reason_kinds import kind_of, text_of


class PageValue(BaseModel):
    """A value of the page."""

    model_config = ConfigDict(frozen=True)


class Resource(PageValue):
    """How much of one resource there is, and what becomes of it."""

    name: str
    capacity: int
    in_use: int = Field(description="Held by running jobs, and by jobs on their way.")
    unavailable: int = Field(description="Neither in use nor free: drained, down, reserved, or used by unknown jobs.")
    free: int


class JobFacts(PageValue):
    """What every job has."""

    id: int
    label: str = Field(description="As the cluster's users write it; the id where the cluster has no other.")
    user: str
    account: str
    name: str
    partition: str
    qos: str = Field(description="Empty where the site's priorities are not read.")


class RequestFacts(PageValue):
    """What a job asks for."""

    units: int
    per_unit: list[int] = Field(description="Amounts that each unit asks for, in the order of the resources.")
    distinct: bool = Field(description="Whether every unit is on a node of its own.")
    exclusive: bool = Field(description="Whether nobody else may be on its nodes.")
    nodes_from: tuple[NodeSetPart, ...] = Field(description="What the nodes that it may use meet; empty: all.")
    submit_s: int
    walltime_s: int


class QueuedJob(JobFacts, RequestFacts):
    """A job that is decided on and waits."""

    position: int = Field(description="From 1, in the order of the queue.")
    priority: int = Field(description="The site's rank of the job; 0 where nobody ranks jobs.")
    estimate_s: int = Field(description="How long the predictor expects it to run.")
    reason: PendingReason | None = Field(description="Why it waits; null if it starts now.")
    starts_on: list[tuple[str, int]] = Field(default_factory=list, description="Nodes, and units there.")
    behind: list[int] = Field(description="Jobs that stand before it.")
    expected_s: int | None = Field(description="Expected start; null where the dispatcher does not know.")
    first_expected_s: int | None = Field(description="The first expected start that it was given.")
    likely_from_s: int | None = Field(default=None, description="In 8 of 10 it starts no earlier; null: not told yet.")
    likely_to_s: int | None = Field(default=None, description="In 8 of 10 it starts no later.")

    @property
    def kind(self) -> str:
        """The kind of the reason, as in the metric cpsched_waiting_jobs; empty if it starts now."""
        return kind_of(self.reason) if self.reason is not None else ""

    @property
    def why(self) -> str:
        """The reason in words; empty if it starts now."""
        return text_of(self.reason, self.distinct) if self.reason is not None else ""


class RunningJob(JobFacts, RequestFacts):
    """A job that runs."""

    start_s: int
    expected_end_s: int
    nodes: list[tuple[str, int]] = Field(description="Node name, and units there.")


class UnscheduledJobFacts(JobFacts):
    """A pending job that is not decided on."""

    kind: str = Field(description="ineligible, held_by_owner, set_aside or left_to_slurm.")
    reason: PendingReason
    asked: RequestFacts | None = Field(description="null where the bridge does not model the job.")

    @property
    def why(self) -> str:
        """The reason in words."""
        return text_of(self.reason)


class DecisionLine(PageValue):
    """One cycle."""

    round: int
    mode: str
    result: str = Field(description="ok, or the name of what failed.")
    path: str = Field(description="How the decision was reached.")
    status: str = Field(description="What the solver said.")
    considered: int
    variables: int
    gap: float | None = Field(description="Distance of the best plan from its proved bound, as a share of it.")
    decide_s: float = Field(description="Seconds that the decision took.")
    cycle_s: float = Field(description="Seconds of all phases.")
    queued: int
    started: int


class ReasonCount(PageValue):
    """One kind of reasons for which pending jobs wait."""

    kind: str
    words: str
    jobs: int
    most: list[tuple[str, int]] = Field(description="The commonest reasons of this kind, without figures and names.")


class Alert(PageValue):
    """Something that people have to look after."""

    urgent: bool = Field(description="Whether the bridge starts no jobs for it, or nobody knows whether it does.")
    words: str
    details: list[str]


class Status(PageValue):
    """The bridge and the cluster in a few figures."""

    version: str
    cluster: str = Field(default="", description="As the cluster calls itself; empty where it has no name.")
    host: str = Field(default="", description="Where the bridge runs.")
    round: int
    at_unix_s: float
    now_s: int
    mode: str
    dispatcher: str
    predictor: str
    interval_s: float
    users_hidden: bool
    reader: str = Field(default="", description="Whose jobs alone these are (`page.user_header`); empty: everybody's.")
    nodes: int
    unavailable_nodes: int
    queued: int
    running: int
    aside: int
    held: int = Field(description="Jobs on which a hold of the bridge may be.")
    resources: list[Resource]
    causes: list[ReasonCount] = Field(description="Why pending jobs wait, the commonest kind first.")
    alarms: list[Alert] = Field(description="The urgent ones first; empty where all is well.")


class Bar(PageValue):
    """A job on nodes, from one second to another."""

    id: int
    label: str
    user: str
    kind: str = Field(description="past, running or planned.")
    begin_s: int
    end_s: int
    nodes: list[tuple[int, int]] = Field(description="Index of a node, and units there; empty: not known where.")


class Outage(PageValue):
    """Nodes that take no jobs for a time, now or later."""

    kind: str = Field(description="reserved, drained, down, or unknown.")
    name: str = Field(description="In the cluster's words: the reservation's name, or the nodes' state.")
    nodes: list[int] = Field(description="Indices of the nodes.")
    from_s: int
    to_s: int | None = Field(description="null where nobody knows.")


class Chart(PageValue):
    """What ran, runs and is planned, over nodes and time. Where planned jobs will run is a guess for the eye."""

    now_s: int
    node_names: list[str]
    unavailable: list[int] = Field(description="Indices of nodes that are drained, down or reserved.")
    outages: list[Outage]
    bars: list[Bar]


class UsageAt(PageValue):
    """How much of each resource was in use at one time."""

    now_s: int
    in_use: list[float] = Field(description="Shares, in the order of the resources.")


class Machine(PageValue):
    """What each node has, in the order of `Chart.node_names` and of the resources."""

    capacity: list[list[int]]
    free: list[list[int]]


class Node(PageValue):
    """A node, and what is on it now and next."""

    index: int
    name: str
    state: str = Field(description="down, drained, reserved, unavailable, full, in use or idle.")
    because: str = Field(description="The reservation's name, or the node's state in the cluster's words.")
    until_s: int | None = Field(description="When it takes jobs again; null where it does now, or nobody knows.")
    capacity: list[int] = Field(description="In the order of the resources.")
    in_use: list[int] = Field(description="What the jobs that are known take of it.")
    running: list[int] = Field(description="Ids of the jobs that run there.")
    planned: list[tuple[int, int]] = Field(description="Id and begin of the jobs that may run there next.")


class IntervalCoverageRow(PageValue):
    """How good the intervals of the past week were, which are to hold 8 in 10."""

    ahead: str = Field(description="How far ahead they were told, in words; all: of all of them.")
    told: int = Field(description="Intervals whose jobs have started.")
    held: int
    early: int = Field(description="Jobs that started before their interval.")
    late: int = Field(description="Jobs that started after it.")


class View(PageValue):
    """Everything at one instant."""

    status: Status
    queue: list[QueuedJob]
    running: list[RunningJob]
    aside: list[UnscheduledJobFacts]
    decisions: list[DecisionLine] = Field(description="The last cycles, the latest first.")
    history: list[UsageAt] = Field(description="The past hour, the oldest first.")
    chart: Chart
    machine: Machine
    promises: list[IntervalCoverageRow] = Field(
        default_factory=list, description="The past week; nothing before the first start."
    )
