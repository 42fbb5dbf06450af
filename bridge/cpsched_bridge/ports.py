"""The bridge's interface to a cluster: observe it, start, hold and release jobs, check its configuration.

Slurm, PBS and the simulated cluster implement these ports. The loop uses nothing else. All values are plain data
(pickled and compared by value, arrays excepted). Times are seconds of the cluster's clock.

Rules for every backend:

- A call returns, or raises a `BackendError`, within the backend's deadline. It never hangs.
- State decides, never a reason text. `observe` shows the effect of a command.
- A job id names one job in every list, from first sight until its end, and fits into int64. Array tasks have ids
  of their own; `label` keeps the name that users see.
- A job whose owner chose its nodes is an `UnmanagedJob`: pinning and clearing would lose that choice. A list of nodes
  to avoid is a node set of the cluster.
- Calls come from one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, get_args, runtime_checkable

from cpsched.errors import escape_controls, require
from cpsched.model import Cluster, EndedJob, IntArray, Job, PendingCode, PendingReason, RunningJob, reason_from
from cpsched.site.admission import QueueLimitStatus
from cpsched_bridge.equivalence import BackoffKey

Result = Literal["done", "refused", "unknown"]
OutcomeCode = Literal["", "not_sent", "held_by_administrator"]
"""Why a command was refused, for the bridge; `Outcome.detail` is the text for people.

- `not_sent`: the command was not sent, and its job is not at fault: an earlier command got no answer, or other jobs
  took the capacity since the decision.
- `held_by_administrator`: an administrator held the job after the bridge read it.
"""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an adapter supports with its options. The defaults support nothing.

    Raises `InvalidValue` for values of another type.
    """

    priorities: bool = False
    """Jobs have the site's `tier` and `priority`. Dispatchers respect them unless the settings state otherwise."""
    limits: bool = False
    """Observations have the site's `limits`, which every decision respects."""
    decision_limit_s: float | None = None
    """Default time limit of a decision in seconds, for dispatchers that have one; None: no limit."""
    boosts: bool = False
    """The backend is `SupportsBoost`, which advise mode requires."""

    def __post_init__(self) -> None:
        for name in ("priorities", "limits", "boosts"):
            require(isinstance(getattr(self, name), bool), name, getattr(self, name), "must be true or false")
        known = self.decision_limit_s is None or (
            type(self.decision_limit_s) in (int, float) and 0 < self.decision_limit_s < float("inf")
        )
        require(known, "decision_limit_s", self.decision_limit_s, "must be a positive number of seconds, or None")


class Hold(StrEnum):
    """Who holds a pending job."""

    NONE = "none"
    """Not held: the cluster's scheduler may start the job at any time. The bridge may adopt it by a hold."""
    PLUGIN = "plugin"
    """The submit plugin, for the bridge: the job carries its mark. Managed even if the ledger has no entry."""
    ADMIN = "admin"
    """An administrator, or the bridge itself. Managed only if the ledger records the bridge's hold."""
    USER = "user"
    """The owner, an administrator or the cluster (see `PendingJob.holder`). The bridge never touches the job."""
    CLUSTER = "cluster"
    """The cluster, because the job's request cannot run (see `PendingJob.obstacle`). The bridge does not touch it."""


class Holder(StrEnum):
    """Who holds a job whose hold is `Hold.USER`."""

    OWNER = "its owner"
    ADMINISTRATOR = "an administrator"
    """Or an operator. If the owner holds the job, too, an administrator must still release it."""
    CLUSTER = "the cluster"
    """Until a condition ends; `Job.ineligible` names it."""


