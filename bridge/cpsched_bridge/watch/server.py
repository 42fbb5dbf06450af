"""What is served over HTTP: /metrics, /healthz, /readyz, the status page and its JSON. The only door to Starlette.

Nothing here writes to the cluster or to the bridge's files, and nothing waits for the loop: answers are made of what
the last cycle left. Addresses within pages are relative, so that a reverse proxy may put them under any prefix.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from ipaddress import ip_address
from threading import Lock
from typing import Any, Protocol
from urllib.parse import urlsplit

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from cpsched_bridge.report import CycleReport
from cpsched_bridge.settings import Settings
from cpsched_bridge.watch.exporter import CONTENT_TYPE, Exporter
from cpsched_bridge.watch.following import Following, Surroundings
from cpsched_bridge.watch.health import Health
from cpsched_bridge.watch.page import gantt, pages, schema, templates
from cpsched_bridge.watch.page.answers import answer
from cpsched_bridge.watch.page.board import Board
from cpsched_bridge.watch.page.pages import Asked, Slider

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
    "plan": (schema.Chart, lambda view: view.chart),
}
"""Name under /api -> the type of the answer, and how it is taken from a view."""


class Watch:
    """Listens to the cycles of one bridge, and answers those who ask about them."""

    def __init__(self, settings: Settings, around: Callable[[], Surroundings] = Surroundings) -> None:
        self._settings, self._around = settings, around
        self._following = Following()
        self.exporter = Exporter()
        self.health = Health(settings.cycle)
        self.board = Board(settings)

    def __call__(self, report: CycleReport) -> None:
        """Take note of one cycle."""
        self.health(report)
        cycle = self._following.follow(report, self._around())
        self.exporter(cycle)
        if self._settings.serves_page:
            self.board(cycle, self._following.promises)

    def app(self) -> Starlette:
        """The application to serve."""
        routes = self._metrics() if self._settings.metrics.enabled else []
        if self._settings.serves_page:
            page = self._settings.page
            routes += page_routes(_Live(self.board), None if page.public else page.hosts)
        return served(routes)

    def _metrics(self) -> list[Route]:
        # `async`, so that no pool of threads stands between a scrape and its answer.
        async def metrics(_: Request) -> Response:
            return Response(self.exporter.text(), media_type=CONTENT_TYPE)

        async def alive(_: Request) -> Response:
            return self._healthy(self.health.stalled())

        async def ready(_: Request) -> Response:
            return self._healthy(self.health.not_ready())

        return [Route("/metrics", metrics), Route("/healthz", alive), Route("/readyz", ready)]

    def _healthy(self, reasons: Sequence[str]) -> Response:
        """200, or 503 with the reasons, a line each."""
        lines = reasons or [f"ok: {self.health.told()}"]
        return PlainTextResponse("\n".join(lines) + "\n", 503 if reasons else 200, {"Cache-Control": "no-store"})


# ------------------------------------------------------------------------------------------------------------ the page


class Views(Protocol):
    """Where the page's values come from: a bridge, or a replay."""

    def at(self, at_s: int | None) -> schema.View | None:
        """Everything at an instant of the cluster's clock, or at the latest one; None if there is nothing yet."""
        ...

    @property
    def slider(self) -> Slider | None:
        """The time that can be chosen; None for a bridge, which shows the present."""
        ...


@dataclass(frozen=True, slots=True)
class _Live:
    """The present of a bridge."""

    board: Board

    def at(self, at_s: int | None) -> schema.View | None:
        """See `Views.at`."""
        return self.board.view()

    @property
    def slider(self) -> Slider | None:
        """See `Views.slider`."""
        return None


def served(routes: Sequence[Route]) -> Starlette:
    """An application of these routes. A wrong address is not found: a redirect would name the bridge's own address."""
    app = Starlette(routes=list(routes))
    app.router.redirect_slashes = False
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=4)
    return app


