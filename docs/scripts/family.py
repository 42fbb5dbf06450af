"""The family of constraint programming as one table: what its members differ in, and where the code of each word is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cpsched.dispatchers.cp import by_nodes, by_positions, certain, engine, objective, window
from cpsched.dispatchers.cp.answer import allocated
from cpsched.dispatchers.cp.kit import ConstraintDispatcher
from cpsched.dispatchers.cp.recipe import WORDS
from cpsched.kernels.cp.startable_jobs import possible, startable
from cpsched.registration import first_sentence
from cpsched.registry import DISPATCHERS
from docs.scripts.markdown import code, table

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("jobs", "control", "running", "objective", "priority", "allocation")
ORDER = ("pcp", "pcp1", "pcp2", "pcp19", "pcp20", "hcp", "hcp1", "hcp2", "hcp19", "cph")
CODE: dict[tuple[str, str], Callable[..., Any]] = {
    ("jobs", "all"): possible,
    ("jobs", "first"): certain.impossible,
    ("jobs", "startable"): startable,
    ("control", "doubles"): engine.Run.restart,
    ("control", "stops"): engine.Run.restart,
    ("running", "remaining"): window.facts_of,
    ("running", "at-least-1s"): window.facts_of,
    **{("objective", name): make for name, make in objective.OBJECTIVES.items()},
    ("priority", "none"): by_nodes.NodeModel.search,
    ("priority", "slowdown"): objective.by_slowdown,
    ("priority", "urgency"): objective.by_urgency,
    ("allocation", "positions"): by_positions.PositionModel,
    ("allocation", "nodes"): by_nodes.NodeModel,
    ("allocation", "best-fit"): allocated,
    ("allocation", "first-fit"): allocated,
}
"""Where each word of the table is carried out."""


def members() -> str:
    """One row per dispatcher; each cell links to the row of `words` that says where its code is."""
    rows = []
    for name in ORDER:
        recipe = DISPATCHERS.find(name).fixed["recipe"]
        of = {column: getattr(recipe, column) for column in COLUMNS}
        cells = [f"[{word}](#cp-{column}-{word})" for column, word in of.items()]
        rows.append((f"[{name}](dispatchers.md#{name})", *cells))
    return table(("name", *COLUMNS), rows)


def words() -> str:
    """One row per word: what it means, and the file and function that carry it out."""
    rows = []
    for (column, word), what in CODE.items():
        function = getattr(what, "py_func", what)
        path = Path(inspect.getsourcefile(function) or "").resolve().relative_to(ROOT)
        where = code(f"{path}") + ", " + code(function.__qualname__)
        meaning = WORDS.get(column, {}).get(word) or first_sentence(function)
        rows.append((f'<a id="cp-{column}-{word}"></a>{column}', code(word), meaning, where))
    return table(("parameter", "word", "what it does", "where"), rows)


def used() -> set[tuple[str, str]]:
    """The words that members of the family have."""
    listings = [listing for listing in DISPATCHERS.builtins() if listing.factory is ConstraintDispatcher]
    return {(column, getattr(listing.fixed["recipe"], column)) for listing in listings for column in COLUMNS}
