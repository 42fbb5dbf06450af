"""Define the bridge's metrics: name, help text, labels, and samples per cycle.

Names follow the Prometheus conventions: base units, `_total` counters, no label per job, user or node. A metric with
labels has at most `most` label sets, and all others are counted as `other`. The exporter adds the process's own
`process_*` metrics (memory, CPU time, open files).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal, get_args

from cpsched.dispatchers.lookahead.area_weight_control import AREA, RATIOS
from cpsched.errors import escape_controls
from cpsched.forecast import HORIZONS_S, INTERVAL_OUTCOMES
from cpsched.formatting import is_unknown_time
from cpsched.metrics import bounded_slowdown
from cpsched.model import BSLD_BOUND_S, Job
from cpsched_bridge.cycle_report import MODES, OK_RESULT, PHASES
from cpsched_bridge.ports import OBJECT_KINDS, Result
from cpsched_bridge.telemetry import reason_kinds
from cpsched_bridge.telemetry.forecast_outcomes import CycleReportWithOutcomes, StartForecastScore

Labels = tuple[str, ...]
Samples = Iterable[tuple[Labels, float]]
Kind = Literal["counter", "gauge", "histogram", "summary"]

MAX_PARTITION_SERIES = 19
"""Maximum number of partitions that have their own series."""
OTHER = "other"
_MAX_PARTITION_CHARS = 64
"""Maximum length of a partition's name in a label."""

_PHASE_BUCKETS_S = (0.01, 0.05, 0.2, 1.0, 5.0)
_LATENCY_BUCKETS_S = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0)
_WAIT_BUCKETS_S = (60.0, 600.0, 3600.0, 14400.0, 86400.0, 604800.0)
_SLOWDOWN_BUCKETS = (1.1, 2.0, 5.0, 10.0, 20.0, 100.0, 1000.0)
_FORECAST_ERROR_BUCKETS_S = (60.0, 600.0, 3600.0, 14400.0, 86400.0)
COMMAND_KINDS = ("start", "hold", "release", "boost", "preempt")
"""Label values for the kinds of commands."""
_COUNTED_AS = {"unpin": "release"}
"""Kinds without their own series, because they are rare, and the kinds that they are counted as."""
_OUTCOME_CLASSES = (*map(str, HORIZONS_S), "+Inf", "first")
"""Label values for the time from a forecast to its median: upper bounds in seconds."""
_LOG2_BUCKETS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """The definition of one metric.

    - `name`: Prometheus appends `_total` to a counter.
    - `of`: returns the samples of one cycle as (label values, value), or None if the cycle has no data for the metric.
      A counter is incremented by each value, a histogram or summary observes each value, and a gauge is set to the
      value. A gauge's label sets that no longer occur are set to `absent`.
    - `most`: maximum number of label sets with their own series.
    - `known`: label sets that exist from the start, so that rates begin at 0.
    - `merged`: how a gauge combines the values under `other`.
    """

    kind: Kind
    name: str
    sentence: str
    of: Callable[[CycleReportWithOutcomes], Samples | None]
    labels: Labels = ()
    most: int = 1
    known: tuple[Labels, ...] = ()
    buckets: tuple[float, ...] = ()
    merged: Callable[[float, float], float] = float.__add__
    absent: float = 0.0

    @property
    def max_series(self) -> int:
        """Maximum number of time series, including `other`."""
        each = {"histogram": len(self.buckets) + 3, "summary": 2}.get(self.kind, 1)
        closed = not self.labels or len(self.known) == self.most
        return each * (self.most if closed else self.most + 1)


# ------------------------------------------------------------------------------------------------ how samples are made


def make_value_sampler(
    read: Callable[[CycleReportWithOutcomes], float],
) -> Callable[[CycleReportWithOutcomes], Samples]:
    """Return a function that samples one value without labels in every cycle."""
    return lambda cycle: [((), float(read(cycle)))]


def make_observation_value_sampler(
    read: Callable[[CycleReportWithOutcomes], float],
) -> Callable[[CycleReportWithOutcomes], Samples | None]:
    """Return a function that samples one unlabeled value if the cluster was read."""
    return lambda cycle: [((), float(read(cycle)))] if cycle.report.observation is not None else None


