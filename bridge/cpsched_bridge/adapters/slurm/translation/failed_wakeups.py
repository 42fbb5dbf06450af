"""Pause nodes that did not wake up, so that jobs do not keep waiting for them.

If a node does not respond within `ResumeTimeout`, Slurm marks it DOWN and POWERED_DOWN, and requeues its jobs
(`do_power_work` in slurmctld/power_save.c). A node in this state accepts no jobs. The pause applies if the site returns
the node to service, for example with `ResumeFailProgram`, while it is still powered down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.model import BoolArray
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.cycle.backoff import ExponentialBackoff
from cpsched_bridge.ports import Outage

WAKEUP_BACKOFF = ExponentialBackoff(300, 14_400)
"""Lengths of a node's pauses after consecutive failures to wake up, in seconds."""
NOT_WOKEN = "FAILED TO WAKE UP"
"""Name of a paused node's outage."""


@dataclass(slots=True)
class FailedWakeupTracker:
    """The nodes whose last attempt to wake up failed. A restart forgets them."""

    _waking: set[str] = field(default_factory=set)
    """The nodes that were powering up at the last reading."""
    _failures: dict[str, int] = field(default_factory=dict)
    """Consecutive failures by node."""
    _until_s: dict[str, int] = field(default_factory=dict)
    """Cluster time at which each node's pause ends."""

    def record(self, nodes: Iterable[Record], now_s: int) -> None:
        """Record the failures and successes that the node states of a reading show."""
        before, self._waking = self._waking, set()
        for node in nodes:
            name, state = node["name"], node["state"]
            if slurm_states.is_powering_up(state):
                self._waking.add(name)
            elif name in before and slurm_states.is_down_and_powered_down(state):
                self._until_s[name] = now_s + int(WAKEUP_BACKOFF.delay_s(self._failures.get(name, 0)))
                self._failures[name] = self._failures.get(name, 0) + 1
            elif name in self._failures and slurm_states.takes_jobs_without_wakeup(state):
                del self._failures[name], self._until_s[name]

    def mask_paused_nodes(self, nodes: Sequence[Record], now_s: int) -> BoolArray:
        """Return a mask of the powered-down nodes whose pause has not ended, bool[N]."""
        paused = {name for name, until_s in self._until_s.items() if now_s < until_s}
        return np.array(
            [node["name"] in paused and slurm_states.compute_wakeup_rank(node["state"]) > 0 for node in nodes], np.bool_
        )

    def list_outages(self, nodes: Sequence[Record], paused: BoolArray, now_s: int) -> list[Outage]:
        """Return an outage for each paused node that Slurm shows as usable."""
        return [
            Outage("down", NOT_WOKEN, (row,), now_s, self._until_s[nodes[row]["name"]])
            for row in np.flatnonzero(paused).tolist()
            if slurm_states.node_takes_jobs(nodes[row]["state"])
        ]
