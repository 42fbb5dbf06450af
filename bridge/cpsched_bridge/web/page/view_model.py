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
    RunningJob,
    Snapshot,
)
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.ports import Observation, ReadinessCheck
from cpsched_bridge.settings import Settings
from cpsched_bridge.telemetry import reason_kinds
from cpsched_bridge.telemetry.forecast_outcomes import CLASS_LABELS, BridgeStatusFacts, Counts, CycleReportWithOutcomes
from cpsched_bridge.telemetry.start_forecasts import StartForecaster
from cpsched_bridge.views import status_view
from cpsched_bridge.views.job_view import (
    JobState,
    JobsView,
    JobView,
    find_first_unknown_end_s,
    get_known_duration_s,
    get_known_end_s,
    make_forecast_fields,
    make_job_fields,
    make_reason_fields,
    name_nodes,
    sanitize_text,
)
from cpsched_bridge.web.page.page_summary import list_alerts, summarize_reasons
from cpsched_bridge.web.page.planned_placements import estimate_planned_placements

HISTORY_S = 3600
"""Time covered by the chart's past and by the history, in seconds."""
PLANNED_WINDOW_S = 24 * 3600
"""Time into the future for which planned jobs are placed, in seconds."""
_MAX_ENDED_JOBS = 5000
_MAX_CYCLES = 200
_SAMPLE_EVERY_S = 10
_MAX_SAMPLES = HISTORY_S // _SAMPLE_EVERY_S + 1


@dataclass(frozen=True, slots=True)
class EndedJobRecord:
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
    first_planned_s: Mapping[int, int]
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
    _past: deque[EndedJobRecord] = field(default_factory=lambda: deque(maxlen=_MAX_ENDED_JOBS))
    _lines: deque[status_view.CycleView] = field(default_factory=lambda: deque(maxlen=_MAX_CYCLES))
    _moments: deque[status_view.ResourceUsageSample] = field(default_factory=lambda: deque(maxlen=_MAX_SAMPLES))
    _checks: Sequence[ReadinessCheck] = ()
    _lock: Lock = field(default_factory=Lock)
    _building: Lock = field(default_factory=Lock)
    _view: status_view.StatusPageView | None = None

    def __call__(self, cycle: CycleReportWithOutcomes, first_planned_s: Mapping[int, int]) -> None:
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
                self._instant = LatestCycleReports(
                    report, report, seen, free, first_planned_s, cycle.context, self._checks
                )
            elif self._instant is not None:
                self._instant = replace(self._instant, last=report, context=cycle.context, checks=self._checks)

    def _record_ended_jobs(self, report: CycleReport, seen: Observation) -> None:
        now = {running.job.id: running for running in seen.running}
        ends = {ended.job.id: ended.end_s for ended in report.changes.ended}
        for id in self._running_by_id.keys() - now.keys():
            before, end_s = self._running_by_id[id], ends.get(id, seen.now_s)
            self._past.append(
                EndedJobRecord(before.job, before.placement, before.start_s, end_s, self._labels.get(id, ""))
            )
        self._running_by_id, self._labels = now, seen.labels
        while self._past and self._past[0].end_s < seen.now_s - HISTORY_S:
            self._past.popleft()

    def _record_usage(self, seen: Observation, free: IntArray) -> None:
        if self._moments and seen.now_s - self._moments[-1].now_s < _SAMPLE_EVERY_S:
            return
        total = seen.cluster.capacity.sum(axis=0)
        shares = 1 - free.sum(axis=0) / np.maximum(total, 1)
        self._moments.append(status_view.ResourceUsageSample(now_s=seen.now_s, in_use=[round(s, 4) for s in shares]))

    def get_view(self) -> status_view.StatusPageView | None:
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
                coverage = make_coverage_rows(self.forecaster.week.count_outcomes(instant.observation.now_s))
                self._view = replace(view, coverage=coverage)
            return self._view


def make_coverage_rows(counts: Counts) -> list[status_view.IntervalCoverageView]:
    """Return one row per class that has outcomes, with first forecasts at the top."""
    order = (FIRST_CLASS, *range(FIRST_CLASS))
    rows = {CLASS_LABELS[at]: [counts.get((at, outcome), 0) for outcome in INTERVAL_OUTCOMES] for at in order}
    return [
        status_view.IntervalCoverageView(
            forecast=label, count=sum(row), **dict(zip(INTERVAL_OUTCOMES, row, strict=True))
        )
        for label, row in rows.items()
        if any(row)
    ]


