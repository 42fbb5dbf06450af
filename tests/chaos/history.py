"""Draw histories from a seed. Steps refer to objects by number, so that any part of a history is also a history."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

STEPS = 160
BESET = 40
"""Number of jobs in a beset history that never start."""
LEAVING = 12
"""Number of times that a node leaves in a history of leaving nodes."""
POINTS = 10
"""Number of times that an administrator changes a job's points in an advised history."""
LADDER = 5
"""Number of times the mode of an advised history changes, with the bridge dead."""
PREEMPTING = 10
"""Number of additional jobs, and of additional kills, in a preempting history."""
BLIND = 8
"""Number of incomplete readings in a blinded history."""

OFTEN = ("cycle",) * 60 + ("submit",) * 16
PEOPLE = ("cancel", "owner holds", "owner releases", "admin holds", "admin releases", "requeue", "requeue and hold")
WORLD = ("node down", "node up", "node up", "clock", "stall", "stall")
FAULTS = ("unavailable", "refused", "timeout", "half", "one refused", "answer lost", "half done unknown")
DISK = ("full", "read-only", *("disk is well",) * 6)
LIFE = ("kill",) * 6 + ("stop", "stop", "release all", "pause", "pause", "pause", *("resume",) * 5)
LEDGER = ("cut the ledger", "back up the ledger", "restore the ledger")

KINDS = (
    *OFTEN,
    *(*PEOPLE, *PEOPLE),
    *WORLD,
    *(*FAULTS, *FAULTS),
    *DISK,
    *LIFE,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One event. The meaning of `a` and `b` (job, place, time) depends on the kind of step."""

    kind: str
    a: int = 0
    b: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """A world and its steps."""

    seed: int
    plugin: bool
    adopt: bool
    launch_s: int
    steps: tuple[Step, ...]
    mode: str = "control"
    """The mode in which the bridge begins."""
    preempts: bool = False
    """Whether some jobs may preempt others, and the bridge chooses the victims."""


def history_of(seed: int) -> History:
    """Return the history of a seed.

    The ledger is damaged only if the plugin marks the bridge's holds. Without marks, only the ledger distinguishes them
    from an administrator's holds. If it is lost, the operator must release jobs by hand, as the manual describes.
    """
    rng = random.Random(seed)
    plugin = rng.random() < 0.6
    kinds = (*KINDS, *LEDGER) if plugin else KINDS
    steps = [Step("submit", rng.randrange(10**6), rng.randrange(10**6)) for _ in range(rng.randrange(2, 9))]
    steps += [Step(rng.choice(kinds), rng.randrange(10**6), rng.randrange(10**6)) for _ in range(STEPS)]
    return History(seed, plugin, not plugin or rng.random() < 0.7, rng.choice((0, 1, 1, 3)), tuple(steps))


def _insert(
    history: History, name: str, *kinds: tuple[str, int], numbers: int = 2, then: Sequence[Step] = ()
) -> History:
    """Return the history with steps inserted at random places: `times` of each kind."""
    rng = random.Random(f"{history.seed}, {name}")
    steps = list(history.steps)
    for kind, times in kinds:
        for _ in range(times):
            at = rng.randrange(len(steps))
            steps[at:at] = [Step(kind, *(rng.randrange(10**6) for _ in range(numbers))), *then]
    return replace(history, steps=tuple(steps))


def beset(history: History) -> History:
    """Return the same world with an additional user whose jobs never start."""
    return _insert(history, "beset", ("submit job that never starts", BESET))


def leaving(history: History) -> History:
    """Return the same world with nodes that are removed from the configuration while jobs start on them."""
    return _insert(history, "leaving", ("node leaves", LEAVING), numbers=1)


def advised(history: History) -> History:
    """Return the same world with a bridge that advises, sometimes controls, and administrators with their own points.

    Without the plugin, no write fails. Otherwise, an administrator's hold after a release that the ledger could not
    record would look like a hold by the bridge.
    """
    steps = (step for step in history.steps if history.plugin or step.kind not in ("full", "read-only"))
    changed = replace(history, steps=tuple(steps), mode="advise")
    return _insert(changed, "advised", ("admin sets points", POINTS), ("change the mode", LADDER))


def preempting(history: History) -> History:
    """Return the same world with jobs that may preempt others, more jobs, and more kills."""
    changed = replace(history, preempts=True)
    return _insert(changed, "preempting", ("submit", PREEMPTING), ("kill", PREEMPTING))


def blinded(history: History) -> History:
    """Return the same world with observations that lack one of the bridge's jobs."""
    return _insert(history, "blinded", ("lose sight", BLIND), numbers=1, then=[Step("cycle")])


CHANGES = {
    "beset": beset,
    "leaving": leaving,
    "advised": advised,
    "preempting": preempting,
    "blind": blinded,
}
"""The changes of a history by option, in the order in which they apply."""
