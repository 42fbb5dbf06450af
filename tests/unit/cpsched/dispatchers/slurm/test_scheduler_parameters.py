"""What a text of SchedulerParameters says, and what it may not say."""

import pytest

from cpsched.dispatchers.slurm.scheduler_parameters import (
    BOUNDS,
    NO_EFFECT,
    NOT_MODELLED,
    SchedulerParameters,
    merge_parameters,
    parameters_of_config,
    parse_parameters,
)
from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmDispatcher
from cpsched.errors import InvalidValue, UnknownName

CONFIG = """
Configuration data as of 2026-11-22T20:00:00
ClusterName             = lab
SchedulerParameters     = bf_interval=5,defer
SchedulerTimeSlice      = 30 sec
SchedulerType           = sched/backfill
"""


def test_nothing_said_is_slurms_own_defaults():
    found = parse_parameters("")
    assert found.parameters == SchedulerParameters()
    assert found.parameters.records == 500
    assert found.not_modelled == ()


def test_numbers_and_flags_are_read_in_any_case_and_with_blanks():
    found = parse_parameters(" BF_Interval=45, defer,bf_max_job_test=9 ,bf_node_space_size=7").parameters
    assert (found.bf_interval, found.defer, found.bf_max_job_test, found.records) == (45, True, 9, 7)


def test_the_table_of_times_is_as_large_as_the_number_of_tests():
    assert parse_parameters("bf_max_job_test=9").parameters.records == 9


def test_what_slurm_knows_and_the_twin_does_not_is_told():
    found = parse_parameters("bf_licenses,bf_yield_interval=100,bf_interval=5")
    assert found.not_modelled == ("bf_licenses",)
    assert found.parameters.bf_interval == 5


def test_an_unknown_name_is_refused_by_name():
    with pytest.raises(UnknownName, match=r"bf_intervall.*did you mean 'bf_interval'"):
        parse_parameters("bf_intervall=5")


@pytest.mark.parametrize("name", list(BOUNDS))
def test_a_number_outside_of_its_bounds_is_refused_by_name(name):
    least, most = BOUNDS[name]
    for value in (least - 1, most + 1, "x", "", "1.5"):
        with pytest.raises(InvalidValue, match=name):
            parse_parameters(f"{name}={value}")
    for value in (least, most):
        assert getattr(parse_parameters(f"{name}={value}").parameters, name) == value


@pytest.mark.parametrize("name", ["bf_interval", "sched_interval"])
def test_a_loop_may_be_switched_off(name):
    assert getattr(parse_parameters(f"{name}=-1").parameters, name) == -1


@pytest.mark.parametrize("text", ["defer=1", "bf_interval=5,bf_interval=6", "bf_interval", "bf_interval=0"])
def test_what_slurm_would_not_take_is_refused(text):
    with pytest.raises(InvalidValue, match=text.split("=", maxsplit=1)[0]):
        parse_parameters(text)


def test_given_parameters_replace_those_of_the_same_name_alone():
    assert (
        merge_parameters("bf_interval=60,,defer,bf_window=2880", "BF_Interval=30 ,defer")
        == "bf_window=2880,BF_Interval=30 ,defer"
    )
    assert merge_parameters("", "defer") == "defer"


def test_no_name_is_in_two_lists():
    assert not set(NOT_MODELLED) & set(NO_EFFECT)
    assert not {*NOT_MODELLED, *NO_EFFECT} & set(SchedulerParameters.__dataclass_fields__)


def test_the_configuration_is_read_as_scontrol_prints_it():
    assert parameters_of_config(CONFIG) == "bf_interval=5,defer"
    assert parameters_of_config(CONFIG.replace("bf_interval=5,defer", "(null)")) == ""
    assert parameters_of_config("SchedulerType=sched/backfill\nSchedulerParameters=defer") == "defer"
    assert SlurmDispatcher(config=CONFIG).read.parameters.bf_interval == 5


@pytest.mark.parametrize(
    ("text", "names"),
    [("hello", "config_file"), (CONFIG.replace("sched/backfill", "sched/builtin"), "SchedulerType")],
)
def test_a_file_that_is_no_configuration_of_backfill_is_refused(text, names):
    with pytest.raises(InvalidValue, match=names):
        parameters_of_config(text)


def test_a_file_beside_parameters_is_refused():
    with pytest.raises(InvalidValue, match="config_file"):
        SlurmDispatcher("defer", config=CONFIG)
