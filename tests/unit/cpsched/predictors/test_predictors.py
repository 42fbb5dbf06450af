import numpy as np
import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.errors import InvalidValue, PolicyError
from cpsched.model import EndedJob, JobTable
from cpsched.predictors.base import Predictor, fill_estimates, to_whole_seconds
from cpsched.predictors.last_two import LastTwoPredictor
from cpsched.predictors.profile import ProfilePredictor
from cpsched.predictors.walltime import WalltimePredictor
from tests.builders import a_cluster, a_job


def ended(run_s, user="ada", submit_s=0):
    return EndedJob(a_job(user=user), submit_s, submit_s + run_s)


def test_walltime_predicts_requested_walltime():
    table = JobTable.of(a_cluster(), [a_job(1, walltime_s=7), a_job(2, walltime_s=9)])
    WalltimePredictor().fill(table, np.array([0, 1]))
    assert table.estimate_s.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], 100),
        ([30], 30),
        ([30, 50], 40),
        ([30, 51], 40),
        ([90, 30, 50], 40),
        ([500, 700], 100),
        ([1], 1),
        ([0, 1], 1),
        ([0], 1),
        ([3, 4], 3),
        ([99, 100], 99),
        ([100, 101], 100),
    ],
)
def test_last_two_is_mean_capped_by_walltime(history, expected):
    predictor = LastTwoPredictor()
    for run_s in history:
        predictor.learn(ended(run_s))
    assert predictor.predict(a_job(user="ada", walltime_s=100)) == expected


def test_last_two_separates_users_and_ignores_unnamed_ones():
    predictor = LastTwoPredictor()
    predictor.learn(ended(10, user="ada"))
    predictor.learn(ended(10, user=""))
    assert [predictor.predict(a_job(user=user, walltime_s=100)) for user in ("ada", "bob", "")] == [10, 100, 100]


def test_learning_predictors_say_so():
    kinds = (LastTwoPredictor, ProfilePredictor, WalltimePredictor, Quiet, OfParent)
    assert [kind().learns for kind in kinds] == [True, True, False, False, False]


def column(*walltimes_s):
    jobs = [a_job(id, walltime_s=walltime_s) for id, walltime_s in enumerate(walltimes_s, start=1)]
    return JobTable.of(a_cluster(), jobs)


class Says(Predictor):
    """Predicts what it is given, job by job."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def predict(self, job):
        return self.answers[job.id - 1]


class Fills(Predictor):
    """Writes a whole column."""

    def __init__(self, *answers):
        self.answers = answers

    def predict(self, job):
        raise AssertionError("fill is asked instead")

    def fill(self, table, slots):
        table.estimate_s[slots] = self.answers


@pytest.mark.parametrize("kind", [Says, Fills])
@pytest.mark.parametrize(("answer", "estimate"), [(1, 1), (9, 9), (10, 10), (11, 10), (2**53 - 1, 10)])
def test_estimate_is_at_most_walltime(kind, answer, estimate):
    table = column(10, 10)
    fill_estimates(kind(answer, 5), table, np.array([0, 1]))
    assert table.estimate_s.tolist()[:2] == [estimate, 5]


@pytest.mark.parametrize("kind", [Says, Fills])
@pytest.mark.parametrize("answer", [0, -1, 2**53])
def test_missing_estimate_keeps_walltimes(kind, answer):
    """Other jobs keep their estimates."""
    table = column(10, 20, 30)
    table.estimate_s[2] = 7
    with pytest.raises(PolicyError, match=f"predictor {kind.__name__}: InvalidValue: estimate_s={answer}"):
        fill_estimates(kind(3, answer), table, np.array([0, 1]))
    assert table.estimate_s.tolist()[:3] == [10, 20, 7]


@pytest.mark.parametrize(
    ("answer", "seconds"), [(1, 1), (1.9, 1), (np.int64(7), 7), (np.float32(7.5), 7), (2**53 - 1, 2**53 - 1)]
)
def test_converts_numbers_to_whole_seconds(answer, seconds):
    assert to_whole_seconds(answer) == seconds


@pytest.mark.parametrize("answer", [0, 0.9, -1, 2**53, float("nan"), float("inf"), None, "7", [7]])
def test_rejects_invalid_durations(answer):
    with pytest.raises(InvalidValue, match="estimate_s"):
        to_whole_seconds(answer)


class Learning:
    def learn(self, ended):
        pass


class Quiet(Learning, WalltimePredictor):
    learns = False


class OfParent(Quiet):
    pass


@pytest.mark.parametrize("base", [WalltimePredictor, EasyDispatcher])
def test_class_overriding_learn_learns(base):
    """Without the default, simulations and the bridge never call its `learn`."""
    derived = type("Derived", (Learning, base), {})
    silent, child = type("Silent", (derived,), {"learns": False}), type("Child", (derived,), {})
    assert [kind.learns for kind in (base, derived, silent, child)] == [False, True, False, True]
