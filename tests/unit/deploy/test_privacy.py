"""What leaves the bridge's host carries no user data: the endpoint for Prometheus is not secret."""

from __future__ import annotations

from cpsched_bridge.watch.exporter import Exporter

ALLOWED = {"le", "mode", "kind", "result", "phase", "reason", "state", "version"}
ALLOWED |= {"path", "status", "resource", "command", "action", "direction", "check", "outcome"}
ALLOWED |= {"partition"}  # an administrator's word: Slurm refuses jobs for partitions that do not exist


def test_no_metric_has_a_label_for_a_user_or_a_job() -> None:
    """Nor for accounts or names: a label's values would be users' words."""
    labelled = 0
    for collector in Exporter().registry._collector_to_names:
        names = set(getattr(collector, "_labelnames", ()))
        labelled += bool(names)
        assert names <= ALLOWED, collector
    assert labelled >= 5
