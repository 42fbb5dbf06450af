"""The bridge's interface to a cluster: observe, start, hold, release and check.

The Slurm, PBS and simulated-cluster adapters implement these ports, and the loop uses nothing else. All values are
plain data that can be pickled and, except for arrays, compared by value. Times are in seconds on the cluster's clock.

Rules for every backend:

- A call returns or raises a `BackendError` within the backend's deadline. It never hangs.
- Decisions depend on a job's state, never on the text of a reason. `observe` shows the effect of a command.
- A job id fits into int64 and identifies the same job in every list from the first observation until the job ends. Each
  array task has its own id; `label` is the id as shown to users.
- A job whose owner chose its nodes is an `UnmanagedJob`, because pinning the job and clearing the pin would discard
  that choice. A list of nodes to avoid is represented as a node set of the cluster.
- All calls come from one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np

from cpsched.errors import escape_controls, require
from cpsched.kernels.fragmentation import stranded_by_node
from cpsched.model import (
    Cluster,
    EndedJob,
    IntArray,
    Job,
    PendingCode,
    PendingReason,
    Placement,
    RunningJob,
    TypicalRequests,
    to_pending_reason,
)
from cpsched.model.typical_requests import MILLION
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched_bridge.backoff_groups import BackoffGroupKey

Result = Literal["done", "refused", "unknown"]
OutcomeCode = Literal["", "not_sent", "held_by_administrator"]
"""Machine-readable reason why a command was refused; `Outcome.detail` is the human-readable text.

- `not_sent`: the command was not sent, for reasons unrelated to the job: an earlier command got no answer, or other
  jobs have occupied the capacity since the decision.
- `held_by_administrator`: an administrator held the job after the bridge read its state.
"""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features that an adapter supports with its options; by default, none.

    Raises `InvalidValue` if a value has the wrong type or is out of range.
    """

    priorities: bool = False
    """Jobs have the site's `tier` and `priority`. Dispatchers respect both unless the settings say otherwise."""
    limits: bool = False
    """Observations include the site's `limits`, which every decision respects."""
    decision_limit_s: float | None = None
    """Default time limit per decision in seconds, for dispatchers that have one; None means no limit."""
    boosts: bool = False
    """The backend implements `SupportsBoost`, which advise mode requires."""
    preemption: bool = False
    """The backend implements `SupportsPreemption`, which `preemption.choose` requires."""

    def __post_init__(self) -> None:
        for name in ("priorities", "limits", "boosts", "preemption"):
            require(isinstance(getattr(self, name), bool), name, getattr(self, name), "must be true or false")
        known = self.decision_limit_s is None or (
            type(self.decision_limit_s) in (int, float) and 0 < self.decision_limit_s < float("inf")
        )
        require(known, "decision_limit_s", self.decision_limit_s, "must be a positive number of seconds, or None")


class Hold(StrEnum):
    """The actor that holds a pending job."""

    NONE = "none"
    """The job is not held: the cluster's scheduler may start it at any time. The bridge may adopt it by holding it."""
    PLUGIN = "plugin"
    """Held by the submit plugin, which marked the job for the bridge. Managed even without an entry in the ledger."""
    ADMIN = "admin"
    """Held by an administrator or by the bridge itself. Managed only if the ledger records the bridge's hold."""
    USER = "user"
    """Held by the owner, an administrator or the cluster (see `PendingJob.holder`). The bridge never touches it."""
    CLUSTER = "cluster"
    """Held by the cluster for its `PendingJob.cluster_reason`, such as a request that cannot run.

    The bridge never touches it.
    """


class Holder(StrEnum):
    """The actor that holds a job whose hold is `Hold.USER`."""

    OWNER = "its owner"
    ADMINISTRATOR = "an administrator"
    """An administrator or operator. Even if the owner also holds the job, an administrator must release it."""
    CLUSTER = "the cluster"
    """The cluster holds the job until a condition ends; `Job.ineligible` names the condition."""


@dataclass(frozen=True, slots=True)
class ClusterReason:
    """The cluster's reason for a wait that concerns a job or its group, not nodes.

    A start that fails for this reason does not count as a failure of the bridge.
    """

    reason: str
    """The cluster's name for the reason, for example "AssocMaxJobsLimit"."""
    scope: BackoffGroupKey
    """The group of jobs to which the reason applies; one of the job's `PendingJob.groups`."""
    transient: bool = False
    """Whether a released job may show this reason briefly and still start."""
    clears_on_end: bool = True
    """Whether the reason may clear when a job in the group ends, as with a limit on running jobs."""


