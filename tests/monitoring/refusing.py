"""A test adapter: the simulated cluster with a controller that refuses to start some jobs."""

from __future__ import annotations

from collections.abc import Sequence

from cpsched_bridge.adapters import mock
from cpsched_bridge.adapters.mock import Options
from cpsched_bridge.adapters.mock.mock_backend import MockBackend
from cpsched_bridge.ports import Outcome, StartOrder

__all__ = ["Options", "connect"]


class Refusing(MockBackend):
    """A simulated cluster that rejects every second start."""

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        taken = {order.job.id: None for order in orders if order.job.id % 2}
        outcomes = {o.job_id: o for o in super().start([order for order in orders if order.job.id in taken])}
        return [outcomes.get(order.job.id) or Outcome(order.job.id, "refused", "for a test") for order in orders]


def connect(options: Options) -> Refusing:
    made = mock.connect(options)
    return Refusing(made.site, made._now_s)  # noqa: SLF001
