"""From a view and what a reader asked for to the text of a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import urlencode

from cpsched_bridge.watch.page import gantt, templates
from cpsched_bridge.watch.page.gantt import Links, Window
from cpsched_bridge.watch.page.schema import JobAnswer, QueuedJob, View
from cpsched_bridge.watch.page.words import span

ROWS = 100
"""Rows of a table on one page."""
RUNNING_ROWS = 100
PAST_H = 1
_MOST_ASKED = 100
_LEAST_EVERY_S = 2.0
"""Seconds between two updates of a page that is looked at."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reader asked for, as the address says it; what makes no sense counts as not asked."""

    ahead: int = 6
    first: int | None = None
    last: int | None = None
    q: str = ""
    page: int = 1
    at: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Asked:
        """From the address."""
        ahead = _number(query.get("ahead"))
        return cls(
            ahead=ahead if ahead in (1, 6, 24) else 6,
            first=_number(query.get("first")),
            last=_number(query.get("last")),
            q=query.get("q", "")[:_MOST_ASKED].strip(),
            page=max(1, _number(query.get("page")) or 1),
            at=_number(query.get("at")),
        )

    @property
    def zoomed(self) -> bool:
        """Whether only some of the nodes are drawn."""
        return self.first is not None

    def address(self, **changes: object) -> str:
        """The address of the same page with changes."""
        values = {name: getattr(self, name) for name in ("ahead", "first", "last", "q", "page", "at")}
        if "page" not in changes:
            values["page"] = 1
        plain = {"ahead": 6, "first": None, "last": None, "q": "", "page": 1, "at": None}
        values |= changes
        return "?" + urlencode({name: value for name, value in values.items() if value != plain[name]})


@dataclass(frozen=True, slots=True)
class Slider:
    """The time that a replay covers."""

    from_s: int
    to_s: int

    @property
    def step_s(self) -> int:
        """So that the slider has a thousand positions at most."""
        return max(1, (self.to_s - self.from_s) // 1000)


def index(view: View, asked: Asked, base: str, part: bool = False, slider: Slider | None = None) -> str:
    """The page, or its changing part."""
    window = Window.around(view.chart, PAST_H * 3600, asked.ahead * 3600, asked.first or 0, asked.last)
    found = [job for job in view.queue if _matches(job, asked.q.lower())] if asked.q else view.queue
    pages = max(1, -(-len(found) // ROWS))
    asked = replace(asked, page=min(asked.page, pages))
    here: Callable[..., str] = asked.address
    links = Links(lambda id: f"{base}jobs/{id}", lambda first, last: here(first=first, last=last))
    return templates.page(
        "live.html" if part else "index.html",
        view=view, asked=asked, base=base, here=here, version=view.status.version,
        every_s=0 if slider else max(_LEAST_EVERY_S, view.status.interval_s),
        slider=slider, replayed=slider is not None,
        clock=clock(view.status.now_s, view.status.at_unix_s),
        drawing=gantt.draw(view.chart, window, links),
        grouped=window.last - window.first > gantt.MOST_ROWS,
        homeless=sum(bar.kind == "planned" and not bar.nodes for bar in view.chart.bars),
        sparks={
            r.name: gantt.sparkline([m.in_use[i] for m in view.history], f"{r.name} in use over the past hour")
            for i, r in enumerate(view.status.resources)
        },
        rows=found[(asked.page - 1) * ROWS : asked.page * ROWS], found=len(found), pages=pages,
        running_rows=view.running[::-1][:RUNNING_ROWS],
    )  # fmt: skip


def job(view: View, answer: JobAnswer, base: str) -> str:
    """The page of one job."""
    of = answer.queued or answer.running
    facts = [(n, getattr(of, n)) for n in ("name", "user", "account", "partition") if of and getattr(of, n)]
    return templates.page(
        "job.html", job=answer, facts=facts, base=base, version=view.status.version,
        every_s=max(_LEAST_EVERY_S, view.status.interval_s), hidden=view.status.users_hidden,
    )  # fmt: skip


def not_yet(base: str, version: str) -> str:
    """The page before the first cycle."""
    return templates.page("waiting.html", base=base, version=version, every_s=_LEAST_EVERY_S)


def clock(now_s: int, at_unix_s: float) -> str:
    """The cluster's time: of day where its clock is Unix time, else as days and hours since its beginning."""
    if abs(now_s - at_unix_s) < 86400 < now_s:
        return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    days, rest = divmod(now_s, 86400)
    return f"day {days}, {rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}" if now_s >= 0 else span(now_s)


def _matches(job: QueuedJob, words: str) -> bool:
    return any(
        words in text.lower() for text in (job.label, job.user, job.account, job.name, job.partition, job.reason)
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and len(text) < 16 and text.removeprefix("-").isdecimal() and text.isascii() else None
