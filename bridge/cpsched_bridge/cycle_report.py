"""Define the report of one cycle for the journal, metrics, log and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from cpsched.formatting import format_count
from cpsched.model import Decision, Effort, EndedJob, Job, PendingReason, Placement, Snapshot
from cpsched_bridge.ports import Lease, Observation, Outcome, ReadinessCheck

Mode = Literal["shadow", "advise", "control", "paused"]
MODES: tuple[Mode, ...] = get_args(Mode)
Phase = Literal["observe", "reconcile", "decide", "verify", "apply", "journal"]
PHASES: tuple[Phase, ...] = get_args(Phase)

OK_RESULT = "ok"
"""Result of a successful cycle. The result of a failed cycle is the name of its failure."""

SETTINGS_EVENT = "settings"
"""Kind of the event with the effective settings."""
STOPPED_EVENT = "stopped"
"""Kind of a bridge's last event. A journal without this event belongs to a bridge that was killed."""


@dataclass(frozen=True, slots=True)
class CycleEvent:
    """A notable event, which the journal records and the metrics count by `kind`."""

    kind: str
    detail: str
    job_id: int | None = None
    times: int = 1
    """Number of identical events that this event represents."""


LATE_INTERVALS = 10.0
"""Number of intervals after which a delayed cycle counts as late. Until then, the previous cycle counts as fresh."""
MAX_EVENTS_PER_KIND = 20
"""Maximum number of events per kind and cycle that are recorded individually."""


def limit_events_per_kind(bridge_events: Sequence[CycleEvent]) -> list[CycleEvent]:
    """Return the first events of each kind, and one event per kind for all others."""
    summary: list[CycleEvent] = []
    beyond = Counter[str]()
    counts = Counter[str]()
    for happening in bridge_events:
        counts[happening.kind] += 1
        if counts[happening.kind] <= MAX_EVENTS_PER_KIND:
            summary.append(happening)
        else:
            beyond[happening.kind] += happening.times
    return summary + [
        CycleEvent(kind, f"and {format_count(times, 'more event')} of this kind", times=times)
        for kind, times in beyond.items()
    ]


class UnscheduledReason(NamedTuple):
    """Why the bridge does not schedule a pending job. `kind` is that of `UnscheduledJob`."""

    kind: str
    reason: PendingReason


@dataclass(frozen=True, slots=True)
class JobsInBackoff:
    """The pending jobs whose starts, or those of their group, have failed.

    - `reasons`: why each job that waits for its next try does not start, by job id. Decisions omit these jobs.
    - `last`: the ids of the jobs that come after all others, because they may be tried or wait for resources.
    """

    reasons: Mapping[int, PendingReason] = field(default_factory=dict)
    last: frozenset[int] = frozenset()


NO_BACKOFF = JobsInBackoff()


@dataclass(frozen=True, slots=True)
class PriorityBoostReport:
    """The cluster's order as last read in advise mode."""

    jobs: int
    """Number of entries in the cluster's queue that advise mode orders."""
    in_order: float
    """Share of pairs of these entries that the cluster ranked in plan order before the last changes."""


@dataclass(frozen=True, slots=True)
class BridgeRole:
    """What the bridge may do in a cycle."""

    mode: Mode
    other_leader: Lease | None = None
    """The lease of another bridge that controls this cluster."""
    paused: str = ""
    """Why the bridge is paused although control or advise mode is configured, or "" if it is not paused."""


@dataclass(frozen=True, slots=True)
class JobChanges:
    """The jobs that started or ended, each reported once."""

    started: Sequence[tuple[Job, int]] = ()
    """Jobs first observed running or ended in this cycle, with their start times in seconds."""
    ended: Sequence[EndedJob] = ()
    past: Sequence[EndedJob] = ()
    """Jobs that ended before the bridge started, as read in this cycle."""


@dataclass(frozen=True, eq=False)
class Decided:
    """The decision of a cycle, or how far it got."""

    snapshot: Snapshot | None = None
    """The input to the decision, with an estimate for every job."""
    decision: Decision | None = None
    """The decision, if it is valid."""
    starts: Mapping[int, Placement] = field(default_factory=dict)
    """The placements to start, by job id, or {} if the decision failed."""
    limited: Mapping[int, str] = field(default_factory=dict)
    """Site limits, with usage, that exclude jobs from the decision, by job id."""
    recorded: Any = None
    """The decision in the journal's format, even if invalid; see `store.round_records.decision_to_json`."""
    memory: Any = None
    """The dispatcher's state just before the decision, as JSON, or None if it exports no state."""
    replayable: bool = True
    """Whether the journal contains everything that the decision depended on."""
    fallback: bool = False
    """Whether the fallback decided instead of the configured policy."""
    policy_failure: str = ""
    """The policy failure's name in snake case if there is a snapshot but no decision."""
    waits_for: str = ""
    """The step that the decision waits for. If set, the cycle made no decision and did not fail."""

    @property
    def effort(self) -> Effort | None:
        """The decision's statistics."""
        return None if self.decision is None else self.decision.effort

    @cached_property
    def waiting(self) -> Sequence[Job]:
        """The jobs for which the decision was made."""
        return () if self.snapshot is None else tuple(self.snapshot.queued_jobs())


@dataclass(frozen=True, slots=True, eq=False)
class CycleReport:
    """The report of one cycle, for the journal, the metrics, the log and the page."""

    number: int
    role: BridgeRole
    at_unix_s: float
    result: str = OK_RESULT
    """`OK_RESULT`, or the snake-case name of the failure."""
    seconds: Mapping[Phase, float] = field(default_factory=dict)
    """Duration in seconds of each phase that ran."""
    outcomes: Sequence[tuple[str, Outcome]] = ()
    """The kind (start, hold, release, boost or preempt) and outcome of each command."""
    bridge_events: Sequence[CycleEvent] = ()
    latencies_s: Sequence[float] = ()
    """Time in seconds from the decision until the job ran, for jobs first observed running in this cycle."""
    observation: Observation | None = None
    changes: JobChanges = JobChanges()
    backoff: JobsInBackoff = NO_BACKOFF
    """The jobs in backoff after failed starts of their own or in their group."""
    decided: Decided = Decided()
    unscheduled: Mapping[int, UnscheduledReason] = field(default_factory=dict)
    """Why the bridge does not schedule each pending job without a decision, by job id."""
    boosts: PriorityBoostReport | None = None
    """The last result of advise mode, or None in other modes."""
    checks: Sequence[ReadinessCheck] | None = None
    """Results of the checks of control mode's requirements in this cycle, or None if no checks ran."""
    failing_users: int = 0
    """Number of users whose starts have all failed, in control mode."""
    starting: int = 0
    """Number of jobs that are released but not running yet."""
    held: int = 0
    """Number of jobs that the bridge may be holding."""
    overdue: int = 0
    """Number of jobs on which repeated commands have had no effect for over `OVERDUE_S` seconds."""
    gap_s: float = 0.0
    """Delay in seconds with which the cycle began, or 0 if the delay is small."""
    pause_s: float = 0.0
    """Time in seconds from this cycle's start to the next, as planned before the cycle's result was known."""
    slowed: bool = False
    """Whether cycles are slower than configured because the cluster is busy."""

    def excludes(self, job_id: int) -> bool:
        """Return whether a site limit or a backoff excludes a job from the decision."""
        return job_id in self.decided.limited or job_id in self.backoff.reasons
