"""Two accounts with shares 80 : 20 and equal load beside the bridge: use follows the shares."""

from __future__ import annotations

from tests.slurm.harness import Slurm
from tests.slurm.shares import under

SECONDS = 180
TOLERANCE = 0.2
"""Slurm and the bridge look at what was used once a minute: so the share may be off by half a minute's or a whole
minute's work of the cluster in three."""


def test_use_follows_the_shares(slurm: Slurm) -> None:
    """`make cluster-shares` prints the curves, over a longer time and beside Slurm's own."""
    found = under(slurm, "easy", SECONDS)
    print(found)
    assert abs(found[-1][1] - 0.8) <= TOLERANCE
