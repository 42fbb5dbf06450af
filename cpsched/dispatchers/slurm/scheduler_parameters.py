"""Define and parse the modelled `SchedulerParameters` in slurm.conf.

Names, units, bounds and defaults follow slurm.conf(5) and the functions that read the parameters: `_load_config` in
`backfill.c` and `_schedule` in `job_scheduler.c`. They are the same in 22.05, 24.11 and 26.05.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from cpsched.errors import InvalidValue, UnknownName, require

DISABLED = -1
"""Value with which Slurm disables a loop."""

_DAY_S = 86_400
_MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SchedulerParameters:
    """The modelled parameters with Slurm's names, units and defaults.

    A value of 0 means no limit where Slurm defines it that way. Each description ends with the Slurm function that the
    model follows. The files are `plugins/sched/backfill/backfill.c` (bf), `slurmctld/job_scheduler.c` (js),
    `slurmctld/job_mgr.c` (jm) and `slurmctld/controller.c` (ctl).
    """

    batch_sched_delay: int = 3
    """Minimum time in seconds between two passes that submissions request. ctl, `_slurmctld_background`."""
    bf_busy_nodes: bool = False
    """Whether reservations prefer nodes that run a job. `cons_tres/job_test.c`."""
    bf_interval: int = 30
    """Time in seconds between two backfill passes, or -1 to disable backfill. bf, `backfill_agent`."""
    bf_job_part_count_reserve: int = 0
    """Maximum number of jobs per partition that get a reservation. bf, `_attempt_backfill`."""
    bf_max_job_assoc: int = 0
    """Maximum number of jobs tested per association, instead of per user. bf, `_job_exceeds_max_bf_param`."""
    bf_max_job_part: int = 0
    """Maximum number of jobs tested per partition. bf, `_job_exceeds_max_bf_param`."""
    bf_max_job_start: int = 0
    """Maximum number of jobs started per pass. bf, `_attempt_backfill`."""
    bf_max_job_test: int = 500
    """Maximum number of jobs tested per pass, not counting jobs excluded by other limits. bf, `_attempt_backfill`."""
    bf_max_job_user: int = 0
    """Maximum number of jobs tested per user. bf, `_job_exceeds_max_bf_param`."""
    bf_max_job_user_part: int = 0
    """Maximum number of jobs tested per user and partition. bf, `_job_exceeds_max_bf_param`."""
    bf_min_age_reserve: int = 0
    """Minimum age in seconds at which a job gets a reservation and blocks the main loop. bf, js."""
    bf_min_prio_reserve: int = 0
    """Minimum priority at which a job gets a reservation and blocks the main loop. bf, js."""
    bf_node_space_size: int | None = None
    """Size of the table of times that reservations fill (default: `bf_max_job_test`). bf, `_add_reservation`."""
    bf_resolution: int = 60
    """Multiple in seconds to which reservations are extended at both ends. bf, `_set_slot_time`."""
    bf_window: int = 1440
    """Maximum time in minutes from now to the start of a reservation. bf, `_attempt_backfill`."""
    default_queue_depth: int = 100
    """One less than the number of jobs, including blocked jobs, that the main loop tests. js, `_schedule`."""
    defer: bool = False
    """Whether jobs are not tried at submission. If so, job ends request passes like submissions. jm, `job_allocate`."""
    defer_batch: bool = False
    """Whether jobs are not tried at submission. 22.05 lacks this parameter. jm, `job_allocate`."""
    partition_job_depth: int = 0
    """Maximum number of jobs per partition that the main loop tests. js, `_schedule`."""
    sched_interval: int = 60
    """Time in seconds between two passes through the whole queue, or -1 to try jobs only at submission. ctl, js."""
    sched_max_job_start: int = 0
    """Maximum number of jobs started per run of the main loop. js, `_schedule`."""
    sched_min_interval: int = 2
    """Minimum time in microseconds between runs of the main loop (no effect below 1 s). js, `_sched_agent`."""

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name)
            inside = value is None or least <= value <= most or (value == DISABLED and name in _CAN_BE_DISABLED)
            require(inside, name, value, _allowed_range_text(name))

    @property
    def backfill_table_size(self) -> int:
        """Size of backfill's table of times."""
        return self.bf_max_job_test if self.bf_node_space_size is None else self.bf_node_space_size


BOUNDS: dict[str, tuple[int, int]] = {
    "batch_sched_delay": (0, _MAX_INT),
    "bf_interval": (1, 10_800),
    "bf_job_part_count_reserve": (0, 100_000),
    "bf_max_job_assoc": (0, 1_000_000),
    "bf_max_job_part": (0, 1_000_000),
    "bf_max_job_start": (0, 10_000),
    "bf_max_job_test": (1, 1_000_000),
    "bf_max_job_user": (0, 1_000_000),
    "bf_max_job_user_part": (0, 1_000_000),
    "bf_min_age_reserve": (0, 30 * _DAY_S),
    "bf_min_prio_reserve": (0, 2**32 - 1),
    "bf_node_space_size": (2, 2_000_000),
    "bf_resolution": (1, 3600),
    "bf_window": (1, 30 * 1440),
    "default_queue_depth": (0, _MAX_INT),
    "partition_job_depth": (0, _MAX_INT),
    "sched_interval": (1, _MAX_INT),
    "sched_max_job_start": (0, _MAX_INT),
    "sched_min_interval": (0, _MAX_INT),
}
"""Minimum and maximum value of each numeric parameter."""