@dataclass(frozen=True, slots=True)
class StartSettings:
    """What a start changes in its job besides the node list, and what undoes it. The default changes nothing."""

    sets_node_count: bool = False
    """Whether the start sets the number of nodes."""
    max_nodes: int | None = None
    """Maximum of the node range that the start sets, if it exceeds the number of nodes."""
    tasks_per_node: int = 0
    """Number of tasks on each node, or 0 to leave it unchanged."""
    cpus_per_node: int = 0
    """Minimum number of CPUs per node, or 0 to leave it unchanged."""
    cpus: int = 0
    """The job's CPUs, which a change of `cpus_per_node` would otherwise alter."""
    partition: str = ""
    """The partition of the start if the job names several, or empty."""
    nice: int | None = None
    """The nice value of the start, or None to leave it unchanged."""
    restore: str = ""
    """The backend's text that restores everything changed by these settings, or empty."""


NO_SETTINGS = StartSettings()


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A fully modelled pending job.

    The bridge schedules managed jobs and adopts jobs that are not held. `job.ineligible` states why the job may not
    start even if released (dependency, begin time, limits). `pinned` means that the job still has a node list set by
    the bridge (see `Backend.observe`).
    """

    job: Job
    hold: Hold
    pinned: bool = False
    label: str = ""
    cluster_reason: ClusterReason | None = None
    groups: tuple[BackoffGroupKey, ...] = ()
    """Groups of this job that the cluster may block, such as the job itself or its user in an account or partition."""
    lower_priority: bool = False
    """Whether the cluster starts other jobs first. Such a delay of a start does not indicate a broken cluster."""
    refused: str = ""
    """The cluster's reason for not starting the job on the requested nodes, or empty if it gives none."""
    release_is_pointless: bool = False
    """Whether releasing the held job would not help, because the cluster's scheduler cannot start it."""
    holder: Holder = Holder.OWNER
    """The actor that holds the job if `hold` is `Hold.USER`."""
    may_preempt: bool = False
    """Whether the cluster may preempt running jobs for this job. The bridge does not adopt such a job."""
    awaits_hold: bool = False
    """Whether the submit plugin delays a job that is not held, until the bridge holds or releases it."""
    start_settings: StartSettings = NO_SETTINGS
    """What a start of the job must set besides its nodes."""

    @property
    def waits_for_bridge(self) -> bool:
        """Whether the submit plugin holds or delays the job."""
        return self.hold is Hold.PLUGIN or self.awaits_hold

    @property
    def holder_reason(self) -> PendingReason:
        """Why a job with `Hold.USER` is held: the cluster's condition, or the holder."""
        until = self.job.ineligible if self.holder is Holder.CLUSTER else None
        return until or PendingReason(PendingCode.HELD_BY, (self.holder.value,))


MAX_PENDING_TASKS = 500
"""Maximum number of pending tasks per job array in an observation. Further tasks appear as these start."""


@dataclass(frozen=True, slots=True)
class UnmanagedJob:
    """A pending job that only the cluster's own scheduler manages, with the reason.

    The bridge never holds or starts it. A `reason` given as text becomes a reason with the code `other`.

    `held_for_bridge`: the submit plugin holds or delays the job although the bridge cannot model it. `pinned`: the job
    is not held but has a node list set by the bridge. In both cases, the bridge releases the job.
    """

    job_id: int
    reason: PendingReason
    label: str = ""
    user: str = ""
    held_for_bridge: bool = False
    pinned: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", to_pending_reason(self.reason))


@dataclass(frozen=True, slots=True)
class Outage:
    """A current or future period in which some nodes accept no jobs, for display."""

    kind: Literal["reserved", "drained", "down"]
    name: str
    """The cluster's name for the outage: the reservation's name or the nodes' state."""
    nodes: tuple[int, ...]
    from_s: int
    to_s: int | None
    """End of the outage, or None if unknown."""


ObjectKind = Literal["node", "partition", "reservation", "job", "association", "qos"]
OBJECT_KINDS: tuple[ObjectKind, ...] = get_args(ObjectKind)


