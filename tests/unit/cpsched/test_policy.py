import numpy as np
import pytest

from cpsched import policy as policies
from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import InvalidValue, PolicyError
from cpsched.model import NO_STARTS, ClusterState, Decision, Effort, EndedJob, Starts, Wait
from cpsched.policy import Policy
from cpsched.predictors.base import Predictor
from cpsched.predictors.last_two import LastTwoPredictor
from cpsched.predictors.walltime import WalltimePredictor
from tests.builders import a_cluster, a_job, a_running


class Spy(Dispatcher):
    """A dispatcher that starts nothing and remembers what it was asked."""

    def decide(self, snapshot, need="plan"):
        self.seen = snapshot
        return Decision(NO_STARTS, Effort("spy"))


def decide(policy, queue, running=(), now_s=0):
    cluster = a_cluster()
    policy.decide(policy.add_estimates(ClusterState(now_s, cluster, cluster.capacity, tuple(queue), tuple(running))))
    table = policy.dispatcher.seen.table
    return {job.id: estimate for job, estimate in zip(table.jobs, table.estimate_s.tolist(), strict=True)}


def test_dispatcher_sees_estimate_of_every_job():
    policy = Policy(LastTwoPredictor(), Spy())
    assert decide(policy, [a_job(1, walltime_s=50)], [a_running(a_job(2, walltime_s=70), ((0, 1),))]) == {1: 50, 2: 70}


def test_job_keeps_first_estimate():
    policy = Policy(LastTwoPredictor(), Spy())
    old, new = a_job(1, user="ada", walltime_s=50), a_job(3, user="ada", walltime_s=50)
    decide(policy, [old])
    policy.learn(EndedJob(a_job(9, user="ada"), 0, 20))
    assert decide(policy, [old, new]) == {1: 50, 3: 20}


class Answering(Dispatcher):
    """A dispatcher that returns or raises what it is given."""

    def __init__(self, answer):
        self.answer = answer

    def decide(self, snapshot, need="plan"):
        self.need = need
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    learn = decide


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Wordless(), "Wordless: (its message cannot be read)"),
        (ValueError("\x1b[31mred\nand more"), r"ValueError: \x1b[31mred\nand more"),
        (ValueError("x" * 10_000), "ValueError: " + "x" * 500),
    ],
)
def test_exception_text_is_bounded_and_printable(error, words):
    policy = Policy(WalltimePredictor(), Answering(error))
    for act in (lambda: policy.decide(policy.add_estimates(a_scene())), lambda: policy.learn(EndedJob(a_job(1), 0, 5))):
        with pytest.raises(PolicyError) as fault:
            act()
        assert str(fault.value) == f"dispatcher Answering: {words} ({fault.value.place})"


class Guessing(Predictor):
    """A predictor that returns or raises what it is given."""

    def __init__(self, answer):
        self.answer = answer

    def predict(self, job):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def a_scene():
    cluster = a_cluster()
    return ClusterState(100, cluster, cluster.capacity, (a_job(1, walltime_s=60),))


EFFORT = Effort("test")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (RuntimeError("no idea"), "dispatcher Answering: RuntimeError: no idea"),
        (None, "must return a Decision, not a NoneType"),
        ({"starts": []}, "must return a Decision, not a dict"),
        (Decision(None, EFFORT), "must return a Decision with Starts and Effort"),
        (Decision(NO_STARTS, "fast"), "must return a Decision with Starts and Effort"),
        (Decision(NO_STARTS, EFFORT, again_s=100), "again_s must be an int after now_s"),
        (Decision(NO_STARTS, EFFORT, again_s=101.5), "again_s must be an int after now_s"),
        (Decision(NO_STARTS, EFFORT, [100]), "plan_s must be int64"),
        (Decision(NO_STARTS, EFFORT, np.array([100, 101])), "plan_s must be int64"),
        (Decision(NO_STARTS, EFFORT, np.array([100.0])), "plan_s must be int64"),
        (Decision(NO_STARTS, EFFORT, np.array([99])), "plan_s must not lie in the past"),
        (Decision(NO_STARTS, EFFORT, None, {1: "later"}), "waits must map job ids to Wait"),
        (Decision(NO_STARTS, EFFORT, None, [Wait("later")]), "waits must map job ids to Wait"),
    ],
)
def test_dispatcher_failure_is_policy_error_with_its_name(answer, message):
    policy = Policy(WalltimePredictor(), Answering(answer))
    with pytest.raises(PolicyError, match=message):
        policy.decide(policy.add_estimates(a_scene()))


