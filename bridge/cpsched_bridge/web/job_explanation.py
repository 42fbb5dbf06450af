"""Explain a job's state and pending reason.

`cpsched why`, the status page and version 1 of the API use the explanation. The input is a view of the page or a round
from the journal. Sentences consist of text and links to jobs and nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    format_wait,
)
from cpsched.model import PendingCode, to_pending_reason
from cpsched_bridge.ports import MAX_PENDING_TASKS, UNKNOWN_NODES, UNLIMITED_WALLTIME_S
from cpsched_bridge.store.journal_reader import BACKED_OFF_KIND, JournalJobRecord, UnscheduledJob, is_job_id_text
from cpsched_bridge.store.round_records import RoundRecord
from cpsched_bridge.telemetry.reason_kinds import NO_REASON_GIVEN
from cpsched_bridge.telemetry.start_forecasts import SubmissionStartEstimate
from cpsched_bridge.web import page_schema
from cpsched_bridge.web.page_schema import QueuedJobView, RunningJobView, StatusPageView, UnscheduledJobView

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

    words: str
    to: Literal["job", "node"]
    key: str

    def __str__(self) -> str:
        return self.words


Sentence = Sequence[str | PageLink]
JobStateName = Literal["queued", "running", "aside", "ended", "unknown"]
ExplainedJob = QueuedJobView | RunningJobView | UnscheduledJobView


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """A job's state and its explanation as sentences.

    `job` is the job in the view, if there is one.
    """

    id: int
    label: str
    state: JobStateName
    sentences: Sequence[Sentence]
    job: ExplainedJob | None = None

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


def format_job_start(job: QueuedJobView, now_s: int) -> str:
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


def format_time_limit(walltime_s: int) -> str:
    """Return a job's time limit, or that it has none."""
    return "no time limit" if walltime_s == UNLIMITED_WALLTIME_S else format_duration(walltime_s)


def format_expected_end(job: RunningJobView, now_s: int) -> str:
    """Return when a running job is expected to end. Without a limit and a prediction, the time is unknown."""
    if has_known_end(job):
        return format_planned_time(job.expected_end_s, now_s)
    return "at an unknown time"


def has_known_end(job: RunningJobView) -> bool:
    """Return whether a running job has a time limit or a predicted run time."""
    return job.expected_end_s - job.start_s < UNLIMITED_WALLTIME_S


def find_first_unknown_end_s(now_s: int, runs: Iterable[tuple[int, int]]) -> int:
    """Return the first time that stands for the unknown end of a job without a limit and a prediction.

    `runs` lists start and expected end of the running jobs. No later start in the plan is known.
    """
    unknown = [end_s for start_s, end_s in runs if end_s - start_s >= UNLIMITED_WALLTIME_S]
    return min([*unknown, now_s + UNLIMITED_WALLTIME_S])


def explain_job_in_view(view: StatusPageView, asked: str) -> JobExplanation:
    """Return the explanation for the job with this id or label.

    Its state is `unknown` if no job matches.
    """
    wanted = asked.strip()
    for job in view.queue:
        if wanted in (job.label, str(job.id)):
            return JobExplanation(job.id, job.label, "queued", list(_describe_queued_job(job, view)), job)
    for runs in view.running:
        if wanted in (runs.label, str(runs.id)):
            return JobExplanation(runs.id, runs.label, "running", list(_describe_running_job(runs, view)), runs)
    for aside in view.aside:
        if wanted in (aside.label, str(aside.id)):
            return JobExplanation(aside.id, aside.label, "aside", [[_describe_unscheduled_job(aside)]], aside)
    for bar in view.chart.bars:
        if bar.kind == "past" and wanted in (bar.label, str(bar.id)):
            ran = f"It ran for {format_duration(bar.end_s - bar.begin_s)} and ended {format_relative_time(bar.end_s, view.chart.now_s)}."  # noqa: E501
            return JobExplanation(bar.id, bar.label, "ended", [[ran]])
    unknown = "It is neither pending nor running, and has not ended within the past hour."
    labels = [job.label for job in view.queue] + [job.label for job in view.aside]
    unknown = explain_missing_array_task(wanted, labels) or unknown
    return JobExplanation(int(wanted) if is_job_id_text(wanted) else -1, asked[:100], "unknown", [[unknown]])


