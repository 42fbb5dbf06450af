"""What is served over HTTP: /metrics, /healthz, /readyz, the status page and its JSON. The only door to Starlette.

Nothing here writes to the cluster or to the bridge's files, and nothing waits for the loop: answers are made of what
the last cycle left. Addresses within pages are relative, so that a reverse proxy may put them under any prefix.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.metadata import version
from threading import Lock
from typing import Any, Protocol

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cpsched.errors import InvalidValue
from cpsched_bridge.in_force import Row
from cpsched_bridge.readers import Readers, Refused, network_of
from cpsched_bridge.report import CycleReport
from cpsched_bridge.settings import PageSettings, Settings
from cpsched_bridge.watch import v1
from cpsched_bridge.watch.exporter import CONTENT_TYPE, Exporter
from cpsched_bridge.watch.following import Following, WatchSurroundings
from cpsched_bridge.watch.health import Health
from cpsched_bridge.watch.hosts import is_ours
from cpsched_bridge.watch.outlook import Expected, Outlook, Question
from cpsched_bridge.watch.page import gantt, pages, schema, templates
from cpsched_bridge.watch.page.alarms import stalled
from cpsched_bridge.watch.page.answers import answer, told
from cpsched_bridge.watch.page.asked import PageQuestion
from cpsched_bridge.watch.page.board import Board
from cpsched_bridge.watch.page.nodes import nodes
from cpsched_bridge.watch.page.own import own
from cpsched_bridge.watch.page.pages import Sight, Slider

_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_MISDIRECTED = (
    "the page is for this machine's addresses and localhost; other names belong into the setting page.hosts\n"
)
_MOST_MADE = 16
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}

API: dict[str, tuple[Any, Callable[[schema.View], Any]]] = {
    "status": (schema.Status, lambda view: view.status),
    "queue": (list[schema.QueuedJob], lambda view: view.queue),
    "running": (list[schema.RunningJob], lambda view: view.running),
    "aside": (list[schema.AsideJob], lambda view: view.aside),
    "decisions": (list[schema.DecisionLine], lambda view: view.decisions),
    "history": (list[schema.Moment], lambda view: view.history),
    "trend": (list[schema.Point], lambda view: view.trend),
    "plan": (schema.Chart, lambda view: view.chart),
    "nodes": (list[schema.Node], nodes),
    "settings": (list[schema.Setting], lambda view: view.settings),
    "promises": (list[schema.Promised], lambda view: view.promises),
}
"""Name under /api -> the type of the answer, and how it is taken from a view."""

QUESTIONS: dict[str, Any] = {"when": list[schema.WhenAnswer], "windows": list[schema.WindowAnswer]}
"""Names under /api of what a bridge answers to those who would submit something -> the type of the answer."""
_WORDS = frozenset(("nodes", "time", "partition", "whole"))
"""What a question may name besides the cluster's resources."""


ADDRESSES: dict[str, Any] = {name: kind for name, (kind, _) in API.items()} | {
    "jobs/ID": schema.JobAnswer,
    **QUESTIONS,
}
"""Every name under /api -> the type of the answer."""


Page = Callable[[Request], Response]


class Watch:
    """Listens to the cycles of one bridge, and answers those who ask about them."""

    def __init__(
        self,
        settings: Settings,
        around: Callable[[], WatchSurroundings] = WatchSurroundings,
        in_force: Sequence[Row] = (),
    ) -> None:
        self._settings, self._around = settings, around
        self._following = Following()
        self.exporter = Exporter()
        self.health = Health(settings.cycle)
        self.outlook = Outlook()
        self.board = Board(settings, in_force, self.outlook)

    def __call__(self, report: CycleReport) -> None:
        """Take note of one cycle."""
        self.health(report)
        cycle = self._following.follow(report, self._around())
        self.exporter(replace(cycle, outcomes=self.outlook.taken_outcomes()))
        if self._settings.serves_page:
            self.outlook(report)
            self.board(cycle, self._following.promises)

    def begins(self, words: str) -> None:
        """Take note of what is done before the first cycle; empty words: nothing any more."""
        self.health.begins(words)

    def app(self) -> Starlette:
        """The application to serve."""
        routes = self._metrics() if self._settings.metrics.enabled else []
        if self._settings.serves_page:
            door = Door.of(self._settings.page)
            routes += page_routes(_Live(self.board, self.health), door, self.outlook)
        return served(routes)

    def _metrics(self) -> list[Route]:
        # `async`, so that no pool of threads stands between a scrape and its answer.
        # What they tell is for operators: a reader whom a proxy names is none of theirs.
        header = self._settings.page.user_header if self._settings.serves_page else ""

        async def metrics(request: Request) -> Response:
            if header and header in request.headers:
                return PlainTextResponse("not for readers of the page\n", 403, _HEADERS)
            return Response(self.exporter.text(), media_type=CONTENT_TYPE)

        async def alive(request: Request) -> Response:
            return self._healthy(self.health.stalled(), header in request.headers if header else False)

        async def ready(request: Request) -> Response:
            return self._healthy(self.health.not_ready(), header in request.headers if header else False)

        return [Route("/metrics", metrics), Route("/healthz", alive), Route("/readyz", ready)]

    def _healthy(self, reasons: Sequence[str], in_short: bool) -> Response:
        """200, or 503 with the reasons, a line each."""
        lines = reasons or [f"ok: {self.health.told()}"]
        lines = ["not ready" if reasons else "ok"] if in_short else lines
        return PlainTextResponse("\n".join(lines) + "\n", 503 if reasons else 200, {"Cache-Control": "no-store"})


