"""Base class of list schedulers, each defined by a `ListSchedulerSpec`."""

from __future__ import annotations

from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Decision, Need, Snapshot
from cpsched.planning import ListSchedulerSpec, plan_by_spec


class ListSchedulerDispatcher(Dispatcher):
    """Decides by `scheme` alone, so that the simulator can run it in its compiled loop."""

    scheme: ListSchedulerSpec

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        return plan_by_spec(self.scheme, snapshot, need)
