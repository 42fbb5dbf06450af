"""A bridge on a machine with a tenth of a processor, that has to compile its kernels first."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cpsched_bridge.cycle.beginning import KEPT_S
from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import BRIDGE_CPUS, Slurm, docker, wait_until

MINUTES_S = 1200
"""Longer than compiling takes on any machine."""


@contextmanager
def a_tenth_of_a_processor(container: str) -> Iterator[None]:
    """For bridges in a container; whatever it was before afterwards."""
    docker("update", "--cpus=0.1", container)
    try:
        yield
    finally:
        docker("update", f"--cpus={BRIDGE_CPUS or os.cpu_count()}", container)


def test_a_bridge_that_compiles_says_so_and_keeps_nobody_waiting(slurm: Slurm) -> None:
    """No kernel is in the cache. The submit plugin holds new jobs; they run under Slurm until the bridge can decide."""
    slurm.plugin(on=True)
    bridge = LiveBridge(slurm, "slow")
    doing = lambda: bridge.shell(f"cat {bridge.state}/beginning", check=False)  # noqa: E731
    with a_tenth_of_a_processor(slurm.bridge_container()):
        began_s = time.monotonic()
        bridge.start(wait=False, environment=f"CPSCHED_CACHE_DIR={bridge.state}/kernels")
        job = slurm.sbatch("-n1", "-t1")
        assert slurm.job(job).held
        wait_until(lambda: "compiles kernels" in doing(), MINUTES_S, "it compiles", every_s=1.0)
        slurm.wait_for_state(job, "COMPLETED", MINUTES_S)
        waited_s = time.monotonic() - began_s
        assert "kernels are ready" in doing(), "it still compiles"
        assert waited_s >= KEPT_S, "what is held is kept for a while"
        assert bridge.alive()
        beat = f"echo $(($(date +%s) - $(stat --format %Y {bridge.state}/heartbeat)))"
        assert int(bridge.shell(beat)) < 60, "it gives signs of life"
    wait_until(lambda: bridge.rounds() > 0, MINUTES_S, "it decides", every_s=1.0)
    assert doing() == ""
    later = slurm.sbatch("-n1", "-t1")
    slurm.wait_for_state(later, "COMPLETED", 60)
    started = lambda: bridge.ledger()[later].state in ("running", "ended", "gone")  # noqa: E731
    wait_until(started, 30, "the ledger says that the bridge started it")
    assert bridge.events().count("decision_timeout") == 0
    bridge.stop()
