"""Define the Slurm section of the settings file, and create the Slurm backend."""

from __future__ import annotations

import time
from typing import Literal

from pydantic import Field

from cpsched_bridge.adapters.slurm import background_queries
from cpsched_bridge.adapters.slurm.background_queries import BackgroundCommandQuery, PeriodicSitePolicyReader
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.adapters.slurm.slurm_boosts import SiteFactorBoostAccess
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.programs.call_limits import SlurmRpcTokenBucket
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import (
    PyslurmTransport,
    TransportTrial,
    is_pyslurm_installed,
)
from cpsched_bridge.ports import Capabilities
from cpsched_bridge.settings import Section

SELECTED_BY_OPTION = "selected by options.transport"
NOT_INSTALLED = "auto: pyslurm is not installed"
NOT_TRIED = "auto: pyslurm has not been tried yet"
DEFAULT_DECISION_LIMIT_S = 0.1
"""Default time limit for a decision on a Slurm cluster, in seconds."""


class Options(Section):
    """The Slurm adapter's options. slurm.conf defines everything else."""

    transport: Literal["auto", "pyslurm", "cli"] = Field(
        default="auto",
        description="`pyslurm`: Slurm's library, in its own process, for jobs and nodes; `cli`: only Slurm's commands "
        "(scontrol, squeue, sinfo, sacct), without compiled dependencies; `auto`: `cli` or, if pyslurm is "
        "installed and a reading of this cluster with it takes less time, `pyslurm`. The two are compared once after "
        "the start, if Slurm has at least 1,000 jobs. The log, `cpsched status` and `cpsched doctor` show the "
        "transport and the reason.",
    )
    deadline_s: float = Field(
        default=10.0,
        gt=0,
        description="Seconds without a response from slurmctld after which pyslurm's process or the command is killed. "
        "A command that is producing output has six times this limit. Each late reading extends the next limit.",
    )
    history_deadline_s: float = Field(
        default=60.0,
        gt=0,
        description="Time limit in seconds for the accounting query, which a separate process sends once at startup. "
        "Cycles wait for its result for at most `deadline_s`.",
    )
    site_policy: bool = Field(
        default=True,
        description="Whether to read the site's priorities, fair share, QOS and limits, and to apply them.",
    )
    boost: int = Field(
        default=0,
        ge=0,
        le=1_000_000_000,
        description="Maximum boost of a start's priority (through `Nice`), so that unmanaged jobs do not "
        "block the start; 0: off.",
    )


def connect(options: Options) -> SlurmBackend:
    """Return the backend, which connects to the cluster on its first call."""
    budget = SlurmRpcTokenBucket()
    reader = (
        PeriodicSitePolicyReader(BackgroundCommandQuery(budget=budget), time.monotonic) if options.site_policy else None
    )
    advising = SiteFactorBoostAccess(options.deadline_s)
    watch = make_load_monitor(options, budget)
    transport = make_transport(options, budget)
    backend = SlurmBackend(transport, reader, options.boost, watch, advising)
    if options.transport == "auto" and is_pyslurm_installed():
        transport.why = NOT_TRIED
        backend.transport_trial = TransportTrial(transport, _make_pyslurm_transport(options, budget))
    return backend


def make_transport(options: Options, budget: SlurmRpcTokenBucket | None = None) -> SlurmCliTransport:
    """Return the configured transport, or Slurm's commands for `auto`, without contacting the cluster."""
    if options.transport == "pyslurm":
        return _make_pyslurm_transport(options, budget)
    why = SELECTED_BY_OPTION if options.transport == "cli" else NOT_INSTALLED
    return SlurmCliTransport(options.deadline_s, options.history_deadline_s, why, budget=budget)


def _make_pyslurm_transport(options: Options, budget: SlurmRpcTokenBucket | None) -> PyslurmTransport:
    return PyslurmTransport(options.deadline_s, options.history_deadline_s, SELECTED_BY_OPTION, budget=budget)


def make_load_monitor(options: Options, budget: SlurmRpcTokenBucket) -> background_queries.ControllerLoadMonitor:
    """Return the monitor of slurmctld's load."""
    asking = BackgroundCommandQuery(
        options.deadline_s, {background_queries.SDIAG_OUTPUT: (background_queries.SDIAG_COMMAND,)}, budget
    )
    return background_queries.ControllerLoadMonitor(asking, time.monotonic)


def can(options: Options) -> Capabilities:
    """Return the adapter's capabilities.

    Without the site's policy, jobs have no ranks and limits are unknown.
    """
    policy = options.site_policy
    return Capabilities(policy, policy, DEFAULT_DECISION_LIMIT_S, boosts=True, preemption=policy)
