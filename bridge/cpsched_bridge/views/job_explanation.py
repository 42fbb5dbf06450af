"""Explain a job's state and pending reason.

`cpsched why`, the status page and version 1 of the API use the explanation. The input is a view of the jobs: of the
running bridge, or of a round in the journal. Sentences consist of text and links to jobs and nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cpsched.dispatchers.lookahead.area_weight_control import AREA, LARGE, LARGE_SQUARED, LONGEST, WAITS
from cpsched.errors import join_abbreviated
from cpsched.forecast import MIN_FIRST_OUTCOMES
from cpsched.formatting import (
    format_count,
    format_duration,
    format_ordinal,
    format_percent,
    format_planned_time,
    format_relative_time,
    format_start_change,
    format_start_interval,
)
from cpsched.model import PendingCode
from cpsched_bridge.ports import MAX_PENDING_TASKS, UNKNOWN_NODES
from cpsched_bridge.store.journal_reader import BACKOFF_KIND
from cpsched_bridge.telemetry.reason_kinds import UNMANAGED
from cpsched_bridge.telemetry.start_forecasts import SubmissionStartEstimate
from cpsched_bridge.views.job_view import JobState, JobsView, JobView, NodeUnits

NOT_CALIBRATED = (
    f"The interval is not calibrated yet: fewer than {MIN_FIRST_OUTCOMES} jobs with a forecast have started since the "
    "bridge or its policy changed."
)
"""Sentence about an interval that has not been calibrated with observed starts."""
NO_INTERVAL = "not known yet"
"""Start of a job without an interval, until its next forecast."""
EASY_RATIO_LABELS = {
    LARGE: "large jobs", LARGE_SQUARED: "large jobs squared", WAITS: "mean wait", LONGEST: "longest wait"
}  # fmt: skip
"""Labels of the ratios to the virtual EASY schedule."""
_MAX_NODES = 16
_MAX_NAMED_JOBS = 8


@dataclass(frozen=True, slots=True)
class PageLink:
    """Text that links to a job by id or to a node by name."""

    text: str
    to: Literal["job", "node"]
    key: str

    def __str__(self) -> str:
        return self.text


Sentence = Sequence[str | PageLink]


@dataclass(frozen=True, slots=True)
class Explanation:
    """When a pending job starts, why it waits, and the same as sentences."""

    job: JobView
    start: str = ""
    """When the pending job starts: the 80 % interval, or why there is none."""
    plan: str = ""
    """The planned start, with what it means; empty without a plan."""
    sentences: Sequence[Sentence] = ()

    def format_lines(self) -> list[str]:
        """Return the sentences as text without links."""
        return ["".join(map(str, sentence)) for sentence in self.sentences]


def format_easy_comparison(ratios: Mapping[str, float]) -> str:
    """Return a line with the ratios to EASY and the weight that follows from them.

    Return "" if `ratios`, from `Effort.ratios`, contains no weight.

    >>> format_easy_comparison({"large": 0.98, "waits": 0.714, "area": 0.42})
    'Recent jobs compared with EASY: large jobs 98 %, mean wait 71 %; weight of large jobs 0.42'
    >>> format_easy_comparison({"area": 0.3})
    'Recent jobs compared with EASY: too few have ended; weight of large jobs 0.3'
    """
    if AREA not in ratios:
        return ""
    shown = [f"{label} {format_percent(ratios[name])}" for name, label in EASY_RATIO_LABELS.items() if name in ratios]
    found = ", ".join(shown) or "too few have ended"
    return f"Recent jobs compared with EASY: {found}; weight of large jobs {ratios[AREA]:.2g}"


def format_easy_targets(targets: Mapping[str, float]) -> str:
    """Return a line with the largest permitted ratios to EASY, or "" without any.

    >>> format_easy_targets({"large": 1.05, "longest": 1.0})
    'Targets compared with EASY: large jobs at most 105 %, longest wait at most 100 %'
    """
    shown = (f"{EASY_RATIO_LABELS[name]} at most {format_percent(target)}" for name, target in targets.items())
    return f"Targets compared with EASY: {', '.join(shown)}" if targets else ""


def format_job_start(job: JobView, now_s: int) -> str:
    """Return when a pending job starts: its 80 % interval. The plan is no expected start, and never stands for it."""
    if job.reason is None:
        return "now"
    if job.likely_from_s is None or job.likely_to_s is None:
        return "never on this cluster" if job.reason.code is PendingCode.NEVER else NO_INTERVAL
    return format_start_interval(job.likely_from_s, job.likely_to_s, now_s)


def format_estimated_start(expected: SubmissionStartEstimate, now_s: int) -> str:
    """Return when a hypothetical job starts: its 80 % interval, or why it can never start."""
    if expected.interval is None:
        return f"never: {expected.never}"
    return format_start_interval(expected.interval.from_s, expected.interval.to_s, now_s)


def describe_plan(predictor: str) -> str:
    """Return what a planned start means, which depends on the run times in the plan."""
    if predictor == "walltime":
        return "at the latest, if every job runs to its limit"
    return f"if every job runs as long as {predictor} predicts"


def format_plan(planned_s: int | None, now_s: int, predictor: str) -> str:
    """Return a planned start and what it means, or "" without a plan."""
    return "" if planned_s is None else f"{format_planned_time(planned_s, now_s)} {describe_plan(predictor)}"


def format_time_limit(walltime_s: int | None) -> str:
    """Return a job's time limit, or that it has none."""
    return "no time limit" if walltime_s is None else format_duration(walltime_s)