# ------------------------------------------------------------------------------------------------------------ the page


class Views(Protocol):
    """Where the page's values come from: a bridge, or a replay."""

    def at(self, at_s: int | None) -> schema.View | None:
        """Everything at an instant of the cluster's clock, or at the latest one; None if there is nothing yet."""
        ...

    def nothing_yet(self) -> Sequence[str]:
        """Why there is nothing yet, a sentence each."""
        ...

    @property
    def slider(self) -> Slider | None:
        """The time that can be chosen; None for a bridge, which shows the present."""
        ...


@dataclass(frozen=True, slots=True)
class _Live:
    """The present of a bridge."""

    board: Board
    health: Health

    def at(self, at_s: int | None) -> schema.View | None:
        """See `Views.at`. That no cycle ends any more is told by none."""
        view, late = self.board.view(), self.health.stalled()
        if view is None or not late:
            return view
        status = view.status.model_copy(update={"alarms": [stalled(late), *view.status.alarms]})
        return view.model_copy(update={"status": status})

    def nothing_yet(self) -> Sequence[str]:
        """See `Views.nothing_yet`."""
        return self.health.not_ready()

    @property
    def slider(self) -> Slider | None:
        """See `Views.slider`."""
        return None


def served(routes: Sequence[Route]) -> Starlette:
    """An application of these routes. A wrong address is not found: a redirect would name the bridge's own address."""
    app = Starlette(routes=list(routes))
    app.router.redirect_slashes = False
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=4)
    app.add_middleware(_PathsOnly)
    return app


class _PathsOnly:
    """Refuses requests for anything but a path: `GET http://somewhere/ HTTP/1.1` names a second host."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `ASGIApp`."""
        asked = scope["type"] != "http" or scope["raw_path"].startswith(b"/")
        answer = self._app if asked else PlainTextResponse("ask for a path of this host\n", 400, _HEADERS)
        await answer(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Door:
    """Whom the page is for. One request is answered at a time: the loop shares the interpreter with one of them."""

    hosts: Sequence[str] | None = ()
    """Names that may be asked for, beside addresses of this machine and localhost; None: all."""
    readers: Readers = field(default_factory=Readers)
    at_a_time: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, page: PageSettings) -> Door:
        """The door that the settings ask for."""
        readers = Readers(page.user_header, tuple(map(network_of, page.trusted_proxies)), frozenset(page.operators))
        return cls(None if page.public else page.hosts, readers)

    def guard(self, page: Page) -> Page:
        """`page`, for those whom it is for; `request.state.reader` says who reads, None: somebody who sees all."""

        def guarded(request: Request) -> Response:
            if self.hosts is not None and not is_ours(request.headers.get("host", ""), self.hosts):
                return _refusal(request, _MISDIRECTED, 421)
            peer = request.client.host if request.client is not None else None
            try:
                request.state.reader = self.readers.of(peer, request.headers.getlist(self.readers.header))
                with self.at_a_time:
                    answer = page(request)
            except Refused as refused:
                answer = _refusal(request, f"{refused}\n", 403)
            except InvalidValue as error:
                answer = _refusal(request, f"{error}\n", 400)
            if self.readers.told_apart:
                answer.headers["Cache-Control"] = "private, no-cache"
                answer.headers.add_vary_header(self.readers.header)
            return answer

        return guarded


