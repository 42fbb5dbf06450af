"""Why a job waits, from what the page knows: the same question that `cpsched why` answers from the files.

Sentences are made of words and of links to other jobs and to nodes; the API has the words alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cpsched_bridge.ports import NOWHERE
from cpsched_bridge.watch.page.schema import AsideJob, JobAnswer, QueuedJob, RunningJob, View
from cpsched_bridge.watch.page.words import behind_its_array, change, from_now, many, ordinal, span, to_come
from cpsched_bridge.watch.reasons import text_of

_MOST_NODES = 16


@dataclass(frozen=True, slots=True)
class Link:
    """Words that lead to a page: of a job by its id, or of a node by its name."""

    words: str
    to: Literal["job", "node"]
    key: str

    def __str__(self) -> str:
        return self.words


Sentence = Sequence[str | Link]


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, and its sentences with the links in them."""

    answer: JobAnswer
    sentences: Sequence[Sentence]


def told(view: View, asked: str) -> Told:
    """Return the answer for a job by id or label; `state` is `unknown` where no job has that name."""
    wanted = asked.strip()
    for job in view.queue:
        if wanted in (job.label, str(job.id)):
            return _told(list(_queued(job, view)), id=job.id, label=job.label, state="queued", queued=job)
    for runs in view.running:
        if wanted in (runs.label, str(runs.id)):
            return _told(list(_running(runs, view)), id=runs.id, label=runs.label, state="running", running=runs)
    for aside in view.aside:
        if wanted in (aside.label, str(aside.id)):
            return _told([[_aside(aside)]], id=aside.id, label=aside.label, state="aside", aside=aside)
    for bar in view.chart.bars:
        if bar.kind == "past" and wanted in (bar.label, str(bar.id)):
            ran = f"It ran for {span(bar.end_s - bar.begin_s)} and ended {from_now(bar.end_s, view.chart.now_s)}."
            return _told([[ran]], id=bar.id, label=bar.label, state="ended")
    unknown = "It neither waits nor runs, and has not ended within the past hour."
    unknown = behind_its_array(wanted, [job.label for job in view.queue]) or unknown
    return _told([[unknown]], id=int(wanted) if _is_id(wanted) else -1, label=asked[:100], state="unknown")


def because(job: QueuedJob) -> str:
    """Why a job waits, in words."""
    return "starts now" if job.reason is None else text_of(job.reason, job.distinct)


def _told(sentences: Sequence[Sentence], **facts: object) -> Told:
    words = ["".join(map(str, sentence)) for sentence in sentences]
    return Told(JobAnswer.model_validate({**facts, "sentences": words}), sentences)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _queued(job: QueuedJob, view: View) -> Iterator[Sentence]:
    now_s = view.status.now_s
    waited = span(now_s - job.submit_s)
    if view.status.reader:
        place = "the only one" if len(view.queue) == 1 else f"{ordinal(job.position)} of {len(view.queue):,}"
        yield [f"Of your jobs that wait it is {place}. It has waited for {waited}."]
    elif len(view.queue) == 1:
        yield [f"It is the only job that waits, and has done so for {waited}."]
    else:
        place = "first in the queue" if job.position == 1 else f"{ordinal(job.position)} in the queue"
        yield [f"It is {place} of {many(len(view.queue), 'waiting job')}, and has waited for {waited}."]
    yield ["It starts now." if job.reason is None else f"Why it waits: {because(job)}."]
    yield from _behind(job, view)
    if job.expected_s is not None:
        moved = change(job.expected_s, job.first_expected_s)
        yield [
            f"It is expected to start {to_come(job.expected_s, now_s)}"
            + (f", which is {moved} than first expected." if moved else ".")
        ]
    if job.reason and job.likely_from_s is not None and job.likely_to_s is not None:
        begin, end = (to_come(at_s, now_s) for at_s in (job.likely_from_s, job.likely_to_s))
        yield [f"Of ten such jobs eight start between {begin} and {end}."]
    if job.expected_s is None and job.reason:
        yield ["When it will start is not known: the dispatcher has no plan for it yet."]
    yield [_length(job, view.status.predictor)]


def _length(job: QueuedJob, predictor: str) -> str:
    if job.estimate_s == job.walltime_s:
        return f"It may run for {span(job.walltime_s)}, and is expected to need all of it."
    return f"It may run for {span(job.walltime_s)}; {predictor} expects it to run for {span(job.estimate_s)}."


def _behind(job: QueuedJob, view: View) -> Iterator[Sentence]:
    """The jobs that it waits for: those that run now have to end, those that wait go first."""
    ends = {runs.id: runs for runs in view.running if runs.id in job.behind}
    waiting = {each.id: each for each in view.queue if each.id in job.behind and each.id != job.id}
    if ends:
        last_s = max(runs.expected_end_s for runs in ends.values())
        words = "It can start when this job ends" if len(ends) == 1 else "It can start when these jobs end"
        links = [Link(runs.label, "job", str(runs.id)) for runs in ends.values()]
        yield [f"{words}, expected {to_come(last_s, view.status.now_s)}: ", *_listed(links), "."]
    if waiting:
        links = [Link(each.label, "job", str(each.id)) for each in waiting.values()]
        words = "This job goes before it" if len(waiting) == 1 else "These jobs go before it"
        yield [f"{words}: ", *_listed(links), "."]


def _listed(links: Sequence[Link]) -> Iterator[str | Link]:
    for place, link in enumerate(links):
        if place:
            yield ", "
        yield link


def _running(job: RunningJob, view: View) -> Iterator[Sentence]:
    now_s = view.status.now_s
    yield ["It runs on ", *_nodes(job.nodes), "."]
    yield [f"It started {from_now(job.start_s, now_s)}, after a wait of {span(job.start_s - job.submit_s)}."]
    yield [f"It is expected to end {to_come(job.expected_end_s, now_s)}; it may run for {span(job.walltime_s)}."]


def _nodes(nodes: Sequence[tuple[str, int]]) -> Iterator[str | Link]:
    if not nodes:
        yield NOWHERE
    for place, (name, units) in enumerate(nodes[:_MOST_NODES]):
        if place:
            yield ", "
        yield Link(name, "node", name)
        if units > 1:
            yield f" ({units} parts)"
    if len(nodes) > _MOST_NODES:
        yield f" and {many(len(nodes) - _MOST_NODES, 'more node')}"


def _aside(job: AsideJob) -> str:
    kinds = {
        "left_to_slurm": "It is left to the cluster's own scheduler, since the bridge does not model what it asks for",
        "held_by_owner": "It does not start before its owner or the cluster lets go of it",
        "ineligible": "It may not start yet",
        "set_aside": "It is not decided on at the moment",
    }
    return f"{kinds.get(job.kind, job.kind)}: {job.reason}."