def page_routes(views: Views, hosts: Sequence[str] | None = ()) -> list[Route]:
    """The status page and its JSON. Plain functions: each runs in a thread of the server's pool.

    They are for those who asked for an address of this machine, for localhost or for one of `hosts`; None: for all.
    One page is made at a time, and one that was made for the same question is sent again: however many readers there
    are, the loop has to share the interpreter with one of them.
    """
    at_a_time, made = Lock(), dict[str, str]()

    def at(request: Request) -> schema.View | None:
        return views.at(Asked.of(request.query_params).at)

    def index(request: Request) -> Response:
        part, view = request.query_params.get("part") == "live", at(request)
        if view is None:
            return _html(pages.not_yet("", version("cpsched")))
        tag = _tag(view, str(request.query_params))
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag, **_HEADERS})
        if tag not in made:
            if len(made) >= _MOST_MADE:
                made.clear()
            made[tag] = pages.index(view, Asked.of(request.query_params), "", part, views.slider)
        return HTMLResponse(made[tag], headers={"ETag": tag, **_HEADERS})

    def job(request: Request) -> Response:
        view, asked = at(request), request.path_params["job"]
        if view is None:
            return _html(pages.not_yet("../", version("cpsched")))
        found = answer(view, asked)
        return _html(pages.job(view, found, "../"), 404 if found.state == "unknown" else 200)

    def api(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "schema":
            return _json(_SCHEMA)
        if name not in API:
            return PlainTextResponse(f"no such thing; there are: {', '.join([*API, 'jobs/ID', 'schema'])}\n", 404)
        view = at(request)
        return _json(TypeAdapter(API[name][0]).dump_json(API[name][1](view))) if view is not None else _too_early()

    def api_job(request: Request) -> Response:
        view = at(request)
        if view is None:
            return _too_early()
        found = answer(view, request.path_params["job"])
        return _json(found.model_dump_json().encode(), 404 if found.state == "unknown" else 200)

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _FILES:
            return PlainTextResponse("no such file\n", 404)
        content, kind = _FILES[name]
        return Response(content, media_type=kind, headers=_HEADERS)

    found = {"/": index, "/jobs/{job}": job, "/api/jobs/{job}": api_job, "/api/{name}": api, "/static/{name}": static}
    return [Route(path, _guarded(page, hosts, at_a_time)) for path, page in found.items()]


Page = Callable[[Request], Response]


def _guarded(page: Page, hosts: Sequence[str] | None, at_a_time: Lock) -> Page:
    def guarded(request: Request) -> Response:
        if hosts is not None and not _is_ours(request.headers.get("host", ""), hosts):
            return PlainTextResponse(_MISDIRECTED, 421, _HEADERS)
        with at_a_time:
            return page(request)

    return guarded


def _is_ours(host: str, hosts: Sequence[str]) -> bool:
    """Whether a request's Host is an address, localhost, or one of `hosts`.

    Any web site can have its own name lead to the reader's machine, and its scripts then ask for this page by that
    name (DNS rebinding); the browser takes the answer for the site's.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        ip_address(name)
    except ValueError:
        return name == "localhost" or name in (each.lower() for each in hosts)
    return True


def _files() -> Mapping[str, tuple[bytes, str]]:
    """Style sheet, script and icon, read once; the drawing's colours are part of the style sheet."""
    found = {name: ((templates.STATIC / name).read_bytes(), kind) for name, kind in _STATIC.items()}
    css, kind = found["page.css"]
    return found | {"page.css": (css + gantt.STYLE.encode(), kind)}


_FILES = _files()
_SCHEMA: dict[str, Any] = {
    f"/api/{name}": TypeAdapter(kind).json_schema(mode="serialization")
    for name, kind in {**{name: kind for name, (kind, _) in API.items()}, "jobs/ID": schema.JobAnswer}.items()
}
"""JSON Schema of every answer, by its address."""


def _tag(view: schema.View, query: str) -> str:
    """Changes with the round, and with a bridge that was started again."""
    state = f"{view.status.round} {view.status.at_unix_s} {view.status.now_s} {query}"
    return f'"{sha256(state.encode()).hexdigest()[:20]}"'


def _html(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, headers=_HEADERS)


def _json(content: bytes | dict[str, Any], status: int = 200) -> Response:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Response(body, status, media_type="application/json", headers=_HEADERS)


def _too_early() -> Response:
    return PlainTextResponse("the bridge has not read the cluster yet\n", 503, _HEADERS)