def page_routes(views: Views, door: Door | None = None, outlook: Outlook | None = None) -> list[Route]:
    """The status page and its JSON, behind a door. Plain functions: each runs in a thread of the server's pool.

    A page that was made for the same question, round and reader is sent again. Without an `outlook`, as in a replay,
    nobody is told when a job would start.
    """
    made, door = dict[str, str](), door or Door()
    asks = outlook is not None

    def at(request: Request) -> schema.View | None:
        view, reader = views.at(PageQuestion.of(request.query_params).at), request.state.reader
        return own(view, reader) if view is not None and reader is not None else view

    def sight(request: Request, view: schema.View) -> Sight:
        query = request.query_params
        return Sight(view, PageQuestion.of(query), query.get("part") == "live", views.slider, asks)

    def too_early(request: Request) -> Response:
        return _refusal(request, "\n".join(["the bridge has not read the cluster yet", *why_not(request), ""]), 503)

    def why_not(request: Request) -> Sequence[str]:
        """Why there is nothing yet; errors may name jobs, so that readers who see their own alone are told none."""
        return views.nothing_yet() if request.state.reader is None else []

    def page(make: Callable[[Sight], str]) -> Page:
        def answered(request: Request) -> Response:
            view = at(request)
            if view is None:
                return _html(pages.not_yet("", version("cpsched"), why_not(request)))
            tag = _tag(view, str(request.url.path), str(request.query_params))
            if request.headers.get("if-none-match") == tag:
                return Response(status_code=304, headers={"ETag": tag, **_HEADERS})
            if tag not in made:
                if len(made) >= _MOST_MADE:
                    made.clear()
                made[tag] = make(sight(request, view))
            return HTMLResponse(made[tag], headers={"ETag": tag, **_HEADERS})

        return answered

    def job(request: Request) -> Response:
        view, asked = at(request), request.path_params["job"]
        if view is None:
            return _html(pages.not_yet("../", version("cpsched"), why_not(request)))
        found = told(view, asked)
        return _html(pages.job(sight(request, view), found), 404 if found.answer.state == "unknown" else 200)

    def api(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "schema":
            return _json(_SCHEMA)
        if name not in API:
            return PlainTextResponse(f"no such thing; there are: {', '.join([*ADDRESSES, 'schema'])}\n", 404)
        view = at(request)
        return (
            _json(TypeAdapter(API[name][0]).dump_json(API[name][1](view))) if view is not None else too_early(request)
        )

    def api_job(request: Request) -> Response:
        view = at(request)
        if view is None:
            return too_early(request)
        found = answer(view, request.path_params["job"])
        status = 404 if found.state == "unknown" else 200
        if _is_v1(request):
            return _json(v1.job_of(found, view.status.now_s).model_dump_json().encode(), status)
        return _json(found.model_dump_json().encode(), status)

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _FILES:
            return PlainTextResponse("no such file\n", 404)
        content, kind = _FILES[name]
        return Response(content, media_type=kind, headers=_HEADERS)

    found: dict[str, Page] = {
        "/": page(pages.index), "/jobs": page(pages.jobs), "/nodes": page(pages.nodes), "/wall": page(pages.wall),
        "/jobs/{job}": job, "/api/jobs/{job}": api_job, "/static/{name}": static,
    }  # fmt: skip
    if outlook is not None:
        found |= _questions(outlook, at, sight, why_not)
        found |= {f"{v1.PREFIX}/jobs/{{job}}": api_job, f"{v1.PREFIX}/openapi.json": _openapi}
        found |= {f"{v1.PREFIX}/{{rest:path}}": _not_in_v1}
    found |= {"/api/{name}": api}
    return [Route(path, door.guard(each)) for path, each in found.items()]


def _questions(
    outlook: Outlook,
    at: Callable[[Request], schema.View | None],
    sight: Callable[[Request, schema.View], Sight],
    why_not: Callable[[Request], Sequence[str]],
) -> dict[str, Page]:
    """What a bridge answers to those who would submit something, by address."""

    def when(request: Request) -> Response:
        found = outlook.when(_question(request.query_params))
        if found is None:
            return _refusal(request, _NO_PLAN, 503)
        if _is_v1(request):
            return _json(v1.when_of(found, outlook.clock_s()).model_dump_json().encode())
        return _json(_answers("when", [_when(each, outlook.clock_s()) for each in found]))

    def what_now(request: Request) -> Response:
        found = outlook.windows(request.query_params.get("partition", ""))
        if found is None:
            return _refusal(request, _NO_PLAN, 503)
        if _is_v1(request):
            return _json(v1.windows_of(found, outlook.clock_s()).model_dump_json().encode())
        told = [schema.WindowAnswer(whole=each.whole, units=each.units, walltime_s=each.walltime_s) for each in found]
        return _json(_answers("windows", told))

    def form(request: Request) -> Response:
        view = at(request)
        if view is None:
            return _html(pages.not_yet("", version("cpsched"), why_not(request)))
        asked, wrong, found = {name: words.strip() for name, words in request.query_params.items()}, "", None
        try:
            found = outlook.when(_question(_filled_in(request.query_params))) if "time" in asked else None
            could = outlook.windows(asked.get("partition", ""))
        except InvalidValue as error:
            wrong, could = str(error), None
        wrong = wrong or ("" if could is not None else _NO_PLAN.strip())
        text = pages.when(sight(request, view), asked, found, could, wrong, outlook.clock_s(), outlook.partitions())
        return _html(text, 400 if wrong else 200)

    return {"/when": form, **{f"{at}/{name}": act for at in ("/api", v1.PREFIX)
                              for name, act in (("when", when), ("windows", what_now))}}  # fmt: skip


def _filled_in(words: QueryParams) -> QueryParams:
    """A form sends the fields that nobody filled in, too."""
    return QueryParams([(name, value.strip()) for name, value in words.items() if value.strip() or name == "time"])


def _is_v1(request: Request) -> bool:
    return request.url.path.startswith(f"{v1.PREFIX}/")


def _openapi(_: Request) -> Response:
    return _json(_OPENAPI)


def _not_in_v1(request: Request) -> Response:
    return _refusal(request, f"no such thing; {v1.PREFIX}/openapi.json says what there is\n", 404)


def _refusal(request: Request, words: str, status: int) -> Response:
    """Why there is no answer: a line or more, in version 1 of the API as JSON."""
    if _is_v1(request):
        return _json(v1.Error(error="; ".join(words.strip().splitlines())).model_dump_json().encode(), status)
    return PlainTextResponse(words, status, _HEADERS)


_NO_PLAN = "the dispatcher has made no plan yet\n"


def _question(words: QueryParams) -> Question:
    """What an address asks. Raises `InvalidValue` for what makes no sense."""
    amounts = {name: _count(name, value) for name, value in words.items() if name not in _WORDS}
    nodes, whole = _count("nodes", words.get("nodes", "1")), words.get("whole", "0")
    if whole not in ("0", "1"):
        raise InvalidValue("whole", whole, "must be 0 or 1")
    return Question(nodes, words.get("time", ""), words.get("partition", ""), whole == "1", amounts)


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10):
        raise InvalidValue(name, text, "must be a number, not negative")
    return int(text)


