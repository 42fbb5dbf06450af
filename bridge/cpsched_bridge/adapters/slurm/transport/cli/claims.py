"""The reservation of a claim, as scontrol shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cpsched_bridge.adapters.slurm.translation.claims import comment_in
from cpsched_bridge.adapters.slurm.transport.cli import cluster
from cpsched_bridge.adapters.slurm.transport.cli.asking import AskedSlurm
from cpsched_bridge.adapters.slurm.transport.cli.commands import NODE
from cpsched_bridge.adapters.slurm.transport.programs.claiming import Claiming
from cpsched_bridge.errors import BackendUnavailable

NODES = ("sinfo", "--noheader", "--Node", "--format=%N")


def claiming(scontrol: Callable[[Sequence[str]], Sequence[str]], deadline_s: float) -> Claiming:
    """The calls about the reservation, each question within `deadline_s` seconds."""

    def words() -> str | None:
        return comment_in(cluster.reservations(_told(cluster.RESERVATIONS, deadline_s)))

    def node() -> str:
        names = [name for name in _told(NODES, deadline_s).split() if NODE.fullmatch(name)]
        if not names:
            raise BackendUnavailable("sinfo: names no node")
        return min(names)

    return Claiming(words, node, scontrol)


def _told(command: Sequence[str], deadline_s: float) -> str:
    return AskedSlurm({"told": command}, deadline_s).texts()["told"]
