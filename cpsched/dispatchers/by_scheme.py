"""What the list schedulers have in common: each is a scheme of `cpsched.planning`, and nothing else."""

from __future__ import annotations

from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Decision, Need, Snapshot
from cpsched.planning import Scheme, plan_by


class SchemeDispatcher(Dispatcher):
    """A dispatcher that decides by its `scheme` alone; the simulator can run it in its compiled loop."""

    scheme: Scheme

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        return plan_by(self.scheme, snapshot, need)