@dataclass(frozen=True, slots=True)
class UnusableObject:
    """A cluster object that the bridge excludes because one of its fields is unusable.

    The bridge starts no jobs on an unusable node or on the nodes of an unusable reservation. Jobs that use any other
    unusable object are unmanaged.
    """

    kind: ObjectKind
    name: str
    field: str
    reason: Literal["unreadable", "unknown"]
    """`unreadable`: the field cannot be read. `unknown`: this version has no rule for the field or its value."""
    detail: str = ""
    """The field's value, or the error raised while reading it."""

    @property
    def why(self) -> str:
        """A description of the problem that does not name the object."""
        if self.reason == "unknown":
            return f"{self.field}={self.detail}: this version has no rule for it"
        return f"{self.field} cannot be read" + (f": {self.detail}" if self.detail else "")

    def __str__(self) -> str:
        return escape_controls(f"{self.kind} {self.name}: {self.why}")


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease stored on the cluster by the bridge in control. Users cannot change it."""

    bridge: str
    """Name of the bridge, unique to its state directory."""
    run: str
    """Name of the bridge process."""
    beat: int
    """Counter that increases while the process is in control. A lease that stops changing belongs to a dead bridge."""
    where: str
    """Host and state directory, for display."""
    epoch: int = 0
    """Number that increases with each takeover. The bridge's changes carry it; see `Backend.epoch`."""
    standby: str = ""
    """Name of the bridge that may take over soon after the owner's last message, or empty. See `leader_election`."""

    @property
    def owner(self) -> tuple[str, str]:
        """The names of the bridge and the process that hold the lease."""
        return self.bridge, self.run


VictimMode = Literal["requeue", "cancel"]
"""Action on a job that is stopped for another job's start."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A running job to stop for another job, in the run that began at `start_s`."""

    job_id: int
    start_s: int
    mode: VictimMode
    partition: str = ""
    qos: str = ""
    """The partition and QOS of the run, which the backend adds to check that the cluster may still preempt the job."""


@dataclass(frozen=True, slots=True)
class PreemptionUnderWay:
    """A preemption under way: job, nodes as in `StartOrder`, and all victims."""

    job_id: int
    nodes: tuple[tuple[str, int], ...]
    victims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True)
