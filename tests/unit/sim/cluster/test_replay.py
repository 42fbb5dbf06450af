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
from cpsched_sim.clairvoyant_predictors import OraclePredictor
from cpsched_sim.cluster import replay as of_replay
from cpsched_sim.cluster.replay import NOTHING_FITS_PATH, ReplayOptions, TraceReplay, replay
from cpsched_sim.traces.trace_job import TraceJob
from tests.builders import a_cluster, a_job


def trace_of(*jobs):
    """(submit, run, units, walltime) each."""
    return [TraceJob(a_job(i, u, submit_s=s, walltime_s=w), r) for i, (s, r, u, w) in enumerate(jobs, 1)]


def run(trace, dispatcher="easy", predictor="walltime", cluster=None, **options):
    estimate = OraclePredictor(trace) if predictor == "oracle" else registry.build_predictor(predictor)
    policy = Policy(estimate, registry.build_dispatcher(dispatcher) if isinstance(dispatcher, str) else dispatcher)
    return replay(trace, cluster or a_cluster(nodes=1, cores=4), policy, ReplayOptions(**options))


def test_end_frees_resources_in_same_second():
    schedule = run(trace_of((0, 10, 4, 10), (0, 10, 4, 10), (10, 5, 4, 5)))
    assert schedule.start_s.tolist() == [0, 10, 20]
    assert schedule.end_s.tolist() == [10, 20, 25]
    assert schedule.rounds == 4


def test_easy_backfills_jobs_ending_before_head_starts():
    trace = trace_of((0, 10, 3, 10), (1, 10, 4, 10), (2, 8, 1, 8), (2, 9, 1, 9))
    assert run(trace).start_s.tolist() == [0, 10, 2, 20]


def test_skips_dispatcher_if_nothing_fits():
    schedule = run(trace_of((0, 10, 4, 10), (1, 1, 1, 1)))
    assert schedule.paths == {"all-start": 2, NOTHING_FITS_PATH: 2}
    assert len(schedule.dispatch_s) == 2


def test_rejects_impossible_jobs_without_blocking_others():
    schedule = run(trace_of((0, 10, 9, 10), (0, 10, 4, 10)))
    assert schedule.refused == {0: "requests 9 units, but the empty cluster holds only 4"}
    assert schedule.start_s.tolist() == [NEVER, 0]


def test_placements_are_in_trace_order():
    trace = trace_of((0, 10, 3, 10), (0, 10, 3, 10))
    schedule = run(trace, cluster=a_cluster(nodes=3, cores=2))
    assert [schedule.placement_of(i) for i in range(2)] == [((0, 2), (1, 1)), ((1, 1), (2, 2))]


@pytest.mark.parametrize(("charge", "starts"), [(0, [0, 5]), (1, [1, 6]), (1000, [1, 6]), (1001, [2, 7])])
def test_charged_decision_applies_when_complete(charge, starts):
    trace = trace_of((0, 10, 1, 10), (5, 10, 1, 10))
    assert run(trace, charge=charge).start_s.tolist() == starts


def test_arrival_during_decision_waits_for_next_one():
    trace = trace_of((0, 10, 1, 10), (2, 10, 1, 10))
    assert run(trace, charge=4000).start_s.tolist() == [4, 8]


def test_may_charge_measured_time():
    schedule = run(trace_of((0, 10, 1, 10)), charge="measured")
    assert schedule.start_s.tolist() == [1]


class Breaker:
    """Starts the first queued job on a node that does not exist."""

    learns = False

    def decide(self, snapshot, need="plan"):
        return Decision(Starts.of({int(snapshot.queue[0]): ((99, 1),)}), Effort("broken"))

    def learn(self, ended):
        """Nothing."""


def test_invalid_decision_is_counted_but_not_applied():
    policy = Policy(registry.build_predictor("walltime"), Breaker())
    schedule = replay(trace_of((0, 10, 1, 10)), a_cluster(nodes=1), policy)
    assert schedule.start_s.tolist() == [NEVER]
    assert schedule.violations == ("job 1: is placed on a node that does not exist",)


def test_strict_replay_stops_at_first_error():
    trace = trace_of((0, 1, 1, 10), (5, 1, 1, 10))
    for dispatcher, told in (
        (Breaker(), "Breaker: at 0 s: job 1: is placed on a node that does not exist"),
        (Failing(ValueError("no idea")), "Failing: ValueError: no idea"),
        (Failing(), "Failing: RuntimeError: learns nothing"),
        (Unsure(), "Unsure: ValueError: no idea"),
    ):
        with pytest.raises(PolicyError, match=told):
            replay(
                trace,
                a_cluster(nodes=1),
                Policy(registry.build_predictor("walltime"), dispatcher),
                ReplayOptions(strict=True),
            )
    policy = Policy(Guessing(0, learns=False), registry.build_dispatcher("easy"))
    with pytest.raises(PolicyError, match="estimate_s=0"):
        TraceReplay(trace, a_cluster(nodes=1), policy, ReplayOptions(strict=True))


class Twice(Dispatcher):
    """Starts the first queued job twice, on a node each."""

    def decide(self, snapshot, need="plan"):
        slot = int(snapshot.queue[0])
        columns = ([slot, slot], [0, 1, 2], [0, 1], [1, 1])
        return Decision(Starts(*(np.array(column) for column in columns)), Effort("twice"))


