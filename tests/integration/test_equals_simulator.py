"""With the event-aligned clock, the bridge over the mock is the simulator: same starts, same nodes, and it replays."""

import pytest

from bridge.adapters.mock.backend import MockBackend
from bridge.adapters.mock.clocks import EventPace, StandingClock
from bridge.adapters.mock.morning import loaded_morning
from bridge.adapters.mock.site import Site
from bridge.ledger import State
from bridge.records import PolicyRecord
from bridge.replay import policy_of, replay
from sim.engine import replay as simulate
from tests.bridges import a_bridge

JOBS = 2000
POLICIES = [
    PolicyRecord("easy", "walltime", {}, {}, "one-second"),
    PolicyRecord("easy", "last-two", {}, {}, "one-second"),
    PolicyRecord("pcp20", "walltime", {"effort": "2000"}, {}, "one-second"),
]


def bridge_run(tmp_path, record, cluster, jobs):
    """(bridge, job id -> (start second, placement), starts counted by job) of a whole run."""
    site = Site(cluster, jobs)
    starts = {}

    def note(report):
        assert report.result == "ok", report.happenings
        starts.update({id: (report.observation.now_s, where) for id, where in report.starts.items()})

    bridge = a_bridge(
        tmp_path,
        MockBackend(site, StandingClock(site)),
        pace=EventPace(site),
        listeners=(note,),
        record=record,
        policy=policy_of(record),
        cycle={"max_commands": JOBS},
    )
    assert bridge.run() == []
    return bridge, starts, site.starts


@pytest.mark.parametrize("record", POLICIES, ids=lambda r: f"{r.dispatcher}-{r.predictor}")
def test_the_schedule_is_the_simulators_start_by_start(tmp_path, record):
    cluster, jobs = loaded_morning(JOBS, seed=7)
    schedule = simulate(jobs, cluster, policy_of(record))
    expected = {item.job.id: (int(schedule.start_s[i]), schedule.placement_of(i)) for i, item in enumerate(jobs)}
    bridge, starts, times = bridge_run(tmp_path, record, cluster, jobs)
    assert starts == expected
    assert set(times.values()) == {1}
    assert bridge.ledger.counts()[State.ENDED] == JOBS
    assert max(int(s) - i.job.submit_s for s, i in zip(schedule.start_s, jobs, strict=True)) > 600, "jobs had to wait"


@pytest.mark.parametrize("record", POLICIES, ids=lambda r: f"{r.dispatcher}-{r.predictor}")
def test_every_recorded_round_decides_the_same_again(tmp_path, record):
    """From the journal alone, also where the predictor has learned since."""
    cluster, jobs = loaded_morning(300, seed=8)
    bridge, _, _ = bridge_run(tmp_path, record, cluster, jobs)
    rounds = [replay(bridge.journal.read(number)) for number in bridge.journal.numbers()]
    assert len(rounds) > 300
    assert [r for r in rounds if not r.same] == []
    assert sum(len(r.starts) for r in rounds) == 300