class PreemptionOptions:
    """Options for the preemption offers in observations.

    - `under_way`: the preemptions that the bridge carries out, by job id. Their capacity is withheld from other jobs.
    - `spared`: running jobs that the bridge does not stop.
    """

    under_way: Mapping[int, PreemptionUnderWay] = field(default_factory=dict)
    spared: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionOffer:
    """A start that stopping running jobs can make possible, or one that is under way.

    - `victims`: the jobs to stop. For a start under way, these are the victims that still run.
    - `free`: int64[N, R], amounts that neither running jobs nor earlier starts need. They may be negative.
    """

    pending: PendingJob
    placement: Placement
    victims: tuple[Victim, ...]
    free: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """A consistent snapshot of the cluster's state.

    - `free`: int64[N, R], never negative: capacity minus the use of all running jobs, modelled or not. Rows are 0 for
      nodes that are drained, down, not responding or reserved.
    - `pending`: pending jobs in order of arrival.
    - `running`: every running job that could be modelled, including jobs that the bridge did not start.
    - `ended`: jobs that ran and have ended since this backend object's previous observation, sorted by end time. After
      a reconnect, a job may be reported twice. A job that is in none of the lists was cancelled before it ran, or the
      cluster purged it.
    - `limits`: the status of the pending jobs under the site's limits, or None if the adapter does not support limits.
    - `notes`: texts, recorded as events, that state which data could not be read and what the adapter used instead.
    - `outages`: why, and until when, nodes accept no jobs. Decisions do not use this field.
    - `otherwise`: the resources allocated to running jobs where they differ from the request, by job id.
    - `lease`: the lease stored on the cluster.
    - `labels`: the labels of running and ended jobs as shown to users, where they differ from the id.
    - `busy`: the reason to poll the controller less often, or empty if there is none.
    - `unusable`: the objects that are excluded because one of their fields is unusable.
    - `cluster_name`: the name that the cluster reports for itself, or empty if it has none.
    - `preemptors`: the group whose jobs may preempt a running job, such as `QOS high`, by job id.
    - `checkpoints`: the time of the last checkpoint of each running job that may be preempted, by job id.
    - `preemptions`: the offers that `SupportsPreemption` makes. A new one is for a job in `unmanaged`. Its capacity is
      already subtracted from `free`.
    - `kill_wait_s`: the time in seconds that a stopped job has to end.
    - `typical`: the typical requests for GPUs of recently ended jobs, which the bridge adds, or None if there are none.
    """

    now_s: int
    cluster: Cluster
    free: IntArray
    pending: tuple[PendingJob, ...] = ()
    running: tuple[RunningJob, ...] = ()
    ended: tuple[EndedJob, ...] = ()
    unmanaged: tuple[UnmanagedJob, ...] = ()
    limits: PendingJobLimitsAndUsage | None = None
    notes: tuple[str, ...] = ()
    outages: tuple[Outage, ...] = ()
    otherwise: Mapping[int, str] = field(default_factory=dict)
    lease: Lease | None = None
    labels: Mapping[int, str] = field(default_factory=dict)
    busy: str = ""
    unusable: tuple[UnusableObject, ...] = ()
    cluster_name: str = ""
    preemptors: Mapping[int, str] = field(default_factory=dict)
    checkpoints: Mapping[int, int] = field(default_factory=dict)
    preemptions: tuple[PreemptionOffer, ...] = ()
    kill_wait_s: int = 30
    typical: TypicalRequests | None = None

    @property
    def stranded_gpus(self) -> float | None:
        """Return the expected number of idle GPUs that the next typical request cannot use, or None if unknown."""
        if self.typical is None:
            return None
        return float(stranded_by_node(self.typical, np.ascontiguousarray(self.free)).sum()) / MILLION

    def map_labels_by_job_id(self) -> dict[int, str]:
        """Return the labels shown to users, by job id, where they differ from the id."""
        return {**self.labels, **{each.job.id: each.label for each in self.pending if each.label}}

    def list_pinned_job_ids(self) -> frozenset[int]:
        """Return the ids of the pending jobs that have a node list set by the bridge."""
        pinned = (each.job.id for each in self.pending if each.pinned)
        return frozenset([*pinned, *(each.job_id for each in self.unmanaged if each.pinned)])


@dataclass(frozen=True, slots=True)
class UndoOrder:
    """An order to hold, release or unpin a job. It also undoes what the job's last start changed."""

    job_id: int
    pinned: bool = False
    """Whether the bridge may have set the job's node list, which the order then clears."""
    restore: str = ""
    """The `StartSettings.restore` of the job's last start."""


@dataclass(frozen=True, slots=True)
class StartOrder:
    """An order to start `job` now on `nodes`: (node name, units), each node once.

    Nodes are given by name because their indices may have changed. The ledger records the nodes and what restores the
    job, so that the `UndoOrder` of a failed start needs no other source, even after a crash.
    """

    job: Job
    nodes: tuple[tuple[str, int], ...]
    settings: StartSettings = NO_SETTINGS

    @property
    def job_id(self) -> int:
        """The job's id."""
        return self.job.id


@dataclass(frozen=True, slots=True)
class QueueRank:
    """The rank of one entry in the pending list of the cluster's own scheduler."""

    id: int
    """Id that commands use for the entry. The pending tasks of a job array share one entry."""
    jobs: tuple[int, ...]
    """Ids of the `PendingJob`s that the entry contains."""
    own: int
    """Priority without the boost, as the cluster computes it. It may be below 1, which the cluster displays as 1."""
    points: int
    """Boost, whichever actor set it."""
    tier: int = 0
    """Priority tier. An entry in a higher tier precedes all entries in lower tiers."""
    label: str = ""
    """Label shown to users."""
    fixed: bool = False
    """Whether the priority is fixed, so that boosts have no effect."""
    hidden: bool = False
    """Whether the cluster hides the boost, for example for a held job. `own` and `points` are then 0."""
    array_id: int = 0
    """Id of the array from which this task was split off and may have inherited its boost."""