def view_from_round(
    record: RoundRecord, past: JournalJobRecord | None = None, aside: UnscheduledJob | None = None
) -> StatusPageView:
    """Return a view of a recorded round.

    Add the ended job `past` and the unscheduled job `aside`, if given.
    """
    names, now_s = record.cluster.node_names, record.now_s
    first_s = record.memory.get("first_s", {}) if isinstance(record.memory, dict) else {}
    waits = record.waits
    runs = [(each.start_s, each.start_s + record.estimates[each.job.id]) for each in record.running]
    endless_s = find_first_unknown_end_s(now_s, runs)
    known_plan = {job_id: start_s for job_id, start_s in record.plan.items() if start_s < endless_s}
    queue = [
        QueuedJobView.model_construct(
            id=job.id, label=record.get_job_name(job.id), distinct=job.request.distinct, submit_s=job.submit_s,
            walltime_s=job.walltime_s, position=position, estimate_s=record.estimates[job.id],
            reason=None if job.id in record.starts else waits[job.id].reason if job.id in waits else NO_REASON_GIVEN,
            behind=list(waits[job.id].behind) if job.id in waits else [],
            nodes_from=(),
            starts_on=[(names[node], units) for node, units in record.starts.get(job.id, ())],
            expected_s=now_s if job.id in record.starts else known_plan.get(job.id),
            first_expected_s=first_s.get(str(job.id)),
        )
        for position, job in enumerate(record.queue, start=1)
    ]  # fmt: skip
    running = [
        RunningJobView.model_construct(
            id=job.id, label=record.get_job_name(job.id), submit_s=job.submit_s, walltime_s=job.walltime_s,
            start_s=each.start_s, expected_end_s=each.start_s + record.estimates[job.id],
            nodes=[(names[node], units) for node, units in each.placement],
        )
        for each in record.running for job in (each.job,)
    ]  # fmt: skip
    view = StatusPageView.model_construct(
        status=page_schema.BridgeStatusView.model_construct(now_s=now_s, mode=record.mode, predictor=record.policy.predictor),  # noqa: E501
        queue=queue, running=running, aside=[], chart=page_schema.GanttChartView.model_construct(now_s=now_s, bars=[]),
    )  # fmt: skip
    if past is not None and past.end_s is not None:
        label, begin_s, end_s = past.label or str(past.job_id), past.start_s, past.end_s
        bar = page_schema.GanttBar.model_construct(
            id=past.job_id, label=label, kind="past", begin_s=begin_s, end_s=end_s
        )
        view.chart.bars.append(bar)
    if aside is not None:
        label, kind, why = aside.label or str(aside.job_id), aside.kind, aside.reason
        view.aside.append(
            UnscheduledJobView.model_construct(id=aside.job_id, label=label, kind=kind, reason=to_pending_reason(why))
        )
    return view


def summarize_reason(job: QueuedJobView, mode: str) -> str:
    """Return a short text that states why a job waits, or that it starts now."""
    if job.reason is not None:
        return job.why
    starts = {"shadow": "would start now", "advise": "is first in the plan and fits now"}.get(mode, "starts now")
    on = "".join(map(str, _link_nodes(job.starts_on)))
    return f"{starts} on {on}" if on else starts


def _describe_queued_job(job: QueuedJobView, view: StatusPageView) -> Iterator[Sentence]:
    now_s = view.status.now_s
    if job.reason is not None:
        start = format_job_start(job, now_s)
        known = job.likely_from_s is not None
        yield [f"Start, with a probability of 80 %: {start}." if known else f"Start: {start}."]
        if known and not job.calibrated:
            yield [NOT_CALIBRATED]
        if job.expected_s is not None:
            moved = format_start_change(job.expected_s, job.first_expected_s)
            moved = f" This is {moved} than first planned." if moved else ""
            yield [f"Planned start: {format_plan(job.expected_s, now_s, view.status.predictor)}.{moved}"]
    waited = format_wait(job.submit_s, now_s)
    if view.status.reader:
        number = len(view.queue)
        place = "your only" if number == 1 else f"the {format_ordinal(job.position)} of your {number:,}"
        yield [f"It is {place} pending job{'s' if number > 1 else ''}, and has waited for {waited}."]
    elif len(view.queue) == 1:
        yield [f"It is the only pending job, and has waited for {waited}."]
    else:
        place = f"It is {format_ordinal(job.position)} in the order of priority"
        yield [f"{place} of {format_count(len(view.queue), 'pending job')}, and has waited for {waited}."]
    mode = view.status.mode
    yield [
        f"It {summarize_reason(job, mode)}." if job.reason is None else f"Why it waits: {summarize_reason(job, mode)}."
    ]
    if job.reason is None and mode == "advise":
        yield [
            "The cluster's scheduler decides: it starts the job in one of its next passes, unless it ranks other jobs "
            "higher."
        ]
    yield from _describe_blocking_jobs(job, view)
    if reserved := [part.name for part in job.nodes_from if part.kind == "reservation"]:
        yield [f"It cannot use nodes that are reserved before its end: {', '.join(reserved)}."]
    if not view.status.reader and (delay := _explain_delay(job, view)):
        yield [delay]
    yield [_describe_run_time(job, view.status.predictor)]


def _describe_run_time(job: QueuedJobView, predictor: str) -> str:
    is_unlimited = job.walltime_s == UNLIMITED_WALLTIME_S
    limit = "It has no time limit" if is_unlimited else f"Its time limit is {format_duration(job.walltime_s)}"
    if job.estimate_s != job.walltime_s:
        return f"{limit}; {predictor} predicts a run time of {format_duration(job.estimate_s)}."
    return f"{limit}." if is_unlimited else f"{limit}, and it is expected to use all of it."


