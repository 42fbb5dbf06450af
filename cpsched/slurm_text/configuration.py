"""Define the controller's configuration that a reading of Slurm delivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LINEAR = "select/linear"
"""The node selection plugin that gives each job whole nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """Settings of slurm.conf, as slurmctld uses them. A setting that is not set is None."""

    accounting_storage_enforce: Sequence[str] | None = None
    accounting_storage_tres: Sequence[str] | None = None
    accounting_storage_type: str | None = None
    cluster_name: str | None = None
    gres_types: Sequence[str] | None = None
    job_defaults: str | None = None
    """`JobDefaults` for jobs that request GPUs. Partitions may override each of them."""
    job_submit_plugins: Sequence[str] | None = None
    min_job_age: int | None = None
    preempt_mode: str | None = None
    preempt_type: str | None = None
    """The preemption plugin, or None without preemption."""
    priority_site_factor_plugin: str | None = None
    priority_type: str | None = None
    scheduler_parameters: str = ""
    """The text of `SchedulerParameters`. See `option_lists`."""
    scheduler_type: str | None = None
    select_type: str | None = None
    select_type_parameters: Sequence[str] | None = None
    slurm_user_name: str | None = None
    topology_parameters: Sequence[str] | None = None
    topology_plugin: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectRules:
    """How Slurm's node selection plugin allocates nodes."""

    counts_memory: bool = True
    """Whether Slurm allocates memory (CR_*_Memory)."""
    whole_nodes: bool = False
    """Whether Slurm allocates only whole nodes (select/linear)."""
    whole_sockets: bool = False
    """Whether Slurm allocates only whole sockets (CR_Socket)."""
    spreads_shares: bool = False
    """Whether the shares of one job may be on several GPUs of a node (MULTIPLE_SHARING_GRES_PJ)."""

    @classmethod
    def from_config(cls, config: SlurmConfig) -> SelectRules:
        """Return the rules of a configuration."""
        parameters = " ".join(config.select_type_parameters or ()).upper()
        return cls(
            counts_memory="MEMORY" in parameters,
            whole_nodes=config.select_type == LINEAR,
            whole_sockets="CR_SOCKET" in parameters,
            spreads_shares="MULTIPLE_SHARING_GRES_PJ" in parameters,
        )
