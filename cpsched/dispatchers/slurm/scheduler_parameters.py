"""Define and parse the modelled `SchedulerParameters` in slurm.conf.

Names, units, bounds and defaults follow slurm.conf(5) and the functions that read the parameters: `_load_config` in
`backfill.c` and `_schedule` in `job_scheduler.c`. They are the same in 22.05, 24.11 and 26.05.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from cpsched.errors import InvalidValue, UnknownName, require
from cpsched.slurm_text.option_lists import OptionList, OptionRemark, parse_config

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
        for name in BOUNDS:
            value = getattr(self, name)
            require(_is_in_bounds(name, value), name, value, _allowed_range_text(name))

    @property
    def full_pass_interval_s(self) -> int:
        """Time in seconds between two passes through the whole queue: slurmctld looks at the clock once a second."""
        return max(1, self.sched_interval)

    @property
    def backfill_table_size(self) -> int:
        """Size of backfill's table of times."""
        return self.bf_max_job_test if self.bf_node_space_size is None else self.bf_node_space_size


BOUNDS: dict[str, tuple[int, int]] = {
    "batch_sched_delay": (0, _MAX_INT),
    "bf_interval": (1, 10_800),
    "bf_job_part_count_reserve": (0, 100_000),
    "bf_max_job_assoc": (0, _MAX_INT),
    "bf_max_job_part": (0, _MAX_INT),
    "bf_max_job_start": (0, 10_000),
    "bf_max_job_test": (1, 1_000_000),
    "bf_max_job_user": (0, _MAX_INT),
    "bf_max_job_user_part": (0, _MAX_INT),
    "bf_min_age_reserve": (0, 30 * _DAY_S),
    "bf_min_prio_reserve": (0, 2**32 - 1),
    "bf_node_space_size": (2, 2_000_000),
    "bf_resolution": (1, 3600),
    "bf_window": (1, 30 * 1440),
    "default_queue_depth": (0, _MAX_INT),
    "partition_job_depth": (0, _MAX_INT),
    "sched_interval": (0, _MAX_INT),
    "sched_max_job_start": (0, _MAX_INT),
    "sched_min_interval": (0, _MAX_INT),
}
"""Minimum and maximum value of each numeric parameter. Beyond them, Slurm uses the default."""

_CAN_BE_DISABLED = ("bf_interval", "sched_interval")
FLAGS = tuple(each.name for each in fields(SchedulerParameters) if each.name not in BOUNDS)

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
    "disable_hetero_steps", "disable_hetjob_steps", "disable_job_shrink", "enable_hetjob_steps",
    "enable_job_state_cache", "enable_user_top", "ignore_constraint_validation", "ignore_numa",
    "jobs_per_user_per_hour", "max_array_tasks", "max_rpc_cnt", "max_rpc_count",
    "max_sched_time", "max_script_size", "max_submit_line_size", "no_backup_scheduling", "no_env_cache",
    "preempt_reorder_count", "preempt_strict_order", "preempt_youngest_first", "requeue_setup_env_fail",
    "salloc_wait_nodes", "sbatch_wait_nodes", "step_retry_count", "step_retry_time",
    "whole_hetjob", "whole_pack",
)  # fmt: skip
"""Parameters that concern only slurmctld's load, submission or execution, or that a policy file gives.

In the model, passes take no time. `preempt_*` are read by `cpsched.slurm_text.preemption.parse_victim_order`.
"""


@dataclass(frozen=True, slots=True)
class ParsedSchedulerParameters:
    """The modelled parameters, the names of other given parameters, and what Slurm ignores or replaces."""

    parameters: SchedulerParameters
    not_modelled: tuple[str, ...] = ()
    remarks: tuple[OptionRemark, ...] = ()


def read_scheduler_parameters(text: str) -> ParsedSchedulerParameters:
    """Read a value of `SchedulerParameters` as slurmctld does, which rejects nothing."""
    options = OptionList(text)
    names = {name for name, _ in options.list_words()}
    remarks = list(options.list_remarks(FLAGS, tuple(BOUNDS), (*NOT_MODELLED, *WITHOUT_EFFECT)))
    given: dict[str, Any] = {name: options.has(name) for name in FLAGS}
    given["defer"] = given["defer"] and not given["defer_batch"]  # Slurm tests the longer name first
    for name in BOUNDS:
        value = options.find_int(name, bits=64 if name == "bf_min_prio_reserve" else 32)
        if value is None:
            continue
        if _is_in_bounds(name, value):
            given[name] = value
        else:
            default = "bf_max_job_test" if name == "bf_node_space_size" else getattr(SchedulerParameters(), name)
            remarks.append(OptionRemark("out of bounds", name, str(value), f"its default, {default}"))
    return ParsedSchedulerParameters(
        SchedulerParameters(**given), tuple(name for name in NOT_MODELLED if name in names), tuple(remarks)
    )


def check_scheduler_parameters(text: str) -> None:
    """Check a value of `SchedulerParameters` that a user typed.

    Raise `UnknownName` for a name that is not a Slurm parameter, and `InvalidValue` for anything else that Slurm would
    ignore or replace.
    """
    for remark in read_scheduler_parameters(text).remarks:
        if remark.kind == "unknown":
            raise UnknownName(
                "SchedulerParameters option", remark.name, (*FLAGS, *BOUNDS, *NOT_MODELLED, *WITHOUT_EFFECT)
            )
        rules = {"repeated": "is given twice", "excess value": "takes no value"}
        raise InvalidValue(remark.name, remark.value, rules.get(remark.kind) or _allowed_range_text(remark.name))


def scheduler_parameters_of_config(text: str) -> str:
    """Return `SchedulerParameters` from `scontrol show config` output or a slurm.conf.

    Raise `InvalidValue` if the text is neither, or if it selects a scheduler other than backfill.
    """
    config = {name.lower(): value for name, value in parse_config(text).items()}
    known = config.keys() & {"schedulerparameters", "schedulertype", "clustername"}
    require(bool(known), "config_file", text[:40], "must be the output of `scontrol show config` or a slurm.conf")
    kind = config.get("schedulertype", "sched/backfill")
    require(kind == "sched/backfill", "SchedulerType", kind, "must be sched/backfill, the only modelled scheduler")
    return config.get("schedulerparameters", "")


def merge_scheduler_parameters(text: str, given: str) -> str:
    """Return `text` with the parameters in `given` replaced or added. Slurm reads the first of a name.

    >>> merge_scheduler_parameters("bf_interval=60,defer,bf_window=2880", "BF_Interval=30")
    'BF_Interval=30,defer,bf_window=2880'
    """
    names = {name for name, _ in OptionList(given).list_words()}
    words = [word for word in text.split(",") if word.strip() and word.partition("=")[0].strip().lower() not in names]
    return ",".join(filter(None, [given, *words]))


def _is_in_bounds(name: str, value: int | None) -> bool:
    least, most = BOUNDS[name]
    return value is None or least <= value <= most or (value == DISABLED and name in _CAN_BE_DISABLED)


def _allowed_range_text(name: str) -> str:
    least, most = BOUNDS[name]
    return f"must be a whole number from {least:,} to {most:,}" + (
        ", or -1 to disable" if name in _CAN_BE_DISABLED else ""
    )
