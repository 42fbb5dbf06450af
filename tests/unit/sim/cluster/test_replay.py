from dataclasses import replace

import numpy as np
import pytest

from cpsched import registry
from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.errors import PolicyError
from cpsched.model import NEVER, NO_STARTS, Decision, Effort, PowerCap, Starts
from cpsched.policy import Policy
from cpsched.predictors.base import Predictor
from cpsched_sim.clairvoyant_policies import OraclePredictor
from cpsched_sim.cluster import replay as of_replay
from cpsched_sim.cluster.replay import NOTHING_FITS_PATH, ReplayOptions, TraceReplay, replay
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.builders import a_cluster, a_job


def trace_of(*jobs):
    """(submit, run, units, walltime) each."""
    return [TraceJob(a_job(i, u, submit_s=s, walltime_s=w), r) for i, (s, r, u, w) in enumerate(jobs, 1)]


def run(trace, dispatcher="easy", predictor="walltime", cluster=None, **options):
    estimate = registry.PREDICTORS.build(predictor) if isinstance(predictor, str) else predictor
    policy = Policy(estimate, registry.DISPATCHERS.build(dispatcher) if isinstance(dispatcher, str) else dispatcher)
    return replay(trace, cluster or a_cluster(nodes=1, cores=4), policy, ReplayOptions(**options))


@pytest.mark.parametrize(
    ("jobs", "options", "starts"),
    [
        # jobs backfill if they end before the head starts
        ([(0, 10, 3, 10), (1, 10, 4, 10), (2, 8, 1, 8), (2, 9, 1, 9)], {}, [0, 10, 2, 20]),
        # a charged decision applies when it is complete
        *(
            ([(0, 10, 1, 10), (5, 10, 1, 10)], {"charge": charge}, starts)
            for charge, starts in {0: [0, 5], 1: [1, 6], 1000: [1, 6], 1001: [2, 7]}.items()
        ),
        # a job that arrives during a decision waits for the next one
        ([(0, 10, 1, 10), (2, 10, 1, 10)], {"charge": 4000}, [4, 8]),
        ([(0, 10, 1, 10)], {"charge": "measured"}, [1]),
    ],
)
def test_starts_jobs(jobs, options, starts):
    assert run(trace_of(*jobs), **options).start_s.tolist() == starts


def test_end_frees_resources_in_same_second():
    schedule = run(trace_of((0, 10, 4, 10), (0, 10, 4, 10), (10, 5, 4, 5)))
    assert (schedule.start_s.tolist(), schedule.end_s.tolist(), schedule.rounds) == ([0, 10, 20], [10, 20, 25], 4)


def test_skips_dispatcher_if_nothing_fits():
    schedule = run(trace_of((0, 10, 4, 10), (1, 1, 1, 1)))
    assert schedule.paths == {"all-start": 2, NOTHING_FITS_PATH: 2}
    assert len(schedule.dispatch_s) == 2


def test_rejects_impossible_jobs_without_blocking_others():
    schedule = run(trace_of((0, 10, 9, 10), (0, 10, 4, 10)))
    assert schedule.refused == {0: "requests 9 units, but the empty cluster holds only 4"}
    assert schedule.start_s.tolist() == [NEVER, 0]


class Breaker:
    """Starts the first queued job on a node that does not exist."""

    learns = False

    def decide(self, snapshot, need="plan"):
        return Decision(Starts.of({int(snapshot.queue[0]): ((99, 1),)}), Effort("broken"))

    def learn(self, ended):
        """Nothing."""


class Twice(Dispatcher):
    """Starts the first queued job twice, on a node each."""

    def decide(self, snapshot, need="plan"):
        slot = int(snapshot.queue[0])
        columns = ([slot, slot], [0, 1, 2], [0, 1], [1, 1])
        return Decision(Starts(*(np.array(column) for column in columns)), Effort("twice"))


@pytest.mark.parametrize(
    ("dispatcher", "why"),
    [
        (Breaker(), "is placed on a node that does not exist"),
        (Twice(), "is started twice"),
    ],
)
def test_invalid_decision_is_counted_but_not_applied(dispatcher, why):
    schedule = run(trace_of((0, 10, 1, 10)), dispatcher, cluster=a_cluster(nodes=2))
    assert (schedule.violations, schedule.start_s.tolist()) == ((f"job 1: {why}",), [NEVER])