def _describe_blocking_jobs(job: QueuedJobView, view: StatusPageView) -> Iterator[Sentence]:
    """Yield sentences about the jobs for which `job` waits.

    They are running jobs that must end, and pending jobs that start first.
    """
    ends = {runs.id: runs for runs in view.running if runs.id in job.behind}
    waiting = {each.id: each for each in view.queue if each.id in job.behind and each.id != job.id}
    if ends:
        last = max(ends.values(), key=lambda runs: runs.expected_end_s)
        text = "It can start when this job ends" if len(ends) == 1 else "It can start when these jobs end"
        links = [PageLink(runs.label, "job", str(runs.id)) for runs in ends.values()]
        yield [
            f"{text}, {'expected ' if has_known_end(last) else ''}{format_expected_end(last, view.status.now_s)}: ",
            *_join_links_with_commas(links),
            ".",
        ]
    if waiting:
        links = [PageLink(each.label, "job", str(each.id)) for each in waiting.values()]
        text = "The plan starts this job first" if len(waiting) == 1 else "The plan starts these jobs first"
        yield [f"{text}: ", *_join_links_with_commas(links), "."]


def _explain_delay(job: QueuedJobView, view: StatusPageView) -> str:
    """Return why a job is planned to start later than at first, or "" if it is not.

    Consider only the jobs in the view.
    """
    planned_s, first_s = job.expected_s, job.first_expected_s
    if planned_s is None or first_s is None or planned_s <= first_s:
        return ""
    before = [each for each in view.queue if each.expected_s is not None and each.expected_s < planned_s]
    others: list[QueuedJobView | RunningJobView] = [*view.running, *before]
    later = [each.label for each in others if each.submit_s > job.submit_s]
    if later:
        return f"Submitted later, but running or planned before it: {join_abbreviated(later, _MAX_NAMED_JOBS)}."
    return "No job submitted later starts before it, so other jobs run longer than expected or nodes are missing."


def _join_links_with_commas(links: Sequence[PageLink]) -> Iterator[str | PageLink]:
    for place, link in enumerate(links):
        if place:
            yield ", "
        yield link


def _describe_running_job(job: RunningJobView, view: StatusPageView) -> Iterator[Sentence]:
    now_s = view.status.now_s
    yield ["It runs on ", *(_link_nodes(job.nodes) if job.nodes else [UNKNOWN_NODES]), "."]
    yield [
        f"It started {format_relative_time(job.start_s, now_s)}, after a wait of {format_wait(job.submit_s, job.start_s)}."  # noqa: E501
    ]
    limit = format_time_limit(job.walltime_s)
    if not has_known_end(job):
        yield [f"It has {limit}, and its end is not known."]
    elif job.walltime_s == UNLIMITED_WALLTIME_S:
        yield [f"It is expected to end {format_expected_end(job, now_s)}; it has {limit}."]
    else:
        yield [f"It is expected to end {format_expected_end(job, now_s)}; its time limit is {limit}."]
    if job.preemptors:
        yield [f"It may be preempted by jobs in {job.preemptors}."]
    if job.checkpoint_s is not None:
        yield [f"Its last checkpoint was {format_relative_time(job.checkpoint_s, now_s)}."]


def _link_nodes(nodes: Sequence[tuple[str, int]]) -> Iterator[str | PageLink]:
    for place, (name, units) in enumerate(nodes[:_MAX_NODES]):
        if place:
            yield ", "
        yield PageLink(name, "node", name)
        if units > 1:
            yield f" ({units} tasks)"
    if len(nodes) > _MAX_NODES:
        yield f" and {format_count(len(nodes) - _MAX_NODES, 'more node')}"


_UNMANAGED_TEXT = "Only the cluster's own scheduler manages it, because the bridge does not model its request"
_UNSCHEDULED_TEXTS = {
    "left_to_slurm": _UNMANAGED_TEXT,
    "unsupported": _UNMANAGED_TEXT,
    "held_by_owner": "It does not start until its owner or the cluster releases it",
    "ineligible": "It may not start yet",
    BACKED_OFF_KIND: "It is in backoff after a failed start",
}
"""Explanations of unscheduled jobs, by kind as used on the page and in the journal."""


def _describe_unscheduled_job(job: UnscheduledJobView) -> str:
    if job.reason.code is PendingCode.PREEMPTION:
        return f"Only the cluster's own scheduler manages it: it {job.why}."
    return f"{_UNSCHEDULED_TEXTS.get(job.kind, 'It is currently not considered')}: {job.why}."


def explain_missing_array_task(asked: str, labels: Collection[str]) -> str:
    """Return why the observation lacks a pending array task, or "" if unexplained."""
    array, _, task = asked.partition("_")
    shown = [tail for label in labels for head, _, tail in [label.partition("_")] if head == array and tail.isdecimal()]
    if not task.isdecimal() or len(task) > 9 or len(shown) < MAX_PENDING_TASKS or int(task) <= max(map(int, shown)):
        return ""
    return (
        f"It may come after the first {len(shown):,} pending tasks of array {array}: later tasks appear as these start."
    )
