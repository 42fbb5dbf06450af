"""What the bridge asks of a cluster: read it as one value, start, hold and hand back jobs, check its set-up.

Three backends stand behind these ports: Slurm, PBS and the simulated cluster. The loop knows the ports only. All
values are plain data (pickle and compare by value, arrays apart); times are seconds of the cluster's own clock.

What every backend keeps to:

- A call returns, or raises a `BackendError`, within the backend's own deadline; it never hangs.
- State decides, never a reason text. What a command did is known when `observe` shows it.
- A job id names one job in every list, from first sight until it has ended, and fits into int64. (Array
  tasks get ids of their own; `label` keeps the name that people use.)
- A job whose owner chose its nodes is a `UnmanagedJob`: pinning and clearing would lose that choice. A list of nodes to
  avoid is a node set of the cluster.
- Calls come from one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, get_args, runtime_checkable

from cpsched.errors import escape_controls, require
from cpsched.model import Cluster, EndedJob, IntArray, Job, PendingCode, PendingReason, RunningJob, reason_from
from cpsched.site.admission import QueueLimits
from cpsched_bridge.equivalence import BackoffKey

Result = Literal["done", "refused", "unknown"]
OutcomeCode = Literal["", "not_sent", "held_by_administrator"]
"""What the bridge has to know of a refusal, besides its text for people.

- `not_sent`: the command was not sent, through no fault of its job: one before it was not answered, or other jobs have
  taken the room since the decision.
- `held_by_administrator`: `Backend.hold` found that an administrator has held the job since it was read.
"""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an adapter can do with its options, and asks of those who decide; the defaults: nothing.

    Raises `InvalidValue` for values of another kind.
    """

    priorities: bool = False
    """Jobs come with the site's `tier` and `priority`: dispatchers heed them, unless the settings say how they do."""
    limits: bool = False
    """Observations have the site's `limits`, which every decision keeps."""
    decision_limit_s: float | None = None
    """Seconds that a decision may take where the dispatcher knows a limit and the settings set none; None: any."""
    boosts: bool = False
    """The backend is `SupportsBoost`: its scheduler can be told an order, which mode advise needs."""

    def __post_init__(self) -> None:
        for name in ("priorities", "limits", "boosts"):
            require(isinstance(getattr(self, name), bool), name, getattr(self, name), "must be true or false")
        known = self.decision_limit_s is None or (
            type(self.decision_limit_s) in (int, float) and 0 < self.decision_limit_s < float("inf")
        )
        require(known, "decision_limit_s", self.decision_limit_s, "must be a positive number of seconds, or None")


class Hold(StrEnum):
    """Who keeps a pending job from being started by the cluster's own scheduler."""

    NONE = "none"
    """Nobody: the cluster's scheduler may start it at any moment. The bridge may adopt it by a hold."""
    PLUGIN = "plugin"
    """The submit plugin, for us: the job carries its mark. Ours even if the ledger has never seen the job."""
    ADMIN = "admin"
    """An administrator, or the bridge itself: ours if the ledger says that we held it, else not to be touched."""
    USER = "user"
    """Its owner, an administrator or the cluster holds it (`PendingJob.holder`): the bridge never touches it."""
    CLUSTER = "cluster"
    """The cluster itself, since the job cannot run as it asks (`PendingJob.obstacle` says why): not ours to mend."""


class Holder(StrEnum):
    """Who holds a job whose hold is `Hold.USER`."""

    OWNER = "its owner"
    ADMINISTRATOR = "an administrator"
    """Or an operator. If the owner holds the job too, it still takes an administrator to release it."""
    CLUSTER = "the cluster"
    """Until something passes: `Job.ineligible` says what."""


