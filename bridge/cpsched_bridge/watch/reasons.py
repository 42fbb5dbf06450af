"""Why jobs wait, as one of a few kinds: reasons in words have numbers in them, and there is no end of those."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from cpsched_bridge.ports import Hold
from cpsched_bridge.report import CycleReport

OTHER = "other"
_KINDS = (
    ("can never run", "never"),
    ("not enough", "resources"),
    ("the nodes that are free are reserved", "reserved"),
    ("would delay", "reserved"),
    ("others are first", "priority"),
    ("jobs that weigh more", "priority"),
    ("comes after", "priority"),
    ("Slurm's next pass decides", "priority"),
)
"""How a dispatcher's reason begins -> its kind; see `cpsched.reasons`."""
_BEFORE = ("not considered: ", "not planned yet: ", "not planned: ")
"""What a dispatcher says before the reason of a job that it has no plan for."""

KINDS = (*dict.fromkeys(kind for _, kind in _KINDS), "ineligible", "held_by_owner", "set_aside", "left_to_slurm", OTHER)
"""Every kind there is:

- `never`: not even the empty cluster could hold the job. `resources`: too little is free. `reserved`: what is free is
  promised to others. `priority`: others go first. `other`: what a plug-in says in its own words.
- `ineligible`: a dependency, a begin time, a limit. `held_by_owner`. `set_aside`: not the bridge's, or on its way.
- `left_to_slurm`: not modelled.
"""

IN_WORDS = {
    "never": "can never run on this cluster",
    "resources": "wait for room",
    "reserved": "would fit, but delay others that go first",
    "priority": "others go first",
    "ineligible": "may not start yet",
    "held_by_owner": "held by their owners",
    "set_aside": "on their way, or not the bridge's",
    "left_to_slurm": "left to the cluster",
    OTHER: "other reasons",
}
"""Every kind as people read it."""


def itself(reason: str) -> str:
    """A dispatcher's reason without the words that say that it has no plan for the job."""
    return next((reason.removeprefix(before) for before in _BEFORE if reason.startswith(before)), reason)


@lru_cache(maxsize=4096)
def kind_of(reason: str) -> str:
    """The kind of a dispatcher's reason."""
    words = itself(reason)
    return next((kind for beginning, kind in _KINDS if words.startswith(beginning)), OTHER)


def counted(report: CycleReport) -> dict[str, int] | None:
    """How many jobs wait for each kind of reason, every kind named; None where the cluster was not read."""
    seen = report.observation
    if seen is None:
        return None
    found = Counter[str](dict.fromkeys(KINDS, 0))
    found["left_to_slurm"] += len(seen.left)
    if report.decision is not None:
        for reason, jobs in Counter(wait.reason for wait in report.decision.waits.values()).items():
            found[kind_of(reason)] += jobs
    decided_on = {job.id for job in report.waiting}
    for pending in seen.pending:
        if pending.job.id not in decided_on:
            found[set_aside(pending.hold, pending.job.ineligible)] += 1
    return dict(found)


def set_aside(hold: Hold, ineligible: str | None) -> str:
    """The kind of a pending job that was not decided on."""
    if hold is Hold.USER:
        return "held_by_owner"
    return "ineligible" if ineligible is not None else "set_aside"
