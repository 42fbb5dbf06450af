"""Goals: names and weights become an objective, a score and limits. Meaningless goals are rejected."""

import pytest

from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.errors import CpschedError
from cpsched.goal_presets import DEFAULT_GOAL, GOAL_METRICS, PRESETS, Goal, ratios_to_baseline


def test_every_preset_has_known_objective_weights_and_limits():
    for stop in PRESETS.values():
        assert stop.name in OBJECTIVES
        assert stop.weights.keys() | stop.limits.keys() <= GOAL_METRICS.keys()
        goal = Goal.of(stop.name)
        assert (goal.objective, goal.weights, goal.limits) == (stop.name, stop.weights, stop.limits)
    assert Goal.of() == Goal() == Goal.of(DEFAULT_GOAL)


@pytest.mark.parametrize(
    ("weights", "objective"),
    [
        ({"mean_wait": 3}, "waits"),
        ({"bsld": 1}, "waits"),
        ({"awf": 1}, "large-jobs"),
        ({"awf": 5, "p2sf": 4, "bsld": 1}, "large-jobs"),
        ({"mean_wait": 1, "awf": 1}, "balance"),
        ({"longest": 1}, "balance"),
    ],
)
def test_weights_choose_nearest_preset(weights, objective):
    goal = Goal.of(weights)
    assert (goal.objective, goal.name) == (objective, "weights")


def test_limits_are_percent_and_replace_preset_limits():
    assert Goal.of("waits", {"awf": "103 %", "longest": 110}).limits == {"awf": 103.0, "longest": 110.0}
    assert (Goal.of("waits", "none").limits, Goal.of("waits", {}).limits) == ({}, {})
    assert Goal.of({"awf": 1}).limits == PRESETS["large-jobs"].limits


def test_parses_goal_from_text():
    assert (Goal.parse("waits"), Goal.parse(None, "none")) == (Goal.of("waits"), Goal.of(None, "none"))
    assert Goal.parse("bsld=2, awf=1", "awf=103%") == Goal.of({"bsld": 2, "awf": 1}, {"awf": 103})
    assert str(Goal.parse("bsld=2,awf=1", "awf=103")) == "bsld=2 awf=1, awf at most 103 %"
    assert str(Goal.of("waits")) == "waits, longest at most 150 %"


@pytest.mark.parametrize(
    ("words", "limits", "message"),
    [
        ("wait", None, "unknown goal 'wait'.*waits"),
        ("", None, "unknown goal ''"),
        ({"wait": 1}, None, "unknown metric 'wait'"),
        ({"awf": -1}, None, "goal.awf=-1: must be a weight"),
        ({"awf": float("nan")}, None, "must be a weight"),
        ({"awf": 0}, None, "must contain at least one positive weight"),
        ({}, None, "must contain at least one positive weight"),
        ("waits", {"awf": "much"}, "limits.awf=much: must be a number"),
        ("waits", {"awf": 0}, "limits.awf=0: must be above 0 %"),
        ("waits", {"area": 100}, "unknown metric 'area'"),
        ("waits", "some", "limits=some: must be percentages by metric, or none"),
    ],
)
def test_rejects_invalid_goal_with_value_and_rule(words, limits, message):
    with pytest.raises(CpschedError, match=message):
        Goal.of(words, limits)


def test_names_metric_whose_weight_is_no_number():
    with pytest.raises(CpschedError, match=r"goal\.awf=x: must be a number"):
        Goal.parse("bsld=1,awf=x")


@pytest.mark.parametrize(("words", "limits"), [("awf=1,awf=2", None), ("waits", "awf"), ("waits", ""), ("=1", None)])
def test_rejects_text_without_pairs(words, limits):
    with pytest.raises(CpschedError):
        Goal.parse(words, limits)


def test_score_is_weighted_geometric_mean():
    goal = Goal.of({"mean_wait": 1, "awf": 3}, {"awf": 103, "longest": 110})
    assert goal.score({"mean_wait": 1 / 16, "awf": 1.0}) == pytest.approx(0.5)
    assert goal.exceeded_limits({"awf": 1.04, "longest": 1.1}) == {"awf": 104.0}


def test_ratios_of_tiny_values_are_damped():
    """On an empty machine a wait of a second is not infinitely more than none."""
    idle = dict.fromkeys(GOAL_METRICS, 1.0) | {"mean_wait": 0.0, "longest": 0.0}
    found = ratios_to_baseline({**idle, "mean_wait": 1.0, "longest": 60.0, "awf": 3.0}, idle)
    assert (found["mean_wait"], found["longest"], found["awf"]) == (2.0, 2.0, 3.0)
