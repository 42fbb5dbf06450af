"""What a bridge answers to those who would submit something: when, and what could start now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version

from pydantic import TypeAdapter
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from cpsched.errors import InvalidValue
from cpsched_bridge.watch import v1
from cpsched_bridge.watch.outlook import Expected, Outlook, Submission
from cpsched_bridge.watch.page import pages, schema
from cpsched_bridge.watch.page.pages import Sight
from cpsched_bridge.watch.web.addresses import QUESTIONS
from cpsched_bridge.watch.web.door import Page
from cpsched_bridge.watch.web.responses import as_html, as_json, is_v1, refusal

_WORDS = frozenset(("nodes", "time", "partition", "whole"))
"""What a question may name besides the cluster's resources."""
_NO_PLAN = "the dispatcher has made no plan yet\n"


def questions(
    outlook: Outlook,
    at: Callable[[Request], schema.View | None],
    sight: Callable[[Request, schema.View], Sight],
    why_not: Callable[[Request], Sequence[str]],
) -> dict[str, Page]:
    """What a bridge answers to those who would submit something, by address."""

    def when(request: Request) -> Response:
        found = outlook.when(_question(request.query_params))
        if found is None:
            return refusal(request, _NO_PLAN, 503)
        if is_v1(request):
            return as_json(v1.when_of(found, outlook.clock_s()).model_dump_json().encode())
        return as_json(_answers("when", [_when(each, outlook.clock_s()) for each in found]))

    def what_now(request: Request) -> Response:
        found = outlook.windows(request.query_params.get("partition", ""))
        if found is None:
            return refusal(request, _NO_PLAN, 503)
        if is_v1(request):
            return as_json(v1.windows_of(found, outlook.clock_s()).model_dump_json().encode())
        told = [schema.WindowAnswer(whole=each.whole, units=each.units, walltime_s=each.walltime_s) for each in found]
        return as_json(_answers("windows", told))

    def form(request: Request) -> Response:
        view = at(request)
        if view is None:
            return as_html(pages.not_yet("", version("cpsched"), why_not(request)))
        asked, wrong, found = {name: words.strip() for name, words in request.query_params.items()}, "", None
        try:
            found = outlook.when(_question(_filled_in(request.query_params))) if "time" in asked else None
            could = outlook.windows(asked.get("partition", ""))
        except InvalidValue as error:
            wrong, could = str(error), None
        wrong = wrong or ("" if could is not None else _NO_PLAN.strip())
        text = pages.when(sight(request, view), asked, found, could, wrong, outlook.clock_s(), outlook.partitions())
        return as_html(text, 400 if wrong else 200)

    return {"/when": form, **{f"{at}/{name}": act for at in ("/api", v1.PREFIX)
                              for name, act in (("when", when), ("windows", what_now))}}  # fmt: skip


def _filled_in(words: QueryParams) -> QueryParams:
    """A form sends the fields that nobody filled in, too."""
    return QueryParams([(name, value.strip()) for name, value in words.items() if value.strip() or name == "time"])


def _question(words: QueryParams) -> Submission:
    """What an address asks. Raises `InvalidValue` for what makes no sense."""
    amounts = {name: _count(name, value) for name, value in words.items() if name not in _WORDS}
    nodes, whole = _count("nodes", words.get("nodes", "1")), words.get("whole", "0")
    if whole not in ("0", "1"):
        raise InvalidValue("whole", whole, "must be 0 or 1")
    return Submission(nodes, words.get("time", ""), words.get("partition", ""), whole == "1", amounts)


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
