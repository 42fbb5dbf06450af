"""What the list schedulers have in common: each is a scheme of `cpsched.planning`, and nothing else."""

from __future__ import annotations

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Decision, Need, Snapshot
from cpsched.planning import Scheme, plan_by


class SchemeDispatcher(Dispatcher):
    """A dispatcher that decides by its `scheme` alone; the simulator can run it in its compiled loop."""

    scheme: Scheme

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """See `Dispatcher.decide`."""
        return plan_by(self.scheme, snapshot, need)
