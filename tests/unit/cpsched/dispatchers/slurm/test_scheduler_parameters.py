"""Parsing SchedulerParameters, and rejecting invalid text."""

import pytest

from cpsched.dispatchers.slurm.scheduler_parameters import (
    BOUNDS,
    NOT_MODELLED,
    WITHOUT_EFFECT,
    SchedulerParameters,
    check_scheduler_parameters,
    merge_scheduler_parameters,
    read_scheduler_parameters,
    scheduler_parameters_of_config,
)
from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher
from cpsched.errors import InvalidValue, UnknownName

CONFIG = """
Configuration data as of 2026-11-22T20:00:00
ClusterName             = lab
SchedulerParameters     = bf_interval=5,defer
SchedulerTimeSlice      = 30 sec
SchedulerType           = sched/backfill
"""


@pytest.mark.parametrize(
    ("text", "values", "table_size", "not_modelled"),
    [
        ("", {}, 500, ()),
        (" BF_Interval=45, defer,bf_max_job_test=9 ,bf_node_space_size=7",
         {"bf_interval": 45, "defer": True, "bf_max_job_test": 9, "bf_node_space_size": 7}, 7, ()),
        ("bf_max_job_test=9", {"bf_max_job_test": 9}, 9, ()),
        ("defer_batch", {"defer_batch": True}, 500, ()),
        ("bf_licenses,bf_yield_interval=100,bf_interval=5", {"bf_interval": 5}, 500, ("bf_licenses",)),
    ],
)  # fmt: skip
def test_reads_parameters_or_slurm_defaults(text, values, table_size, not_modelled):
    found = read_scheduler_parameters(text)
    assert (found.parameters, found.not_modelled) == (SchedulerParameters(**values), not_modelled)
    assert found.parameters.backfill_table_size == table_size


def test_rejects_unknown_parameter_that_a_user_typed():
    with pytest.raises(UnknownName, match=r"bf_intervall.*did you mean 'bf_interval'"):
        check_scheduler_parameters("bf_intervall=5")


@pytest.mark.parametrize("name", list(BOUNDS))
def test_uses_default_for_number_out_of_bounds(name):
    least, most = BOUNDS[name]
    for value in (least - 1 - (least == 0 and name == "sched_interval"), most + 1):
        with pytest.raises(InvalidValue, match=name):
            check_scheduler_parameters(f"{name}={value}")
        used = getattr(read_scheduler_parameters(f"{name}={value}").parameters, name)
        assert used == getattr(SchedulerParameters(), name)
    for value in (least, most):
        check_scheduler_parameters(f"{name}={value}")
        assert getattr(read_scheduler_parameters(f"{name}={value}").parameters, name) == value


@pytest.mark.parametrize("name", ["bf_interval", "sched_interval"])
def test_loop_may_be_disabled(name):
    assert getattr(read_scheduler_parameters(f"{name}=-1").parameters, name) == -1


@pytest.mark.parametrize(
    "text", ["defer=1", "bf_interval=5,bf_interval=6", "bf_interval", "bf_interval=0", "bf_interval=x", "bf_window=1.5"]
)
def test_rejects_typed_text_that_slurm_reads_otherwise(text):
    with pytest.raises(InvalidValue, match=text.split("=", maxsplit=1)[0]):
        check_scheduler_parameters(text)


def test_reads_text_of_running_cluster_as_slurm_does():
    """Each line of the list is one option of a site; Slurm 26.05 starts with all of them."""
    found = read_scheduler_parameters(
        "kill_invalid_depend,default_gbytes,bf_window=86400,bf_interval=45,bf_interval=50,defer=yes,"
        "batch_sched_delay=3s,bf_resolution=,bf_max_job_user=7;bf_max_job_start=9,bf_max_job_test"
    )
    assert found.parameters == SchedulerParameters(
        bf_interval=45, defer=True, batch_sched_delay=3, bf_max_job_user=7, bf_max_job_start=9
    )
    assert [str(remark) for remark in found.remarks] == [
        "kill_invalid_depend is unknown here, and Slurm ignores unknown options",
        "default_gbytes is unknown here, and Slurm ignores unknown options",
        "bf_interval is set more than once; Slurm reads the first one",
        "defer=yes: the option takes no value; Slurm ignores the value, and the option is set",
        "batch_sched_delay=3s: Slurm reads 3",
        "bf_resolution=: Slurm reads 0",
        "bf_max_job_user=7;bf_max_job_start=9: Slurm reads 7",
        "bf_max_job_test has no value, so Slurm ignores it",
        "bf_resolution=0 is out of bounds; Slurm uses its default, 60",
        "bf_window=86400 is out of bounds; Slurm uses its default, 1440",
    ]


def test_typed_parameters_override_those_of_file():
    config = CONFIG.replace("bf_interval=5,defer", "bf_interval=5;bf_window=9,defer,bf_resolution=7")
    found = SlurmTwinDispatcher("BF_Interval=30 ,bf_window=11", config=config).read.parameters
    assert found == SchedulerParameters(bf_interval=30, bf_window=11, defer=True, bf_resolution=7)
    assert merge_scheduler_parameters("", "defer") == "defer"


def test_parameter_lists_are_disjoint():
    assert not set(NOT_MODELLED) & set(WITHOUT_EFFECT)
    assert not {*NOT_MODELLED, *WITHOUT_EFFECT} & set(SchedulerParameters.__dataclass_fields__)


def test_reads_scontrol_configuration():
    texts = (
        CONFIG,
        CONFIG.replace("bf_interval=5,defer", "(null)"),
        "SchedulerType=sched/backfill\nSchedulerParameters=defer",
    )
    assert list(map(scheduler_parameters_of_config, texts)) == ["bf_interval=5,defer", "", "defer"]
    assert SlurmTwinDispatcher(config=CONFIG).read.parameters.bf_interval == 5


@pytest.mark.parametrize(
    ("text", "names"),
    [("hello", "config_file"), (CONFIG.replace("sched/backfill", "sched/builtin"), "SchedulerType")],
)
def test_rejects_file_without_backfill_configuration(text, names):
    with pytest.raises(InvalidValue, match=names):
        scheduler_parameters_of_config(text)
