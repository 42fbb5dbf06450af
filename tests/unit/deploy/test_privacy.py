"""No user data leaves the bridge's host through the Prometheus endpoint, which is not secret."""

from __future__ import annotations

from cpsched_bridge.telemetry.metric_families import METRICS
from cpsched_bridge.telemetry.prometheus_exporter import PrometheusExporter

ALLOWED = {"le", "mode", "kind", "result", "phase", "reason", "state", "version"}
ALLOWED |= {"path", "status", "resource", "command", "action", "direction", "check", "required", "outcome", "horizon"}
ALLOWED |= {"partition"}  # an administrator's word: Slurm refuses jobs for partitions that do not exist
ALLOWED |= {"measure"}  # one of the four ratios to EASY


def test_no_metric_has_user_or_job_label() -> None:
    """Nor for accounts or names: a label's values would be users' words."""
    labelled = 0
    served = {
        (each.name, tuple(sample.labels)) for each in PrometheusExporter().registry.collect() for sample in each.samples
    }
    for name, labels in {*served, *((metric.name, metric.labels) for metric in METRICS)}:
        labelled += bool(labels)
        assert set(labels) <= ALLOWED, name
    assert labelled >= 5
