"""Define the base class of list schedulers."""

from __future__ import annotations

from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Decision, Need, Snapshot
from cpsched.planning import ListSchedulerSpec, plan_by_spec


class ListSchedulerDispatcher(Dispatcher):
    """A dispatcher defined by `scheme` alone, which a compiled loop can simulate."""

    scheme: ListSchedulerSpec

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        return plan_by_spec(self.scheme, snapshot, need)
