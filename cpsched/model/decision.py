"""Define a dispatcher's decision: the starts, the plan and the reasons for waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from cpsched.errors import require
from cpsched.formatting import abbreviated_repr
from cpsched.model.cluster import IntArray
from cpsched.model.job import PendingReason, Placement, to_pending_reason
from cpsched.model.value_bounds import NEVER

if TYPE_CHECKING:
    from cpsched.model.snapshot import Snapshot

Need = Literal["starts", "plan"]
"""Data that the caller needs: only the starts (in simulations), or also the plan and the waits (in the bridge)."""


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """The jobs that start now, by slot, with all placements in shared columns.

    - `slots`: int64[S], the jobs' slots in `Snapshot.table`.
    - `nodes`, `units`: int64[P]. The i-th job uses `nodes[offsets[i]:offsets[i+1]]`, in ascending order, with the
      corresponding `units` on each node.
    - `offsets`: int64[S + 1].

    The constructor checks the form and raises `InvalidValue`, unless a compiled kernel built the value
    (`by_construction`). `verify` checks whether the placements fit a snapshot.

    >>> Starts.of({0: ((2, 1), (3, 4))}).placements()
    {0: ((2, 1), (3, 4))}
    """

    slots: IntArray
    offsets: IntArray
    nodes: IntArray
    units: IntArray
    by_construction: InitVar[bool] = False

    __repr__ = abbreviated_repr

    def __post_init__(self, by_construction: bool) -> None:
        if by_construction:
            return
        for name in ("slots", "offsets", "nodes", "units"):
            array = getattr(self, name)
            right = isinstance(array, np.ndarray) and array.dtype == np.int64 and array.ndim == 1
            require(right, f"starts.{name}", type(array).__name__, "must be int64 with one axis")
            object.__setattr__(self, name, np.ascontiguousarray(array))
        offsets, entries = self.offsets, len(self.nodes)
        require(
            len(offsets) == len(self.slots) + 1, "starts.offsets", len(offsets), "must have one more entry than slots"
        )
        require(len(self.units) == entries, "starts.units", len(self.units), "must have as many entries as nodes")
        bounds = int(offsets[0]) == 0 and int(offsets[-1]) == entries
        require(bounds, "starts.offsets", offsets, f"must range from 0 to {entries}")
        require(bool((offsets[1:] >= offsets[:-1]).all()), "starts.offsets", offsets, "must not decrease")

    def __len__(self) -> int:
        return len(self.slots)

    @classmethod
    def of(cls, placements: Mapping[int, Placement]) -> Starts:
        """Return starts from placements by slot, in the mapping's order."""
        entries = [entry for placement in placements.values() for entry in placement]
        return cls(
            slots=np.fromiter(placements, np.int64, len(placements)),
            offsets=np.cumsum([0, *(len(p) for p in placements.values())], dtype=np.int64),
            nodes=np.fromiter((node for node, _ in entries), np.int64, len(entries)),
            units=np.fromiter((units for _, units in entries), np.int64, len(entries)),
        )

    def placements(self) -> dict[int, Placement]:
        """Return the placements by slot."""
        found: dict[int, Placement] = {}
        for i, slot in enumerate(self.slots.tolist()):
            part = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
            found[slot] = tuple(zip(self.nodes[part].tolist(), self.units[part].tolist(), strict=True))
        return found


NO_STARTS = Starts.of({})


_EFFORT_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("path", "status"), (str,)),
    **dict.fromkeys(("considered", "variables", "branches", "unplaced"), (int,)),
    **dict.fromkeys(("objective", "bound"), (float, int, type(None))),
    **dict.fromkeys(("solver_s", "first_s", "best_s"), (float, int)),
    "ratios": (dict,),
}
"""The permitted types of each field of `Effort`, which journals and reports read."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The cost of a decision, and the method that made it.

    - `path`: short name of the method, such as a kernel or a solver.
    - `considered`, `variables`: numbers of jobs considered, and of variables in a solver's model.
    - `status`, `objective`, `bound`: the solver's status, the cost of its plan, and a proven lower bound on this cost.
    - `solver_s`, `branches`: the solver's run time in seconds, and its effort independent of the hardware.
    - `first_s`, `best_s`: times in seconds until the solver found its first and its best plan.
    - `unplaced`: number of jobs that a model without nodes would start, but that do not fit on the nodes.
    - `ratios`: for a dispatcher with feedback control, its weights and the ratios of the real to a virtual schedule.
    """

    path: str
    considered: int = 0
    variables: int = 0
    status: str = ""
    objective: float | None = None
    bound: float | None = None
    solver_s: float = 0.0
    branches: int = 0
    first_s: float = 0.0
    best_s: float = 0.0
    unplaced: int = 0
    ratios: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kinds in _EFFORT_KINDS.items():
            value = getattr(self, name)
            require(isinstance(value, kinds), f"effort.{name}", value, f"must be a {kinds[0].__name__}")


@dataclass(frozen=True, slots=True)
class Wait:
    """The reason why a queued job does not start now, and the jobs it waits for.

    Text given as `reason` becomes a `PendingReason` with the code `other`.

    >>> Wait("mercury is in retrograde", waits_for=(7,)).reason
    PendingReason(code=<PendingCode.OTHER: 'other'>, arguments=('mercury is in retrograde',))
    """

    reason: PendingReason
    waits_for: tuple[int, ...] = ()

    def __init__(self, reason: PendingReason | str, waits_for: tuple[int, ...] = ()) -> None:
        reason = to_pending_reason(reason)
        require(isinstance(reason, PendingReason), "wait.reason", reason, "must be a PendingReason or text")
        object.__setattr__(self, "reason", reason)
        object.__setattr__(self, "waits_for", waits_for)


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """The starts of a round and, if requested, the plan and the reasons for waiting.

    - `starts`: the jobs that start now, with their placements.
    - `effort`: the cost of the decision.
    - `plan_s`: int64[Q], the expected start in seconds of each job in `snapshot.queue`, in that order. An unknown start
      is `NEVER`. The plan is None if only starts were requested.
    - `waits`: why each waiting job does not start now, by job id. It is filled only with `need="plan"`.
    - `again_s`: a later time in seconds at which the dispatcher must decide again even without an event, as schedulers
      with timers do. None means at the next event. The bridge decides every few seconds in any case.

    `cpsched.verify` checks whether a decision may be applied. `cpsched.policy.Policy` has an example.
    """

    starts: Starts
    effort: Effort
    plan_s: IntArray | None = None
    waits: Mapping[int, Wait] = field(default_factory=dict)
    again_s: int | None = None

    __repr__ = abbreviated_repr

    def starts_by_job(self, snapshot: Snapshot) -> dict[int, Placement]:
        """Return the placements of the jobs that start now, by job id."""
        return {snapshot.table.jobs[slot].id: where for slot, where in self.starts.placements().items()}

    def plan_by_job(self, snapshot: Snapshot) -> dict[int, int]:
        """Return the known expected starts in seconds, by job id."""
        if self.plan_s is None:
            return {}
        pairs = zip(snapshot.queue.tolist(), self.plan_s.tolist(), strict=True)
        return {snapshot.table.jobs[slot].id: start for slot, start in pairs if start != NEVER}