@dataclass(frozen=True, slots=True)
class ClusterReason:
    """The cluster's reason why a job waits that concerns the job or its group, not its nodes.

    A start that ends with this reason is not a failure of the bridge.
    """

    reason: str
    """The cluster's name for it, such as "AssocMaxJobsLimit"."""
    scope: BackoffKey
    """The jobs that it concerns: one of the job's `PendingJob.groups`."""
    transient: bool = False
    """Whether a released job may show it briefly and still start."""
    clears_on_end: bool = True
    """Whether the end of a job in the group may clear it, as with a limit on running jobs."""


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A pending job that is modelled completely. The bridge decides on managed jobs and adopts jobs that are not held.

    `job.ineligible` states why the job may not start even if released (dependency, begin time, limits). `pinned`: the
    job still has a node list that the bridge set (see `Backend.observe`).
    """

    job: Job
    hold: Hold
    pinned: bool = False
    label: str = ""
    obstacle: ClusterReason | None = None
    groups: tuple[BackoffKey, ...] = ()
    """Groups that the cluster may hold back: the job itself, its user in an account, in a partition, ..."""
    lower_priority: bool = False
    """The cluster starts other jobs first. A slow start for this reason is no sign of a broken cluster."""
    refused: str = ""
    """The cluster's reason for not starting the job on its given nodes, if it states one."""
    release_is_pointless: bool = False
    """Held for the bridge, but a release would not help: the cluster's scheduler cannot start the job."""
    holder: Holder = Holder.OWNER
    """The holder, if `hold` is `Hold.USER`."""

    @property
    def holder_reason(self) -> PendingReason:
        """Who holds the job, if `hold` is `Hold.USER`."""
        until = self.job.ineligible if self.holder is Holder.CLUSTER else None
        return until or PendingReason(PendingCode.HELD_BY, (self.holder.value,))


MOST_TASKS = 500
"""Maximum number of pending tasks of one array in an observation. The others follow as these start."""


@dataclass(frozen=True, slots=True)
class UnmanagedJob:
    """A pending job that is left to the cluster's own scheduler, with the reason.

    The bridge never holds or starts it. A text becomes a reason with the code `other`.

    `held_for_us`: the submit plugin held it although it cannot be modelled; the bridge releases it. `pinned`: it is not
    held but has a node list of the bridge; the bridge releases it, too.
    """

    job_id: int
    reason: PendingReason
    label: str = ""
    user: str = ""
    held_for_us: bool = False
    pinned: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", reason_from(self.reason))


@dataclass(frozen=True, slots=True)
class Outage:
    """Nodes that take no jobs for a time, now or later. For display only."""

    kind: Literal["reserved", "drained", "down"]
    name: str
    """The cluster's name for it: the reservation's name, or the nodes' state."""
    nodes: tuple[int, ...]
    from_s: int
    to_s: int | None
    """None: unknown."""


ObjectKind = Literal["node", "partition", "reservation", "job", "association", "qos"]
OBJECT_KINDS: tuple[ObjectKind, ...] = get_args(ObjectKind)


@dataclass(frozen=True, slots=True)
class UnusableObject:
    """One object of the cluster that is left out of the plan.

    A node takes no jobs. A reservation closes the nodes that it names. Jobs that use any other object are left to the
    cluster's own scheduler.
    """

    kind: ObjectKind
    name: str
    field: str
    reason: Literal["unreadable", "unknown"]
    """`unreadable`: the field cannot be read. `unknown`: this version has no rule for the field or its value."""
    detail: str = ""
    """The value, or the error."""

    @property
    def why(self) -> str:
        """The problem, without the object."""
        if self.reason == "unknown":
            return f"{self.field}={self.detail}: this version has no rule for it"
        return f"{self.field} cannot be read" + (f": {self.detail}" if self.detail else "")

    def __str__(self) -> str:
        return escape_controls(f"{self.kind} {self.name}: {self.why}")


