"""The page of dispatchers, predictors and evaluation metrics, generated from the registries."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Literal, get_args, get_origin

from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.metrics import METRICS
from cpsched.planning import ORDERS
from cpsched.registration import Parameter, Registration
from cpsched.registry import DISPATCHERS
from cpsched_sim.clairvoyant_policies import PREDICTORS
from docs.scripts.markdown import code, codes, document, table, unit_of

INTRODUCTION = """\
`--set NAME=VALUE` sets a parameter on the command line, `policy.dispatcher_settings` and `policy.predictor_settings`
in the settings file. If dispatchers of the same class have different defaults, their names follow the default.
`cpsched dispatchers`, `cpsched predictors` and `cpsched metrics` print the same tables, including installed
plug-ins. [Dispatchers](dispatchers.md) and [Predictors](predictors.md) explain which one to choose."""


def page() -> str:
    """Return the page with all tables."""
    orders = [(code(row.name), row.sentence, code(row.key), code(row.tie or "")) for row in ORDERS.values()]
    objectives = [(code(row.name), row.sentence, code(row.formula)) for row in OBJECTIVES.values()]
    metrics = [
        (code(row.name), row.heading, row.unit or "1", row.formula, f"{row.better} is better", row.source)
        for row in METRICS
    ]
    return document(
        "Dispatchers, predictors and metrics",
        INTRODUCTION,
        *_registry("Dispatchers", DISPATCHERS.builtins()),
        "## Queue orders",
        table(("order", "meaning", "sorted by", "ties"), orders),
        "## Objectives of `lookahead`",
        table(("objective", "meaning", "cost of a job"), objectives),
        *_registry("Predictors", PREDICTORS.builtins()),
        "## Evaluation metrics",
        "W is a job's wait, D its run time, F = W + D its response time, and r its number of processors.",
        table(("name", "heading", "unit", "formula", "direction", "source"), metrics),
    )


def _registry(title: str, registrations: Iterable[Registration]) -> Iterator[str]:
    """Yield a table of names, then the parameters of each class."""
    found = sorted(registrations, key=lambda row: (row.factory.__qualname__, row.name))
    names = [(code(row.name), row.summary, row.source) for row in sorted(found, key=lambda row: row.name)]
    yield f"## {title}"
    yield table(("name", "meaning", "source"), names)
    for _, group in groupby(found, key=lambda row: row.factory):
        members = list(group)
        if members[0].parameters():
            yield f"### Parameters of {codes(row.name for row in members)}"
            yield _lists(inspect.getdoc(members[0].factory) or "")
            yield table(("parameter", "value", "unit", "default"), _parameters(members))


def _lists(docstring: str) -> str:
    """Return a docstring with a blank line before each list."""
    paragraphs = (
        each if each.startswith("- ") else each.replace("\n- ", "\n\n- ", 1) for each in docstring.split("\n\n")
    )
    return "\n\n".join(paragraphs)


def _parameters(members: list[Registration]) -> Iterator[tuple[str, str, str, str]]:
    for parameter in members[0].parameters():
        names: dict[object, list[str]] = {}
        for row in members:
            names.setdefault(row.defaults().get(parameter.name), []).append(row.name)
        defaults = [code(value) + (f" ({', '.join(who)})" if len(names) > 1 else "") for value, who in names.items()]
        yield code(parameter.name), _values(parameter), unit_of(parameter.name), "; ".join(defaults)


def _values(parameter: Parameter) -> str:
    if parameter.is_file:
        return "path of a text file" if parameter.is_text else "path of a JSON file"
    kinds = [kind for kind in get_args(parameter.type) or (parameter.type,) if kind is not type(None)]
    if get_origin(parameter.type) is Literal:
        return " or ".join(map(code, kinds))
    return " or ".join({"int": "integer", "float": "number", "str": "text"}[kind.__name__] for kind in kinds)
