"""Why a job waits, from what the page knows: the same question that `cpsched why` answers from the files."""

from __future__ import annotations

from collections.abc import Iterator

from cpsched_bridge.watch.page.schema import JobAnswer, QueuedJob, RunningJob, View
from cpsched_bridge.watch.page.words import change, from_now, span

_MOST_NODES = 16


def answer(view: View, asked: str) -> JobAnswer:
    """The answer for a job by id or label; `state` is `unknown` where nobody has heard of it."""
    wanted = asked.strip()
    for job in view.queue:
        if wanted in (job.label, str(job.id)):
            return JobAnswer(id=job.id, label=job.label, state="queued", sentences=list(_queued(job, view)), queued=job)
    for runs in view.running:
        if wanted in (runs.label, str(runs.id)):
            return JobAnswer(
                id=runs.id, label=runs.label, state="running", sentences=list(_running(runs, view)), running=runs
            )
    for aside in view.aside:
        if wanted in (aside.label, str(aside.id)):
            said = f"It is pending, and not decided on ({aside.kind.replace('_', ' ')}): {aside.reason}."
            return JobAnswer(id=aside.id, label=aside.label, state="aside", sentences=[said], aside=aside)
    for bar in view.chart.bars:
        if bar.kind == "past" and wanted == str(bar.id):
            ran = f"It ran for {span(bar.end_s - bar.begin_s)} and ended {from_now(bar.end_s, view.chart.now_s)}."
            return JobAnswer(id=bar.id, label=bar.label, state="ended", sentences=[ran])
    unknown = "It neither waits nor runs, and has not ended within the past hour."
    return JobAnswer(id=int(wanted) if _is_id(wanted) else -1, label=asked[:100], state="unknown", sentences=[unknown])


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _queued(job: QueuedJob, view: View) -> Iterator[str]:
    now_s = view.status.now_s
    place = f"number {job.position} of {len(view.queue)} in the queue"
    yield f"It is {place} and has waited for {span(now_s - job.submit_s)}."
    if job.reason:
        yield f"It waits because: {job.reason}."
    if job.behind:
        yield (
            "It stands behind " + ("job " if len(job.behind) == 1 else "jobs ") + ", ".join(map(str, job.behind)) + "."
        )
    if job.expected_s is not None:
        moved = change(job.expected_s, job.first_expected_s)
        yield f"It is expected to start {from_now(job.expected_s, now_s)}" + (
            f", which is {moved} than first expected." if moved else "."
        )
    elif job.reason:
        yield "When it will start is not known: the dispatcher has no plan for it."
    yield (
        f"It asked for {span(job.walltime_s)}; {view.status.predictor} expects it to run for {span(job.estimate_s)}."
    )


def _running(job: RunningJob, view: View) -> Iterator[str]:
    now_s = view.status.now_s
    names = [name + (f" ({units} units)" if units > 1 else "") for name, units in job.nodes[:_MOST_NODES]]
    more = f" and {len(job.nodes) - _MOST_NODES} more nodes" if len(job.nodes) > _MOST_NODES else ""
    yield f"It runs on {', '.join(names)}{more}."
    yield f"It started {from_now(job.start_s, now_s)}, after a wait of {span(job.start_s - job.submit_s)}."
    yield f"It is expected to end {from_now(job.expected_end_s, now_s)}; it asked for {span(job.walltime_s)}."