def format_expected_end(job: JobView, now_s: int) -> str:
    """Return when a running job is expected to end. Without a limit and a prediction, the time is unknown."""
    return "at an unknown time" if job.expected_end_s is None else format_planned_time(job.expected_end_s, now_s)


def format_job_wait(job: JobView, until_s: int) -> str:
    """Return the wait of a job, or `an unknown time` if the cluster does not report when it was submitted."""
    return "an unknown time" if job.submit_s is None else format_duration(until_s - job.submit_s)


def summarize_job(job: JobView, jobs: JobsView) -> Explanation:
    """Return when a job starts and why it waits, without sentences."""
    if job.state is not JobState.WAITING:
        return Explanation(job)
    start = format_job_start(job, jobs.now_s)
    return Explanation(job, start, format_plan(job.planned_s, jobs.now_s, jobs.predictor))


def explain_job(jobs: JobsView, text: str) -> Explanation:
    """Return the explanation for the job with this id or label. Its state is `unknown` if there is none."""
    job = jobs.find(text)
    summary = summarize_job(job, jobs)
    return Explanation(job, summary.start, summary.plan, list(_describe_job(job, text.strip(), jobs)))


def _describe_job(job: JobView, text: str, jobs: JobsView) -> Iterator[Sentence]:
    if job.state is JobState.WAITING:
        yield from _describe_waiting_job(job, jobs)
    elif job.state is JobState.RUNNING:
        yield from _describe_running_job(job, jobs.now_s)
    elif job.state is JobState.UNSCHEDULED:
        yield [_describe_unscheduled_job(job)]
    elif job.start_s is not None and job.end_s is not None:
        ended = format_relative_time(job.end_s, jobs.now_s)
        yield [f"It ran for {format_duration(job.end_s - job.start_s)} and ended {ended}."]
    else:
        labels = [pending.label for pending in (*jobs.waiting, *jobs.unscheduled)]
        unknown = "It is neither pending nor running, and has not ended within the past hour."
        yield [explain_missing_array_task(text, labels) or unknown]