def _make_cycle_view(report: CycleReport) -> status_view.CycleView:
    effort = report.decided.effort
    gap = None
    if effort is not None and effort.objective is not None and effort.bound is not None:
        scale = abs(effort.objective)
        gap = max(0.0, min(1.0, (effort.objective - effort.bound) / scale)) if scale else 0.0
    return status_view.CycleView(
        round=report.number, mode=report.role.mode, result=report.result,
        path=effort.path if effort else "", status=effort.status if effort else "",
        considered=effort.considered if effort else 0, variables=effort.variables if effort else 0, gap=gap,
        decide_s=report.seconds.get("decide", 0.0), cycle_s=sum(report.seconds.values()),
        queued=len(report.decided.waiting), started=len(report.decided.starts),
    )  # fmt: skip


@dataclass(slots=True)
class _StatusPageViewBuilder:
    """A builder of the page's values for one instant."""

    instant: LatestCycleReports
    settings: Settings
    past: list[EndedJobRecord]
    intervals: Mapping[int, StartForecast] = field(default_factory=dict)
    """The latest start intervals by job id."""

    @property
    def are_names_hidden(self) -> bool:
        return self.settings.page.users == "hide"

    def build(
        self, lines: list[status_view.CycleView], moments: list[status_view.ResourceUsageSample]
    ) -> status_view.StatusPageView:
        observation, report = self.instant.observation, self.instant.read
        snapshot, decision = report.decided.snapshot, report.decided.decision
        jobs = JobsView(
            now_s=observation.now_s,
            mode=self.instant.last.role.mode,
            predictor=self.settings.policy.predictor,
            waiting=[] if snapshot is None else list(self._list_waiting_jobs(snapshot, decision)),
            running=list(self._list_running_jobs(observation, snapshot)),
            unscheduled=list(self._list_unscheduled_jobs(observation, report)),
            ended=list(map(self._view_ended_job, self.past)),
        )
        unavailable = self._find_unavailable_nodes(observation.cluster)
        return status_view.StatusPageView(
            status=self._make_status(jobs),
            jobs=jobs,
            decisions=lines,
            history=[moment for moment in moments if moment.now_s >= observation.now_s - HISTORY_S],
            chart=status_view.GanttChartView(
                now_s=observation.now_s,
                node_names=list(observation.cluster.node_names),
                processors=observation.cluster.capacity[:, 0].tolist(),
                unavailable=unavailable,
                outages=list(self._list_outages(observation, unavailable)),
                bars=list(self._list_bars(observation, report)),
            ),
            capacities=status_view.NodeCapacitiesView(
                capacity=observation.cluster.capacity.tolist(), free=self.instant.free.tolist()
            ),
        )

    # ------------------------------------------------------------------------------------------------------- jobs

    def _make_job_fields(
        self, job: Job, label: str = "", reservations: tuple[NodeSetCondition, ...] = ()
    ) -> dict[str, Any]:
        """Return the facts of a job. Its nodes exclude those of `reservations`."""
        observation = self.instant.observation
        cluster, node_set = observation.cluster, job.request.node_set
        conditions = self._list_node_conditions(cluster, node_set) if 0 < node_set < len(cluster.node_sets) else ()
        conditions += tuple(part for part in reservations if part not in conditions)
        fields = make_job_fields(job, label, cluster, observation.now_s, self.are_names_hidden)
        return fields | {"request": replace(fields["request"], nodes_from=conditions)}

    def _list_node_conditions(self, cluster: Cluster, node_set: int) -> tuple[NodeSetCondition, ...]:
        """Return a node set's conditions. If names are hidden, omit reservations.

        Slurm names a reservation after its user.
        """
        parts = [
            each
            for each in cluster.conditions_of_node_set(node_set)
            if not (self.are_names_hidden and each.kind == "reservation")
        ]
        return tuple(NodeSetCondition(kind, sanitize_text(name)) for kind, name in parts)

    def _list_active_reservations(self, cluster: Cluster, node_set: int) -> tuple[NodeSetCondition, ...]:
        """Return the reservations that now hold nodes of a node set, or () if names are hidden."""
        seen = self.instant.observation
        if self.are_names_hidden:
            return ()
        return tuple(
            NodeSetCondition("reservation", sanitize_text(each.name))
            for each in seen.outages
            if each.kind == "reserved"
            and each.from_s <= seen.now_s
            and cluster.node_sets[node_set, list(each.nodes)].any()
        )

    def _get_visible_name(self, text: str) -> str:
        """Return user-written text, or an empty string if names are hidden."""
        return "" if self.are_names_hidden else sanitize_text(text)

    def _get_visible_reason(self, reason: PendingReason) -> PendingReason:
        """Return a reason. If names are hidden, omit details such as a limit's owner.

        Example: `AssocMaxJobsLimit: 2 of ...`.
        """
        return _sanitize_reason(reason_kinds.redact_reason(reason) if self.are_names_hidden else reason)

    def _list_waiting_jobs(self, snapshot: Snapshot, decision: Decision | None) -> Iterable[JobView]:
        table, cluster, now_s = snapshot.table, snapshot.cluster, self.instant.observation.now_s
        labels = self.instant.observation.map_labels_by_job_id()
        plan = decision.plan_by_job(snapshot) if decision is not None else {}
        starts = decision.starts_by_job(snapshot) if decision is not None else {}
        list_active_reservations = cache(partial(self._list_active_reservations, cluster))
        observation, ends = self.instant.observation, _get_expected_ends(snapshot)
        runs = [(each.start_s, ends.get(each.job.id, 0)) for each in observation.running]
        endless_s = find_first_unknown_end_s(now_s, runs)
        for position, slot in enumerate(snapshot.queue.tolist(), start=1):
            job = table.jobs[slot]
            planned_s = plan.get(job.id)
            is_start_known = planned_s is None or planned_s < endless_s
            forecast = self.intervals.get(job.id) if is_start_known else None
            wait = decision.waits.get(job.id) if decision is not None else None
            reason = None if job.id in starts else reason_kinds.NO_REASON_GIVEN
            yield JobView(
                **self._make_job_fields(job, labels.get(job.id, ""), list_active_reservations(job.request.node_set)),
                **make_reason_fields(reason if wait is None else _sanitize_reason(wait.reason)),
                **make_forecast_fields(None if forecast is None else forecast.at(now_s)),
                state=JobState.WAITING,
                position=position,
                estimate_s=get_known_duration_s(int(table.estimate_s[slot])),
                nodes=name_nodes(starts.get(job.id, ()), cluster),
                waits_for=() if wait is None else tuple(wait.waits_for),
                planned_s=planned_s if is_start_known else None,
                first_planned_s=self.instant.first_planned_s.get(job.id),
            )

    def _list_running_jobs(self, observation: Observation, snapshot: Snapshot | None) -> Iterable[JobView]:
        ends, labels = _get_expected_ends(snapshot), observation.map_labels_by_job_id()
        for running in sorted(observation.running, key=lambda each: (each.start_s, each.job.id)):
            job, start_s = running.job, running.start_s
            yield JobView(
                **self._make_job_fields(job, labels.get(job.id, "")),
                state=JobState.RUNNING,
                nodes=name_nodes(running.placement, observation.cluster),
                start_s=start_s,
                expected_end_s=get_known_end_s(start_s, ends.get(job.id, start_s + job.walltime_s)),
                preemptors=sanitize_text(observation.preemptors.get(job.id, "")),
                checkpoint_s=observation.checkpoints.get(job.id),
            )

    def _list_unscheduled_jobs(self, observation: Observation, report: CycleReport) -> Iterable[JobView]:
        running = {each.job.id for each in observation.running}
        for left in observation.unmanaged:
            if left.job_id not in running:  # else it runs in an unknown state
                yield JobView(
                    id=left.job_id,
                    label=sanitize_text(left.label) or str(left.job_id),
                    state=JobState.UNSCHEDULED,
                    user=self._get_visible_name(left.user),
                    kind=reason_kinds.UNMANAGED,
                    reason=self._get_visible_reason(left.reason),
                )
        decided_on = {job.id for job in report.decided.waiting}
        for pending in observation.pending:
            job = pending.job
            if job.id not in decided_on:
                yield JobView(
                    **self._make_job_fields(job, pending.label),
                    state=JobState.UNSCHEDULED,
                    kind=reason_kinds.classify_unscheduled_job(pending, report.excludes(job.id)),
                    reason=self._get_visible_reason(report.unscheduled[job.id].reason),
                )

    def _view_ended_job(self, ended: EndedJobRecord) -> JobView:
        fields = self._make_job_fields(ended.job, ended.label)
        return JobView(**fields, state=JobState.ENDED, start_s=ended.start_s, end_s=ended.end_s)

    # ------------------------------------------------------------------------------------------------- the machine

    def _find_unavailable_nodes(self, cluster: Cluster) -> list[int]:
        """Return the nodes that have no free capacity and no running job."""
        busy = {node for running in self.instant.observation.running for node, _ in running.placement}
        return [node for node in np.flatnonzero(self.instant.free.max(axis=1) == 0).tolist() if node not in busy]

    def _list_outages(self, seen: Observation, out: list[int]) -> Iterable[status_view.NodeOutageView]:
        """Yield the cluster's outages, and one outage for all other unavailable nodes.

        By default, Slurm names a reservation after its user. The name is hidden if users' names are hidden.
        """
        listed: set[int] = set()
        for each in seen.outages:
            listed |= set(each.nodes) if each.from_s <= seen.now_s else set()
            name = self._get_visible_name(each.name) if each.kind == "reserved" else sanitize_text(each.name)
            yield status_view.NodeOutageView(
                kind=each.kind, name=name, nodes=list(each.nodes), from_s=each.from_s, to_s=each.to_s
            )
        if rest := [node for node in out if node not in listed]:
            yield status_view.NodeOutageView(kind="unknown", name="", nodes=rest, from_s=seen.now_s, to_s=None)

    def _list_resource_usage(self) -> list[status_view.ResourceUsageView]:
        seen, free = self.instant.observation, self.instant.free.sum(axis=0)
        used = np.zeros(len(seen.cluster.resources), np.int64)
        for running in seen.running:
            for amounts in amounts_by_node(running.job.request, running.placement, seen.cluster.capacity).values():
                used += amounts
        total = seen.cluster.capacity.sum(axis=0)
        return [
            status_view.ResourceUsageView(
                name=name, capacity=int(total[r]), in_use=int(used[r]), free=int(free[r]),
                unavailable=max(0, int(total[r] - used[r] - free[r])),
            )
            for r, name in enumerate(seen.cluster.resources)
        ]  # fmt: skip

    def _make_status(self, jobs: JobsView) -> status_view.BridgeStatusView:
        instant, observation, last = self.instant, self.instant.observation, self.instant.last
        paused = instant.context.paused or _format_startup_wait(last.decided.waits_for)
        counts = reason_kinds.count_jobs_by_reason(instant.read) or {}
        decision = instant.read.decided.decision
        return status_view.BridgeStatusView(
            version=version("cpsched"),
            stranded_gpus=observation.stranded_gpus,
            cluster=sanitize_text(observation.cluster_name)[:80],
            host=platform.node(),
            round=last.number,
            at_unix_s=last.at_unix_s,
            dispatcher=self.settings.policy.dispatcher,
            interval_s=self.settings.cycle.interval_s,
            users_hidden=self.are_names_hidden,
            held=instant.read.held,
            resources=self._list_resource_usage(),
            pending_reasons=summarize_reasons(counts, [*jobs.waiting, *jobs.unscheduled]),
            alerts=list_alerts(last, paused, instant.checks, observation, self.are_names_hidden),
            easy_ratios={} if decision is None else dict(decision.effort.ratios),
        )

    # --------------------------------------------------------------------------------------------------- the chart

    def _list_bars(self, seen: Observation, report: CycleReport) -> Iterable[status_view.GanttBar]:
        snapshot, decision = report.decided.snapshot, report.decided.decision
        ends, labels = _get_expected_ends(snapshot), seen.map_labels_by_job_id()
        for ran in self.past:
            yield self._make_bar("past", RunningJob(ran.job, ran.start_s, ran.placement), ran.end_s, ran.label)
        for running in seen.running:
            end_s = max(seen.now_s + 1, ends.get(running.job.id, running.start_s + running.job.walltime_s))
            yield self._make_bar("running", running, end_s, labels.get(running.job.id, ""))
        if snapshot is None or decision is None:
            return
        jobs = {job.id: job for job in report.decided.waiting}
        planned = estimate_planned_placements(snapshot, decision, seen.now_s + PLANNED_WINDOW_S, seen.outages)
        for id, (begin_s, end_s, placement) in planned.items():
            yield self._make_bar("planned", RunningJob(jobs[id], begin_s, placement), end_s, labels.get(id, ""))

    def _make_bar(self, kind: str, run: RunningJob, end_s: int, label: str) -> status_view.GanttBar:
        job = run.job
        amounts = amounts_by_node(job.request, run.placement, self.instant.observation.cluster.capacity)
        user, name = self._get_visible_name(job.user), sanitize_text(label) or str(job.id)
        return status_view.GanttBar(
            id=job.id,
            label=name,
            user=user,
            kind=kind,
            begin_s=run.start_s,
            end_s=end_s,
            nodes=[(node, int(used[0])) for node, used in amounts.items()],
        )


def _format_startup_wait(text: str) -> str:
    """Return why the bridge starts no jobs while it waits for `text`, or ""."""
    return f"no decision yet: {text}" if text else ""


def _sanitize_reason(reason: PendingReason) -> PendingReason:
    valid = (sanitize_text(each) if isinstance(each, str) else each for each in reason.arguments)
    return replace(reason, arguments=tuple(valid))


def _get_expected_ends(snapshot: Snapshot | None) -> dict[int, int]:
    """Return the expected ends of running jobs by id."""
    if snapshot is None:
        return {}
    return {snapshot.table.jobs[slot].id: int(snapshot.table.end_s[slot]) for slot in snapshot.running.tolist()}
