"""Metrics for Prometheus, from cycle reports; the only module that knows `prometheus_client`.

Names follow the Prometheus conventions: base units, `_total` counters, no label per job or user.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from cpsched.metrics import BSLD_BOUND_S, bounded_slowdown
from cpsched_bridge.errors import AddressTaken
from cpsched_bridge.ports import Observation
from cpsched_bridge.report import MODES, OK, PHASES, CycleReport

_CYCLE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LATENCY_S = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
_WAIT_S = (1, 10, 60, 300, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800)
_SLOWDOWN = (1, 1.1, 1.5, 2, 3, 5, 10, 20, 50, 100, 500, 1000)


class Exporter:
    """The bridge's metrics in a registry of their own, fed with one report per cycle."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seen_mode = ""
        self._counters()
        self._histograms()
        self._gauges()

    def _counters(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        self._cycles = counter("cpsched_cycles", "Cycles by result.", "result")
        self._solves = counter(
            "cpsched_solves", "Decisions by the path taken and the solver's status.", "path", "status"
        )
        self._commands = counter("cpsched_commands", "Commands sent, per job, by kind and result.", "kind", "result")
        self._events = counter("cpsched_events", "Events by kind, as in the journal.", "kind")
        self._started = counter("cpsched_started_jobs", "Jobs first seen running.")
        self._ended = counter("cpsched_ended_jobs", "Jobs that ran and ended.")

    def _histograms(self) -> None:
        def histogram(name: str, text: str, buckets: Iterable[float], *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=tuple(buckets), registry=self.registry)

        self._phases = histogram("cpsched_cycle_phase_duration_seconds", "Time of a cycle by phase.", _CYCLE_S, "phase")
        self._latency = histogram(
            "cpsched_decision_to_running_seconds", "From a decision to the job seen running.", _LATENCY_S
        )
        self._wait = histogram("cpsched_job_wait_seconds", "Time in the queue of jobs that started.", _WAIT_S)
        self._slowdown = histogram(
            "cpsched_job_bounded_slowdown_ratio",
            f"Bounded slowdown ({BSLD_BOUND_S} s) of jobs that ended.",
            _SLOWDOWN,
        )

    def _gauges(self) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=self.registry)

        self._queued = gauge("cpsched_queued_jobs", "Jobs that are decided on.")
        self._pending = gauge("cpsched_pending_jobs", "Pending jobs that are modelled, eligible or not.")
        self._unsupported = gauge("cpsched_unsupported_jobs", "Pending jobs left to the cluster's own scheduler.")
        self._running = gauge("cpsched_running_jobs", "Jobs running.")
        self._starting = gauge("cpsched_starting_jobs", "Jobs released and not yet seen running.")
        self._kept = gauge("cpsched_kept_jobs", "Jobs on which a hold of the bridge may be.")
        self._oldest = gauge("cpsched_oldest_pending_seconds", "Age of the oldest job that is decided on.")
        self._success = gauge("cpsched_last_success_timestamp_seconds", "When the last good cycle ended, Unix time.")
        self._capacity = gauge("cpsched_resource_capacity", "Amount of a resource in the cluster.", "resource")
        self._free = gauge("cpsched_resource_free", "Amount of a resource that is free.", "resource")
        self._mode = gauge("cpsched_mode", "1 for the mode the bridge is in.", "mode")
        build = gauge("cpsched_build_info", "The version of cpsched.", "version")
        build.labels(version("cpsched")).set(1)
        for mode in MODES:
            self._mode.labels(mode).set(0)
        for phase in PHASES:
            self._phases.labels(phase)
        self._cycles.labels(OK)

    def __call__(self, report: CycleReport) -> None:
        """Take note of one cycle."""
        self._cycles.labels(report.result).inc()
        for phase, seconds in report.seconds.items():
            self._phases.labels(phase).observe(seconds)
        for happening in report.happenings:
            self._events.labels(happening.kind).inc()
        for kind, outcome in report.outcomes:
            self._commands.labels(kind, outcome.result).inc()
        self._note_mode(report.mode)
        self._note_decision(report)
        self._note_jobs(report)
        if report.observation is not None:
            self._note_observation(report.observation)
            self._note_queue(report, report.observation.now_s)
        if report.result == OK:
            self._success.set(report.at_unix_s)

    def _note_mode(self, mode: str) -> None:
        if mode != self._seen_mode:
            for known in MODES:
                self._mode.labels(known).set(known == mode)
            self._seen_mode = mode

    def _note_decision(self, report: CycleReport) -> None:
        if report.decision is not None:
            effort = report.decision.effort
            self._solves.labels(effort.path, effort.status or "none").inc()

    def _note_jobs(self, report: CycleReport) -> None:
        for seconds in report.latencies_s:
            self._latency.observe(seconds)
        for job, start_s in report.started:
            self._started.inc()
            self._wait.observe(max(0, start_s - job.submit_s))
        for ended in report.ended:
            self._ended.inc()
            self._slowdown.observe(float(bounded_slowdown(max(0, ended.wait_s), ended.run_s)))

    def _note_observation(self, seen: Observation) -> None:
        self._pending.set(len(seen.pending))
        self._unsupported.set(len(seen.left))
        self._running.set(len(seen.running))
        capacity, free = seen.cluster.capacity.sum(axis=0), seen.free.sum(axis=0)
        for resource, total, left in zip(seen.cluster.resources, capacity, free, strict=True):
            self._capacity.labels(resource).set(int(total))
            self._free.labels(resource).set(int(left))

    def _note_queue(self, report: CycleReport, now_s: int) -> None:
        self._queued.set(len(report.waiting))
        self._starting.set(report.starting)
        self._kept.set(report.kept)
        self._oldest.set(max((now_s - job.submit_s for job in report.waiting), default=0))


class Endpoint:
    """An HTTP server for a registry in a thread of its own; it answers whatever the loop is waiting for."""

    def __init__(self, exporter: Exporter, host: str, port: int) -> None:
        try:
            served: Any = start_http_server(port, addr=host, registry=exporter.registry)
        except OSError as error:
            raise AddressTaken(f"metrics.port={port}: cannot listen on {host}: {error.strerror}") from error
        self._server: WSGIServer = served[0]
        self._thread: Thread = served[1]
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