def summarize_reason(job: JobView, mode: str) -> str:
    """Return a short text that states why a job waits, or that it starts now."""
    if not job.starts_now:
        return job.reason_text
    starts = {"shadow": "would start now", "advise": "is first in the plan and fits now"}.get(mode, "starts now")
    nodes = "".join(map(str, _link_nodes(job.nodes)))
    return f"{starts} on {nodes}" if nodes else starts


def _describe_waiting_job(job: JobView, jobs: JobsView) -> Iterator[Sentence]:
    if not job.starts_now:
        yield from _describe_start(job, jobs)
    yield [_describe_place(job, jobs)]

    reason = summarize_reason(job, jobs.mode)
    yield [f"It {reason}." if job.starts_now else f"Why it waits: {reason}."]
    if job.starts_now and jobs.mode == "advise":
        yield [
            "The cluster's scheduler decides: it starts the job in one of its next passes, unless it ranks other jobs "
            "higher."
        ]

    yield from _describe_blocking_jobs(job, jobs)
    conditions = () if job.request is None else job.request.nodes_from
    if reserved := [part.name for part in conditions if part.kind == "reservation"]:
        yield [f"It cannot use nodes that are reserved before its end: {', '.join(reserved)}."]
    if not jobs.reader and (delay := _explain_delay(job, jobs)):
        yield [delay]
    yield [_describe_run_time(job, jobs.predictor)]


def _describe_start(job: JobView, jobs: JobsView) -> Iterator[Sentence]:
    start, is_known = format_job_start(job, jobs.now_s), job.likely_from_s is not None
    yield [f"Start, with a probability of 80 %: {start}." if is_known else f"Start: {start}."]
    if is_known and not job.calibrated:
        yield [NOT_CALIBRATED]
    if job.planned_s is not None:
        moved = format_start_change(job.planned_s, job.first_planned_s)
        moved = f" This is {moved} than first planned." if moved else ""
        yield [f"Planned start: {format_plan(job.planned_s, jobs.now_s, jobs.predictor)}.{moved}"]


def _describe_place(job: JobView, jobs: JobsView) -> str:
    """Return a sentence with the position, among the reader's own jobs if the view has only these, and the wait."""
    number, place = len(jobs.waiting), format_ordinal(job.position or 0)
    waited = f"and has waited for {format_job_wait(job, jobs.now_s)}."
    if jobs.reader and number == 1:
        return f"It is your only pending job, {waited}"
    if jobs.reader:
        return f"It is the {place} of your {number:,} pending jobs, {waited}"
    if number == 1:
        return f"It is the only pending job, {waited}"
    return f"It is {place} in the order of priority of {format_count(number, 'pending job')}, {waited}"


def _describe_run_time(job: JobView, predictor: str) -> str:
    limit = "It has no time limit"
    if job.walltime_s is not None:
        limit = f"Its time limit is {format_duration(job.walltime_s)}"
    if job.estimate_s is not None and job.estimate_s != job.walltime_s:
        return f"{limit}; {predictor} predicts a run time of {format_duration(job.estimate_s)}."
    return f"{limit}." if job.walltime_s is None else f"{limit}, and it is expected to use all of it."


def _describe_blocking_jobs(job: JobView, jobs: JobsView) -> Iterator[Sentence]:
    """Yield sentences about the jobs for which `job` waits: running jobs must end, and pending jobs start first."""
    running = [each for each in jobs.running if each.id in job.waits_for]
    pending = [each for each in jobs.waiting if each.id in job.waits_for and each.id != job.id]
    if running:
        last = max(running, key=lambda each: (each.expected_end_s is None, each.expected_end_s or 0))
        end = format_expected_end(last, jobs.now_s)
        expected_end = end if last.expected_end_s is None else f"expected {end}"
        text = "It can start when this job ends" if len(running) == 1 else "It can start when these jobs end"
        yield [f"{text}, {expected_end}: ", *_link_jobs(running), "."]
    if pending:
        text = "The plan starts this job first" if len(pending) == 1 else "The plan starts these jobs first"
        yield [f"{text}: ", *_link_jobs(pending), "."]


