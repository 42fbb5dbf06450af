"""The dispatchers, orders and predictors by name, from the catalogue that the command line reads."""

from __future__ import annotations

from collections.abc import Iterable

from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.planning import ORDERS
from cpsched.registration import Registration
from cpsched.registry import DISPATCHERS
from cpsched_sim.oracle import PREDICTORS
from docs.scripts.markdown import code, table


def dispatchers() -> str:
    """The table of the project's dispatchers."""
    return _table(DISPATCHERS.builtins())


def predictors() -> str:
    """The table of the project's predictors."""
    return _table(PREDICTORS.builtins())


def orders() -> str:
    """The table of orders of the queue."""
    rows = ((code(row.name), row.sentence, code(row.key), code(row.tie) if row.tie else "") for row in ORDERS.values())
    return table(("order", "what it does", "sorted by", "equal ones by"), rows)


def objectives() -> str:
    """The table of what `lookahead` can plan for."""
    rows = ((code(row.name), row.sentence, code(row.formula)) for row in OBJECTIVES.values())
    return table(("objective", "what it is best for", "cost of a job"), rows)


def _table(listings: Iterable[Registration]) -> str:
    return table(
        ("name", "what it does", "parameters", "source"), map(_row, sorted(listings, key=lambda row: row.name))
    )


def _row(listing: Registration) -> tuple[str, str, str, str]:
    settings = " ".join(code(f"{parameter.name}={parameter.default}") for parameter in listing.parameters())
    return code(listing.name), listing.summary, settings or "none", listing.source
