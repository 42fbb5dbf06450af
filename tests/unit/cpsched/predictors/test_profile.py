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
    assert learned((RULES[rule], 77), (RULES[rule + 1], 88)).predict(facts()) == 77


@pytest.mark.parametrize(
    ("history", "job", "predicted_s"),
    [
        ([(facts(), 10), (facts(), 20)], facts(), 20),
        ([(facts(), 10)], facts(user="bob"), 1000),
        ([(facts(), 10)], facts(name="other"), 1000),
        ([(facts(user=""), 10)], facts(user=""), 1000),
        ([(facts(), 5000)], facts(), 1000),
    ],
)
def test_last_match_of_user_counts_up_to_walltime(history, job, predicted_s):
    assert learned(*history).predict(job) == predicted_s


@pytest.mark.parametrize(
    ("names", "remember", "predicted_s"),
    [("abc", 2, [1000, 10, 10]), ("abac", 2, [10, 1000, 10]), ("ab", 1, [1000, 10])],
)
def test_forgets_least_recently_learned_profile(names, remember, predicted_s):
    predictor = learned(*((facts(name=name), 10) for name in names), remember=remember)
    assert [predictor.predict(facts(name=name)) for name in sorted(set(names))] == predicted_s


def test_remembers_at_least_one_profile():
    assert ProfilePredictor().remember == 10_000
    with pytest.raises(InvalidValue, match="remember=0: must be positive"):
        ProfilePredictor(remember=0)