@pytest.mark.parametrize("answer", [0, -5, None, "60", "many", float("nan"), float("inf"), 10**30, RuntimeError("no")])
def test_predictor_failure_is_policy_error_and_job_is_retried(answer):
    policy = Policy(Guessing(answer), Spy())
    for _ in range(2):
        with pytest.raises(PolicyError, match=r"predictor Guessing: .*(must be a number of seconds|no)"):
            policy.add_estimates(a_scene())
    policy.predictor.answer = 7
    assert policy.add_estimates(a_scene()).table.estimate_s.tolist() == [7]


class Learner(WalltimePredictor):
    """Learns what ended, and then fails with the error that it is given."""

    def __init__(self, error=None):
        self.error = error

    def learn(self, ended):
        self.told = ended
        if self.error:
            raise self.error


class Diary(Spy):
    """Learns, has a memory and recalls one, and then fails with the error that it is given."""

    told = None

    def __init__(self, error=None, learns=True):
        self.error, self.learns = error, learns

    def learn(self, ended):
        self.told = ended
        if self.error:
            raise self.error

    recall = learn

    def memory(self):
        if self.error:
            raise self.error
        return {"pages": 3}


@pytest.mark.parametrize(
    ("predictor", "dispatcher", "words"),
    [
        (Learner(), Diary(RuntimeError("forgot")), "dispatcher Diary: RuntimeError: forgot"),
        (Learner(RuntimeError("no room")), Diary(), "predictor Learner: RuntimeError: no room"),
        (Learner(RuntimeError("no room")), Diary(RuntimeError("forgot")), "predictor Learner: RuntimeError: no room"),
    ],
)
def test_both_parts_learn_and_error_names_first_failed_one(predictor, dispatcher, words):
    last = EndedJob(a_job(9, user="ada"), 0, 20)
    with pytest.raises(PolicyError, match=rf"^{words} \(.*test_policy.py:\d+, in learn\)$"):
        Policy(predictor, dispatcher).learn(last)
    assert predictor.told is dispatcher.told is last


@pytest.mark.parametrize("learns", [True, False])
def test_memory_is_that_of_dispatcher(learns):
    policy = Policy(WalltimePredictor(), Diary(learns=learns))
    policy.recall({"pages": 2})
    assert (policy.dispatcher.told, policy.memory()) == ({"pages": 2}, {"pages": 3})


def test_failing_memory_and_recall_name_dispatcher():
    policy = Policy(WalltimePredictor(), Diary(RuntimeError("lost")))
    for act in (policy.memory, lambda: policy.recall({})):
        with pytest.raises(PolicyError, match=r"^dispatcher Diary: RuntimeError: lost"):
            act()


class Duck:
    def decide(self, snapshot, need="plan"):
        return Decision(NO_STARTS, EFFORT)


@pytest.mark.parametrize(
    ("predictor", "dispatcher", "message"),
    [
        (
            WalltimePredictor(),
            Duck(),
            r"dispatcher=Duck: must derive from cpsched.Dispatcher, .* missing: learn, learns",
        ),
        (object(), Spy(), r"predictor=object: must derive from cpsched.Predictor"),
        (WalltimePredictor(), Spy, r"^dispatcher=<class .*Spy.>: must be an instance, not a class"),
    ],
)
def test_rejects_object_without_methods_of_part(predictor, dispatcher, message):
    with pytest.raises(InvalidValue, match=message):
        Policy(predictor, dispatcher)


def test_dispatcher_needs_only_decide():
    policy = Policy(WalltimePredictor(), Spy())
    assert (policy.learns, policy.dispatcher.memory()) == (False, None)
    assert policy.decide(policy.add_estimates(a_scene()), "starts").starts is NO_STARTS


class Unsure(Spy):
    """Fails when asked whether it learns."""

    @property
    def learns(self):
        raise Wordless


def test_failing_learns_property_names_part():
    policy = Policy(WalltimePredictor(), Unsure())
    assert not policy.predictor_learns
    for name in ("learns", "dispatcher_learns"):
        with pytest.raises(PolicyError, match="dispatcher Unsure: Wordless"):
            getattr(policy, name)


ONE, TWO = np.array([0]), np.array([0, 1])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0], TWO, ONE, ONE), "starts.slots=list: must be int64"),
        ((np.array([0.5]), TWO, ONE, ONE), "starts.slots=ndarray: must be int64"),
        ((ONE, ONE, ONE, ONE), "starts.offsets=1: must have one more entry than slots"),
        ((ONE, TWO, ONE, TWO), "starts.units=2: must have as many entries as nodes"),
        ((ONE, np.array([0, 2]), ONE, ONE), "starts.offsets=.*: must range from 0 to 1"),
        ((TWO, np.array([0, 2, 1]), ONE, ONE), "starts.offsets=.*: must not decrease"),
    ],
)
def test_rejects_starts_of_wrong_form(columns, message):
    with pytest.raises(InvalidValue, match=message):
        Starts(*columns)


