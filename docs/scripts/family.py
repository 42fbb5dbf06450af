"""The family of constraint programming as one table: what its members differ in, and where the code of each word is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cpsched.dispatchers.cp import cp_objective, cp_problem, node_model, position_model, presolve, search_control
from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher
from cpsched.dispatchers.cp.model_choice import WORDS
from cpsched.dispatchers.cp.solve_result import decision_with_allocation
from cpsched.kernels.cp.startable_jobs import possible, startable
from cpsched.registration import first_sentence
from cpsched.registry import DISPATCHERS
from docs.scripts.markdown import code, table

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("jobs", "control", "running", "objective", "priority", "allocation")
ORDER = ("pcp", "pcp1", "pcp2", "pcp19", "pcp20", "hcp", "hcp1", "hcp2", "hcp19", "cph")
CODE: dict[tuple[str, str], Callable[..., Any]] = {
    ("jobs", "all"): possible,
    ("jobs", "first"): presolve.is_infeasible,
    ("jobs", "startable"): startable,
    ("control", "doubles"): search_control.RestartSearch.restart,
    ("control", "stops"): search_control.RestartSearch.restart,
    ("running", "remaining"): cp_problem.cp_instance_of,
    ("running", "at-least-1s"): cp_problem.cp_instance_of,
    **{("objective", name): make for name, make in cp_objective.OBJECTIVES.items()},
    ("priority", "none"): node_model.NodeModel.search,
    ("priority", "slowdown"): cp_objective.by_slowdown,
    ("priority", "urgency"): cp_objective.by_urgency,
    ("allocation", "positions"): position_model.PositionModel,
    ("allocation", "nodes"): node_model.NodeModel,
    ("allocation", "best-fit"): decision_with_allocation,
    ("allocation", "first-fit"): decision_with_allocation,
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
