"""Fixtures for the live tests, which are skipped with a reason unless there is an otherwise unused PBS."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pbs.live.harness import CLAIM, FIRST_CYCLE_S, LEFT, QUEUE, LiveBridge, Pbs, run, until, why_not


@pytest.fixture(scope="session")
def server() -> Pbs:
    if reason := why_not():
        pytest.skip(f"live PBS tests: {reason}")
    return Pbs()


@pytest.fixture
def pbs(server: Pbs) -> Iterator[Pbs]:
    server.begin()
    yield server
    server.clear()
    for queue in (QUEUE, LEFT):
        server.manage(f"delete queue {queue}")


@pytest.fixture
def bridge(pbs: Pbs, tmp_path: Path) -> Iterator[LiveBridge]:
    """A bridge in control of the queue, which is closed to PBS's own scheduler."""
    with LiveBridge(tmp_path / "bridge") as live:
        in_control(pbs, live)
        yield live
        print(live.said())


def in_control(pbs: Pbs, live: LiveBridge) -> None:
    """Close the queue and wait until the bridge has claimed the server."""
    pbs.manage(f"set queue {QUEUE} started=False")
    until(lambda: CLAIM in run("qstat", "-B", "-f", "-F", "json"), "the bridge is in control", FIRST_CYCLE_S)
