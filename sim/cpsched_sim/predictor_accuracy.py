"""Measure a predictor's accuracy on a trace (mod17 section 5.1, cp19 section 5).

The measures are errors, underestimates and overestimates.

Each job is predicted at its submission. The predictor learns from a job at the time at which the job would end if every
job started immediately. Therefore, the results depend only on the trace, not on a dispatcher. Within one second, ends
are processed before submissions.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from cpsched import registry
from cpsched.model import EndedJob, IntArray
from cpsched.predictors.base import Predictor, learn_from_ended_job, learns_from_ended_jobs, predict_run_time_s
from cpsched.run_time_model import RunTimeModel
from cpsched_sim.cluster.replay import PROGRESS_INTERVAL_ROUNDS, Progress
from cpsched_sim.file_io import write_csv
from cpsched_sim.result_files import write_manifest
from cpsched_sim.traces.trace_jobs import TraceJob


@dataclass(frozen=True, slots=True)
class PredictorAccuracy:
    """The accuracy of one predictor on one trace. Shares refer to all jobs.

    A is the real run time divided by the predicted one.
    """

    jobs: int
    mean_absolute_error_min: float
    under: float
    """Share of jobs whose real run time exceeds the prediction."""
    over: float
    """Share of jobs whose real run time is below the prediction."""
    close: float
    """Share of jobs with 0.75 <= A <= 1.25."""

    @classmethod
    def of(cls, run_s: IntArray, predicted_s: IntArray) -> PredictorAccuracy:
        """Compute the accuracy from run times and predictions in seconds, by job."""
        ratio = run_s / predicted_s
        return cls(
            jobs=len(run_s),
            mean_absolute_error_min=float(np.abs(run_s - predicted_s).mean() / 60),
            under=float((run_s > predicted_s).mean()),
            over=float((run_s < predicted_s).mean()),
            close=float(((ratio >= 0.75) & (ratio <= 1.25)).mean()),
        )


def predict_run_times_s(jobs: Sequence[TraceJob], predictor: Predictor, progress: Progress | None = None) -> IntArray:
    """Return the predicted run time of each job at its submission, int64[jobs].

    `jobs` must be in order of arrival.

    Raise `PolicyError` if the predictor fails or does not return a number of seconds.
    """
    listens = learns_from_ended_jobs("predictor", predictor)
    predicted = np.empty(len(jobs), dtype=np.int64)
    for at in _learn_and_iterate_submissions(
        jobs, (lambda ended: learn_from_ended_job("predictor", predictor, ended)) if listens else None, progress
    ):
        predicted[at] = predict_run_time_s(predictor, jobs[at].job)
    return predicted


def _learn_and_iterate_submissions(
    jobs: Sequence[TraceJob], learn: Callable[[EndedJob], None] | None, progress: Progress | None
) -> Iterator[int]:
    """Yield the index of each job at its submission.

    First, learn from all jobs that have ended by then.
    """
    running: list[tuple[int, int]] = []
    for at, entry in enumerate(jobs):
        if progress is not None and at % PROGRESS_INTERVAL_ROUNDS == 0:
            progress(at, len(jobs))
        submit_s = entry.job.submit_s
        while learn is not None and running and running[0][0] <= submit_s:
            end_s, index = heapq.heappop(running)
            ended = jobs[index].job
            learn(EndedJob(ended, ended.submit_s, end_s))
        yield at
        if learn is not None:
            heapq.heappush(running, (submit_s + entry.run_s, at))


INTERVAL_COVERAGE = 0.8
"""The nominal coverage of the run-time intervals."""
USER_HISTORY_CLASSES = (("user not seen before", 0), ("1 to 9 jobs of the user", 1), ("10 jobs or more", 10))
"""Categories of jobs, each with the minimum number of ended jobs of the same user."""


@dataclass(frozen=True, slots=True)
class RunTimeIntervalCoverage:
    """The coverage of run-time intervals. Shares refer to the jobs in the category."""

    jobs: int
    covered: float
    shorter: float
    """Share of jobs whose run time was below their interval."""
    longer: float
    median_width: float
    """Median width of the intervals, as a share of the walltime."""


def run_time_interval_coverage(
    jobs: Sequence[TraceJob], progress: Progress | None = None
) -> dict[str, RunTimeIntervalCoverage]:
    """Return the coverage of the run-time model's intervals, by category and overall.

    The nominal coverage is `INTERVAL_COVERAGE`. The categories are `USER_HISTORY_CLASSES`.

    The interval of a job is computed at its submission, from the jobs that had ended by then. Categories without jobs
    are omitted.
    """
    model, ends = RunTimeModel(), np.array([(1 - INTERVAL_COVERAGE) / 2, (1 + INTERVAL_COVERAGE) / 2])
    ended_of: Counter[str] = Counter()
    intervals, known = np.empty((len(jobs), 2), np.int64), np.empty(len(jobs), np.int64)

    def learn(ended: EndedJob) -> None:
        model.learn(ended)
        ended_of[ended.job.user] += 1

    for at in _learn_and_iterate_submissions(jobs, learn, progress):
        job = jobs[at].job
        intervals[at] = model.run_times_at_quantiles_s(job, ends)
        known[at] = ended_of[job.user] if job.user else 0
    run_s = np.fromiter((entry.run_s for entry in jobs), np.int64, len(jobs))
    walltime_s = np.fromiter((entry.job.walltime_s for entry in jobs), np.int64, len(jobs))
    kind = np.searchsorted([least for _, least in USER_HISTORY_CLASSES], known, side="right") - 1
    parts = {name: kind == number for number, (name, _) in enumerate(USER_HISTORY_CLASSES)} | {
        "all": np.ones(len(jobs), np.bool_)
    }
    return {
        name: _compute_coverage(run_s[these], intervals[these], walltime_s[these])
        for name, these in parts.items()
        if these.any()
    }


def _compute_coverage(run_s: IntArray, intervals: IntArray, walltime_s: IntArray) -> RunTimeIntervalCoverage:
    shorter, longer = float((run_s < intervals[:, 0]).mean()), float((run_s > intervals[:, 1]).mean())
    width = float(np.median((intervals[:, 1] - intervals[:, 0]) / walltime_s))
    return RunTimeIntervalCoverage(len(run_s), 1 - shorter - longer, shorter, longer, width)


def accuracy_ecdf(run_s: IntArray, predicted_s: IntArray, points: int = 200) -> list[tuple[float, float]]:
    """Return pairs (A, share of jobs with real / predicted <= A), as in cp19 figure 1.

    There are at most `points` pairs, at equidistant quantiles.
    """
    ratio = np.sort(run_s / predicted_s)
    at = np.unique(np.linspace(0, len(ratio) - 1, points).astype(np.int64))
    return [(float(ratio[i]), float(np.searchsorted(ratio, ratio[i], side="right") / len(ratio))) for i in at]


@dataclass(frozen=True, slots=True, eq=False)
class PredictorEvaluation:
    """A predictor's accuracy, with the run times and predictions in seconds."""

    accuracy: PredictorAccuracy
    run_s: IntArray
    predicted_s: IntArray