@dataclass(frozen=True, slots=True)
class ClusterReason:
    """The cluster's own reason why a job waits, where that lies with the job or its like and not with its nodes.

    A start that ends so is no failure of the bridge.
    """

    reason: str
    """In the cluster's word, such as "AssocMaxJobsLimit"."""
    scope: BackoffKey
    """Whom it concerns: one of the job's `PendingJob.groups`."""
    transient: bool = False
    """Whether a job just released may show it for a moment, and run nonetheless."""
    clears_on_end: bool = True
    """Whether each end of one of their jobs may ease it, as with a limit on what runs at once."""


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A pending job that the project models completely: decided on if it is ours, adopted if nobody holds it.

    `job.ineligible` says why it may not start even if released (dependency, begin time, limits). `pinned` tells
    that a node list set by the bridge is still on it (see `Backend.observe`).
    """

    job: Job
    hold: Hold
    pinned: bool = False
    label: str = ""
    obstacle: ClusterReason | None = None
    groups: tuple[BackoffKey, ...] = ()
    """What the cluster may keep the job waiting for: itself, and what its user has in an account, a partition, ..."""
    lower_priority: bool = False
    """The cluster says that other jobs go first: a start that takes long for that is no sign of a broken cluster."""
    refused: str = ""
    """Why the cluster will not start the job on the nodes that it was given, where it says so itself."""
    release_is_pointless: bool = False
    """Held for the bridge by the plugin or its like, and no hand-back would help: nobody else could start the job."""
    holder: Holder = Holder.OWNER
    """Who holds it, where `hold` is `Hold.USER`."""

    @property
    def held_by(self) -> PendingReason:
        """Who holds a job whose hold is `Hold.USER`."""
        until = self.job.ineligible if self.holder is Holder.CLUSTER else None
        return until or PendingReason(PendingCode.HELD_BY, (self.holder.value,))


MOST_TASKS = 500
"""Waiting tasks of one array that a reading shows at a time; the others follow as these start."""


@dataclass(frozen=True, slots=True)
class UnmanagedJob:
    """A pending job that is left to the cluster's own scheduler, with the reason; never held, never started by us.

    A text becomes a reason with the code `other`.

    `held_for_us` marks one that the submit plugin held although it cannot be modelled: the bridge hands it back. So it
    does with one that is `pinned`: nobody holds it, and a node list of the bridge's is on it.
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
    """Nodes that take no jobs for a time, now or later; for people who look at the plan."""

    kind: Literal["reserved", "drained", "down"]
    name: str
    """In the cluster's words: the reservation's name, or the nodes' state."""
    nodes: tuple[int, ...]
    from_s: int
    to_s: int | None
    """None: nobody knows."""


ObjectKind = Literal["node", "partition", "reservation", "job", "association", "qos"]
OBJECT_KINDS: tuple[ObjectKind, ...] = get_args(ObjectKind)


@dataclass(frozen=True, slots=True)
class UnusableObject:
    """One object of the cluster that is left out of the plan, and nothing else with it.

    A node takes no jobs, a reservation closes the nodes that it names, jobs of all other objects are left to the
    cluster's own scheduler.
    """

    kind: ObjectKind
    name: str
    field: str
    reason: Literal["unreadable", "unknown"]
    """The field cannot be read, or this version has no rule for the field or its value."""
    detail: str = ""
    """The value, or what is wrong with it."""

    @property
    def why(self) -> str:
        """The trouble in words, without the object."""
        if self.reason == "unknown":
            return f"{self.field}={self.detail}: this version has no rule for it"
        return f"{self.field} cannot be read" + (f": {self.detail}" if self.detail else "")

    def __str__(self) -> str:
        return escape_controls(f"{self.kind} {self.name}: {self.why}")


