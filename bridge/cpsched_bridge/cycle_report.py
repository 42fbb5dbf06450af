"""What one cycle of the bridge did, as a value for journal, metrics, log and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from cpsched.model import Decision, EndedJob, Job, Placement, Snapshot
from cpsched_bridge.ports import Check, Lease, Observation, Outcome

if TYPE_CHECKING:
    from cpsched.feasibility import Violation

Mode = Literal["shadow", "advise", "control", "paused"]
MODES: tuple[Mode, ...] = get_args(Mode)
Phase = Literal["observe", "reconcile", "decide", "verify", "apply", "journal"]
PHASES: tuple[Phase, ...] = get_args(Phase)

OK = "ok"
"""Result of a successful cycle; otherwise the name of the failure."""

STOPPED = "stopped"
"""The last event of a bridge. A journal without it belongs to a bridge that was killed."""


@dataclass(frozen=True, slots=True)
class CycleEvent:
    """A notable event: recorded in the journal, and counted by `kind` in the metrics."""

    kind: str
    detail: str
    job_id: int | None = None
    times: int = 1
    """Number of equal events that it represents."""


LATE_INTERVALS = 10.0
"""Intervals of delay after which a cycle is recorded as late. Until then the previous cycle counts as fresh."""
MOST_ALIKE = 20
"""Maximum number of events of one kind per cycle that are recorded individually."""


def summarize_events(happenings: Sequence[CycleEvent]) -> list[CycleEvent]:
    """Keep the first `MOST_ALIKE` events of each kind, and summarise the others in one."""
    told: list[CycleEvent] = []
    beyond = Counter[str]()
    counts = Counter[str]()
    for happening in happenings:
        counts[happening.kind] += 1
        if counts[happening.kind] <= MOST_ALIKE:
            told.append(happening)
        else:
            beyond[happening.kind] += happening.times
    return told + [CycleEvent(kind, f"and {times} more of these", times=times) for kind, times in beyond.items()]


@dataclass(frozen=True, slots=True)
class PriorityBoostReport:
    """What advise mode found and changed when it last read the cluster's order."""

    jobs: int
    """Entries of the cluster's list that were ordered."""
    raised: int
    """Entries with a boost of the bridge, by the last commands."""
    changes: int
    """Jobs whose boost changed."""
    in_order: float
    """Share of pairs of these jobs that the cluster ranked in the order of the plan before the change."""
    theirs: int
    """Jobs with another actor's boost, which does not change."""


@dataclass(slots=True, eq=False)
class CycleReport:
    """Filled during the cycle; read-only afterwards."""

    number: int
    mode: Mode
    at_unix_s: float
    result: str = OK
    """`OK`, or the snake-case name of the failure."""
    seconds: dict[Phase, float] = field(default_factory=dict)
    """Duration of each phase that ran."""
    observation: Observation | None = None
    snapshot: Snapshot | None = None
    """The input of the decision, with an estimate for every job."""
    decision: Decision | None = None
    """The decision, if it is valid."""
    fallback: bool = False
    """Whether the fallback decided instead of the configured policy."""
    waits_for: str = ""
    """What a decision waits for. Nothing was decided then, and nothing failed."""
    policy_failure: str = ""
    """The policy's failure in snake case, if there is a snapshot but no decision."""
    recorded: Any = None
    """The decision in the journal's form, even if invalid; see `store.round_records.decision_to_json`."""
    memory: Any = None
    """The dispatcher's state right before the decision, as JSON, if it exports any."""
    replayable: bool = True
    """Whether the journal has everything that the decision depended on."""
    violations: list[Violation] = field(default_factory=list)
    starts: dict[int, Placement] = field(default_factory=dict)
    """The placements to start, by job id; empty if the decision failed."""
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)
    """The outcome of each command: (start, hold, hand_back or advise; outcome)."""
    happenings: list[CycleEvent] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    """Times from a decision to the running job, for jobs first seen running in this cycle."""
    started: list[tuple[Job, int]] = field(default_factory=list)
    """Jobs first seen running or ended in this cycle, with their start second."""
    ended: list[EndedJob] = field(default_factory=list)
    past: list[EndedJob] = field(default_factory=list)
    """Jobs that ended before the bridge started, as read in this cycle."""
    waiting: list[Job] = field(default_factory=list)
    """The jobs that were decided on."""
    limited: Mapping[int, str] = field(default_factory=dict)
    """By job id, the site's limit that keeps a job from being decided on, with its usage."""
    put_off: frozenset[int] = frozenset()
    """Jobs that back off after failed starts of their own or of their group."""
    failing_users: int = 0
    """Users with only failed starts, in control mode."""
    advised: PriorityBoostReport | None = None
    """The last result of advise mode; None in other modes."""
    starting: int = 0
    """Jobs released but not yet running."""
    kept: int = 0
    """Jobs that the bridge may hold."""
    stuck: int = 0
    """Jobs on which repeated commands have had no effect for too long."""
    gap_s: float = 0.0
    """Seconds by which the cycle began late; 0 if the delay is not notable."""
    pause_s: float = 0.0
    """Seconds from the start of this cycle to the next, as planned before its result was known."""
    slowed: bool = False
    """Whether cycles are slower than configured because the cluster is busy."""
    checks: Sequence[Check] | None = None
    """The requirements of control mode, as checked in this cycle; None: not checked."""
    paused: str = ""
    """Why the bridge is not in control although configured; empty otherwise."""
    rival: Lease | None = None
    """The lease of another bridge that controls this cluster."""

    def record_failure(self, kind: str, detail: str) -> None:
        """Mark the cycle as failed by `kind`, and record the event."""
        self.result = kind
        self.add_event(kind, detail)

    def add_event(self, kind: str, detail: str, job_id: int | None = None) -> None:
        """Record an event."""
        self.happenings.append(CycleEvent(kind, detail, job_id))
