"""Define and parse the controller's configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cpsched.errors import UnreadableOutput
from cpsched.slurm_text.option_lists import parse_config
from cpsched.slurm_text.output_values import parse_names, parse_nonzero_or_none, parse_text_or_none

CONFIG_COMMAND = ("scontrol", "show", "config")

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
    spreads_gpu_parts: bool = False
    """Whether the parts of GPUs of one job may be on several GPUs of a node (MULTIPLE_SHARING_GRES_PJ)."""
    equal_shares_need_cpus: bool = False
    """Whether the release needs more than the number of tasks per node to split a job equally."""

    @classmethod
    def from_config(cls, config: SlurmConfig) -> SelectRules:
        """Return the rules of a configuration."""
        parameters = " ".join(config.select_type_parameters or ()).upper()
        return cls(
            counts_memory="MEMORY" in parameters,
            whole_nodes=config.select_type == LINEAR,
            whole_sockets="CR_SOCKET" in parameters,
            spreads_gpu_parts="MULTIPLE_SHARING_GRES_PJ" in parameters,
        )


def _parse_upper_names(word: str) -> list[str]:
    return [] if word in ("none", "(null)", "") else word.upper().split(",")


_CONFIG_FIELD_PARSERS: Mapping[str, Callable[[Mapping[str, str]], object]] = {
    "accounting_storage_enforce": lambda words: _parse_upper_names(words["AccountingStorageEnforce"]),
    "accounting_storage_tres": lambda words: parse_names(words["AccountingStorageTRES"]),
    "accounting_storage_type": lambda words: parse_text_or_none(words["AccountingStorageType"]),
    "cluster_name": lambda words: parse_text_or_none(words["ClusterName"]),
    "gres_types": lambda words: parse_names(words["GresTypes"]),
    "job_defaults": lambda words: parse_text_or_none(words.get("JobDefaults", "")),
    "job_submit_plugins": lambda words: parse_names(words["JobSubmitPlugins"]),
    "min_job_age": lambda words: parse_nonzero_or_none(words["MinJobAge"].split()[0]),
    "preempt_mode": lambda words: parse_text_or_none(words["PreemptMode"]),
    "preempt_type": lambda words: _parse_preempt_type(words["PreemptType"]),
    "priority_site_factor_plugin": lambda words: parse_text_or_none(words.get("PrioritySiteFactorPlugin", "")),
    "priority_type": lambda words: parse_text_or_none(words.get("PriorityType", "")),
    "scheduler_parameters": lambda words: words["SchedulerParameters"],
    "scheduler_type": lambda words: parse_text_or_none(words["SchedulerType"]),
    "select_type": lambda words: parse_text_or_none(words["SelectType"]),
    "select_type_parameters": lambda words: parse_names(words["SelectTypeParameters"]),
    "slurm_user_name": lambda words: words["SlurmUser"].partition("(")[0],
    "topology_parameters": lambda words: parse_names(words.get("TopologyParam", "")),
    "topology_plugin": lambda words: parse_text_or_none(words.get("TopologyPlugin", "")),
    "version": lambda words: parse_text_or_none(words["SLURM_VERSION"]),
}


def _parse_preempt_type(word: str) -> str | None:
    """Return the preemption plugin, or None if there is none.

    Releases before 23.11 print "preempt/none".
    """
    return None if word == "preempt/none" else parse_text_or_none(word)


def parse_controller_config(printed: str) -> SlurmConfig:
    """Return the configuration in the output of `scontrol show config`.

    Raise `UnreadableOutput` if a setting is unreadable.
    """
    values = parse_config(printed)
    settings: dict[str, Any] = {}
    for name, parse in _CONFIG_FIELD_PARSERS.items():
        try:
            settings[name] = parse(values)
        except (KeyError, ValueError, IndexError) as error:
            raise UnreadableOutput(
                f"scontrol show config: {name} cannot be read: {type(error).__name__}: {error}"
            ) from error
    return SlurmConfig(**settings)


def parse_release(version: str) -> tuple[int, ...]:
    """Return a version's release as numbers, or () for any other text.

    Example: (26, 5) for "26.05.5".
    """
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def parse_maintenance_release(version: str) -> tuple[int, ...]:
    """Return a version as numbers, such as (26, 5, 2) for "26.05.2-1"."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
