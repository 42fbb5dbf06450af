"""Define the bridge's metrics: name, help text, labels, and the samples that result from a cycle.

Names follow the Prometheus conventions: base units, `_total` counters, no label per job, user or node. A metric with
labels has at most `most` label sets, and all others are counted as `other`. The exporter adds the
process's own `process_*` metrics (memory, CPU time, open files).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Literal, get_args

from cpsched.errors import escape_controls
from cpsched.forecast import INTERVAL_OUTCOMES
from cpsched.metrics import bounded_slowdown
from cpsched.model import BSLD_BOUND_S, Job
from cpsched_bridge.cycle_report import MODES, OK, PHASES
from cpsched_bridge.ports import OBJECT_KINDS, Result
from cpsched_bridge.telemetry import reason_kinds
from cpsched_bridge.telemetry.cycle_follower import CycleSample

Labels = tuple[str, ...]
Samples = Iterable[tuple[Labels, float]]
Kind = Literal["counter", "gauge", "histogram", "summary"]

PARTITIONS = 19
"""Maximum number of partitions that have their own series."""
OTHER = "other"
_MOST_LETTERS = 64
"""Maximum length of a partition's name in a label."""

_PHASE_S = (0.01, 0.05, 0.2, 1.0, 5.0)
_LATENCY_S = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0)
_WAIT_S = (60.0, 600.0, 3600.0, 14400.0, 86400.0, 604800.0)
_SLOWDOWN = (1.1, 2.0, 5.0, 10.0, 20.0, 100.0, 1000.0)
_PROMISE_S = (60.0, 600.0, 3600.0, 14400.0, 86400.0)
SENT = ("start", "hold", "hand_back", "advise")
"""Label values for the kinds of commands."""
_COUNTED_AS = {"unpin": "hand_back"}
"""Kinds without their own series, because they are rare, and the kinds that they are counted as."""
_LOG2 = (0.25, 0.5, 1.0, 2.0, 4.0)


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
    of: Callable[[CycleSample], Samples | None]
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


def sample_value(read: Callable[[CycleSample], float]) -> Callable[[CycleSample], Samples]:
    """Return a function that samples one value without labels in every cycle."""
    return lambda cycle: [((), float(read(cycle)))]


def sample_observed_value(read: Callable[[CycleSample], float]) -> Callable[[CycleSample], Samples | None]:
    """Return a function that samples one value without labels in cycles that read the cluster."""
    return lambda cycle: [((), float(read(cycle)))] if cycle.report.observation is not None else None


def unlabelled_samples(read: Callable[[CycleSample], Iterable[float]]) -> Callable[[CycleSample], Samples]:
    """Return a function that samples each value without labels."""
    return lambda cycle: (((), float(one)) for one in read(cycle))


def sample_counts(read: Callable[[CycleSample], Iterable[str]]) -> Callable[[CycleSample], Samples]:
    """Return a function that counts the occurrences of each value of one label."""
    return lambda cycle: [((label,), float(times)) for label, times in Counter(read(cycle)).items()]


def first_partition(job: Job) -> str:
    """Return the first partition of a job, or `none` if the cluster has no partitions."""
    return escape_controls(job.queue.partition(",")[0][:_MOST_LETTERS]) or "none"


def _unusable(cycle: CycleSample) -> Samples | None:
    if cycle.report.observation is None:
        return None
    counts = Counter(each.kind for each in cycle.report.observation.unusable)
    return [((kind,), float(counts[kind])) for kind in OBJECT_KINDS]


def _queued(cycle: CycleSample) -> Samples | None:
    if cycle.report.observation is None:
        return None
    return sample_counts(lambda cycle: map(first_partition, cycle.report.waiting))(cycle)


def _oldest(cycle: CycleSample) -> Samples | None:
    observation = cycle.report.observation
    if observation is None:
        return None
    found: defaultdict[str, float] = defaultdict(float)
    for job in cycle.report.waiting:
        partition = first_partition(job)
        found[partition] = max(found[partition], float(observation.now_s - job.submit_s))
    return [((partition,), age_s) for partition, age_s in found.items()]


def _waited(cycle: CycleSample) -> Samples:
    for job, start_s in cycle.report.started:
        yield (first_partition(job),), float(max(0, start_s - job.submit_s))


def _slowdowns(cycle: CycleSample) -> Iterator[tuple[str, float]]:
    for ended in cycle.report.ended:
        yield first_partition(ended.job), float(bounded_slowdown(max(0, ended.wait_s), ended.run_s))


def _waiting_for(cycle: CycleSample) -> Samples | None:
    found = reason_kinds.count_jobs_by_reason(cycle.report)
    return None if found is None else [((kind,), float(jobs)) for kind, jobs in found.items()]