_CAN_BE_DISABLED = ("bf_interval", "sched_interval")
_FLAGS = tuple(each.name for each in fields(SchedulerParameters) if each.name not in BOUNDS)

NOT_MODELLED = (
    "assoc_limit_stop", "bf_allow_magnetic_slot", "bf_hetjob_immediate", "bf_hetjob_prio", "bf_licenses",
    "bf_max_job_array_resv", "bf_one_resv_per_job", "bf_running_job_reserve", "bf_topopt_enable",
    "bf_topopt_iterations", "bf_window_linear", "delay_boot", "extra_constraints", "ignore_prefer_validation",
    "max_switch_wait", "nohold_on_prolog_fail", "pack_serial_at_end", "reduce_completing_frag",
    "requeue_delay", "requeue_on_resume_failure", "spec_cores_first", "time_min_as_soft_limit",
)  # fmt: skip
"""Parameters that can change starts but are not modelled."""

WITHOUT_EFFECT = (
    "allow_zero_lic", "bb_array_stage_cnt", "bf_continue", "bf_max_time", "bf_yield_interval", "bf_yield_rpc_cnt",
    "bf_yield_rpc_count", "bf_yield_sleep", "build_queue_timeout", "correspond_after_task_cnt",
    "disable_hetjob_steps", "disable_job_shrink", "enable_hetjob_steps", "enable_job_state_cache", "enable_user_top",
    "ignore_constraint_validation", "ignore_numa", "max_array_tasks", "max_rpc_cnt", "max_rpc_count",
    "max_sched_time", "max_script_size", "max_submit_line_size", "no_backup_scheduling", "no_env_cache",
    "preempt_reorder_count", "preempt_strict_order", "preempt_youngest_first", "requeue_setup_env_fail",
    "salloc_wait_nodes", "sbatch_wait_nodes", "step_retry_count", "step_retry_time",
    "whole_hetjob", "whole_pack",
)  # fmt: skip
"""Parameters that concern only slurmctld's load, submission or execution, or that a policy file gives.

In the model, passes take no time. `preempt_*` are read by `cpsched.site.slurm_victims.parse_victim_order`.
"""


@dataclass(frozen=True, slots=True)
class ParsedSchedulerParameters:
    """The modelled parameters, and the names of other given parameters."""

    parameters: SchedulerParameters
    not_modelled: tuple[str, ...] = ()


def parse_scheduler_parameters(text: str) -> ParsedSchedulerParameters:
    """Parse a value of `SchedulerParameters`, in which names are case-insensitive.

    Raise `UnknownName` for a name that is not a Slurm parameter, and `InvalidValue` for a value that is out of bounds.
    For such values, Slurm logs an error and uses the default.
    """
    given: dict[str, Any] = {}
    not_modelled: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in word.partition("="))
        name = name.lower()
        if name in NOT_MODELLED:
            not_modelled.append(name)
        elif name in WITHOUT_EFFECT:
            continue
        elif name in _FLAGS:
            require(not equals, name, value, "takes no value")
            given[name] = True
        elif name in BOUNDS:
            require(name not in given, name, value, "is given twice")
            given[name] = _parse_parameter_number(name, value)
        else:
            raise UnknownName("SchedulerParameters option", name, (*_FLAGS, *BOUNDS, *NOT_MODELLED, *WITHOUT_EFFECT))
    return ParsedSchedulerParameters(SchedulerParameters(**given), tuple(not_modelled))


def scheduler_parameters_of_config(text: str) -> str:
    """Return `SchedulerParameters` from `scontrol show config` output or a slurm.conf.

    Raise `InvalidValue` if the text is neither, or if it selects a scheduler other than backfill.
    """
    found = dict(re.findall(r"(?mi)^\s*(SchedulerParameters|SchedulerType|ClusterName)\s*=\s*(.*?)\s*$", text))
    known = {name.lower(): value for name, value in found.items()}
    require(bool(known), "config_file", text[:40], "must be the output of `scontrol show config` or a slurm.conf")
    kind = known.get("schedulertype", "sched/backfill")
    require(kind == "sched/backfill", "SchedulerType", kind, "must be sched/backfill, the only modelled scheduler")
    value = known.get("schedulerparameters", "")
    return "" if value == "(null)" else value


def merge_scheduler_parameters(text: str, given: str) -> str:
    """Return `text` with the parameters in `given` replaced or added.

    >>> merge_scheduler_parameters("bf_interval=60,defer,bf_window=2880", "BF_Interval=30")
    'defer,bf_window=2880,BF_Interval=30'
    """
    names = {_parameter_name(word) for word in given.split(",")}
    return ",".join([*(word for word in text.split(",") if word.strip() and _parameter_name(word) not in names), given])


def _parameter_name(word: str) -> str:
    return word.partition("=")[0].strip().lower()


def _parse_parameter_number(name: str, value: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", value):
        raise InvalidValue(name, value, _allowed_range_text(name))
    return int(value)


def _allowed_range_text(name: str) -> str:
    least, most = BOUNDS[name]
    return f"must be a whole number from {least:,} to {most:,}" + (
        ", or -1 to disable" if name in _CAN_BE_DISABLED else ""
    )
