"""Define and explain the parameters that distinguish members of the CP family, and the limits of a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cpsched.dispatchers.cp.cp_objective import ObjectiveName, PriorityName
from cpsched.errors import require

Jobs = Literal["all", "first", "startable"]
Control = Literal["doubles", "stops"]
Running = Literal["remaining", "at-least-1s"]
Allocation = Literal["positions", "nodes", "best-fit", "first-fit"]

VALUE_MEANINGS: dict[str, dict[str, str]] = {
    "jobs": {
        "all": "The model contains the whole queue.",
        "first": "The model searches the first `considered` jobs. Others are fixed at the horizon's end (cp19's m).",
        "startable": "The model has the first `considered` jobs that could start now by themselves (cp19 section 3).",
    },
    "control": {
        "doubles": "After a search without a plan, the limit doubles. A search that finds a plan ends the call"
        " (cp19 section 2.2).",
        "stops": "After a search without improvement, the limit doubles. The call ends with a proof or after `restarts`"
        " consecutive searches without improvement (cp19 section 3).",
    },
    "running": {
        "remaining": "A running job takes another (start + estimate - now) seconds, which is negative once the job"
        " outlives its estimate (cp19 section 4).",
        "at-least-1s": "A running job takes the same time as with `remaining`, but at least one second.",
    },
    "allocation": {
        "positions": "Units are assigned to positions, whose number does not depend on the system's size (PCP'20).",
        "nodes": "Units are assigned to nodes by optional intervals (PCP'19).",
        "best-fit": "The model has only pools (HCP). A job gets the nodes with the fewest free resources.",
        "first-fit": "The model has only pools. A job gets the first nodes that fit.",
    },
}
"""Meaning of each value, by parameter. `cp_objective` documents objectives and priorities."""


@dataclass(frozen=True, slots=True)
class CpDispatcherConfig:
    """The parameters of one member of the CP family, with the defaults of PCP'20.

    `VALUE_MEANINGS` explains the values. `objective` is the cost of a plan. `priority` orders search and allocation.
    With `none`, the solver uses its own search and gets no hint. A model is not built if building and propagating it,
    which cannot be interrupted, is expected to take over `model_s` seconds. Then the known plan is used (path `dive`).

    The constructor raises `InvalidValue` for parameters that cannot be combined.
    """

    jobs: Jobs = "startable"
    control: Control = "stops"
    running: Running = "at-least-1s"
    objective: ObjectiveName = "slowdown"
    priority: PriorityName = "slowdown"
    allocation: Allocation = "positions"
    model_s: float = 0.25

    def __post_init__(self) -> None:
        shown, long_enough = self.priority != "none", self.running == "at-least-1s"
        require(shown or self.allocation == "nodes", "priority", self.priority, "requires allocation=nodes")
        clear = long_enough or self.allocation != "positions"
        require(clear, "running", self.running, "cannot be combined with allocation=positions")

    @property
    def model(self) -> Literal["positions", "nodes", "pool"]:
        """The constraint model that the allocation implies."""
        return self.allocation if self.allocation in ("positions", "nodes") else "pool"


_FIRST_SEARCH_DIVISOR = 8
"""Divisor of the effort that yields the limit for the first search."""


@dataclass(frozen=True, slots=True)
class RestartSearchLimits:
    """The limits of one call, `total_s`, and of its first search, `first_s`.

    With `effort`, the limit is in branches, with an eighth for the first search, and no clock is read. The call ends
    after `restarts` consecutive searches without improvement (cp19 section 3: delta_max, delta, k). A model is not
    built if building and propagating it, which cannot be interrupted, is expected to take more than `model_s` seconds.
    """

    total_s: float
    first_s: float
    restarts: int
    effort: int | None = None
    model_s: float = 0.1
    control: Control = "stops"
    """The action after a search without improvement (see `VALUE_MEANINGS`)."""
    seed: int = 0
    """The seed of the perturbed orders."""

    def __post_init__(self) -> None:
        require(self.total_s > 0, "limit_s", self.total_s, "must be positive")
        require(self.first_s > 0, "first_limit_s", self.first_s, "must be positive")
        require(self.restarts > 0, "restarts", self.restarts, "must be positive")
        require(self.model_s >= 0, "model_s", self.model_s, "must not be negative")
        require(self.effort is None or self.effort > 0, "effort", self.effort, "must be positive")

    def is_model_within_limit(self, build_time_s: float) -> bool:
        """Return whether a model that takes `build_time_s` seconds is within the limits.

        `build_time_s` is the time to build and propagate the model. Releasing it takes the same time again.
        """
        return build_time_s <= self.model_s and (self.effort is not None or 2 * build_time_s <= self.total_s)

    @property
    def total_budget(self) -> int:
        """Limit for the whole call, in branches or milliseconds."""
        return self.effort if self.effort is not None else int(self.total_s * 1000)

    @property
    def first_budget(self) -> int:
        """Limit for the first search, in branches or milliseconds."""
        return (
            max(1, self.effort // _FIRST_SEARCH_DIVISOR)
            if self.effort is not None
            else max(1, int(self.first_s * 1000))
        )