def _solves(cycle: CycleSample) -> Samples:
    if cycle.report.decision is not None:
        effort = cycle.report.decision.effort
        yield (effort.path, effort.status or "none"), 1.0


def _efforts(read: Callable[[CycleSample], float]) -> Callable[[CycleSample], Samples]:
    """Return a function that samples one value per decision that considered at least one job."""
    return lambda cycle: [((), float(read(cycle)))] if _effort(cycle, "considered") else []


def _effort(cycle: CycleSample, name: str) -> float:
    return float(getattr(cycle.report.decision.effort, name)) if cycle.report.decision is not None else 0.0


def _gaps(cycle: CycleSample) -> Iterator[float]:
    """Yield the gap between the best plan and its bound, as a share of the plan."""
    effort = cycle.report.decision.effort if cycle.report.decision is not None else None
    if effort is not None and effort.objective is not None and effort.bound is not None:
        distance, scale = effort.objective - effort.bound, abs(effort.objective)
        yield max(0.0, min(1.0, distance / scale)) if scale else 0.0


def _searched(cycle: CycleSample) -> float:
    return float(_effort(cycle, "solver_s") > 0)


def _limit_hits(cycle: CycleSample) -> float:
    decision = cycle.report.decision
    proved = decision is None or decision.effort.status in ("", "none", "optimal")
    return float(not proved) * _searched(cycle)


def _promises(cycle: CycleSample) -> Samples:
    for kept in cycle.kept:
        late_s = kept.start_s - kept.first_s
        yield ("late" if late_s > 0 else "early",), float(abs(late_s))


def _predictions(cycle: CycleSample) -> Samples:
    for one in cycle.predicted:
        log2 = math.log2(max(1, one.run_s) / max(1, one.estimate_s))
        yield ("longer" if log2 > 0 else "shorter",), abs(log2)


def _amounts(free: bool) -> Callable[[CycleSample], Samples | None]:
    def read(cycle: CycleSample) -> Samples | None:
        found = cycle.report.observation
        if found is None:
            return None
        amounts = (found.free if free else found.cluster.capacity).sum(axis=0).tolist()
        return [((name,), float(amount)) for name, amount in zip(found.cluster.resources, amounts, strict=True)]

    return read


def _checks(cycle: CycleSample) -> Samples | None:
    if cycle.report.checks is None:
        return None
    return [((check.name,), float(check.ok)) for check in cycle.report.checks]


def _success(cycle: CycleSample) -> Samples | None:
    return [((), cycle.report.at_unix_s)] if cycle.report.result == OK else None


def _singles(*words: str) -> tuple[Labels, ...]:
    return tuple((word,) for word in words)


# ---------------------------------------------------------------------------------------------------------- the table