def evaluate_predictors(
    jobs: Sequence[TraceJob], predictors: Sequence[str], progress: Progress | None = None
) -> dict[str, PredictorEvaluation]:
    """Evaluate each named predictor with its default settings.

    Raise `UnknownName` or `PolicyError`.
    """
    chosen = {name: registry.PREDICTORS.build(name) for name in predictors}
    run_s = np.fromiter((entry.run_s for entry in jobs), np.int64, len(jobs))
    found = {}
    for name, predictor in chosen.items():
        predictions = predict_run_times_s(jobs, predictor, progress)
        found[name] = PredictorEvaluation(PredictorAccuracy.of(run_s, predictions), run_s, predictions)
    return found


def write_accuracy_ecdf(found: Mapping[str, PredictorEvaluation], path: Path, made_of: Mapping[str, Any]) -> None:
    """Write one line per point (predictor, real / predicted, share), and a manifest.

    Raise `InputError`.
    """
    points = [(name, *point) for name, row in found.items() for point in accuracy_ecdf(row.run_s, row.predicted_s)]
    write_csv(path, [("predictor", "real_by_predicted", "share"), *points])
    write_manifest(path, made_of)


def write_accuracy_table(
    path: Path, label: str, rows: Mapping[str, Mapping[str, Any]], kind: type, made_of: Mapping[str, Any]
) -> None:
    """Write a table with one line per name, and a manifest.

    `label` is the heading of the names, and `kind` the dataclass of the values. Raise `InputError` on failure.
    """
    head = (label, *(each.name for each in fields(kind)))
    write_csv(path, [head, *((name, *figures.values()) for name, figures in rows.items())])
    write_manifest(path, made_of)