class Failing(Dispatcher):
    """Fails in the first rounds, in a way of each; then starts the first job of the queue on node 0."""

    learns = True

    def __init__(self, *answers):
        self.answers = list(answers)

    def decide(self, snapshot, need="plan"):
        if not self.answers:
            return Decision(Starts.of({int(snapshot.queue[0]): ((0, 1),)}), Effort("ok"))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def learn(self, ended):
        raise RuntimeError("learns nothing")


def test_dispatcher_failure_is_violation_and_replay_continues():
    failing = Failing(ValueError("no idea"), None, Decision(NO_STARTS, None))
    schedule = run(trace_of(*((second, 1, 1, 10) for second in range(4))), failing, cluster=a_cluster(nodes=1))
    told = [violation.partition(f" ({__file__}:")[0] for violation in schedule.violations]
    assert told[:3] == [
        "dispatcher Failing: ValueError: no idea",
        "dispatcher Failing: must return a Decision, not a NoneType",
        "dispatcher Failing: must return a Decision with Starts and Effort",
    ]
    assert set(told[3:]) == {"dispatcher Failing: RuntimeError: learns nothing"}
    assert (schedule.start_s.tolist()[0], schedule.paths["failed"]) == (3, 3)


class Unsure(EasyDispatcher):
    """Fails when asked whether it learns."""

    @property
    def learns(self):
        raise ValueError("no idea")


def test_failing_learns_property_is_violation_only():
    schedule = run(trace_of((0, 5, 1, 10)), Unsure(), cluster=a_cluster(nodes=1))
    assert [told.partition(" (")[0] for told in schedule.violations] == ["dispatcher Unsure: ValueError: no idea"]
    assert schedule.start_s.tolist() == [0]


class Guessing(Predictor):
    """Returns the given answers."""

    def __init__(self, answer, learns):
        self.answer, self.learns = answer, learns

    def predict(self, job):
        return self.answer


@pytest.mark.parametrize(
    ("dispatcher", "why"),
    [
        (Breaker(), "Breaker: at 0 s: job 1: is placed on a node that does not exist"),
        (Failing(ValueError("no idea")), "Failing: ValueError: no idea"),
        (Failing(), "Failing: RuntimeError: learns nothing"),
        (Unsure(), "Unsure: ValueError: no idea"),
    ],
)
def test_strict_replay_stops_at_first_error(dispatcher, why):
    with pytest.raises(PolicyError, match=why):
        run(trace_of((0, 1, 1, 10), (5, 1, 1, 10)), dispatcher, cluster=a_cluster(nodes=1), strict=True)


def test_strict_replay_stops_at_prediction_of_0():
    policy = Policy(Guessing(0, learns=False), registry.DISPATCHERS.build("easy"))
    with pytest.raises(PolicyError, match="estimate_s=0"):
        TraceReplay(trace_of((0, 1, 1, 10)), a_cluster(nodes=1), policy, ReplayOptions(strict=True))


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("answer", [0, -1, None, float("nan"), 10**30, "many"])
def test_unpredictable_jobs_use_walltimes(answer, learns):
    schedule = run(trace_of((0, 5, 4, 10), (1, 5, 4, 10)), predictor=Guessing(answer, learns))
    assert schedule.start_s.tolist() == [0, 5]
    assert len(schedule.violations) == (2 if learns else 1)
    assert schedule.violations[0].startswith("predictor Guessing: InvalidValue: estimate_s=")


def test_compiled_loop_counts_failed_predictions():
    policy = Policy(Guessing(0, False), registry.DISPATCHERS.build("easy"))
    schedule = TraceReplay(trace_of((0, 5, 4, 10)), a_cluster(nodes=1), policy).run_compiled()
    assert (schedule.start_s.tolist(), len(schedule.violations)) == ([0], 1)


class Idle(EasyDispatcher):
    """A list scheduler that decides for itself."""

    def decide(self, snapshot, need="plan"):
        return Decision(NO_STARTS, Effort("idle"))


class Eager(EasyDispatcher):
    """A list scheduler that is asked in every round."""

    every_round = True


CAPPED = replace(a_cluster(nodes=1), power=PowerCap.of(31, {"cores": 8}))


