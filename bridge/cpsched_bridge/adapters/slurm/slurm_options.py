"""Slurm's part of the settings file, and the backend that it asks for."""

from __future__ import annotations

import time
from typing import Literal

from pydantic import Field

from cpsched_bridge.adapters.slurm import controller_load
from cpsched_bridge.adapters.slurm.policy.policy_commands import PolicyCommands
from cpsched_bridge.adapters.slurm.policy.policy_reader import PolicyReader
from cpsched_bridge.adapters.slurm.site_factor import SiteFactorBoosts
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.adapters.slurm.transport import Transport
from cpsched_bridge.adapters.slurm.transport.auto_transport import AutoTransport
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import CliTransport
from cpsched_bridge.adapters.slurm.transport.programs.call_budget import CallBudget
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import PyslurmTransport
from cpsched_bridge.ports import Capabilities
from cpsched_bridge.settings import Section

SAID = "the settings say so"
DECIDE_S = 0.1
"""How long a decision may take beside slurmctld, where a dispatcher has no limit of its own."""


class Options(Section):
    """By what Slurm is asked and told, and deadlines of calls to it; slurm.conf says the rest."""

    transport: Literal["auto", "pyslurm", "cli"] = Field(
        default="auto",
        description="`pyslurm` is Slurm's library, in a process of its own; `cli` is Slurm's own commands (scontrol, "
        "squeue, sinfo, sacct), which need nothing compiled. `auto` takes pyslurm where it can be imported and is no "
        "newer than slurmctld, else `cli`, and says so.",
    )
    deadline_s: float = Field(
        default=10.0,
        gt=0,
        description="How long slurmctld may be silent; after that pyslurm's process, or the command, is killed. "
        "A command that prints may take six times as long, and each late reading gives the next one more time.",
    )
    history_deadline_s: float = Field(
        default=60.0,
        gt=0,
        description="The same for the accounting database, asked once at start, by a process of its own. "
        "Cycles wait for its answer no longer than `deadline_s`.",
    )
    site_policy: bool = Field(
        default=True, description="Read priorities, fair share, QOS and limits, rank jobs by them, and keep the limits."
    )
    boost: int = Field(
        default=0,
        ge=0,
        le=1_000_000_000,
        description="By how many points of priority a start may be raised (by `Nice`), so that jobs that nobody "
        "manages do not block it; 0: never.",
    )


def connect(options: Options) -> SlurmBackend:
    """The backend; the cluster is reached with the first call."""
    budget = CallBudget()
    reader = PolicyReader(PolicyCommands(counted=budget.begin), time.monotonic) if options.site_policy else None
    advising = SiteFactorBoosts(options.deadline_s)
    watch = load_watch(options, budget)
    return SlurmBackend(transport_of(options, budget), reader, options.boost, watch, advising)


def transport_of(options: Options, budget: CallBudget | None = None) -> Transport:
    """The transport that the options ask for; the cluster is not asked."""

    def pyslurm() -> PyslurmTransport:
        return PyslurmTransport(options.deadline_s, options.history_deadline_s, why=SAID)

    def cli(why: str = SAID) -> CliTransport:
        return CliTransport(options.deadline_s, options.history_deadline_s, why, budget=budget)

    match options.transport:
        case "pyslurm":
            return pyslurm()
        case "cli":
            return cli()
        case "auto":
            return AutoTransport(pyslurm, cli)


def load_watch(options: Options, budget: CallBudget) -> controller_load.ControllerLoadMonitor:
    """Return what follows slurmctld's load."""
    asking = PolicyCommands(options.deadline_s, {controller_load.ANSWER: (controller_load.COMMAND,)}, budget.begin)
    return controller_load.ControllerLoadMonitor(asking, time.monotonic)


def can(options: Options) -> Capabilities:
    """Return what the adapter can do: without the site's policy, jobs have no ranks and limits are unknown."""
    policy = options.site_policy
    return Capabilities(priorities=policy, limits=policy, boosts=True, decision_limit_s=DECIDE_S)