def test_counts_invalid_round_even_if_check_passes():
    policy = Policy(registry.build_predictor("walltime"), Twice())
    schedule = replay(trace_of((0, 10, 1, 10)), a_cluster(nodes=2), policy)
    assert len(schedule.violations) == 1
    assert schedule.start_s.tolist() == [NEVER]


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
    trace = trace_of(*((second, 1, 1, 10) for second in range(4)))
    schedule = replay(trace, a_cluster(nodes=1), Policy(registry.build_predictor("walltime"), failing))
    told = [violation.partition(f" ({__file__}:")[0] for violation in schedule.violations]
    assert told[:3] == [
        "dispatcher Failing: ValueError: no idea",
        "dispatcher Failing: must return a Decision, not a NoneType",
        "dispatcher Failing: must return a Decision with Starts and Effort",
    ]
    assert set(told[3:]) == {"dispatcher Failing: RuntimeError: learns nothing"}
    assert schedule.start_s.tolist()[0] == 3
    assert schedule.paths["failed"] == 3


class Unsure(EasyDispatcher):
    """Fails when asked whether it learns."""

    @property
    def learns(self):
        raise ValueError("no idea")


def test_failing_learns_property_is_violation_only():
    schedule = replay(
        trace_of((0, 5, 1, 10)), a_cluster(nodes=1), Policy(registry.build_predictor("walltime"), Unsure())
    )
    assert [told.partition(" (")[0] for told in schedule.violations] == ["dispatcher Unsure: ValueError: no idea"]
    assert schedule.start_s.tolist() == [0]


class Guessing(Predictor):
    """Returns the given answers."""

    def __init__(self, answer, learns):
        self.answer, self.learns = answer, learns

    def predict(self, job):
        return self.answer


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("answer", [0, -1, None, float("nan"), 10**30, "many"])
def test_unpredictable_jobs_use_walltimes(answer, learns):
    trace = trace_of((0, 5, 4, 10), (1, 5, 4, 10))
    policy = Policy(Guessing(answer, learns), registry.build_dispatcher("easy"))
    schedule = replay(trace, a_cluster(nodes=1), policy)
    assert schedule.start_s.tolist() == [0, 5]
    assert len(schedule.violations) == (2 if learns else 1)
    assert schedule.violations[0].startswith("predictor Guessing: InvalidValue: estimate_s=")


def test_compiled_loop_counts_failed_predictions():
    policy = Policy(Guessing(0, False), registry.build_dispatcher("easy"))
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
        ({"dispatcher": "list-saf", "predictor": "oracle"}, True),
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
    trace = trace_of((0, 10, 4, 10), (3, 5, 4, 10), (10, 5, 4, 10))
    replay(trace, a_cluster(nodes=1, cores=4), Policy(watcher, registry.build_dispatcher("easy")))
    assert watcher.seen[:4] == [("arrives", 1), ("arrives", 2), ("ended", 1), ("arrives", 3)]


def test_progress_counts_ended_jobs(monkeypatch):
    monkeypatch.setattr("cpsched_sim.cluster.replay.PROGRESS_INTERVAL_ROUNDS", 1)
    calls = []
    run(trace_of((0, 1, 4, 10), (0, 1, 4, 10)), progress=lambda done, total: calls.append((done, total)))
    assert calls == [(0, 2), (1, 2)]


def test_same_trace_gives_same_schedule():
    trace = trace_of(*((i % 7, 3 + i % 5, 1 + i % 4, 10) for i in range(50)))
    first, second = run(trace), run(trace)
    assert np.array_equal(first.start_s, second.start_s)


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


def test_calls_dispatcher_again_at_requested_time():
    """Events before are rounds as ever, and the second that was asked for counts once."""
    trace = [TraceJob(a_job(1, submit_s=10, walltime_s=5), 5), TraceJob(a_job(2, submit_s=20, walltime_s=5), 5)]
    policy = Policy(registry.build_predictor("walltime"), Patient())
    schedule = replay(trace, a_cluster(nodes=1, cores=2), policy)
    assert schedule.start_s.tolist() == [50, 50]
    assert policy.dispatcher.asked_s == [10, 20, 50]
    assert schedule.rounds == 4, "three, and that of the ends"


def test_charge_may_pass_requested_time():
    """Then the dispatcher is asked at once."""
    trace = [TraceJob(a_job(1, submit_s=40, walltime_s=5), 5)]
    policy = Policy(registry.build_predictor("walltime"), Patient())
    schedule = replay(trace, a_cluster(nodes=1, cores=2), policy, ReplayOptions(charge=20_000.0))
    assert policy.dispatcher.asked_s == [40, 60]
    assert schedule.start_s.tolist() == [80]


class Watchful(Patient):
    """One that must be asked in every round, also where nothing fits."""

    every_round = True

    def decide(self, snapshot, need="plan"):
        self.asked_s.append(snapshot.now_s)
        return replace(EasyDispatcher().decide(snapshot, need), again_s=70 if snapshot.now_s < 70 else None)


def test_event_dispatcher_is_called_even_if_nothing_fits():
    """Job 1 takes all until 60; job 2 arrives at 20, job 3 of the same size waits for it until 90."""
    jobs = [
        a_job(id, per_unit=2, submit_s=at, walltime_s=run_s) for id, at, run_s in ((1, 0, 60), (2, 20, 30), (3, 25, 5))
    ]
    trace = [TraceJob(job, job.walltime_s) for job in jobs]
    policy = Policy(registry.build_predictor("walltime"), Watchful())
    schedule = replay(trace, a_cluster(nodes=1, cores=2), policy)
    assert schedule.start_s.tolist() == [0, 60, 90]
    assert policy.dispatcher.asked_s == [0, 20, 25, 60, 70, 90]
    assert NOTHING_FITS_PATH in schedule.paths, "the end of the last job, with an empty queue, calls no dispatcher"
