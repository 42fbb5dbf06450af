"""Collect the page's data: the loop writes it, and the server's threads read it.

Recording a cycle is cheap. The values for the page are built on request, once per round.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from threading import Lock
from typing import Any

import numpy as np

from cpsched.feasibility import amounts_by_node
from cpsched.forecast import FIRST_CLASS, INTERVAL_OUTCOMES, StartForecast
from cpsched.model import (
    Cluster,
    Decision,
    IntArray,
    Job,
    NodeSetCondition,
    PendingReason,
    Placement,
    RunningJob,
    Snapshot,
)
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.ports import Observation, ReadinessCheck
from cpsched_bridge.settings import Settings
from cpsched_bridge.telemetry import reason_kinds
from cpsched_bridge.telemetry.forecast_outcomes import BridgeStatusFacts, CycleReportWithOutcomes
from cpsched_bridge.telemetry.past_week_outcomes import CLASS_LABELS, Counts
from cpsched_bridge.telemetry.start_forecasts import StartForecaster
from cpsched_bridge.web import page_schema
from cpsched_bridge.web.job_explanation import find_first_unknown_end_s
from cpsched_bridge.web.page.page_alerts import list_alerts
from cpsched_bridge.web.page.pending_reasons_summary import summarize_reasons
from cpsched_bridge.web.page.planned_placements import estimate_planned_placements

HISTORY_S = 3600
"""Time covered by the chart's past and by the history, in seconds."""
PLANNED_WINDOW_S = 24 * 3600
"""Time into the future for which planned jobs are placed, in seconds."""
_MAX_ENDED_JOBS = 5000
_MAX_TEXT_CHARS = 500
_MAX_CYCLES = 200
_SAMPLE_EVERY_S = 10
_MAX_SAMPLES = HISTORY_S // _SAMPLE_EVERY_S + 1


@dataclass(frozen=True, slots=True)
class EndedJobView:
    """An ended job."""

    job: Job
    placement: tuple[tuple[int, int], ...]
    start_s: int
    end_s: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class LatestCycleReports:
    """The reports of the last cycle and of the last cycle that read the cluster.

    Each update replaces the whole object.
    """

    last: CycleReport
    read: CycleReport
    observation: Observation
    free: IntArray
    promises: Mapping[int, int]
    """First expected start by job id."""
    context: BridgeStatusFacts
    checks: Sequence[ReadinessCheck] = ()
    """The latest results of the checks."""


@dataclass(slots=True)
class StatusPageState:
    """The page's state between cycles."""

    settings: Settings
    forecaster: StartForecaster = field(default_factory=StartForecaster)
    _instant: LatestCycleReports | None = None
    _running_by_id: dict[int, RunningJob] = field(default_factory=dict)
    _labels: Mapping[int, str] = field(default_factory=dict)
    """Labels of running jobs by id."""
    _past: deque[EndedJobView] = field(default_factory=lambda: deque(maxlen=_MAX_ENDED_JOBS))
    _lines: deque[page_schema.CycleView] = field(default_factory=lambda: deque(maxlen=_MAX_CYCLES))
    _moments: deque[page_schema.ResourceUsageSample] = field(default_factory=lambda: deque(maxlen=_MAX_SAMPLES))
    _checks: Sequence[ReadinessCheck] = ()
    _lock: Lock = field(default_factory=Lock)
    _building: Lock = field(default_factory=Lock)
    _view: page_schema.StatusPageView | None = None

    def __call__(self, cycle: CycleReportWithOutcomes, promises: Mapping[int, int]) -> None:
        """Record one cycle. Called by the loop."""
        report, seen = cycle.report, cycle.report.observation
        with self._lock:
            self._lines.append(_make_cycle_view(report))
            self._checks = self._checks if report.checks is None else report.checks
            if seen is not None:
                self._record_ended_jobs(report, seen)
                # A simulated cluster changes its arrays in place.
                free = seen.free.copy()
                self._record_usage(seen, free)
                self._instant = LatestCycleReports(report, report, seen, free, promises, cycle.context, self._checks)
            elif self._instant is not None:
                self._instant = replace(self._instant, last=report, context=cycle.context, checks=self._checks)

    def _record_ended_jobs(self, report: CycleReport, seen: Observation) -> None:
        now = {running.job.id: running for running in seen.running}
        ends = {ended.job.id: ended.end_s for ended in report.ended}
        for id in self._running_by_id.keys() - now.keys():
            before, end_s = self._running_by_id[id], ends.get(id, seen.now_s)
            self._past.append(
                EndedJobView(before.job, before.placement, before.start_s, end_s, self._labels.get(id, ""))
            )
        self._running_by_id, self._labels = now, seen.labels
        while self._past and self._past[0].end_s < seen.now_s - HISTORY_S:
            self._past.popleft()

    def _record_usage(self, seen: Observation, free: IntArray) -> None:
        if self._moments and seen.now_s - self._moments[-1].now_s < _SAMPLE_EVERY_S:
            return
        total = seen.cluster.capacity.sum(axis=0)
        shares = 1 - free.sum(axis=0) / np.maximum(total, 1)
        self._moments.append(page_schema.ResourceUsageSample(now_s=seen.now_s, in_use=[round(s, 4) for s in shares]))

    def get_last_cycle_number(self) -> int:
        """Return the last cycle's number, or 0 if no cycle has read the cluster yet."""
        instant = self._instant
        return 0 if instant is None else instant.last.number

    def get_view(self) -> page_schema.StatusPageView | None:
        """Return the last cycle's view, or None if no cycle has read the cluster yet."""
        with self._building:
            with self._lock:
                instant, past = self._instant, list(self._past)
                lines, moments = list(self._lines), list(self._moments)
            if instant is None:
                return None
            if self._view is None or self._view.status.round != instant.last.number:
                view = _StatusPageViewBuilder(instant, self.settings, past, self.forecaster.intervals).build(
                    lines[::-1], moments
                )
                promised = make_coverage_rows(self.forecaster.week.count_outcomes(instant.observation.now_s))
                self._view = view.model_copy(update={"promises": promised})
            return self._view