def _when(expected: Expected, now_s: int) -> schema.WhenAnswer:
    interval = expected.interval
    return schema.WhenAnswer(
        asked=expected.asked,
        now_s=now_s,
        planned_s=expected.planned_s,
        likely_from_s=interval.from_s if interval else None,
        likely_to_s=interval.to_s if interval else None,
        calibrated=interval is not None and interval.calibrated,
    )


def _answers(name: str, found: Sequence[schema.Shown]) -> bytes:
    return TypeAdapter(QUESTIONS[name]).dump_json(list(found))


def _files() -> Mapping[str, tuple[bytes, str]]:
    """Style sheet, script and icon, read once; the drawing's colours are part of the style sheet."""
    found = {name: ((templates.STATIC / name).read_bytes(), kind) for name, kind in _STATIC.items()}
    css, kind = found["page.css"]
    return found | {"page.css": (css + gantt.STYLE.encode(), kind)}


_FILES = _files()
_SCHEMA: dict[str, Any] = {
    f"/api/{name}": TypeAdapter(kind).json_schema(mode="serialization") for name, kind in ADDRESSES.items()
}
"""JSON Schema of every answer, by its address."""
_OPENAPI = v1.document()


def _tag(view: schema.View, path: str, query: str) -> str:
    """Changes with the round, with an alarm, with the reader, and with a bridge that was started again."""
    status = view.status
    state = f"{status.round} {status.at_unix_s} {status.now_s} {status.alarms} {path} {query} {status.reader!r}"
    return f'"{sha256(state.encode()).hexdigest()[:20]}"'


def _html(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, headers=_HEADERS)


def _json(content: bytes | dict[str, Any], status: int = 200) -> Response:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Response(body, status, media_type="application/json", headers=_HEADERS)
