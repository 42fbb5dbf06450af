"""What one cycle of the bridge did, as a value: journal, metrics, log and live view are made of it."""

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
"""Result of a cycle in which nothing failed; else the name of the failure."""

STOPPED = "stopped"
"""The event that a bridge writes last. A journal that ends otherwise is one of a bridge that was killed."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth telling: what the journal keeps as an event and the metrics count by `kind`."""

    kind: str
    detail: str
    job_id: int | None = None
    times: int = 1
    """How many of its kind it stands for."""


LATE_INTERVALS = 10.0
"""A cycle that begins more intervals later than planned is an event, and until then the last one counts as fresh."""
MOST_ALIKE = 20
"""Happenings of one kind in one cycle that are told one by one."""


def summarize_events(happenings: Sequence[Event]) -> list[Event]:
    """The same with the first `MOST_ALIKE` of each kind, and one that stands for all further ones of it."""
    told: list[Event] = []
    beyond = Counter[str]()
    counts = Counter[str]()
    for happening in happenings:
        counts[happening.kind] += 1
        if counts[happening.kind] <= MOST_ALIKE:
            told.append(happening)
        else:
            beyond[happening.kind] += happening.times
    return told + [Event(kind, f"and {times} more of these", times=times) for kind, times in beyond.items()]


@dataclass(frozen=True, slots=True)
class AdviceReport:
    """What mode advise found and told when it last looked at the cluster's own order."""

    jobs: int
    """Entries of the cluster's list that were put in order."""
    raised: int
    """Those of them that have points of ours, by what was told."""
    changes: int
    """Jobs that were told."""
    in_order: float
    """Of all pairs of these jobs, the share that the cluster's list had in the order of the plan before that."""
    theirs: int
    """Jobs with points of somebody else's, which stay as they are."""


@dataclass(slots=True, eq=False)
class CycleReport:
    """Filled while the cycle runs; whoever gets it after the cycle only reads it."""

    number: int
    mode: Mode
    at_unix_s: float
    result: str = OK
    """`OK`, or the snake-case name of what failed."""
    seconds: dict[Phase, float] = field(default_factory=dict)
    """Time of the phases that ran."""
    observation: Observation | None = None
    snapshot: Snapshot | None = None
    """What was decided on, every job estimated."""
    decision: Decision | None = None
    """The decision, if it may be carried out."""
    fallback: bool = False
    """Whether the fallback decided in place of the configured policy."""
    waits_for: str = ""
    """What a decision waits for, in words; nothing was decided then, and nothing has failed."""
    policy_failure: str = ""
    """Why there is no decision although there is a snapshot: the snake-case name of what the policy did wrong."""
    recorded: Any = None
    """The decision as the journal keeps it, also one that broke a rule; see `store.round_records.decision_to_json`."""
    memory: Any = None
    """What the dispatcher knew besides the snapshot, right before it decided, as JSON, if it tells."""
    replayable: bool = True
    """Whether the journal holds all that the decision depended on."""
    violations: list[Violation] = field(default_factory=list)
    starts: dict[int, Placement] = field(default_factory=dict)
    """The jobs to be started and where, by job id; empty if the decision failed."""
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)
    """What came of each command: (start, hold, hand_back or advise; outcome)."""
    happenings: list[Event] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    """Times from a decision to the job seen running, for jobs first seen running in this cycle."""
    started: list[tuple[Job, int]] = field(default_factory=list)
    """Jobs first seen running or ended in this cycle, with their start second."""
    ended: list[EndedJob] = field(default_factory=list)
    past: list[EndedJob] = field(default_factory=list)
    """Jobs that ended before the bridge began, as far as they were read in this cycle."""
    waiting: list[Job] = field(default_factory=list)
    """The jobs that were decided on."""
    limited: Mapping[int, str] = field(default_factory=dict)
    """By job id, which limit of the site keeps a job from being decided on: whose, and how full."""
    put_off: frozenset[int] = frozenset()
    """Jobs that are not decided on since starts of theirs, or of jobs like them, were in vain."""
    failing_users: int = 0
    """Users all of whose starts fail, in control."""
    advised: AdviceReport | None = None
    """What mode advise last found; None in other modes."""
    starting: int = 0
    """Jobs released and not yet seen running."""
    kept: int = 0
    """Jobs on which a hold of ours may be."""
    stuck: int = 0
    """Jobs for which a command has been repeated without effect for too long."""
    gap_s: float = 0.0
    """How much later than planned the cycle began, if that was worth telling."""
    pause_s: float = 0.0
    """From the start of this cycle to the start of the next, as planned before it was known whether this one failed."""
    slowed: bool = False
    """Whether cycles come less often than set since the cluster is busy."""
    checks: Sequence[Check] | None = None
    """What must hold for control mode, as checked in this cycle; None: not checked."""
    paused: str = ""
    """Why the bridge is not in control although it is set to be; empty if it is, or is not set to be."""
    rival: Lease | None = None
    """The claim of another bridge that is in control of this cluster."""

    def fail(self, kind: str, detail: str) -> None:
        """Let the cycle count as failed by `kind`, and tell it."""
        self.result = kind
        self.tell(kind, detail)

    def tell(self, kind: str, detail: str, job_id: int | None = None) -> None:
        """Add a happening."""
        self.happenings.append(Event(kind, detail, job_id))
