"""Export metrics from cycle reports to Prometheus.

Only this module imports `prometheus_client`. `cpsched_bridge.telemetry.metric_families` defines the metrics. A scrape
reads the values of the last cycle and never waits for the cluster or the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    Summary,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from cpsched_bridge.telemetry.forecast_outcomes import CycleReportWithOutcomes
from cpsched_bridge.telemetry.metric_families import METRICS, OTHER, Labels, MetricFamily, Samples

CONTENT_TYPE = CONTENT_TYPE_LATEST
_TYPES: dict[str, type[Any]] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram, "summary": Summary}

disable_created_metrics()  # type: ignore[no-untyped-call]  # avoids an unused extra series per counter


class PrometheusExporter:
    """An exporter for the bridge's metrics, with its own registry."""

    def __init__(self, metrics: Sequence[MetricFamily] = METRICS) -> None:
        self.registry = CollectorRegistry()
        self._served = [_RegisteredMetric(metric, self.registry) for metric in metrics]
        ProcessCollector(registry=self.registry)

    def __call__(self, cycle: CycleReportWithOutcomes) -> None:
        """Record one cycle."""
        for served in self._served:
            samples = served.metric.of(cycle)
            if samples is not None:
                served.take(samples)

    def render_metrics(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return generate_latest(self.registry)


class _RegisteredMetric:
    """A metric in the registry."""

    def __init__(self, metric: MetricFamily, registry: CollectorRegistry) -> None:
        self.metric = metric
        buckets = {"buckets": metric.buckets} if metric.kind == "histogram" else {}
        self._collector = _TYPES[metric.kind](metric.name, metric.sentence, metric.labels, registry=registry, **buckets)
        self._sets: dict[Labels, Any] = {} if metric.labels else {(): self._collector}
        for labels in metric.known:
            self._get_series(labels)

    def take(self, samples: Samples) -> None:
        """Record the samples of one cycle."""
        if self.metric.kind == "gauge":
            self._set_gauges(samples)
            return
        for labels, value in samples:
            child = self._get_series(labels)
            if self.metric.kind == "counter":
                child.inc(value)
            else:
                child.observe(value)

    def _set_gauges(self, samples: Samples) -> None:
        values: dict[int, float] = {}
        for labels, value in samples:
            key = id(self._get_series(labels))
            values[key] = self.metric.merged(values[key], value) if key in values else value
        for child in self._sets.values():
            child.set(values.get(id(child), self.metric.absent))

    def _get_series(self, labels: Labels) -> Any:
        """Return the series for these label values.

        If the limit is reached, return the shared `other` series.
        """
        found = self._sets.get(labels)
        if found is None:
            others = (OTHER,) * len(self.metric.labels)
            kept = labels if len(self._sets) - (others in self._sets) < self.metric.most else others
            found = self._sets.get(kept)
            if found is None:
                found = self._sets[kept] = self._collector.labels(*kept)
        return found
