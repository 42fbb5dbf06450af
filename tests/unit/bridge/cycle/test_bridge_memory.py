"""What the bridge remembers against jobs and users: shown with its age, and ended by an administrator."""

import pytest

from cpsched_bridge.ports import Hold
from cpsched_bridge.store.ledger import LedgerState
from cpsched_bridge.store.lock_and_request_files import ForgetFile, ForgetRequest, MemoryFile, RememberedFact
from tests.bridges import a_bridge, settle
from tests.builders import a_job
from tests.fakes import FakeCluster

REQUEST = "1 x 1 for 100 s in any queue"


def bridge_that_left_job(tmp_path):
    """A bridge that has left job 7 of eve to the cluster after two failed starts. Job 8 of ada runs."""
    cluster = FakeCluster.of(now_s=1000)
    cluster.submit(a_job(7, user="eve"), stubborn="bounced")
    cluster.submit(a_job(8, user="ada"))
    bridge = a_bridge(tmp_path, cluster, start={"max_failures": 2, "adopt": True}, cycles=12)
    assert (bridge.ledger.get(7).state, cluster.jobs[7].hold) == (LedgerState.FREE, Hold.NONE)
    cluster.jobs[7].stubborn = "alone"  # waits without a hold
    return bridge, cluster


def test_shows_what_it_remembers_with_its_age(tmp_path):
    bridge, _ = bridge_that_left_job(tmp_path)
    left = bridge.ledger.get(7)
    (fact,) = [fact for fact in MemoryFile(bridge.settings.state_dir).read() if fact.subject == "job 7"]
    assert left.unmanaged_request == REQUEST
    age_s = bridge.backend.now_s - left.since_s
    assert fact == RememberedFact("job 7", f"unmanaged: {left.unmanaged_reason}", bridge.pace.unix_s() - age_s)


@pytest.mark.parametrize("request_", [ForgetRequest("job", "7"), ForgetRequest("user", "eve")])
def test_forgotten_job_is_managed_again(tmp_path, request_):
    bridge, cluster = bridge_that_left_job(tmp_path)
    cluster.commands.clear()
    settle(bridge, cluster, 3)
    assert cluster.commands == []
    ForgetFile(bridge.settings.state_dir).request(request_)
    (report,) = settle(bridge, cluster, 1)
    assert "forgotten" in {event.kind for event in report.bridge_events}
    assert cluster.commands == [("hold", (7,))]
    assert (bridge.ledger.get(7).unmanaged_reason, bridge.ledger.get(7).failures) == ("", 0)
    assert [fact for fact in MemoryFile(bridge.settings.state_dir).read() if fact.subject == "job 7"] == []


def test_forgotten_backoff_ends_at_once(tmp_path):
    cluster = FakeCluster.of(a_job(7, user="eve"), now_s=1000)
    cluster.jobs[7].stubborn = "limited"
    bridge = a_bridge(tmp_path, cluster, cycles=20)
    group = "user eve in account "
    (fact,) = MemoryFile(bridge.settings.state_dir).read()
    assert (fact.subject, fact.fact) == (group, "in backoff: AssocMaxJobsLimit")
    cluster.commands.clear()
    ForgetFile(bridge.settings.state_dir).request(ForgetRequest("user", "eve"))
    settle(bridge, cluster, 1)
    assert cluster.sent("start") == [(7,)]


def test_shows_users_whose_starts_all_failed_since_first_failure(tmp_path):
    cluster = FakeCluster.of(now_s=1000)
    for id in (7, 8, 9):
        cluster.submit(a_job(id, user="eve", walltime_s=100 + id), stubborn="bounced")
    bridge = a_bridge(tmp_path, cluster)
    failed_s = []
    for _ in range(12):
        bridge.pace.at_s += 1
        (report,) = settle(bridge, cluster, 1)
        failed_s += [bridge.pace.unix_s() for event in report.bridge_events if event.kind == "start_failed"]
    (fact,) = [fact for fact in MemoryFile(bridge.settings.state_dir).read() if fact.subject == "user eve"]
    assert failed_s[0] < failed_s[-1]
    assert fact == RememberedFact("user eve", "all starts failed, which counts for the circuit breaker", failed_s[0])
