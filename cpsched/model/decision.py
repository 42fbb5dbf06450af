"""Which jobs start now and where, when the others are expected to, and why they wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from cpsched.model.cluster import IntArray
from cpsched.model.job import Placement
from cpsched.model.numbers import NEVER

if TYPE_CHECKING:
    from cpsched.model.snapshot import Snapshot

Need = Literal["starts", "plan"]
"""What a caller needs from a decision: the starts alone (simulation), or the plan and the waits too (bridge)."""


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """Jobs that start now: slot by slot, with their placements in one pool.

    Placement of the i-th: `nodes[offsets[i]:offsets[i+1]]`, `units[...]` likewise; nodes ascending.
    """

    slots: IntArray
    offsets: IntArray
    nodes: IntArray
    units: IntArray

    def __len__(self) -> int:
        return len(self.slots)

    @classmethod
    def of(cls, placements: Mapping[int, Placement]) -> Starts:
        """From slot -> placement, in the order given."""
        entries = [entry for placement in placements.values() for entry in placement]
        return cls(
            slots=np.fromiter(placements, np.int64, len(placements)),
            offsets=np.cumsum([0, *(len(p) for p in placements.values())], dtype=np.int64),
            nodes=np.fromiter((node for node, _ in entries), np.int64, len(entries)),
            units=np.fromiter((units for _, units in entries), np.int64, len(entries)),
        )

    def placements(self) -> dict[int, Placement]:
        """Slot -> placement."""
        found: dict[int, Placement] = {}
        for i, slot in enumerate(self.slots.tolist()):
            part = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
            found[slot] = tuple(zip(self.nodes[part].tolist(), self.units[part].tolist(), strict=True))
        return found


NO_STARTS = Starts.of({})


@dataclass(frozen=True, slots=True)
class Effort:
    """What a decision cost and how it was reached.

    `path` is the short name of the way taken (a certain answer, a kernel, a solver); `status` what a solver
    said; `solver_s` its own seconds; `branches` its deterministic effort; `bound` a proved lower bound.
    """

    path: str
    considered: int = 0
    variables: int = 0
    status: str = ""
    objective: float | None = None
    bound: float | None = None
    solver_s: float = 0.0
    branches: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a queued job does not start now: a reason in words, and the job ids that stand before it."""

    reason: str
    behind: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Which jobs start now and where; when the others are expected to, and why they wait.

    `plan_s` is aligned with `snapshot.queue`: expected start of each job, `NEVER` where the dispatcher does not know;
    None when only starts were asked for. `waits` (by job id) is filled with `need="plan"` only.
    """

    starts: Starts
    effort: Effort
    plan_s: IntArray | None = None
    waits: Mapping[int, Wait] = field(default_factory=dict)

    def starts_by_job(self, snapshot: Snapshot) -> dict[int, Placement]:
        """Job id -> placement, for those that start now."""
        return {snapshot.table.jobs[slot].id: where for slot, where in self.starts.placements().items()}

    def plan_by_job(self, snapshot: Snapshot) -> dict[int, int]:
        """Job id -> expected start in seconds, for those whose start is known."""
        if self.plan_s is None:
            return {}
        pairs = zip(snapshot.queue.tolist(), self.plan_s.tolist(), strict=True)
        return {snapshot.table.jobs[slot].id: start for slot, start in pairs if start != NEVER}
