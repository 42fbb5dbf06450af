"""What the list schedulers have in common: each is a scheme of `cpsched.planning`, and nothing else."""

from __future__ import annotations

from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Decision, Need, Snapshot
from cpsched.planning import ListScheduler, plan_with


class ListSchedulerDispatcher(Dispatcher):
    """A dispatcher that decides by its `scheme` alone; the simulator can run it in its compiled loop."""

    scheme: ListScheduler

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        return plan_with(self.scheme, snapshot, need)