@dataclass(frozen=True, slots=True)
class Lease:
    """The mark on the cluster of the bridge in control. Users cannot write or remove it."""

    bridge: str
    """Name of the bridge; each state directory has its own."""
    run: str
    """Name of the bridge's process."""
    beat: int
    """Counter that increases while the process is in control. A lease that does not change belongs to a dead bridge."""
    where: str
    """Host and state directory, for people."""

    @property
    def owner(self) -> tuple[str, str]:
        """The bridge and process that hold the lease."""
        return self.bridge, self.run


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One consistent reading of a cluster.

    - `free`: int64[N, R], never negative: capacity minus running jobs (modelled or not). Rows of nodes that are
      drained, down, not responding or reserved are 0.
    - `pending`: in order of arrival.
    - `running`: every running job that could be modelled, including jobs that the bridge did not start.
    - `ended`: jobs that ran and ended since the previous reading of this backend object, by end time. A job may occur
      twice after a reconnect. A job in none of the lists was cancelled before it ran, or forgotten by the cluster.
    - `limits`: the pending jobs under the site's limits; None if the adapter has no limits.
    - `notes`: recorded as events: what could not be read, and what replaces it.
    - `outages`: why and until when nodes take no jobs. Decisions do not use them.
    - `otherwise`: by job id, what the cluster gave to a running job if it differs from the request.
    - `claim`: the lease on the cluster.
    - `labels`: names that users see for running and ended jobs, if they differ from the ids.
    - `busy`: why the controller should be polled less often; empty if there is no reason.
    - `unusable`: the objects that are left out because a field is unusable.
    - `cluster_name`: the cluster's name for itself; empty if it has none.
    """

    now_s: int
    cluster: Cluster
    free: IntArray
    pending: tuple[PendingJob, ...] = ()
    running: tuple[RunningJob, ...] = ()
    ended: tuple[EndedJob, ...] = ()
    left: tuple[UnmanagedJob, ...] = ()
    limits: QueueLimitStatus | None = None
    notes: tuple[str, ...] = ()
    outages: tuple[Outage, ...] = ()
    otherwise: Mapping[int, str] = field(default_factory=dict)
    claim: Lease | None = None
    labels: Mapping[int, str] = field(default_factory=dict)
    busy: str = ""
    unusable: tuple[UnusableObject, ...] = ()
    cluster_name: str = ""

    def job_names(self) -> dict[int, str]:
        """Return the names of jobs that users know by a name other than the id."""
        return {**self.labels, **{each.job.id: each.label for each in self.pending if each.label}}


@dataclass(frozen=True, slots=True)
class StartOrder:
    """Start `job` now on `nodes`: (node name, units), each node once. Names, because indices may have changed."""

    job: Job
    nodes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DeferredStart:
    """A start that the cluster would not carry out as decided if it were sent now. The job is valid."""

    job_id: int
    why: str


@dataclass(frozen=True, slots=True)
class QueueRank:
    """The rank of one entry of the cluster's pending list under the cluster's own scheduler."""

    id: int
    """Id of the entry in commands. Pending tasks of one array share an entry."""
    jobs: tuple[int, ...]
    """The `PendingJob` ids of the entry."""
    own: int
    """Priority that the cluster computes without the boost; below 1 where the cluster shows 1."""
    points: int
    """Boost that was added, by any actor."""
    tier: int = 0
    """An entry in a higher tier precedes all entries of lower tiers."""
    label: str = ""
    """The name that users see."""
    fixed: bool = False
    """A fixed priority: boosts have no effect."""
    hidden: bool = False
    """The cluster does not show the boost, for example of a held job; `own` and `points` are 0."""
    kin: int = 0
    """Another id from which this entry may have its boost: the array that the task was split off from."""


@dataclass(frozen=True, slots=True)
class PriorityBoost:
    """Set the boost of entry `id` if it is one of `instead_of` or 0 now.

    An entry whose boost is hidden can only be set to 0.
    """

    id: int
    points: int
    instead_of: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one job's command.

    `done`: the cluster accepted it. `refused`: it had no effect (job gone, not pending, not held, running, refused).
    `unknown`: no answer; it may have taken effect.
    """

    job_id: int
    result: Result
    detail: str = ""
    """Text for people; never compared."""
    code: OutcomeCode = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A requirement of control mode, and how to meet it."""

    name: str
    ok: bool
    detail: str
    mend: str = ""
    required: bool = True
    """False: a warning that does not prevent control mode."""
    may_come: bool = False
    """True: the check may pass later without a change of configuration, for example when a service is back."""
    mode: Literal["", "advise", "control"] = ""
    """The only mode that it concerns; empty: every mode that writes to the cluster."""


UNKNOWN_NODES = "nodes that take no jobs now, or have another name"
"""Shown for a running job whose placement names no node: placements list only nodes that become free after it."""
RELEASE_POINTLESS = "cannot be released, and is retried"
"""Shown for a job that the bridge cannot release to the cluster's own scheduler because that cannot start it."""