@dataclass(frozen=True, slots=True)
class BoostCommand:
    """An order to set entry `id`'s boost if it is now 0 or in `expected_points`.

    A hidden boost can only be set to 0.
    """

    id: int
    points: int
    expected_points: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command for one job.

    `done`: the cluster accepted the command. `refused`: the command had no effect because the job is gone, running, not
    pending or not held, or because the cluster refused it. `unknown`: the cluster did not answer, and the command may
    have taken effect.
    """

    job_id: int
    result: Result
    detail: str = ""
    """Human-readable explanation; code never compares it."""
    code: OutcomeCode = ""

    @classmethod
    def not_sent(cls, job_id: int, why: str) -> Outcome:
        """Return the outcome of a command that is not sent, for a reason unrelated to the job."""
        return cls(job_id, "refused", why, "not_sent")

    @property
    def was_sent(self) -> bool:
        """Whether the command was sent. A command that was not sent may succeed later."""
        return self.code != "not_sent"

    @property
    def is_refusal(self) -> bool:
        """Whether the command was sent and had no effect."""
        return self.was_sent and self.result == "refused"

    @property
    def is_answered(self) -> bool:
        """Whether the command was sent, and it is known whether it had an effect."""
        return self.was_sent and self.result != "unknown"


@dataclass(frozen=True, slots=True)
class ReadinessCheck:
    """The result of checking a requirement of control mode, with a fix if it fails."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    required: bool = True
    """Whether a failed check prevents control mode; if False, it is only a warning."""
    may_pass_later: bool = False
    """Whether the check may pass later without a configuration change, for example once a service is back."""
    mode: Literal["", "advise", "control"] = ""
    """The only mode that the check applies to, or empty for every mode that writes to the cluster."""


FENCED_EPOCH = 1
"""`Backend.epoch` of a bridge that does not lead, smaller than that of any leader."""
UNLIMITED_WALLTIME_S = 365 * 86400 + 1
"""Walltime in seconds of a job without a time limit. No limit in whole minutes is equal to it."""
UNKNOWN_NODES = "nodes that currently accept no jobs or were renamed"
"""Text for a running job whose placement has no nodes. Placements list only nodes that the job will free."""
CANNOT_BE_RELEASED = "cannot be released; the start is retried"
"""Text for a job that the bridge cannot release because the cluster's own scheduler cannot start it."""


