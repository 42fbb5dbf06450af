"""With the event-aligned clock, the bridge over the mock is the simulator: same starts, same nodes, and it replays."""

from dataclasses import replace

import pytest

from cpsched.policy_spec import PolicySpec
from cpsched_bridge.adapters.mock.backend import MockBackend
from cpsched_bridge.adapters.mock.clocks import EventPace, StandingClock
from cpsched_bridge.adapters.mock.morning import loaded_morning
from cpsched_bridge.adapters.mock.site import MockCluster
from cpsched_bridge.store.ledger import State
from cpsched_bridge.store.redecide import decide_again
from cpsched_sim.cluster.replay import replay as simulate
from cpsched_sim.traces.job import TraceJob
from tests.bridges import a_bridge

JOBS = 2000
POLICIES = [
    PolicySpec("easy", "walltime", {}, {}, "one-second"),
    PolicySpec("easy", "last-two", {}, {}, "one-second"),
    PolicySpec("prb", "walltime", {}, {}, "one-second"),
    PolicySpec("lookahead", "walltime", {"effort": "10"}, {}, "one-second"),
    PolicySpec("pcp20", "walltime", {"effort": "16", "considered": "30"}, {}, "one-second"),
]


def a_day(jobs, seed):
    """A morning's jobs spread over nine hours: still some wait long, and a search is needed now and then only."""
    cluster, morning = loaded_morning(jobs, seed)
    return cluster, [TraceJob(replace(item.job, submit_s=item.job.submit_s * 3 // 2), item.run_s) for item in morning]


def bridge_run(tmp_path, record, cluster, jobs, pace=EventPace):
    """(bridge, job id -> (start second, placement), starts counted by job) of a whole run."""
    site = MockCluster(cluster, jobs)
    starts = {}

    def note(report):
        assert report.result == "ok", report.happenings
        starts.update({id: (report.observation.now_s, where) for id, where in report.starts.items()})

    bridge = a_bridge(
        tmp_path,
        MockBackend(site, StandingClock(site)),
        pace=pace(site),
        listeners=(note,),
        policy_spec=record,
        policy=record.build(),
        cycle={"max_commands": JOBS},
    )
    assert bridge.run() == []
    return bridge, starts, site.starts


@pytest.mark.parametrize("record", POLICIES, ids=lambda r: f"{r.dispatcher}-{r.predictor}")
def test_the_schedule_is_the_simulators_start_by_start(tmp_path, record):
    cluster, jobs = a_day(JOBS, seed=7)
    schedule = simulate(jobs, cluster, record.build())
    expected = {item.job.id: (int(schedule.start_s[i]), schedule.placement_of(i)) for i, item in enumerate(jobs)}
    bridge, starts, times = bridge_run(tmp_path, record, cluster, jobs)
    assert starts == expected
    assert set(times.values()) == {1}
    assert bridge.ledger.counts()[State.ENDED] == JOBS
    searched = [line.number for line in bridge.journal.lines() if line.path == "solver"]
    assert len(searched) > 20 or record.dispatcher != "pcp20"
    assert [r for r in map(decide_again, map(bridge.journal.read, searched)) if not r.same] == []
    assert max(int(s) - i.job.submit_s for s, i in zip(schedule.start_s, jobs, strict=True)) > 600, "jobs had to wait"


@pytest.mark.parametrize("record", POLICIES, ids=lambda r: f"{r.dispatcher}-{r.predictor}")
def test_every_recorded_round_decides_the_same_again(tmp_path, record):
    """From the journal alone, also where predictor or dispatcher have learned since."""
    cluster, jobs = loaded_morning(1000, seed=8)
    bridge, _, _ = bridge_run(tmp_path, record, cluster, jobs)
    rounds = [decide_again(bridge.journal.read(number)) for number in list(bridge.journal.numbers())]
    assert len(rounds) > 1000
    assert [r for r in rounds if not r.same] == []
    assert sum(len(r.starts) for r in rounds) == 1000


class UnevenPace(EventPace):
    """A clock that is read as if a decision took a twentieth of a second or up to seven times as long."""

    readings = 0
    read_s = 0.0

    def monotonic_s(self):
        """Later by another while each time."""
        self.readings += 1
        self.read_s += 0.05 * (1 + self.readings % 7)
        return self.read_s


def test_rounds_decided_under_a_limit_of_time_decide_the_same_again_without_the_clock(tmp_path):
    """How long decisions took is in the journal as the work that was left, and in no other way."""
    cluster, jobs = loaded_morning(1500, seed=8)
    record = PolicySpec("lookahead", "walltime", {"limit_s": "0.05"}, {}, "one-second")
    bridge, _, _ = bridge_run(tmp_path, record, cluster, jobs, UnevenPace)
    read = [bridge.journal.read(number) for number in list(bridge.journal.numbers())]
    assert len({round.memory["work"] for round in read}) > 10
    assert [r for r in map(decide_again, read) if not r.same] == []