def make_unlabeled_sampler(
    read: Callable[[CycleReportWithOutcomes], Iterable[float]],
) -> Callable[[CycleReportWithOutcomes], Samples]:
    """Return a function that samples each value without labels."""
    return lambda cycle: (((), float(one)) for one in read(cycle))


def make_count_sampler(
    read: Callable[[CycleReportWithOutcomes], Iterable[str]],
) -> Callable[[CycleReportWithOutcomes], Samples]:
    """Return a function that counts the occurrences of each value of one label."""
    return lambda cycle: [((label,), float(times)) for label, times in Counter(read(cycle)).items()]


def get_first_partition(job: Job) -> str:
    """Return a job's first partition, or `none` if the cluster has no partitions."""
    return escape_controls(job.queue.partition(",")[0][:_MAX_PARTITION_CHARS]) or "none"


def _count_unusable_objects(cycle: CycleReportWithOutcomes) -> Samples | None:
    if cycle.report.observation is None:
        return None
    counts = Counter(each.kind for each in cycle.report.observation.unusable)
    return [((kind,), float(counts[kind])) for kind in OBJECT_KINDS]


def _count_queued_jobs(cycle: CycleReportWithOutcomes) -> Samples | None:
    if cycle.report.observation is None:
        return None
    return make_count_sampler(lambda cycle: map(get_first_partition, cycle.report.decided.waiting))(cycle)


def _sample_oldest_wait(cycle: CycleReportWithOutcomes) -> Samples | None:
    observation = cycle.report.observation
    if observation is None:
        return None
    found: defaultdict[str, float] = defaultdict(float)
    for job in cycle.report.decided.waiting:
        if is_unknown_time(job.submit_s, observation.now_s):
            continue
        partition = get_first_partition(job)
        found[partition] = max(found[partition], float(observation.now_s - job.submit_s))
    return [((partition,), age_s) for partition, age_s in found.items()]


def _sample_waits(cycle: CycleReportWithOutcomes) -> Samples:
    for job, start_s in cycle.report.changes.started:
        if not is_unknown_time(job.submit_s, start_s):
            yield (get_first_partition(job),), float(max(0, start_s - job.submit_s))


def _sample_slowdowns(cycle: CycleReportWithOutcomes) -> Iterator[tuple[str, float]]:
    for ended in cycle.report.changes.ended:
        if not is_unknown_time(ended.job.submit_s, ended.start_s):
            yield get_first_partition(ended.job), float(bounded_slowdown(max(0, ended.wait_s), ended.run_s))


def _count_pending_reasons(cycle: CycleReportWithOutcomes) -> Samples | None:
    found = reason_kinds.count_jobs_by_reason(cycle.report)
    return None if found is None else [((kind,), float(jobs)) for kind, jobs in found.items()]


def _count_decisions(cycle: CycleReportWithOutcomes) -> Samples:
    effort = cycle.report.decided.effort
    if effort is not None:
        yield (effort.path, effort.status or "none"), 1.0


def _make_effort_sampler(
    read: Callable[[CycleReportWithOutcomes], float],
) -> Callable[[CycleReportWithOutcomes], Samples]:
    """Return a function that samples one value per decision that considered a job."""
    return lambda cycle: [((), float(read(cycle)))] if _get_effort_field(cycle, "considered") else []


def _get_effort_field(cycle: CycleReportWithOutcomes, name: str) -> float:
    return float(getattr(cycle.report.decided.effort, name, 0.0))


def _sample_optimality_gaps(cycle: CycleReportWithOutcomes) -> Iterator[float]:
    """Yield the gap between the best plan and its bound, as a share of the plan."""
    effort = cycle.report.decided.effort
    if effort is not None and effort.objective is not None and effort.bound is not None:
        distance, scale = effort.objective - effort.bound, abs(effort.objective)
        yield max(0.0, min(1.0, distance / scale)) if scale else 0.0


def _get_easy_ratios_and_area_weight(cycle: CycleReportWithOutcomes) -> Mapping[str, float]:
    """Return the ratios to the virtual EASY schedule and the weight `area`, by name."""
    effort = cycle.report.decided.effort
    return {} if effort is None else effort.ratios


