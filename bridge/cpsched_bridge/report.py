"""What one cycle of the bridge did, as a value: journal, metrics, log and live view are made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from cpsched.model import Decision, EndedJob, Job, Placement, Snapshot
from cpsched_bridge.ports import Observation, Outcome

if TYPE_CHECKING:
    from cpsched.fit import Violation

Mode = Literal["shadow", "control", "paused"]
Phase = Literal["observe", "reconcile", "decide", "verify", "apply", "journal"]

OK = "ok"
"""Result of a cycle in which nothing failed; else the name of the failure."""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something worth telling: what the journal keeps as an event and the metrics count by `kind`."""

    kind: str
    detail: str
    job_id: int | None = None


@dataclass(slots=True, eq=False)
class CycleReport:
    """Filled while the cycle runs; whoever gets it after the cycle only reads it.

    `result` is `OK`, or the snake-case name of what failed. `seconds` has the phases that ran. `latencies_s` are the
    times from a decision to the job seen running, for jobs first seen running in this cycle.
    """

    number: int
    mode: Mode
    at_unix_s: float
    result: str = OK
    seconds: dict[Phase, float] = field(default_factory=dict)
    observation: Observation | None = None
    snapshot: Snapshot | None = None
    decision: Decision | None = None
    violations: list[Violation] = field(default_factory=list)
    starts: dict[int, Placement] = field(default_factory=dict)
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    started: list[tuple[Job, int]] = field(default_factory=list)
    """Jobs first seen running or ended in this cycle, with their start second."""
    ended: list[EndedJob] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)
    """The jobs that were decided on."""
    starting: int = 0
    """Jobs released and not yet seen running."""
    kept: int = 0
    """Jobs on which a hold of ours may be."""

    def tell(self, kind: str, detail: str, job_id: int | None = None) -> None:
        """Add a happening."""
        self.happenings.append(Happening(kind, detail, job_id))