class Backend(Protocol):
    """A cluster whose jobs the bridge schedules.

    The commands take batches and return one outcome per job, in the given order. They are idempotent. They raise
    `BackendUnavailable` or `CommandRefused` only if no job in the batch was changed, and `BackendTimeout` if every job
    may have been changed. In all other cases, they return `unknown` for each job whose outcome is uncertain.

    `adapters/mock/mock_backend.py` is a complete, minimal example.
    """

    epoch: int = 0
    """The epoch that changes of jobs carry, or 0 if they carry none.

    A cluster that supports it refuses a change with a smaller epoch than an earlier change.
    """

    @property
    def child_starts(self) -> int:
        """Number of child processes started so far to access the cluster, by default none."""
        return 0

    @property
    def history_missing(self) -> bool:
        """Whether `read_history` was last incomplete because its source did not answer; by default, it is not."""
        return False

    @property
    def transport_info(self) -> str:
        """The transport in use and why, or empty, the default, if there is only one."""
        return ""

    @property
    def starts_in_one_change(self) -> bool:
        """Whether a start pins and releases the job in a single change, which is the default.

        If not, a bridge that dies during a start may leave the job held and pinned.
        """
        return True

    def not_ready_reason(self) -> str | None:
        """Return the start-up step that the backend is running, or None. Never block."""
        return None

    def observe(self, pinned: Collection[int] = ()) -> Observation:
        """Return the cluster's current state.

        `pinned`: the ids of the jobs that the bridge may have pinned, as recorded in the ledger.
        """
        ...

    def read_history(self) -> Sequence[EndedJob]:
        """Return jobs that ended before the first observation, oldest first, if recorded.

        Only jobs that ran are included. The bridge calls this method before the first `observe`. The result trains the
        predictor and shows which jobs in the ledger ended while no bridge was running. Observations report later ends.
        If the source does not answer, the backend returns the jobs that it can read and sets `history_missing`, and the
        bridge calls again later.
        """
        ...

    def resolve_layout(
        self, orders: Sequence[StartOrder], under_way: Sequence[StartOrder] = ()
    ) -> Sequence[StartOrder | Outcome]:
        """Return the starts, in order, as the cluster will execute them: by default, as ordered. Send no command.

        The bridge calls this method before it records and sends the starts. Some clusters accept only a node list and
        distribute the units themselves. The returned order then contains the units as the cluster would place them, on
        the same nodes or a subset. All orders in a round fit at the same time. A start that the cluster would not
        execute as decided if sent now becomes a `not_sent` outcome. `under_way` are the starts that were sent before
        and had not taken effect at the last observation.
        """
        return orders

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        """Pin each job to its nodes, release it, and return the outcomes.

        Check immediately beforehand that each job is still pending and held, and return `refused` if not: pinning a
        running job would resize it. `done` means that the job was released, not that it runs. The loop confirms the
        start by observation and calls `hold` for a job that does not run in time.
        """
        ...

    def hold(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        """Hold pending jobs, clear the bridge's pins, and return the outcomes.

        The bridge uses this command to adopt a job, to undo a start, and after a requeue. A job that is already running
        is not changed, and its outcome is `refused`. A user's hold never becomes the bridge's hold. If the cluster
        shows which actor holds a job, an unpinned job that an administrator has held since the last observation is also
        `refused`.
        """
        ...

    def release(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        """Clear the jobs' pins, release the jobs to the cluster, and return the outcomes.

        The command works even if `observe` was never called.
        """
        ...

    def unpin(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        """Clear the pins of jobs that other actors hold, and return the outcomes.

        The holds stay. A job that is not held is `refused`, because it might start while its pin is only partly
        cleared.
        """
        ...

    def acquire_lease(self, lease: Lease, expected: Lease | None) -> bool:
        """Replace the lease `expected` with `lease`, and return whether that succeeded.

        If `expected` is None, write `lease` only if there is no lease. Change nothing if the cluster has any other
        lease. Raise `CommandRefused` if the cluster cannot store a lease or does not permit the bridge to write one.

        Unlike the other methods, it may be called by another thread during a call.
        """
        ...

    def run_checks(self) -> Sequence[ReadinessCheck]:
        """Check control mode's requirements, such as privileges, versions and clocks."""
        ...

    def close(self) -> None:
        """Close connections and terminate child processes. Jobs are not affected."""
        return


@runtime_checkable
class SupportsBoost(Protocol):
    """A backend whose scheduler starts jobs in an order that boosts can change.

    A boost changes the priority of a pending job. It neither holds nor starts a job. Methods raise the same errors as
    `Backend`.
    """

    scheduler_interval_s: float = 60.0
    """Default time in seconds between two passes of that scheduler over its whole queue."""

    def read_ranks(self) -> Sequence[QueueRank]:
        """Return the rank of each pending entry, in any order. Called after `observe`."""
        ...

    def set_boosts(self, commands: Sequence[BoostCommand]) -> Sequence[Outcome]:
        """Change boosts in the given order and return the outcomes.

        `refused` means that the job is gone, is running, or has another actor's boost.
        """
        ...


@runtime_checkable
class SupportsPreemption(Protocol):
    """A backend that can stop running jobs for a job that may preempt them."""

    preemption_options: PreemptionOptions | None = None
    """Options for the next observations; None means that the bridge does not choose victims."""

    def preempt(self, victims: Sequence[Victim]) -> Sequence[Outcome]:
        """Requeue or cancel each victim and return the outcomes.

        Immediately beforehand, check that the job is still in the run that started at `start_s`, and that the cluster
        may still preempt it. If not, return `refused`. Raise the same errors as `Backend`.
        """
        ...


@runtime_checkable
class SupportsAccountingChecks(Protocol):
    """A backend that can check past jobs in accounting records against its rules."""

    def accounting_checks(self, days: float) -> Sequence[ReadinessCheck]:
        """Check what share of recent jobs would have been unmanaged, by reason.

        Consider the jobs from the last `days` days. Raise the same errors as `Backend`.
        """
        ...


@runtime_checkable
class QueueGate(Protocol):
    """A backend that can close queues to the cluster's own scheduler.

    Closing a queue also holds future jobs.
    """

    def reopen_queues(self) -> Sequence[str]:
        """Open all queues to the cluster's own scheduler. Return one line per problem.

        The bridge calls this method repeatedly while it is not in control. Raise the same errors as `Backend`.
        """
        ...
