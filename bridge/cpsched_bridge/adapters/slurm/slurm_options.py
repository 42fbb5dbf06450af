"""Slurm's section of the settings file, and the construction of its backend."""

from __future__ import annotations

import time
from typing import Literal

from pydantic import Field

from cpsched_bridge.adapters.slurm import controller_load
from cpsched_bridge.adapters.slurm.policy.policy_commands import SitePolicyCommands
from cpsched_bridge.adapters.slurm.policy.policy_reader import SitePolicyReader
from cpsched_bridge.adapters.slurm.site_factor import SiteFactorBoosts
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.adapters.slurm.transport import SlurmTransport
from cpsched_bridge.adapters.slurm.transport.auto_transport import AutoSlurmTransport
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.programs.call_budget import SlurmRpcTokenBucket
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import PyslurmTransport
from cpsched_bridge.ports import Capabilities
from cpsched_bridge.settings import Section

SAID = "the settings say so"
DECIDE_S = 0.1
"""Default time limit in seconds of a decision for a Slurm cluster."""


class Options(Section):
    """Options of the transport to Slurm and its time limits; slurm.conf defines everything else."""

    transport: Literal["auto", "pyslurm", "cli"] = Field(
        default="auto",
        description="`pyslurm`: Slurm's library, in its own process; `cli`: Slurm's commands (scontrol, squeue, sinfo, "
        "sacct), without compiled dependencies; `auto`: pyslurm if it can be imported, is not newer than slurmctld and "
        "no `rl_enable` limits its calls, otherwise `cli`; the log states which.",
    )
    deadline_s: float = Field(
        default=10.0,
        gt=0,
        description="Seconds without an answer of slurmctld after which pyslurm's process or the command is killed. "
        "A command that prints has six times as long, and each late reading extends the limit of the next one.",
    )
    history_deadline_s: float = Field(
        default=60.0,
        gt=0,
        description="Seconds without an answer of the accounting database, which a separate process asks once at "
        "start. "
        "Cycles wait for it at most `deadline_s`.",
    )
    site_policy: bool = Field(
        default=True, description="Read priorities, fair share, QOS and limits; rank jobs by them and apply the limits."
    )
    boost: int = Field(
        default=0,
        ge=0,
        le=1_000_000_000,
        description="Maximum boost of a start's priority (by `Nice`), so that unmanaged jobs do not block it; 0: none.",
    )


def connect(options: Options) -> SlurmBackend:
    """Return the backend, which connects to the cluster on its first call."""
    budget = SlurmRpcTokenBucket()
    reader = (
        SitePolicyReader(SitePolicyCommands(counted=budget.begin_background_call), time.monotonic)
        if options.site_policy
        else None
    )
    advising = SiteFactorBoosts(options.deadline_s)
    watch = make_load_monitor(options, budget)
    return SlurmBackend(make_transport(options, budget), reader, options.boost, watch, advising)


def make_transport(options: Options, budget: SlurmRpcTokenBucket | None = None) -> SlurmTransport:
    """Return the configured transport, without contacting the cluster."""

    def pyslurm() -> PyslurmTransport:
        return PyslurmTransport(options.deadline_s, options.history_deadline_s, why=SAID)

    def cli(why: str = SAID) -> SlurmCliTransport:
        return SlurmCliTransport(options.deadline_s, options.history_deadline_s, why, budget=budget)

    match options.transport:
        case "pyslurm":
            return pyslurm()
        case "cli":
            return cli()
        case "auto":
            return AutoSlurmTransport(pyslurm, cli)


def make_load_monitor(options: Options, budget: SlurmRpcTokenBucket) -> controller_load.ControllerLoadMonitor:
    """Return the monitor of slurmctld's load."""
    asking = SitePolicyCommands(
        options.deadline_s, {controller_load.ANSWER: (controller_load.COMMAND,)}, budget.begin_background_call
    )
    return controller_load.ControllerLoadMonitor(asking, time.monotonic)


def can(options: Options) -> Capabilities:
    """Return the adapter's capabilities.

    Without the site's policy, jobs have no ranks and limits are unknown.
    """
    policy = options.site_policy
    return Capabilities(priorities=policy, limits=policy, boosts=True, decision_limit_s=DECIDE_S)
