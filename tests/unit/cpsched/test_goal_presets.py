"""Goals: names and weights become an objective, a score and limits; what makes no sense is refused."""

import pytest

from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.errors import CpschedError
from cpsched.goal_presets import DEFAULT, GOAL_METRICS, PRESETS, Goal, ratios_to_baseline


def test_every_stop_is_an_objective_and_weighs_and_limits_known_figures():
    for stop in PRESETS.values():
        assert stop.objective in OBJECTIVES
        assert stop.weights.keys() | stop.limits.keys() <= GOAL_METRICS.keys()
        goal = Goal.of(stop.name)
        assert (goal.objective, goal.weights, goal.limits) == (stop.objective, stop.weights, stop.limits)
    assert Goal.of() == Goal() == Goal.of(DEFAULT)


@pytest.mark.parametrize(
    ("weights", "objective"),
    [
        ({"mean_wait": 3}, "waits"),
        ({"bsld": 1}, "waits"),
        ({"awf": 1}, "large-jobs"),
        ({"awf": 5, "p2sf": 4, "bsld": 1}, "large-jobs"),
        ({"mean_wait": 1, "awf": 1}, "default"),
        ({"longest": 1}, "default"),
    ],
)
def test_weights_begin_at_the_stop_that_they_are_nearest_to(weights, objective):
    goal = Goal.of(weights)
    assert goal.objective == objective
    assert goal.name == "weights"


def test_limits_are_percent_as_numbers_or_texts_and_take_the_place_of_the_goals_own():
    assert Goal.of("waits", {"awf": "103 %", "longest": 110}).limits == {"awf": 103.0, "longest": 110.0}
    assert Goal.of("waits", "none").limits == {}
    assert Goal.of("waits", {}).limits == {}
    assert Goal.of({"awf": 1}).limits == PRESETS["large-jobs"].limits


def test_a_goal_is_read_from_texts():
    assert Goal.parse("waits") == Goal.of("waits")
    assert Goal.parse(None, "none") == Goal.of(None, "none")
    assert Goal.parse("bsld=2, awf=1", "awf=103%") == Goal.of({"bsld": 2, "awf": 1}, {"awf": 103})
    assert str(Goal.parse("bsld=2,awf=1", "awf=103")) == "bsld=2 awf=1, awf at most 103 %"
    assert str(Goal.of("waits")) == "waits, longest at most 150 %"


@pytest.mark.parametrize(
    ("words", "limits", "message"),
    [
        ("wait", None, "unknown goal 'wait'.*waits"),
        ({"wait": 1}, None, "unknown metric 'wait'"),
        ({"awf": -1}, None, "goal.awf=-1: must be a weight"),
        ({"awf": float("nan")}, None, "must be a weight"),
        ({"awf": 0}, None, "must give at least one metric"),
        ({}, None, "must give at least one metric"),
        ("waits", {"awf": "much"}, "limits.awf=much: must be a number"),
        ("waits", {"awf": 0}, "limits.awf=0: must be above 0 %"),
        ("waits", {"area": 100}, "unknown metric 'area'"),
        ("waits", "some", "limits=some: must be percentages by metric, or none"),
    ],
)
def test_what_makes_no_sense_is_refused_with_value_and_rule(words, limits, message):
    with pytest.raises(CpschedError, match=message):
        Goal.of(words, limits)


@pytest.mark.parametrize(
    ("words", "limits"), [("awf=x", None), ("awf=1,awf=2", None), ("waits", "awf"), ("waits", ""), ("=1", None)]
)
def test_texts_that_are_no_pairs_are_refused(words, limits):
    with pytest.raises(CpschedError):
        Goal.parse(words, limits)


def test_the_score_is_the_weighted_geometric_mean_and_limits_are_of_the_baseline():
    goal = Goal.of({"mean_wait": 1, "awf": 3}, {"awf": 103, "longest": 110})
    assert goal.score({"mean_wait": 1 / 16, "awf": 1.0}) == pytest.approx(0.5)
    assert goal.exceeded_limits({"awf": 1.04, "longest": 1.1}) == {"awf": 104.0}


def test_ratios_of_next_to_nothing_are_next_to_one():
    """On an empty machine a wait of a second is not infinitely more than none."""
    idle = dict.fromkeys(GOAL_METRICS, 1.0) | {"mean_wait": 0.0, "longest": 0.0}
    found = ratios_to_baseline({**idle, "mean_wait": 1.0, "longest": 60.0, "awf": 3.0}, idle)
    assert (found["mean_wait"], found["longest"], found["awf"]) == (2.0, 2.0, 3.0)