def make_coverage_rows(counts: Counts) -> list[page_schema.IntervalCoverageView]:
    """Return one row per class that has outcomes, with first forecasts at the top."""
    order = (FIRST_CLASS, *range(FIRST_CLASS))
    rows = {CLASS_LABELS[at]: [counts.get((at, outcome), 0) for outcome in INTERVAL_OUTCOMES] for at in order}
    return [
        page_schema.IntervalCoverageView(ahead=words, told=sum(row), **dict(zip(INTERVAL_OUTCOMES, row, strict=True)))
        for words, row in rows.items()
        if any(row)
    ]


def _make_cycle_view(report: CycleReport) -> page_schema.CycleView:
    effort = report.decision.effort if report.decision is not None else None
    gap = None
    if effort is not None and effort.objective is not None and effort.bound is not None:
        scale = abs(effort.objective)
        gap = max(0.0, min(1.0, (effort.objective - effort.bound) / scale)) if scale else 0.0
    return page_schema.CycleView(
        round=report.number, mode=report.mode, result=report.result,
        path=effort.path if effort else "", status=effort.status if effort else "",
        considered=effort.considered if effort else 0, variables=effort.variables if effort else 0, gap=gap,
        decide_s=report.seconds.get("decide", 0.0), cycle_s=sum(report.seconds.values()),
        queued=len(report.waiting), started=len(report.starts),
    )  # fmt: skip