def _sample_easy_ratios(cycle: CycleReportWithOutcomes) -> Samples | None:
    return [
        ((name,), float(ratio)) for name, ratio in _get_easy_ratios_and_area_weight(cycle).items() if name != AREA
    ] or None


def _sample_area_weight(cycle: CycleReportWithOutcomes) -> Samples | None:
    area = _get_easy_ratios_and_area_weight(cycle).get(AREA)
    return None if area is None else [((), float(area))]


def _count_solver_runs(cycle: CycleReportWithOutcomes) -> float:
    return float(_get_effort_field(cycle, "solver_s") > 0)


def _count_unproved_searches(cycle: CycleReportWithOutcomes) -> float:
    effort = cycle.report.decided.effort
    proved = effort is None or effort.status in ("", "none", "optimal")
    return float(not proved) * _count_solver_runs(cycle)


def _sample_start_delays(cycle: CycleReportWithOutcomes) -> Samples:
    for kept in cycle.kept:
        late_s = kept.start_s - kept.first_s
        yield ("late" if late_s > 0 else "early",), float(abs(late_s))


def _make_forecast_score_sampler(
    read: Callable[[StartForecastScore], float],
) -> Callable[[CycleReportWithOutcomes], Samples]:
    """Return a function that samples one value per scored forecast, by `StartForecast.outcome_class`."""
    return lambda cycle: [((_OUTCOME_CLASSES[each.outcome_class],), float(read(each))) for each in cycle.outcomes]


def _sample_prediction_errors(cycle: CycleReportWithOutcomes) -> Samples:
    for one in cycle.predicted:
        log2 = math.log2(max(1, one.run_s) / max(1, one.estimate_s))
        yield ("longer" if log2 > 0 else "shorter",), abs(log2)


def _make_resource_amount_sampler(free: bool) -> Callable[[CycleReportWithOutcomes], Samples | None]:
    def read(cycle: CycleReportWithOutcomes) -> Samples | None:
        found = cycle.report.observation
        if found is None:
            return None
        amounts = (found.free if free else found.cluster.capacity).sum(axis=0).tolist()
        return [((name,), float(amount)) for name, amount in zip(found.cluster.resources, amounts, strict=True)]

    return read


def _sample_stranded_gpus(cycle: CycleReportWithOutcomes) -> Samples | None:
    seen = cycle.report.observation
    return None if seen is None or seen.stranded_gpus is None else [((), seen.stranded_gpus)]


def _sample_readiness_checks(cycle: CycleReportWithOutcomes) -> Samples | None:
    if cycle.report.checks is None:
        return None
    writes = cycle.report.role.mode != "shadow" or bool(cycle.report.role.paused)
    return [
        ((check.name, "yes" if check.required and writes else "no"), float(check.ok)) for check in cycle.report.checks
    ]


def _sample_success_time(cycle: CycleReportWithOutcomes) -> Samples | None:
    return [((), cycle.report.at_unix_s)] if cycle.report.result == OK_RESULT else None


def _make_label_sets(*text: str) -> tuple[Labels, ...]:
    return tuple((word,) for word in text)


# ---------------------------------------------------------------------------------------------------------- the table