@dataclass(frozen=True, slots=True)
class Lease:
    """What the bridge in control leaves on the cluster, so that another one sees it; no user can write or remove it."""

    bridge: str
    """Which bridge: each state directory makes a name of its own."""
    run: str
    """Which process of that bridge."""
    beat: int
    """Goes up as long as that process is in control: a claim that does not change is one of a dead bridge."""
    where: str
    """Host and state directory, for people."""

    @property
    def owner(self) -> tuple[str, str]:
        """The process that made it."""
        return self.bridge, self.run


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One consistent reading of a cluster.

    `free` is int64[N, R], never negative: capacity less what runs (modelled or not) and less nodes that are
    drained, down, not responding or reserved (their rows are 0). `pending` is in arrival order. `running` holds
    every running job that could be modelled, whoever started it. `ended` holds jobs that ran and ended since the
    previous reading of this backend object, in order of their ends; a job may come twice after a reconnect.
    A job that is in none of the lists is gone (cancelled before it ran, or forgotten by the cluster).
    `limits` says how the pending jobs stand to the site's limits; None where the adapter knows of none. `notes` are
    told as events: what could not be read, and what stands in for it. `outages` say why and until when nodes take no
    jobs, and which nodes will take none later; nothing is decided by them. `otherwise` says,
    by job id, what the cluster gave to running jobs where that is not what they had asked for. `claim` is the one that
    a bridge has left. `labels` has the names that people use for running and ended jobs, where those are not their ids.
    `busy` says why the cluster's controller had rather be asked less often; empty where nothing speaks for that.
    `unusable` are the objects that are left out, since a field of them could not be used.
    `cluster_name` is what the cluster calls itself; empty where it has no name.
    """

    now_s: int
    cluster: Cluster
    free: IntArray
    pending: tuple[PendingJob, ...] = ()
    running: tuple[RunningJob, ...] = ()
    ended: tuple[EndedJob, ...] = ()
    left: tuple[UnmanagedJob, ...] = ()
    limits: QueueLimits | None = None
    notes: tuple[str, ...] = ()
    outages: tuple[Outage, ...] = ()
    otherwise: Mapping[int, str] = field(default_factory=dict)
    claim: Lease | None = None
    labels: Mapping[int, str] = field(default_factory=dict)
    busy: str = ""
    unusable: tuple[UnusableObject, ...] = ()
    cluster_name: str = ""

    def names(self) -> dict[int, str]:
        """What people call the jobs that have another name than their id."""
        return {**self.labels, **{each.job.id: each.label for each in self.pending if each.label}}


@dataclass(frozen=True, slots=True)
class StartOrder:
    """Start `job` now on `nodes`: (node name, units there), each node once. Names, since indices may have moved."""

    job: Job
    nodes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DeferredStart:
    """A start that the cluster would not carry out as it is meant to if it were told now; nothing is wrong with it."""

    job_id: int
    why: str


@dataclass(frozen=True, slots=True)
class QueueRank:
    """How one entry of the cluster's list of waiting jobs is ranked by the cluster's own scheduler."""

    id: int
    """By which the cluster is told; of several tasks of an array that wait together, one for all of them."""
    jobs: tuple[int, ...]
    """The `PendingJob` ids that it stands for."""
    own: int
    """The priority that the cluster computes, without points; less than 1 where the cluster shows 1."""
    points: int
    """What somebody has added to it."""
    tier: int = 0
    """Of two entries the one in the higher tier goes first, whatever their priorities."""
    label: str = ""
    """The name that people use."""
    fixed: bool = False
    """Points have no effect: somebody has set the priority as a whole."""
    hidden: bool = False
    """The cluster does not show the points, such as those of a held job; `own` and `points` are 0 then."""
    kin: int = 0
    """Another id from which this one may have its points: that of the array which a task was split off from."""


@dataclass(frozen=True, slots=True)
class PriorityBoost:
    """Let the entry `id` of the cluster's list have so many points, if it has one of `instead_of` now, or 0.

    An entry whose points are hidden is told 0 only.
    """

    id: int
    points: int
    instead_of: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one job's command.

    `done`: the cluster took it. `refused`: it had no effect (gone, not pending, not held, running, refused).
    `unknown`: no answer; it may have taken effect.
    """

    job_id: int
    result: Result
    detail: str = ""
    """For people; never compared."""
    code: OutcomeCode = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold before control mode, and how to mend it."""

    name: str
    ok: bool
    detail: str
    mend: str = ""
    required: bool = True
    """False: a warning that does not keep control mode from starting."""
    may_come: bool = False
    """True: it may hold later without a change of the configuration, such as a service that is away."""
    mode: Literal["", "advise", "control"] = ""
    """The mode that it concerns alone; empty: any that writes to the cluster."""


UNKNOWN_NODES = "nodes that take no jobs now, or have another name"
"""Where a running job runs whose placement names no node: a placement has those that will be free after the job."""
RELEASE_POINTLESS = "cannot be handed back, and is tried again"
"""What is said of a job that the bridge would leave to the cluster's own scheduler if that could start it."""


