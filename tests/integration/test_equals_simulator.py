"""Test that a bridge with the mock adapter and the event-driven clock equals the simulator in starts and nodes."""

from dataclasses import replace
from functools import cache

import pytest

from cpsched.policy_spec import PolicySpec
from cpsched_bridge.adapters.mock.mock_backend import MockBackend
from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.adapters.mock.simulated_clocks import EventDrivenClock
from cpsched_bridge.program.demo import generate_morning_jobs
from cpsched_bridge.store.ledger import LedgerState
from cpsched_bridge.store.round_replay import replay_round
from cpsched_sim.cluster.replay import replay as simulate
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.bridges import a_bridge

JOBS = 400
POLICIES = [
    PolicySpec("easy", "last-two", {}, {}, "one-second"),
    PolicySpec("lookahead", "walltime", {"effort": "10", "objective": "balance"}, {}, "one-second"),
]
OTHER_POLICIES = [
    PolicySpec("pcp20", "walltime", {"effort": "16", "considered": "30"}, {}, "one-second"),
    PolicySpec("easy", "walltime", {}, {}, "one-second"),
    PolicySpec("prb", "walltime", {}, {}, "one-second"),
    PolicySpec("lookahead", "walltime", {"effort": "10"}, {}, "one-second"),
    PolicySpec("lookahead", "walltime", {"effort": "10", "objective": "large-jobs"}, {}, "one-second"),
]


@cache
def a_crowded_morning():
    """Return a morning's first jobs, submitted in half the time, so that some wait for hours and solvers are called."""
    cluster, morning = generate_morning_jobs(2000, seed=5)
    crowded = [replace(item.job, submit_s=item.job.submit_s // 2) for item in morning[:JOBS]]
    return cluster, [TraceJob(job, item.run_s) for job, item in zip(crowded, morning, strict=False)]


def bridge_run(folder, record, pace=EventDrivenClock):
    """Return the bridge of a whole run, each job's start second and placement, and its number of starts."""
    site = MockCluster(*a_crowded_morning())
    starts = {}

    def note(report):
        assert report.result == "ok", report.bridge_events
        starts.update({id: (report.observation.now_s, where) for id, where in report.decided.starts.items()})

    bridge = a_bridge(
        folder,
        MockBackend(site),
        pace=(clock := pace(site)),
        listeners=(note, clock.on_cycle),
        policy_spec=record,
        policy=record.build(),
        cycle={"max_commands": JOBS},
    )
    assert bridge.run() == []
    return bridge, starts, site.starts


@pytest.fixture(
    scope="module",
    params=[*POLICIES, *(pytest.param(record, marks=pytest.mark.slow) for record in OTHER_POLICIES)],
    ids=lambda record: f"{record.dispatcher}-{record.predictor}",
)
def run(request, tmp_path_factory):
    """Return a policy and its result from `bridge_run`."""
    return request.param, *bridge_run(tmp_path_factory.mktemp("run"), request.param)


def test_schedule_equals_simulator_start_by_start(run):
    record, bridge, starts, times = run
    cluster, jobs = a_crowded_morning()
    schedule = simulate(jobs, cluster, record.build())
    assert starts == {item.job.id: (int(schedule.start_s[i]), schedule.placement_of(i)) for i, item in enumerate(jobs)}
    assert set(times.values()) == {1}
    assert bridge.ledger.count_jobs_by_state()[LedgerState.ENDED] == JOBS
    waited_s = [int(s) - item.job.submit_s for s, item in zip(schedule.start_s, jobs, strict=True)]
    assert max(waited_s) > 3600, "jobs had to wait"
    assert sum(line.path == "solver" for line in bridge.journal.list_rounds()) > 10 or record.dispatcher != "pcp20"


def test_slurm_twin_makes_passes_between_events(tmp_path):
    """The twin also makes passes at times without an event."""
    record = PolicySpec("slurm", "walltime", {}, {}, "one-second")
    _, starts, _ = bridge_run(tmp_path, record)
    cluster, jobs = a_crowded_morning()
    schedule = simulate(jobs, cluster, record.build())
    assert starts == {item.job.id: (int(schedule.start_s[i]), schedule.placement_of(i)) for i, item in enumerate(jobs)}
    moments = {item.job.submit_s for item in jobs} | {int(s) for s in schedule.end_s}
    assert any(start_s not in moments for start_s, _ in starts.values()), "some start at its own seconds"


def test_recorded_rounds_replay_equally(run):
    """Rounds replay from the journal alone, even if the predictor or dispatcher has learned since.

    For the first policy, all rounds are replayed. For the others, every third round includes dozens of each path.
    """
    record, bridge, _, _ = run
    every = 1 if record is POLICIES[0] else 3
    numbers = list(bridge.journal.iterate_round_numbers())[::every]
    rounds = [replay_round(bridge.journal.read_round(number)) for number in numbers]
    assert len(rounds) > JOBS // every
    assert [r for r in rounds if not r.is_same_decision] == []
    assert every > 1 or sum(len(r.starts) for r in rounds) == JOBS


class UnevenPace(EventDrivenClock):
    """A clock that advances by 0.05 s to 0.35 s with each reading, as if decisions took that long."""

    readings = 0
    read_s = 0.0

    def monotonic_s(self):
        """Return a time that advances by a different step with each call."""
        self.readings += 1
        self.read_s += 0.05 * (1 + self.readings % 7)
        return self.read_s


@pytest.mark.slow
def test_time_limited_rounds_replay_without_clock(tmp_path):
    """The journal records the durations of decisions only as the remaining work, so a replay needs no clock."""
    record = PolicySpec("lookahead", "walltime", {"limit_s": "0.05"}, {}, "one-second")
    bridge, _, _ = bridge_run(tmp_path, record, UnevenPace)
    read = [bridge.journal.read_round(number) for number in list(bridge.journal.iterate_round_numbers())[::2]]
    assert len({round.memory["work"] for round in read}) > 5
    assert [r for r in map(replay_round, read) if not r.is_same_decision] == []