METRICS: tuple[MetricFamily, ...] = (
    # loop
    MetricFamily("counter", "cpsched_cycles", "Cycles by result.", lambda c: [((c.report.result,), 1.0)],
           ("result",), 8, _singles(OK)),
    MetricFamily("gauge", "cpsched_last_success_timestamp_seconds", "Unix time at which the last successful cycle ended.", _success),  # noqa: E501
    MetricFamily("histogram", "cpsched_cycle_phase_duration_seconds", "Seconds of a cycle by phase; `decide` is the decision.",  # noqa: E501
           lambda c: [((phase,), s) for phase, s in c.report.seconds.items()],
           ("phase",), len(PHASES), _singles(*PHASES), _PHASE_S),
    MetricFamily("counter", "cpsched_cycle_late_seconds", "Seconds by which cycles began late, if more than 10 intervals.",  # noqa: E501
           sample_value(lambda c: c.report.gap_s)),
    MetricFamily("gauge", "cpsched_cycle_interval_seconds", "Configured seconds from the start of one cycle to the next.",  # noqa: E501
           sample_value(lambda c: c.around.interval_s)),
    MetricFamily("gauge", "cpsched_cycle_pause_seconds",
           "Current seconds from the start of one cycle to the next; longer while the cluster is busy.",
           sample_value(lambda c: c.report.pause_s)),
    MetricFamily("gauge", "cpsched_mode", "1 for the bridge's current mode.",
           lambda c: [((mode,), float(mode == c.report.mode)) for mode in MODES], ("mode",), len(MODES),
           _singles(*MODES)),
    MetricFamily("gauge", "cpsched_standby", "1 while another bridge controls the cluster.",
           sample_observed_value(lambda c: c.report.rival is not None)),
    MetricFamily("counter", "cpsched_events", "Events by kind, as in the journal.",
           lambda c: [((h.kind,), float(h.times)) for h in c.report.happenings],
           ("kind",), 12, _singles("start_failed", "start_refused")),
    MetricFamily("counter", "cpsched_commands", "Commands per job, by kind and result.",
           lambda c: [((_COUNTED_AS.get(kind, kind), o.result), 1.0) for kind, o in c.report.outcomes],
           ("kind", "result"), 12, tuple((kind, result) for kind in SENT for result in get_args(Result))),
    MetricFamily("counter", "cpsched_child_restarts", "Restarts of the process that calls the cluster.",
           sample_value(lambda c: c.child_restarts)),
    MetricFamily("gauge", "cpsched_journal_size_bytes", "Size of the journal's files.",
           sample_value(lambda c: c.around.journal_bytes)),
    MetricFamily("gauge", "cpsched_ledger_size_bytes", "Size of the ledger's files.", sample_value(lambda c: c.around.ledger_bytes)),  # noqa: E501
    MetricFamily("gauge", "cpsched_check_ok", "1 if a check of `cpsched doctor` passes.", _checks, ("check",), 12,
           merged=min, absent=1.0),
    # decisions
    MetricFamily("counter", "cpsched_solves", "Decisions by path and solver status.", _solves,
           ("path", "status"), 6),
    MetricFamily("summary", "cpsched_decision_considered_jobs", "Jobs considered per decision.",
           _efforts(lambda c: _effort(c, "considered"))),
    MetricFamily("summary", "cpsched_decision_variables", "Variables of the model per decision; 0 without a model.",
           _efforts(lambda c: _effort(c, "variables"))),
    MetricFamily("summary", "cpsched_decision_gap_ratio",
           "Gap of a decision: (objective - bound) / objective.", unlabelled_samples(_gaps)),
    MetricFamily("counter", "cpsched_decision_searches", "Decisions that ran a solver.", sample_value(_searched)),
    MetricFamily("counter", "cpsched_decision_limit_hits", "Searches that reached their limit without a proof.",
           sample_value(_limit_hits)),
    MetricFamily("gauge", "cpsched_fallback", "1 while the fallback replaces the configured policy.",
           lambda c: [((), float(c.report.fallback))] if c.report.decision is not None else None),
    MetricFamily("counter", "cpsched_decision_fallbacks", "Decisions of the fallback.",
           sample_value(lambda c: c.report.fallback)),
    # queue
    MetricFamily("gauge", "cpsched_queued_jobs", "Pending jobs that the bridge decides on.", _queued, ("partition",), PARTITIONS),  # noqa: E501
    MetricFamily("gauge", "cpsched_oldest_pending_seconds", "Age of the oldest pending job that the bridge decides on.", _oldest,  # noqa: E501
           ("partition",), PARTITIONS, merged=max),
    MetricFamily("gauge", "cpsched_waiting_jobs",
           "Pending jobs by kind of reason, including jobs that the bridge does not decide on.",
           _waiting_for, ("reason",), len(reason_kinds.KINDS), _singles(*reason_kinds.KINDS)),
    MetricFamily("gauge", "cpsched_pending_jobs", "Pending jobs that the bridge models, eligible or not.",
           sample_observed_value(lambda c: len(c.report.observation.pending))),  # type: ignore[union-attr]
    MetricFamily("gauge", "cpsched_unmanaged_jobs", "Pending jobs left to the cluster's own scheduler.",
           sample_observed_value(lambda c: len(c.report.observation.left))),  # type: ignore[union-attr]
    MetricFamily("gauge", "cpsched_unusable_objects",
           "Objects of the cluster that are left out because a field cannot be read or has no rule.",
           _unusable, ("kind",), len(OBJECT_KINDS), _singles(*OBJECT_KINDS)),
    MetricFamily("gauge", "cpsched_backoff_jobs", "Jobs that back off after failed starts.",
           sample_observed_value(lambda c: len(c.report.put_off))),
    MetricFamily("gauge", "cpsched_failing_users", "Users with only failed starts; too many pause the bridge.",
           sample_value(lambda c: c.report.failing_users)),
    MetricFamily("gauge", "cpsched_running_jobs", "Jobs running.",
           sample_observed_value(lambda c: len(c.report.observation.running))),  # type: ignore[union-attr]
    MetricFamily("gauge", "cpsched_starting_jobs", "Jobs released but not yet running.",
           sample_observed_value(lambda c: c.report.starting)),
    MetricFamily("gauge", "cpsched_stuck_jobs", "Jobs on which repeated commands have no effect.",
           sample_observed_value(lambda c: c.report.stuck)),
    MetricFamily("gauge", "cpsched_held_jobs", "Jobs that the bridge may hold.", sample_observed_value(lambda c: c.report.kept)),  # noqa: E501
    # advise mode
    MetricFamily("counter", "cpsched_advice_changes", "Boosts changed in advise mode.",
           sample_value(lambda c: sum(kind == "advise" and o.result == "done" for kind, o in c.report.outcomes))),
    MetricFamily("gauge", "cpsched_advised_jobs", "Jobs that advise mode orders.",
           sample_value(lambda c: c.report.advised.jobs if c.report.advised else 0)),
    MetricFamily("gauge", "cpsched_advice_order_ratio",
           "Share of pairs of advised jobs that the cluster ranked in the order of the plan before the "
           "last advice.", lambda c: [((), c.report.advised.in_order)] if c.report.advised else None),
    # service
    MetricFamily("histogram", "cpsched_job_wait_seconds",
           "Queue time of started jobs; the count is the number of starts.", _waited,
           ("partition",), PARTITIONS, buckets=_WAIT_S),
    MetricFamily("histogram", "cpsched_job_bounded_slowdown_ratio",
           f"Bounded slowdown ({BSLD_BOUND_S} s) of ended jobs.", unlabelled_samples(lambda c: (s for _, s in _slowdowns(c))),  # noqa: E501
           buckets=_SLOWDOWN),
    MetricFamily("summary", "cpsched_partition_bounded_slowdown_ratio",
           f"Bounded slowdown ({BSLD_BOUND_S} s) of ended jobs, by partition.",
           lambda c: (((partition,), s) for partition, s in _slowdowns(c)), ("partition",), PARTITIONS),
    MetricFamily("histogram", "cpsched_decision_to_running_seconds", "Seconds from a decision to the job running.",
           unlabelled_samples(lambda c: c.report.latencies_s), buckets=_LATENCY_S),
    MetricFamily("counter", "cpsched_started_jobs", "Jobs first seen running.", sample_value(lambda c: len(c.report.started))),  # noqa: E501
    MetricFamily("counter", "cpsched_placement_mismatches",
           "Starts that the cluster placed differently than decided: other nodes, or other amounts on a node.",
           sample_value(lambda c: sum(h.kind == "started_elsewhere" for h in c.report.happenings))),
    MetricFamily("counter", "cpsched_ended_jobs", "Jobs that ran and ended.", sample_value(lambda c: len(c.report.ended))),  # noqa: E501
    # predictions
    MetricFamily("histogram", "cpsched_start_time_error_seconds",
           "Difference of actual and first expected start, `early` (or on time) and `late`.", _promises,
           ("direction",), 2, _singles("early", "late"), _PROMISE_S),
    MetricFamily("counter", "cpsched_start_intervals",
           "80 % prediction intervals of starts, by outcome.",
           lambda c: [((outcome,), float(n)) for (_, outcome), n in c.outcomes.items()],
           ("outcome",), len(INTERVAL_OUTCOMES), _singles(*INTERVAL_OUTCOMES)),
    MetricFamily("histogram", "cpsched_prediction_error_log2_ratio",
           "Absolute binary logarithm of actual over predicted run time: 1 is a factor of two. `longer` than "
           "predicted, or `shorter` (or equal).", _predictions,
           ("direction",), 2, _singles("longer", "shorter"), _LOG2),
    # cluster
    MetricFamily("gauge", "cpsched_resource_capacity", "Amount of a resource in the cluster.", _amounts(free=False),
           ("resource",), 6),
    MetricFamily("gauge", "cpsched_resource_free", "Free amount of a resource.", _amounts(free=True),
           ("resource",), 6),
    MetricFamily("gauge", "cpsched_build_info", "The version of cpsched.", lambda c: [((version("cpsched"),), 1.0)],
           ("version",), 1, _singles(version("cpsched"))),
)  # fmt: skip
"""All metrics; the exporter serves them in this order."""

FORMER_NAMES = {
    "cpsched_held_jobs": "cpsched_kept_jobs",
    "cpsched_backoff_jobs": "cpsched_put_off_jobs",
    "cpsched_start_time_error_seconds": "cpsched_start_promise_error_seconds",
    "cpsched_placement_mismatches": "cpsched_starts_otherwise",
    "cpsched_standby": "cpsched_other_bridge",
    "cpsched_cycle_late_seconds": "cpsched_cycle_gap_seconds",
    "cpsched_unmanaged_jobs": "cpsched_unsupported_jobs",
}
"""Names before 0.1.0 by metric. They are also served, and are removed two minor releases later."""


def list_former_families(metrics: Iterable[MetricFamily] = METRICS) -> Iterator[MetricFamily]:
    """Yield the renamed metrics under their former names."""
    for row in metrics:
        if row.name in FORMER_NAMES:
            sentence = f"Former name of {row.name}, to be removed."
            yield replace(row, name=FORMER_NAMES[row.name], sentence=sentence)