class Backend(Protocol):
    """A cluster that the bridge schedules.

    The three commands take batches and return one outcome per job, in the given order. They are idempotent. They
    raise `BackendUnavailable` or `CommandRefused` only if no job of the batch was touched, and `BackendTimeout` if all
    of them may have been. In all other cases they return `unknown` for the jobs in doubt.

    `adapters/mock/mock_backend.py` is a complete example with minimal attributes.
    """

    @property
    def child_starts(self) -> int:
        """Number of child processes started so far to reach the cluster, for the metrics; 0 if none are needed."""
        ...

    @property
    def history_missing(self) -> bool:
        """Whether `history` was incomplete because its source did not answer."""
        ...

    @property
    def transport_info(self) -> str:
        """The transport in use and the reason; empty until known, or if there is only one."""
        ...

    @property
    def starts_in_one_change(self) -> bool:
        """Whether a start pins and releases its job in one change.

        If not, a bridge that dies during a start may leave the job held and pinned.
        """
        ...

    def not_ready_reason(self) -> str | None:
        """Return what must finish before the cluster can be called, or None if it can be. Never wait."""
        ...

    def observe(self, pinned: Collection[int] = ()) -> Observation:
        """Read the cluster. `pinned`: jobs whose node list the bridge set, according to the ledger."""
        ...

    def history(self) -> Sequence[EndedJob]:
        """Return jobs that ran and ended before, oldest first, as far as the cluster remembers.

        Called before the first `observe`. It trains the predictor and shows which jobs of the ledger ended while no
        bridge ran. Later ends come with observations. If its source does not answer, the backend returns what it can
        and sets `history_missing`; the bridge calls again later.
        """
        ...

    def resolve_layout(self, orders: Sequence[StartOrder]) -> Sequence[StartOrder | DeferredStart]:
        """Return the layout that the cluster would give these starts, in order, before they are recorded and sent.

        Where the cluster takes the nodes of a job and splits its units itself, the order is returned with the units
        that the cluster would place, on the same nodes or a subset. It fits together with all others of the round. No
        command is sent.
        """
        ...

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        """Begin a start: pin the nodes and release; see `starts_in_one_change`.

        Immediately before, check that each job is still pending and held, and return `refused` if not: pinning a
        running job would resize it. `done` means released, not running: the loop confirms by observing, and calls
        `hold` for a job that does not run in time.
        """
        ...

    def hold(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """Hold pending jobs and clear the bridge's pin: to adopt a job, to undo a start, after a requeue.

        A job that runs by now is not touched and `refused`. A user's hold never becomes the bridge's. A job without a
        pin that an administrator held since it was read is `refused`, too, where the cluster shows it.
        """
        ...

    def release(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """Clear pins and release to the cluster's own scheduler. Works without `observe` having run."""
        ...

    def unpin(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """Clear pins of pending jobs that other actors hold, and keep their holds.

        A job that is not held is `refused`: it might start while its pin is half cleared.
        """
        ...

    def acquire_lease(self, claim: Lease, instead_of: Lease | None) -> bool:
        """Replace the lease `instead_of` on the cluster by `claim`; None: only if there is no lease.

        Return False, without a change, if another lease is there. Raise `CommandRefused` if the cluster has no place
        for a lease or does not permit the bridge to write one.
        """
        ...

    def release_lease(self, claim: Lease) -> None:
        """Remove `claim` from the cluster, unless another lease is there. Raise as `acquire_lease` does."""
        ...

    def checks(self) -> Sequence[Check]:
        """Check the requirements of control mode: privilege, configuration, versions, clocks, plugin."""
        ...

    def close(self) -> None:
        """Close connections and end child processes. The jobs do not change."""
        ...


@runtime_checkable
class SupportsBoost(Protocol):
    """A backend whose scheduler starts the jobs in an order that boosts can change. Raises as `Backend` does.

    A boost changes the priority of a pending job. It neither holds nor starts a job.
    """

    scheduler_interval_s: float = 60.0
    """Seconds between two passes of that scheduler over its whole queue, by default."""

    def ranks(self) -> Sequence[QueueRank]:
        """Return the cluster's ranking of the pending entries, in any order. Called after `observe`."""
        ...

    def set_boosts(self, advice: Sequence[PriorityBoost]) -> Sequence[Outcome]:
        """Change boosts, in the given order. `refused`: the job is gone, runs, or has another actor's boost."""
        ...


@runtime_checkable
class QueueGate(Protocol):
    """A backend that can close whole queues to the cluster's own scheduler, so that future jobs are held, too."""

    def open_queues(self) -> Sequence[str]:
        """Let the cluster's own scheduler start all jobs. Return one line per obstacle.

        Called repeatedly while the bridge is not in control. Raises as `Backend` does.
        """
        ...


class LoopClock(Protocol):
    """The loop's clock: measures its time and waits between cycles."""

    def monotonic_s(self) -> float:
        """Return seconds of a clock that never goes back."""
        ...

    def unix_s(self) -> float:
        """Return the wall-clock time, for people and for Prometheus."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether the loop ends after this cycle."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`, less if woken. Return False if the loop is to end."""
        ...