class Asked(WalltimePredictor):
    """Notes for which jobs it was asked."""

    def __init__(self):
        self.of = []

    def fill(self, table, slots):
        self.of += [table.jobs[slot].id for slot in slots.tolist()]
        super().fill(table, slots)


@pytest.mark.parametrize(("before", "forgotten"), [(7, []), (8, [2, 3, 4, 5, 6, 7, 8])])
def test_keeps_estimates_up_to_spare_beyond_twice_jobs(monkeypatch, before, forgotten):
    """With one job in the scene, and a spare of five: seven are kept, eight are too many."""
    monkeypatch.setattr(policies, "MAX_SPARE_ESTIMATES", 5)
    policy = Policy(Asked(), Spy())
    every = [a_job(id) for id in range(1, before + 1)]
    decide(policy, every)
    decide(policy, [a_job(1)])
    policy.predictor.of.clear()
    decide(policy, every)
    assert policy.predictor.of == forgotten


def test_predicts_running_but_not_ineligible_jobs():
    policy = Policy(Asked(), Spy())
    decide(policy, [a_job(1), a_job(2, ineligible="waits for job 1")], [a_running(a_job(3), ((0, 1),))])
    assert sorted(policy.predictor.of) == [1, 3]


def test_forgets_estimate_of_ended_job():
    policy = Policy(Asked(), Spy())
    assert not policy.learns
    decide(policy, [a_job(1), a_job(2)])
    assert policy.learns, "or estimates would pile up"
    policy.learn(EndedJob(a_job(1), 0, 5))
    policy.predictor.of.clear()
    decide(policy, [a_job(1), a_job(2)])
    assert policy.predictor.of == [1]
    policy.learn(EndedJob(a_job(1), 0, 5))
    policy.learn(EndedJob(a_job(77), 0, 5))
    policy.learn(EndedJob(a_job(2), 0, 5))
    assert not policy.learns


@pytest.mark.parametrize(
    ("predictor", "dispatcher", "learns"),
    [
        (WalltimePredictor(), Diary(learns=False), (False, False, False)),
        (LastTwoPredictor(), Diary(learns=False), (True, False, True)),
        (WalltimePredictor(), Diary(), (False, True, True)),
        (LastTwoPredictor(), Diary(), (True, True, True)),
    ],
)
def test_policy_learns_if_any_part_does(predictor, dispatcher, learns):
    policy = Policy(predictor, dispatcher)
    assert (policy.predictor_learns, policy.dispatcher_learns, policy.learns) == learns


@pytest.mark.parametrize(
    "decision",
    [
        Decision(NO_STARTS, EFFORT, None, {}),
        Decision(NO_STARTS, EFFORT, np.array([100]), {1: Wait("later")}),
        Decision(NO_STARTS, EFFORT, np.array([2**60]), {}),
    ],
)
def test_accepts_plan_from_now_on_or_none(decision):
    policy = Policy(WalltimePredictor(), Answering(decision))
    assert policy.decide(policy.add_estimates(a_scene())) is decision


def test_ignores_unrequested_plan():
    policy = Policy(WalltimePredictor(), Answering(Decision(NO_STARTS, EFFORT, [1])))
    snapshot = policy.add_estimates(a_scene())
    policy.decide(snapshot, "starts")
    assert policy.dispatcher.need == "starts"
    with pytest.raises(PolicyError, match="plan_s"):
        policy.decide(snapshot)
    assert policy.dispatcher.need == "plan"


def test_checks_methods_not_base_class():
    class Able:
        learns = False

        def decide(self, snapshot, need="plan"):
            return Decision(NO_STARTS, EFFORT)

        def learn(self, ended):
            self.told = ended

    policy, last = Policy(WalltimePredictor(), Able()), EndedJob(a_job(9), 0, 20)
    policy.learn(last)
    assert (policy.dispatcher.told, policy.memory()) == (last, None)
    with pytest.raises(PolicyError, match=r"^dispatcher Able: AttributeError"):
        policy.recall({})


@pytest.mark.parametrize(("overrun", "end_s"), [("one-second", 13), ("double", 20)])
def test_overdue_job_ends_by_overrun_rule(overrun, end_s):
    policy = Policy(LastTwoPredictor(), Spy(), overrun)
    decide(policy, [], [a_running(a_job(1, walltime_s=10), ((0, 1),))], now_s=12)
    assert policy.dispatcher.seen.table.end_s.tolist() == [end_s]
