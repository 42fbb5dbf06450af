import pytest

from cpsched.errors import InvalidValue
from cpsched.model import EndedJob
from cpsched.predictors.profile import ProfilePredictor
from tests.builders import a_job


def facts(name="run1", queue="q", walltime_s=1000, units=2, user="ada"):
    return a_job(name=name, queue=queue, walltime_s=walltime_s, units=units, user=user)


def learned(*history, **settings):
    """A predictor that saw (job, run time) in that order."""
    predictor = ProfilePredictor(**settings)
    for job, run_s in history:
        predictor.learn(EndedJob(job, 0, run_s))
    return predictor


RULES = [
    facts(),
    facts(name="run7"),
    facts(units=9),
    facts(name="run7", units=9),
    facts(walltime_s=500, queue="other"),
    facts(name="run7", walltime_s=500, queue="other"),
]
"""Jobs that resemble `facts()` by the first rule, the second, ..., the sixth and by no stricter one."""


@pytest.mark.parametrize("rule", range(6))
def test_each_rule_finds_its_job(rule):
    assert learned((RULES[rule], 77)).predict(facts()) == 77


@pytest.mark.parametrize("rule", range(4))
@pytest.mark.parametrize("other", [{"walltime_s": 500}, {"queue": "other"}])
def test_first_four_rules_require_walltime_and_queue(rule, other):
    """A later job of the same name counts, which only the fifth rule finds."""
    like = RULES[rule]
    odd = facts(name=like.name, units=like.request.units, **other)
    assert learned((odd, 77), (facts(walltime_s=1, queue="third"), 66)).predict(facts()) == 66


@pytest.mark.parametrize("rule", range(5))
def test_stricter_rule_precedes_later_job_of_looser_one(rule):
    predictor = learned((RULES[rule], 77), (RULES[rule + 1], 88))
    assert predictor.predict(facts()) == 77


def test_last_of_equal_matches_counts():
    assert learned((facts(), 10), (facts(), 20)).predict(facts()) == 20


def test_separates_users_and_uses_walltime_for_unknown_ones():
    predictor = learned((facts(), 10))
    assert predictor.predict(facts(user="bob")) == 1000
    assert predictor.predict(facts(name="other", user="ada")) == 1000


def test_ignores_job_without_user():
    assert learned((facts(user=""), 10)).predict(facts(user="")) == 1000


def test_walltime_caps_prediction():
    assert learned((facts(), 5000)).predict(facts()) == 1000


def test_forgets_least_recently_used_profile():
    names = ["a", "b", "c"]
    predictor = learned(*((facts(name=name), 10) for name in names), remember=2)
    assert [predictor.predict(facts(name=name)) for name in names] == [1000, 10, 10]
    with pytest.raises(InvalidValue, match="remember=0: must be positive"):
        ProfilePredictor(remember=0)


def test_repeated_learning_refreshes_profile():
    predictor = learned(*((facts(name=name), 10) for name in ("a", "b", "a", "c")), remember=2)
    assert [predictor.predict(facts(name=name)) for name in ("a", "b", "c")] == [10, 1000, 10]


def test_may_remember_one_profile_of_user():
    predictor = learned((facts(name="a"), 10), (facts(name="b"), 20), remember=1)
    assert [predictor.predict(facts(name=name)) for name in ("a", "b")] == [1000, 20]
    assert ProfilePredictor().remember == 10_000
