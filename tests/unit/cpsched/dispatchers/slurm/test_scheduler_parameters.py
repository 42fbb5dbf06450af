"""Parsing SchedulerParameters, and rejecting invalid text."""

import pytest

from cpsched.dispatchers.slurm.scheduler_parameters import (
    BOUNDS,
    NOT_MODELLED,
    WITHOUT_EFFECT,
    SchedulerParameters,
    merge_scheduler_parameters,
    parse_scheduler_parameters,
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


def test_defaults_are_those_of_slurm():
    found = parse_scheduler_parameters("")
    assert found.parameters == SchedulerParameters()
    assert found.parameters.backfill_table_size == 500
    assert found.not_modelled == ()


def test_parses_numbers_and_flags_in_any_case():
    found = parse_scheduler_parameters(" BF_Interval=45, defer,bf_max_job_test=9 ,bf_node_space_size=7").parameters
    assert (found.bf_interval, found.defer, found.bf_max_job_test, found.backfill_table_size) == (45, True, 9, 7)


def test_table_size_equals_job_test_limit():
    assert parse_scheduler_parameters("bf_max_job_test=9").parameters.backfill_table_size == 9


def test_reports_known_but_unmodelled_parameter():
    found = parse_scheduler_parameters("bf_licenses,bf_yield_interval=100,bf_interval=5")
    assert found.not_modelled == ("bf_licenses",)
    assert found.parameters.bf_interval == 5


def test_rejects_unknown_parameter_with_suggestion():
    with pytest.raises(UnknownName, match=r"bf_intervall.*did you mean 'bf_interval'"):
        parse_scheduler_parameters("bf_intervall=5")


@pytest.mark.parametrize("name", list(BOUNDS))
def test_rejects_number_out_of_range(name):
    least, most = BOUNDS[name]
    for value in (least - 1, most + 1, "x", "", "1.5"):
        with pytest.raises(InvalidValue, match=name):
            parse_scheduler_parameters(f"{name}={value}")
    for value in (least, most):
        assert getattr(parse_scheduler_parameters(f"{name}={value}").parameters, name) == value


@pytest.mark.parametrize("name", ["bf_interval", "sched_interval"])
def test_loop_may_be_disabled(name):
    assert getattr(parse_scheduler_parameters(f"{name}=-1").parameters, name) == -1


@pytest.mark.parametrize("text", ["defer=1", "bf_interval=5,bf_interval=6", "bf_interval", "bf_interval=0"])
def test_rejects_what_slurm_rejects(text):
    with pytest.raises(InvalidValue, match=text.split("=", maxsplit=1)[0]):
        parse_scheduler_parameters(text)


def test_given_parameters_replace_only_same_names():
    assert (
        merge_scheduler_parameters("bf_interval=60,,defer,bf_window=2880", "BF_Interval=30 ,defer")
        == "bf_window=2880,BF_Interval=30 ,defer"
    )
    assert merge_scheduler_parameters("", "defer") == "defer"


def test_parameter_lists_are_disjoint():
    assert not set(NOT_MODELLED) & set(WITHOUT_EFFECT)
    assert not {*NOT_MODELLED, *WITHOUT_EFFECT} & set(SchedulerParameters.__dataclass_fields__)


def test_reads_scontrol_configuration():
    assert scheduler_parameters_of_config(CONFIG) == "bf_interval=5,defer"
    assert scheduler_parameters_of_config(CONFIG.replace("bf_interval=5,defer", "(null)")) == ""
    assert scheduler_parameters_of_config("SchedulerType=sched/backfill\nSchedulerParameters=defer") == "defer"
    assert SlurmTwinDispatcher(config=CONFIG).read.parameters.bf_interval == 5


@pytest.mark.parametrize(
    ("text", "names"),
    [("hello", "config_file"), (CONFIG.replace("sched/backfill", "sched/builtin"), "SchedulerType")],
)
def test_rejects_file_without_backfill_configuration(text, names):
    with pytest.raises(InvalidValue, match=names):
        scheduler_parameters_of_config(text)


def test_rejects_file_together_with_parameters():
    with pytest.raises(InvalidValue, match="config_file"):
        SlurmTwinDispatcher("defer", config=CONFIG)