METRICS: tuple[MetricFamily, ...] = (
    # loop
    MetricFamily("counter", "cpsched_cycles", "Cycles by result.", lambda c: [((c.report.result,), 1.0)],
           ("result",), 8, _make_label_sets(OK_RESULT)),
    MetricFamily("gauge", "cpsched_last_success_timestamp_seconds", "Unix time at which the last successful cycle ended.", _sample_success_time),  # noqa: E501
    MetricFamily("histogram", "cpsched_cycle_phase_duration_seconds", "Duration of each phase of a cycle; `decide` is the decision.",  # noqa: E501
           lambda c: [((phase,), s) for phase, s in c.report.seconds.items()],
           ("phase",), len(PHASES), _make_label_sets(*PHASES), _PHASE_BUCKETS_S),
    MetricFamily("counter", "cpsched_cycle_late_seconds", "Delay of cycles that began more than 10 intervals late.",
           make_value_sampler(lambda c: c.report.gap_s)),
    MetricFamily("gauge", "cpsched_cycle_interval_seconds", "Configured seconds from the start of one cycle to the next.",  # noqa: E501
           make_value_sampler(lambda c: c.context.interval_s)),
    MetricFamily("gauge", "cpsched_cycle_pause_seconds",
           "Current seconds from the start of one cycle to the next; longer while the cluster is busy.",
           make_value_sampler(lambda c: c.report.pause_s)),
    MetricFamily("gauge", "cpsched_mode", "1 for the bridge's current mode.",
           lambda c: [((mode,), float(mode == c.report.role.mode)) for mode in MODES], ("mode",), len(MODES),
           _make_label_sets(*MODES)),
    MetricFamily("gauge", "cpsched_standby", "1 while another bridge controls the cluster.",
           make_observation_value_sampler(lambda c: c.report.role.other_leader is not None)),
    MetricFamily("counter", "cpsched_events", "Events by kind, as in the journal.",
           lambda c: [((h.kind,), float(h.times)) for h in c.report.bridge_events],
           ("kind",), 12, _make_label_sets("start_failed", "start_refused")),
    MetricFamily("counter", "cpsched_commands",
           "Commands by kind and result; a command for several jobs counts once per job.",
           lambda c: [((_COUNTED_AS.get(kind, kind), o.result), 1.0) for kind, o in c.report.outcomes],
           ("kind", "result"), 12, tuple((kind, result) for kind in COMMAND_KINDS for result in get_args(Result))),
    MetricFamily("counter", "cpsched_child_restarts", "Restarts of the process that calls the cluster.",
           make_value_sampler(lambda c: c.child_restarts)),
    MetricFamily("gauge", "cpsched_journal_size_bytes", "Size of the journal's files.",
           make_value_sampler(lambda c: c.context.journal_bytes)),
    MetricFamily("gauge", "cpsched_ledger_size_bytes", "Size of the ledger's files.", make_value_sampler(lambda c: c.context.ledger_bytes)),  # noqa: E501
    MetricFamily("gauge", "cpsched_check_ok",
           "1 if a check of `cpsched doctor` passes. The bridge's mode may require it.", _sample_readiness_checks,
           ("check", "required"), 60, merged=min, absent=1.0),
    # decisions
    MetricFamily("counter", "cpsched_solves", "Decisions by path and solver status.", _count_decisions,
           ("path", "status"), 6),
    MetricFamily("summary", "cpsched_decision_considered_jobs", "Jobs considered per decision.",
           _make_effort_sampler(lambda c: _get_effort_field(c, "considered"))),
    MetricFamily("summary", "cpsched_decision_variables",
           "Variables in the optimization model of a decision; 0 without a model.",
           _make_effort_sampler(lambda c: _get_effort_field(c, "variables"))),
    MetricFamily("summary", "cpsched_decision_gap_ratio",
           "Optimality gap of a decision: (objective - bound) / objective.",
           make_unlabeled_sampler(_sample_optimality_gaps)),
    MetricFamily("counter", "cpsched_decision_searches", "Decisions that ran a solver.",
           make_value_sampler(_count_solver_runs)),
    MetricFamily("counter", "cpsched_decision_limit_hits",
           "Searches that reached their limit before proving optimality.",
           make_value_sampler(_count_unproved_searches)),
    MetricFamily("gauge", "cpsched_easy_ratio",
           "Ratio of recent jobs' results to those in a virtual EASY schedule; below 1 is better than EASY.",
           _sample_easy_ratios, ("measure",), len(RATIOS), _make_label_sets(*RATIOS), absent=1.0),
    MetricFamily("gauge", "cpsched_area_weight",
           "Weight of large jobs in the objective, adjusted from `cpsched_easy_ratio`.",
           _sample_area_weight),
    MetricFamily("gauge", "cpsched_fallback", "1 while the fallback replaces the configured policy.",
           lambda c: [((), float(c.report.decided.fallback))] if c.report.decided.decision is not None else None),
    MetricFamily("counter", "cpsched_decision_fallbacks", "Decisions made by the fallback.",
           make_value_sampler(lambda c: c.report.decided.fallback)),
    # queue
    MetricFamily("gauge", "cpsched_queued_jobs", "Pending jobs that the bridge decides on.", _count_queued_jobs, ("partition",), MAX_PARTITION_SERIES),  # noqa: E501
    MetricFamily("gauge", "cpsched_oldest_pending_seconds", "Age of the oldest pending job that the bridge decides on.", _sample_oldest_wait,  # noqa: E501
           ("partition",), MAX_PARTITION_SERIES, merged=max),
    MetricFamily("gauge", "cpsched_waiting_jobs",
           "Pending jobs by kind of reason, including jobs that the bridge does not decide on.",
           _count_pending_reasons, ("reason",), len(reason_kinds.REASON_KINDS),
           _make_label_sets(*reason_kinds.REASON_KINDS)),
    MetricFamily("gauge", "cpsched_pending_jobs", "Pending jobs that the bridge models, eligible or not.",
           make_observation_value_sampler(lambda c: len(c.report.observation.pending))),  # type: ignore[union-attr]
    MetricFamily("gauge", "cpsched_unmanaged_jobs", "Pending jobs left to the cluster's own scheduler.",
           make_observation_value_sampler(lambda c: len(c.report.observation.unmanaged))),  # type: ignore[union-attr]
    MetricFamily("gauge", "cpsched_unusable_objects",
           "Cluster objects that are ignored because a field cannot be read or is not supported.",
           _count_unusable_objects, ("kind",), len(OBJECT_KINDS), _make_label_sets(*OBJECT_KINDS)),
    MetricFamily("gauge", "cpsched_backoff_jobs", "Jobs that back off after failed starts.",
           make_observation_value_sampler(lambda c: len(c.report.backoff.reasons))),
    MetricFamily("gauge", "cpsched_failing_users", "Users with only failed starts; too many of them pause the bridge.",
           make_value_sampler(lambda c: c.report.failing_users)),
    MetricFamily("gauge", "cpsched_running_jobs", "Running jobs.",
           make_observation_value_sampler(lambda c: len(c.report.observation.running))),  # type: ignore[union-attr]
    MetricFamily("gauge", "cpsched_starting_jobs", "Jobs released but not yet running.",
           make_observation_value_sampler(lambda c: c.report.starting)),
    MetricFamily("gauge", "cpsched_overdue_jobs", "Jobs on which repeated commands have no effect.",
           make_observation_value_sampler(lambda c: c.report.overdue)),
    MetricFamily("gauge", "cpsched_held_jobs", "Jobs that the bridge may hold.", make_observation_value_sampler(lambda c: c.report.held)),  # noqa: E501
    # advise mode
    MetricFamily("counter", "cpsched_boost_changes", "Boosts changed in advise mode.",
           make_value_sampler(lambda c: sum(kind == "boost" and o.result == "done" for kind, o in c.report.outcomes))),
    MetricFamily("gauge", "cpsched_boost_ordered_jobs", "Jobs that advise mode orders.",
           make_value_sampler(lambda c: c.report.boosts.jobs if c.report.boosts else 0)),
    MetricFamily("gauge", "cpsched_boost_order_ratio",
           "Share of pairs of boosted jobs that the cluster ranked in plan order before the last boosts.",
           lambda c: [((), c.report.boosts.in_order)] if c.report.boosts else None),
    # service
    MetricFamily("histogram", "cpsched_job_wait_seconds",
           "Queue time of started jobs; the count is the number of starts.", _sample_waits,
           ("partition",), MAX_PARTITION_SERIES, buckets=_WAIT_BUCKETS_S),
    MetricFamily("histogram", "cpsched_job_bounded_slowdown_ratio",
           f"Bounded slowdown ({BSLD_BOUND_S} s) of ended jobs.", make_unlabeled_sampler(lambda c: (s for _, s in _sample_slowdowns(c))),  # noqa: E501
           buckets=_SLOWDOWN_BUCKETS),
    MetricFamily("summary", "cpsched_partition_bounded_slowdown_ratio",
           f"Bounded slowdown ({BSLD_BOUND_S} s) of ended jobs, by partition.",
           lambda c: (((partition,), s) for partition, s in _sample_slowdowns(c)), ("partition",),
           MAX_PARTITION_SERIES),
    MetricFamily("histogram", "cpsched_decision_to_running_seconds",
           "Time from the decision to start a job until the job runs.",
           make_unlabeled_sampler(lambda c: c.report.latencies_s), buckets=_LATENCY_BUCKETS_S),
    MetricFamily("counter", "cpsched_started_jobs", "Jobs first seen running.", make_value_sampler(lambda c: len(c.report.changes.started))),  # noqa: E501
    MetricFamily("counter", "cpsched_placement_mismatches",
           "Starts that the cluster placed differently than decided: on other nodes, or with other amounts on a node.",
           make_value_sampler(lambda c: sum(h.kind == "started_elsewhere" for h in c.report.bridge_events))),
    MetricFamily("counter", "cpsched_ended_jobs", "Jobs that ran and ended.", make_value_sampler(lambda c: len(c.report.changes.ended))),  # noqa: E501
    # predictions
    MetricFamily("histogram", "cpsched_start_time_error_seconds",
           "Absolute difference between actual and first expected start, by direction: `early` (or on time) or `late`.",
           _sample_start_delays, ("direction",), 2, _make_label_sets("early", "late"), _FORECAST_ERROR_BUCKETS_S),
    MetricFamily("counter", "cpsched_start_intervals",
           "80 % prediction intervals of starts, by outcome: one per job for its first forecast, and one per horizon "
           "of later ones; the tasks of an array count once.",
           make_count_sampler(lambda c: (each.outcome for each in c.outcomes)),
           ("outcome",), len(INTERVAL_OUTCOMES), _make_label_sets(*INTERVAL_OUTCOMES)),
    MetricFamily("summary", "cpsched_start_forecast_pinball_seconds",
           "Pinball loss of the quantiles 5 to 95 % of a job's `first` forecast, and of later ones by seconds from "
           "forecast to median start (upper bound).",
           _make_forecast_score_sampler(lambda score: score.pinball_s), ("horizon",), len(_OUTCOME_CLASSES),
           _make_label_sets(*_OUTCOME_CLASSES)),
    MetricFamily("counter", "cpsched_start_forecasts_covered",
           "Starts within their 80 % interval, by horizon; divide by the number of pinball losses.",
           _make_forecast_score_sampler(lambda score: score.outcome == "covered"), ("horizon",), len(_OUTCOME_CLASSES),
           _make_label_sets(*_OUTCOME_CLASSES)),
    MetricFamily("counter", "cpsched_start_forecast_width_seconds",
           "Sum of the widths of the 80 % intervals, by horizon; divide by the number of pinball losses.",
           _make_forecast_score_sampler(lambda score: score.width_s), ("horizon",), len(_OUTCOME_CLASSES),
           _make_label_sets(*_OUTCOME_CLASSES)),
    MetricFamily("histogram", "cpsched_prediction_error_log2_ratio",
           "Absolute binary logarithm of the ratio of actual to predicted run time (1: a factor of two), by direction: "
           "`longer`, or `shorter` (or equal).", _sample_prediction_errors, ("direction",), 2,
           _make_label_sets("longer", "shorter"), _LOG2_BUCKETS),
    # cluster
    MetricFamily("gauge", "cpsched_resource_capacity",
           "Total amount of a resource in the cluster.", _make_resource_amount_sampler(free=False),
           ("resource",), 6),
    MetricFamily("gauge", "cpsched_resource_free", "Free amount of a resource.",
           _make_resource_amount_sampler(free=True),
           ("resource",), 6),
    MetricFamily("gauge", "cpsched_stranded_gpus",
           "Expected number of idle GPUs that the next typical job cannot use.", _sample_stranded_gpus),
    MetricFamily("gauge", "cpsched_build_info", "The version of cpsched.", lambda c: [((version("cpsched"),), 1.0)],
           ("version",), 1, _make_label_sets(version("cpsched"))),
)  # fmt: skip
"""All metrics, in the order in which the exporter serves them."""