@dataclass(slots=True)
class _StatusPageViewBuilder:
    """A builder of the page's values for one instant."""

    instant: LatestCycleReports
    settings: Settings
    past: list[EndedJobView]
    intervals: Mapping[int, StartForecast] = field(default_factory=dict)
    """The latest start intervals by job id."""

    @property
    def are_names_hidden(self) -> bool:
        return self.settings.page.users == "hide"

    def build(
        self, lines: list[page_schema.CycleView], moments: list[page_schema.ResourceUsageSample]
    ) -> page_schema.StatusPageView:
        seen, report = self.instant.observation, self.instant.read
        queue = list(self._list_queued_jobs(report.snapshot, report.decision)) if report.snapshot is not None else []
        running, aside = (
            list(self._list_running_jobs(seen, report.snapshot)),
            list(self._list_unscheduled_jobs(seen, report)),
        )
        out = self._find_unavailable_nodes(seen.cluster)
        return page_schema.StatusPageView(
            status=self._make_status(queue, aside, len(out)),
            queue=queue,
            running=running,
            aside=aside,
            decisions=lines,
            history=[moment for moment in moments if moment.now_s >= seen.now_s - HISTORY_S],
            chart=page_schema.GanttChartView(
                now_s=seen.now_s,
                node_names=list(seen.cluster.node_names),
                processors=seen.cluster.capacity[:, 0].tolist(),
                unavailable=out,
                outages=list(self._list_outages(seen, out)),
                bars=list(self._list_bars(seen, report)),
            ),
            machine=page_schema.NodeCapacitiesView.model_construct(
                capacity=seen.cluster.capacity.tolist(), free=self.instant.free.tolist()
            ),
        )

    # ------------------------------------------------------------------------------------------------------- jobs

    def _make_job_fields(self, job: Job, label: str = "") -> dict[str, Any]:
        return {
            "id": job.id,
            "label": _sanitize_text(label) or str(job.id),
            "user": self._get_visible_name(job.user),
            "account": self._get_visible_name(job.account),
            "name": self._get_visible_name(job.name),
            "partition": _sanitize_text(job.queue),
            "qos": _sanitize_text(job.qos),
        }

    def _make_request_fields(self, job: Job) -> dict[str, Any]:
        request, cluster = job.request, self.instant.observation.cluster
        return {
            "units": request.units,
            "per_unit": list(request.per_unit),
            "distinct": request.distinct,
            "exclusive": request.exclusive,
            "nodes_from": self._list_node_conditions(cluster, request.node_set)
            if 0 < request.node_set < len(cluster.node_sets)
            else (),
            "submit_s": job.submit_s,
            "walltime_s": job.walltime_s,
        }

    def _list_node_conditions(self, cluster: Cluster, node_set: int) -> tuple[NodeSetCondition, ...]:
        """Return a node set's conditions. If names are hidden, omit reservations.

        Slurm names a reservation after its user.
        """
        parts = [
            each
            for each in cluster.conditions_of_node_set(node_set)
            if not (self.are_names_hidden and each.kind == "reservation")
        ]
        return tuple(NodeSetCondition(kind, _sanitize_text(name)) for kind, name in parts)

    def _list_active_reservations(self, cluster: Cluster, node_set: int) -> tuple[NodeSetCondition, ...]:
        """Return the reservations that now hold nodes of a node set, or () if names are hidden."""
        seen = self.instant.observation
        if self.are_names_hidden:
            return ()
        return tuple(
            NodeSetCondition("reservation", _sanitize_text(each.name))
            for each in seen.outages
            if each.kind == "reserved"
            and each.from_s <= seen.now_s
            and cluster.node_sets[node_set, list(each.nodes)].any()
        )

    def _get_visible_name(self, text: str) -> str:
        """Return user-written text, or an empty string if names are hidden."""
        return "" if self.are_names_hidden else _sanitize_text(text)

    def _get_visible_reason(self, reason: PendingReason) -> PendingReason:
        """Return a reason. If names are hidden, omit details such as a limit's owner.

        Example: `AssocMaxJobsLimit: 2 of ...`.
        """
        return _sanitize_reason(reason_kinds.redact_reason(reason) if self.are_names_hidden else reason)

    def _list_queued_jobs(self, snapshot: Snapshot, decision: Decision | None) -> Iterable[page_schema.QueuedJobView]:
        table, promises = snapshot.table, self.instant.promises
        labels = self.instant.observation.map_labels_by_job_id()
        plan = decision.plan_by_job(snapshot) if decision is not None else {}
        starts, names = decision.starts_by_job(snapshot) if decision is not None else {}, snapshot.cluster.node_names
        list_active_reservations = cache(partial(self._list_active_reservations, snapshot.cluster))
        observation, ends = self.instant.observation, _get_expected_ends(snapshot)
        runs = [(each.start_s, ends.get(each.job.id, 0)) for each in observation.running]
        endless_s = find_first_unknown_end_s(observation.now_s, runs)
        for position, slot in enumerate(snapshot.queue.tolist(), start=1):
            job = table.jobs[slot]
            planned_s = plan.get(job.id)
            is_start_known = planned_s is None or planned_s < endless_s
            forecast = self.intervals.get(job.id) if is_start_known else None
            likely = forecast.at(self.instant.observation.now_s) if forecast is not None else None
            wait = decision.waits.get(job.id) if decision is not None else None
            request = self._make_request_fields(job)
            active = [
                part for part in list_active_reservations(job.request.node_set) if part not in request["nodes_from"]
            ]
            request["nodes_from"] = (*request["nodes_from"], *active)
            yield page_schema.QueuedJobView.model_construct(
                **self._make_job_fields(job, labels.get(job.id, "")),
                **request,
                position=position,
                priority=job.priority,
                estimate_s=int(table.estimate_s[slot]),
                reason=_sanitize_reason(wait.reason)
                if wait
                else None
                if job.id in starts
                else reason_kinds.NO_REASON_GIVEN,
                starts_on=[(names[node], units) for node, units in starts.get(job.id, ())],
                behind=list(wait.behind) if wait else [],
                expected_s=planned_s if is_start_known else None,
                first_expected_s=promises.get(job.id),
                likely_from_s=likely.from_s if likely else None,
                likely_to_s=likely.to_s if likely else None,
                start_quantiles_s=likely.published_quantiles_s if likely else [],
                calibrated=likely is not None and likely.calibrated,
            )

    def _list_running_jobs(self, seen: Observation, snapshot: Snapshot | None) -> Iterable[page_schema.RunningJobView]:
        ends = _get_expected_ends(snapshot)
        names, labels = seen.cluster.node_names, seen.map_labels_by_job_id()
        for running in sorted(seen.running, key=lambda each: (each.start_s, each.job.id)):
            job = running.job
            yield page_schema.RunningJobView.model_construct(
                **self._make_job_fields(job, labels.get(job.id, "")),
                **self._make_request_fields(job),
                start_s=running.start_s,
                expected_end_s=ends.get(job.id, running.start_s + job.walltime_s),
                nodes=[(names[node], units) for node, units in running.placement],
                preemptors=_sanitize_text(seen.preemptors.get(job.id, "")),
                checkpoint_s=seen.checkpoints.get(job.id),
            )

    def _list_unscheduled_jobs(
        self, seen: Observation, report: CycleReport
    ) -> Iterable[page_schema.UnscheduledJobView]:
        running = {each.job.id for each in seen.running}
        for left in seen.left:
            if left.job_id in running:  # it runs in an unknown state
                continue
            yield page_schema.UnscheduledJobView.model_construct(
                id=left.job_id, label=_sanitize_text(left.label) or str(left.job_id),
                user=self._get_visible_name(left.user), account="", name="", partition="", qos="", kind="left_to_slurm",
                reason=self._get_visible_reason(left.reason), asked=None,
            )  # fmt: skip
        decided_on = {job.id for job in report.waiting}
        for pending in seen.pending:
            job = pending.job
            if job.id not in decided_on:
                yield page_schema.UnscheduledJobView.model_construct(
                    **self._make_job_fields(job, pending.label),
                    kind=reason_kinds.classify_unscheduled_job(pending, job.id in report.limited),
                    reason=self._get_visible_reason(report.unscheduled[job.id].reason),
                    asked=page_schema.JobRequestView.model_construct(**self._make_request_fields(job)),
                )

    # ------------------------------------------------------------------------------------------------- the machine

    def _find_unavailable_nodes(self, cluster: Cluster) -> list[int]:
        """Return the nodes that have no free capacity and no running job."""
        busy = {node for running in self.instant.observation.running for node, _ in running.placement}
        return [node for node in np.flatnonzero(self.instant.free.max(axis=1) == 0).tolist() if node not in busy]

    def _list_outages(self, seen: Observation, out: list[int]) -> Iterable[page_schema.NodeOutageView]:
        """Yield the cluster's outages, and one outage for all other unavailable nodes.

        By default, Slurm names a reservation after its user. The name is hidden if users' names are hidden.
        """
        listed: set[int] = set()
        for each in seen.outages:
            listed |= set(each.nodes) if each.from_s <= seen.now_s else set()
            name = self._get_visible_name(each.name) if each.kind == "reserved" else _sanitize_text(each.name)
            yield page_schema.NodeOutageView(
                kind=each.kind, name=name, nodes=list(each.nodes), from_s=each.from_s, to_s=each.to_s
            )
        if rest := [node for node in out if node not in listed]:
            yield page_schema.NodeOutageView(kind="unknown", name="", nodes=rest, from_s=seen.now_s, to_s=None)

    def _list_resource_usage(self) -> list[page_schema.ResourceUsageView]:
        seen, free = self.instant.observation, self.instant.free.sum(axis=0)
        used = np.zeros(len(seen.cluster.resources), np.int64)
        for running in seen.running:
            for amounts in amounts_by_node(running.job.request, running.placement, seen.cluster.capacity).values():
                used += amounts
        total = seen.cluster.capacity.sum(axis=0)
        return [
            page_schema.ResourceUsageView(
                name=name, capacity=int(total[r]), in_use=int(used[r]), free=int(free[r]),
                unavailable=max(0, int(total[r] - used[r] - free[r])),
            )
            for r, name in enumerate(seen.cluster.resources)
        ]  # fmt: skip

    def _make_status(
        self, queue: list[page_schema.QueuedJobView], aside: list[page_schema.UnscheduledJobView], out: int
    ) -> page_schema.BridgeStatusView:
        instant, policy = self.instant, self.settings.policy
        seen, last = instant.observation, instant.last
        paused = instant.context.paused or _format_startup_wait(last.waits_for)
        counts = reason_kinds.count_jobs_by_reason(instant.read) or {}
        return page_schema.BridgeStatusView(
            version=version("cpsched"), cluster=_sanitize_text(seen.cluster_name)[:80], host=platform.node(),
            round=last.number, at_unix_s=last.at_unix_s, now_s=seen.now_s, mode=last.mode,
            dispatcher=policy.dispatcher, predictor=policy.predictor,
            interval_s=self.settings.cycle.interval_s, users_hidden=self.are_names_hidden,
            nodes=seen.cluster.size, unavailable_nodes=out, queued=len(queue), running=len(seen.running),
            aside=len(aside), held=instant.read.kept, resources=self._list_resource_usage(),
            causes=summarize_reasons(counts, [*queue, *aside]), alarms=list_alerts(last, paused, instant.checks, seen, self.are_names_hidden),  # noqa: E501
            easy_ratios=dict(instant.read.decision.effort.ratios) if instant.read.decision is not None else {},
        )  # fmt: skip

    # --------------------------------------------------------------------------------------------------- the chart

    def _list_bars(self, seen: Observation, report: CycleReport) -> Iterable[page_schema.GanttBar]:
        ends, labels = _get_expected_ends(report.snapshot), seen.map_labels_by_job_id()
        for ran in self.past:
            yield self._make_bar(ran.job, "past", ran.start_s, ran.end_s, ran.placement, ran.label)
        for running in seen.running:
            end_s = max(seen.now_s + 1, ends.get(running.job.id, running.start_s + running.job.walltime_s))
            label = labels.get(running.job.id, "")
            yield self._make_bar(running.job, "running", running.start_s, end_s, running.placement, label)
        if report.snapshot is None or report.decision is None:
            return
        jobs = {job.id: job for job in report.waiting}
        planned = estimate_planned_placements(
            report.snapshot, report.decision, seen.now_s + PLANNED_WINDOW_S, seen.outages
        )
        for id, (begin_s, end_s, placement) in planned.items():
            yield self._make_bar(jobs[id], "planned", begin_s, end_s, placement, labels.get(id, ""))

    def _make_bar(
        self, job: Job, kind: str, begin_s: int, end_s: int, placement: Placement, label: str
    ) -> page_schema.GanttBar:
        amounts = amounts_by_node(job.request, placement, self.instant.observation.cluster.capacity)
        user, name = self._get_visible_name(job.user), _sanitize_text(label) or str(job.id)
        return page_schema.GanttBar.model_construct(
            id=job.id,
            label=name,
            user=user,
            kind=kind,
            begin_s=begin_s,
            end_s=end_s,
            nodes=[(node, int(used[0])) for node, used in amounts.items()],
        )


def _format_startup_wait(text: str) -> str:
    """Return why the bridge starts no jobs while it waits for `text`, or ""."""
    return f"no decision yet: {text}" if text else ""


def _sanitize_text(text: str) -> str:
    """Return `text` cut to the maximum length, with unencodable characters escaped."""
    return text[:_MAX_TEXT_CHARS].encode("utf-8", "backslashreplace").decode()


def _sanitize_reason(reason: PendingReason) -> PendingReason:
    valid = (_sanitize_text(each) if isinstance(each, str) else each for each in reason.arguments)
    return replace(reason, arguments=tuple(valid))


def _get_expected_ends(snapshot: Snapshot | None) -> dict[int, int]:
    """Return the expected ends of running jobs by id."""
    if snapshot is None:
        return {}
    return {snapshot.table.jobs[slot].id: int(snapshot.table.end_s[slot]) for slot in snapshot.running.tolist()}
