"""The reservation of a claim, as scontrol shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cpsched_bridge.adapters.slurm.translation.claims import comment_in
from cpsched_bridge.adapters.slurm.transport.cli import cluster
from cpsched_bridge.adapters.slurm.transport.cli.asking import AskedSlurm
from cpsched_bridge.adapters.slurm.transport.cli.commands import NODE
from cpsched_bridge.adapters.slurm.transport.programs.call_budget import CallBudget, calls_of
from cpsched_bridge.adapters.slurm.transport.programs.claiming import Claiming
from cpsched_bridge.errors import BackendUnavailable

NODES = ("sinfo", "--noheader", "--Node", "--format=%N")


def claiming(
    scontrol: Callable[[Sequence[str]], Sequence[str]], deadline_s: float, budget: CallBudget | None = None
) -> Claiming:
    """The calls about the reservation, each question within `deadline_s` seconds."""
    spent = budget or CallBudget()

    def asked(command: Sequence[str]) -> str:
        spent.spend(calls_of(command))
        return AskedSlurm({"answer": command}, deadline_s + spent.slack_s).texts()["answer"]

    def words() -> str | None:
        return comment_in(cluster.reservations(asked(cluster.RESERVATIONS)))

    def node() -> str:
        names = [name for name in asked(NODES).split() if NODE.fullmatch(name)]
        if not names:
            raise BackendUnavailable("sinfo: names no node")
        return min(names)

    return Claiming(words, node, scontrol)