def _explain_delay(job: JobView, jobs: JobsView) -> str:
    """Return why a job is planned to start later than at first, or "" if it is not. Consider only jobs in the view."""
    planned_s, first_s = job.planned_s, job.first_planned_s
    if planned_s is None or first_s is None or planned_s <= first_s:
        return ""
    earlier = [each for each in jobs.waiting if each.planned_s is not None and each.planned_s < planned_s]
    submit_s = job.submit_s or 0
    later = [each.label for each in (*jobs.running, *earlier) if (each.submit_s or 0) > submit_s]
    if later:
        return f"Submitted later, but running or planned before it: {join_abbreviated(later, _MAX_NAMED_JOBS)}."
    return "No job submitted later starts before it, so other jobs run longer than expected or nodes are missing."


def _link_jobs(jobs: Sequence[JobView]) -> Iterator[str | PageLink]:
    for place, job in enumerate(jobs):
        if place:
            yield ", "
        yield PageLink(job.label, "job", str(job.id))


def _describe_running_job(job: JobView, now_s: int) -> Iterator[Sentence]:
    yield ["It runs on ", *(_link_nodes(job.nodes) if job.nodes else [UNKNOWN_NODES]), "."]
    if job.start_s is not None:
        waited = format_job_wait(job, job.start_s)
        yield [f"It started {format_relative_time(job.start_s, now_s)}, after a wait of {waited}."]

    limit = format_time_limit(job.walltime_s)
    if job.expected_end_s is None:
        yield [f"It has {limit}, and its end is not known."]
    elif job.walltime_s is None:
        yield [f"It is expected to end {format_expected_end(job, now_s)}; it has {limit}."]
    else:
        yield [f"It is expected to end {format_expected_end(job, now_s)}; its time limit is {limit}."]

    if job.preemptors:
        yield [f"It may be preempted by jobs in {job.preemptors}."]
    if job.checkpoint_s is not None:
        yield [f"Its last checkpoint was {format_relative_time(job.checkpoint_s, now_s)}."]


def _link_nodes(nodes: NodeUnits) -> Iterator[str | PageLink]:
    for place, (name, units) in enumerate(nodes[:_MAX_NODES]):
        if place:
            yield ", "
        yield PageLink(name, "node", name)
        if units > 1:
            yield f" ({units} tasks)"
    if len(nodes) > _MAX_NODES:
        yield f" and {format_count(len(nodes) - _MAX_NODES, 'more node')}"


_UNSCHEDULED_TEXTS = {
    UNMANAGED: "Only the cluster's own scheduler manages it, because the bridge does not model its request",
    "held_by_owner": "It does not start until its owner or the cluster releases it",
    "ineligible": "It may not start yet",
    BACKOFF_KIND: "It is in backoff after a failed start",
}
"""Explanations of unscheduled jobs, by kind as used on the page and in the journal."""


def _describe_unscheduled_job(job: JobView) -> str:
    if job.reason is not None and job.reason.code is PendingCode.PREEMPTION:
        return f"Only the cluster's own scheduler manages it: it {job.reason_text}."
    return f"{_UNSCHEDULED_TEXTS.get(job.kind, 'It is currently not considered')}: {job.reason_text}."


def explain_missing_array_task(asked: str, labels: Collection[str]) -> str:
    """Return why the observation lacks a pending array task, or "" if unexplained."""
    array, _, task = asked.partition("_")
    shown = [tail for label in labels for head, _, tail in [label.partition("_")] if head == array and tail.isdecimal()]
    if not task.isdecimal() or len(task) > 9 or len(shown) < MAX_PENDING_TASKS or int(task) <= max(map(int, shown)):
        return ""
    return (
        f"It may come after the first {len(shown):,} pending tasks of array {array}: later tasks appear as these start."
    )
