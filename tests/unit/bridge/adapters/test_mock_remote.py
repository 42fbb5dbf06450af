"""A simulated site in a process of its own serves several bridges, which see each other's claims."""

import threading
import time

from cpsched_bridge.adapters.mock.backend import MockBackend
from cpsched_bridge.adapters.mock.clocks import StandingClock
from cpsched_bridge.adapters.mock.remote import RemoteBackend, serve
from cpsched_bridge.adapters.mock.site import MockCluster
from cpsched_bridge.ports import Claim
from tests.builders import a_cluster

ONE, TWO = (Claim(name, "1", 1, f"{name}:/state") for name in ("one", "two"))


def test_two_bridges_at_a_time_are_answered_and_one_of_them_can_claim_the_site(tmp_path):
    site = MockCluster(a_cluster(), [])
    threading.Thread(target=serve, args=(MockBackend(site, StandingClock(site)), tmp_path / "s"), daemon=True).start()
    while not (tmp_path / "s").exists():
        time.sleep(0.01)
    first, second = RemoteBackend(tmp_path / "s", 5.0), RemoteBackend(tmp_path / "s", 5.0)
    assert first.claim(ONE, None)
    assert not second.claim(TWO, None)
    assert second.observe().claim == first.observe().claim == ONE
    second.disclaim(TWO)
    assert first.observe().claim == ONE
    assert second.claim(TWO, ONE)
    first.disclaim(ONE)
    assert first.observe().claim == TWO
    second.disclaim(TWO)
    assert first.observe().claim is None
    first.close()
    second.close()
