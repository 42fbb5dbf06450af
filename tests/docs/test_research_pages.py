"""The hand-written tables on the researchers' pages agree with the code."""

import re

import pytest

from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher
from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.goal_presets import DEFAULT_GOAL, PRESETS
from cpsched.model.overrun import OVERRUN_CODES
from cpsched.planning import ORDERS
from cpsched.policy_spec import PolicySpec
from cpsched.registry import DISPATCHERS
from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES
from cpsched_sim.tuning.setting_candidates import list_candidate_settings
from tests.docs.test_code_blocks import ROOT


def rows_below(page, header):
    """The cells of the table whose header line begins with `header`, row by row."""
    (table,) = re.findall(rf"^\| {header} .*\n\|[-|]+\n((?:\|.*\n)+)", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]


def names_in(*cells):
    return {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)}


def test_table_of_constraint_dispatchers_matches_models():
    shown = {names_in(row[0]).pop(): row[1:] for row in rows_below("dispatchers.md", "dispatcher")}
    columns = ("jobs", "control", "running", "objective", "priority", "allocation")
    family = [each for each in DISPATCHERS.builtins() if each.factory is ConstraintDispatcher]
    assert shown == {each.name: [getattr(each.fixed["recipe"], column) for column in columns] for each in family}


@pytest.mark.parametrize(
    ("page", "header", "known"),
    [
        ("dispatchers.md", "order", ORDERS),
        ("lookahead.md", "objective", OBJECTIVES),
        ("predictors.md", "name", SIMULATION_REGISTRIES.predictors.names()),
        ("predictors.md", "`overrun`", OVERRUN_CODES),
        ("experiments.md", "goal", PRESETS),
    ],
)
def test_table_lists_all_names_of_code(page, header, known):
    rows = rows_below(page, header)
    named = names_in(*(cell for row in rows for cell in row[:: 2 if header == "order" else len(row)]))
    assert named == set(known)


def test_goals_have_documented_limits():
    for goal, _, limits in rows_below("experiments.md", "goal"):
        preset = PRESETS[(names_in(goal) & set(PRESETS)).pop()]
        assert ("(default)" in goal) == (preset.name == DEFAULT_GOAL)
        pairs = re.findall(r"([a-zA-Z]+)(?: wait)? (\d+) %", limits)
        assert {name.lower(): float(number) for name, number in pairs} == preset.limits


def test_tune_tries_documented_number_of_settings():
    (number,) = re.findall(r"with (\d+) settings of `lookahead`", (ROOT / "docs" / "experiments.md").read_text())
    assert len(list_candidate_settings(PolicySpec("lookahead"))) == int(number)