@pytest.mark.parametrize(
    ("options", "compiled"),
    [
        ({}, True),
        ({"dispatcher": "list-saf", "predictor": OraclePredictor(trace_of((0, 5, 1, 10), (9, 5, 1, 10)))}, True),
        ({"dispatcher": "lookahead"}, False),
        ({"dispatcher": "prb"}, False),
        ({"dispatcher": Idle()}, False),
        ({"dispatcher": Eager()}, False),
        ({"predictor": "last-two"}, False),
        ({"charge": 1.0}, False),
        ({"cluster": CAPPED}, False),
    ],
)
def test_long_traces_use_compiled_loop_if_possible(monkeypatch, options, compiled):
    """The compiled loop measures no decisions."""
    monkeypatch.setattr(of_replay, "COMPILED_FROM_JOBS", 2)
    trace = trace_of((0, 5, 1, 10), (9, 5, 1, 10))
    assert (len(run(trace, **options).dispatch_s) == 0) is compiled
    assert len(run(trace[:1], **options).dispatch_s) > 0


class Watcher:
    """Predictor that records its inputs and their times."""

    learns = True

    def __init__(self):
        self.seen = []

    def fill(self, table, slots):
        self.seen += [("arrives", table.jobs[slot].id) for slot in slots.tolist()]
        table.estimate_s[slots] = 1

    def learn(self, ended):
        self.seen.append(("ended", ended.job.id))


def test_predictors_learn_ends_before_predicting_arrivals():
    watcher = Watcher()
    run(trace_of((0, 10, 4, 10), (3, 5, 4, 10), (10, 5, 4, 10)), predictor=watcher)
    assert watcher.seen[:4] == [("arrives", 1), ("arrives", 2), ("ended", 1), ("arrives", 3)]


def test_progress_counts_ended_jobs(monkeypatch):
    monkeypatch.setattr("cpsched_sim.cluster.replay.PROGRESS_INTERVAL_ROUNDS", 1)
    calls = []
    run(trace_of((0, 1, 4, 10), (0, 1, 4, 10)), progress=lambda done, total: calls.append((done, total)))
    assert calls == [(0, 2), (1, 2)]


class Patient(EasyDispatcher):
    """Starts nothing before second 50, and wants to be asked then; notes when it is asked."""

    def __init__(self):
        super().__init__()
        self.asked_s = []

    def decide(self, snapshot, need="plan"):
        self.asked_s.append(snapshot.now_s)
        if snapshot.now_s < 50:
            return Decision(NO_STARTS, Effort("patient"), again_s=50)
        return super().decide(snapshot, need)


@pytest.mark.parametrize(
    ("jobs", "charge", "asked_s", "starts", "rounds"),
    [
        # events before are rounds as ever, and the second that was asked for counts once
        ([(10, 5, 1, 5), (20, 5, 1, 5)], None, [10, 20, 50], [50, 50], 4),
        # a charge may pass the requested time: then the dispatcher is asked at once
        ([(40, 5, 1, 5)], 20_000.0, [40, 60], [80], 3),
    ],
)
def test_calls_dispatcher_again_at_requested_time(jobs, charge, asked_s, starts, rounds):
    patient = Patient()
    schedule = run(trace_of(*jobs), patient, charge=charge)
    assert patient.asked_s == asked_s
    assert (schedule.start_s.tolist(), schedule.rounds) == (starts, rounds)


class Watchful(Patient):
    """One that must be asked in every round, also where nothing fits."""

    every_round = True

    def decide(self, snapshot, need="plan"):
        self.asked_s.append(snapshot.now_s)
        return replace(EasyDispatcher().decide(snapshot, need), again_s=70 if snapshot.now_s < 70 else None)


def test_event_dispatcher_is_called_even_if_nothing_fits():
    """Job 1 takes all until 60; job 2 arrives at 20, job 3 of the same size waits for it until 90."""
    watchful = Watchful()
    schedule = run(trace_of((0, 60, 4, 60), (20, 30, 4, 30), (25, 5, 4, 5)), watchful)
    assert schedule.start_s.tolist() == [0, 60, 90]
    assert watchful.asked_s == [0, 20, 25, 60, 70, 90]
    assert NOTHING_FITS_PATH in schedule.paths, "the end of the last job, with an empty queue, calls no dispatcher"