class Backend(Protocol):
    """A cluster that the bridge stands beside.

    The three commands take whole batches and answer per job, in the order asked; they are idempotent. They
    raise `BackendUnavailable` or `CommandRefused` only if no job of the batch was touched, `BackendTimeout`
    if all of them may have been; in between they answer with `unknown`.

    `adapters/mock/backend.py` is a whole one, and says the least that the attributes may say.
    """

    @property
    def child_starts(self) -> int:
        """Processes that it has started so far to ask the cluster by, for the metrics; 0 where it needs none."""
        ...

    @property
    def history_missing(self) -> bool:
        """Whether `history` told less than there is, since its source did not answer."""
        ...

    @property
    def transport_info(self) -> str:
        """By what the cluster is asked and told, and why by that; empty until known, or where there is one way only."""
        ...

    @property
    def starts_in_one_change(self) -> bool:
        """Whether a job that has the pin of a start has been released with it.

        If not, a bridge that dies in the middle of a start may leave the job held, with its pin.
        """
        ...

    def not_ready_reason(self) -> str | None:
        """What is left to do before the cluster can be asked, in words; None: it can be asked. Never waits."""
        ...

    def observe(self, pinned: Collection[int] = ()) -> Observation:
        """Read the cluster. `pinned`: jobs whose node list is ours by the ledger, so a pin and not the user's wish."""
        ...

    def history(self) -> Sequence[EndedJob]:
        """Jobs that ran and ended before, oldest first, as far as the cluster remembers.

        Called before the first `observe`: it fills the predictor, and tells which jobs of the ledger ended while no
        bridge was there. What ends after it comes with an observation. A backend whose source of the past did not
        answer tells what it can, and `history_missing` is true then: it is called again later.
        """
        ...

    def resolve_layout(self, orders: Sequence[StartOrder]) -> Sequence[StartOrder | DeferredStart]:
        """What the cluster would make of these starts, in order: asked right before they are written down and begun.

        A cluster may be told the nodes of a job, and split its units over them by itself: then the order comes back
        with its units where the cluster would put them, on the same nodes or some of them. It fits beside all others
        of the round. No command is sent.
        """
        ...

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        """Begin a start: pin the nodes and release; see `starts_in_one_change`.

        Immediately before, each job is checked to be still pending and held, and `refused` if not: pinning a
        running job would resize it. `done` means released, not running: the loop confirms by observing, and
        calls `hold` for a job that is not seen running in time.
        """
        ...

    def hold(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """Hold pending jobs and clear a pin of ours: to adopt a job, to roll a start back, after a requeue.

        A job that runs meanwhile is left alone and `refused`. Never turns a user's hold into ours. A job without a pin
        that an administrator has held since it was read is `refused` as well, where that can be told.
        """
        ...

    def release(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """Clear pins and release to the cluster's own scheduler. Works without `observe` having run."""
        ...

    def unpin(self, job_ids: Sequence[int]) -> Sequence[Outcome]:
        """Clear pins of pending jobs that somebody else holds; whoever holds a job goes on holding it.

        A job that nobody holds is `refused`: it might start while its pin is half undone.
        """
        ...

    def acquire_lease(self, claim: Lease, instead_of: Lease | None) -> bool:
        """Leave `claim` on the cluster where `instead_of` stands; None: only where none stands.

        False: something else stands there, or was faster, and nothing was changed. A cluster that has no place for
        a claim, or does not let the bridge write one, raises `CommandRefused`.
        """
        ...

    def release_lease(self, claim: Lease) -> None:
        """Take `claim` off the cluster; nothing happens where another one stands there. Raises as `claim` does."""
        ...

    def checks(self) -> Sequence[Check]:
        """What must hold before control mode: privilege, configuration, versions, clocks, plugin."""
        ...

    def close(self) -> None:
        """Let go of connections and child processes; the jobs stay as they are."""
        ...


@runtime_checkable
class SupportsBoost(Protocol):
    """A backend whose scheduler starts the jobs, in an order that may be changed by points. Raises as `Backend` does.

    Points are numbers on waiting jobs, and nothing else: nobody is held, and nothing starts by them.
    """

    scheduler_interval_s: float = 60.0
    """Seconds between two passes of that scheduler over its whole queue, by its defaults."""

    def ranks(self) -> Sequence[QueueRank]:
        """How the cluster ranks what waits now, in any order; after `observe`."""
        ...

    def set_boosts(self, advice: Sequence[PriorityBoost]) -> Sequence[Outcome]:
        """Change points, in the order given. `refused`: the job is gone, runs, or has points of somebody else's."""
        ...


@runtime_checkable
class QueueGate(Protocol):
    """A backend that keeps whole queues from the cluster's own scheduler, so that jobs yet to come are held, too."""

    def open_queues(self) -> Sequence[str]:
        """Let the cluster's own scheduler start whatever comes; what was in the way of that, a line each.

        Asked again and again while the bridge is not in control. Raises as `Backend` does.
        """
        ...


class LoopClock(Protocol):
    """The loop's clock: how it measures its own time and waits between cycles."""

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def unix_s(self) -> float:
        """Wall-clock time, for people and for Prometheus."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether the loop is to end after this cycle."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait at most so long, less if woken; False: there is nothing left to wait for, the loop ends."""
        ...
