"""Times, durations, amounts and numbers as readable text."""

import pytest

from cpsched import formatting as f


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (90, "1 min 30 s"), (7500, "2 h 05 min"), (90000, "1 d 1 h"),
        (-5, "-5 s"), (-0.3, "0 s"), (-130, "-2 min 10 s"),
    ],
)  # fmt: skip
def test_duration_has_its_two_largest_units(seconds, words):
    assert f.format_duration(seconds) == words


@pytest.mark.parametrize(
    ("at_s", "words"),
    [
        (1_795_274_468, "2026-11-21 15:21:08 UTC"), (90_061, "day 1, 01:01:01"), (40_000, "day 0, 11:06:40"),
        (-61, "-day 0, 00:01:01"), (253_402_300_799, "9999-12-31 23:59:59 UTC"),
        (253_402_300_800, "after the year 9999"), (2**63 - 1, "after the year 9999"),
    ],
)  # fmt: skip
def test_time_is_date_or_day_of_simulation(at_s, words):
    assert f.format_cluster_time(at_s) == words


def test_unix_time_outside_calendar_has_text():
    """`sbatch --begin` has no bound, and a text that cannot be made would end the cycle."""
    assert [f.format_unix_time(at_s) for at_s in (-1, 0, float(2**63))] == [
        "before the year 1970", "1970-01-01 00:00:00", "after the year 9999",
    ]  # fmt: skip


def test_formats_planned_time_relative_to_now():
    assert [f.format_relative_time(at_s, 100) for at_s in (100, 160, 40)] == ["now", "in 1 min", "1 min ago"]
    assert [f.format_planned_time(at_s, 100) for at_s in (40, 100, 160)] == ["now", "now", "in 1 min"]


def test_formats_change_of_expected_start():
    assert [f.format_start_change(at_s, 100) for at_s in (160, 40)] == ["1 min later", "1 min earlier"]
    assert f.format_start_change(100, 100) == f.format_start_change(None, 100) == f.format_start_change(100, None) == ""


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("memory_mib", 1_048_576, "1,024 GiB"), ("memory_mib", 1_536, "1.5 GiB"), ("memory_mib", 1023, "1,023 MiB"),
        ("memory_mib", 0, "0 GiB"), ("memory_gib", 256, "256 GiB"), ("cores", 4164, "4,164"),
        ("memory_mib", 153_601, "150 GiB"),
    ],
)  # fmt: skip
def test_formats_memory_in_gib(name, value, words):
    assert f.format_amount(name, value) == words


def test_formats_resource_names():
    assert [f.resource_label(name) for name in ("memory_mib", "gpus", "gpu:a100", "gres/gpu", "cores", "fpga")] == [
        "memory", "GPUs", "GPUs (a100)", "GPUs", "cores", "fpga",
    ]  # fmt: skip
    assert [f.format_quantity("gpu:a100", 1), f.format_quantity("cores", 1608)] == ["1 GPU (a100)", "1,608 cores"]


def test_formats_plurals():
    assert [f.format_count(0, "node"), f.format_count(1, "node"), f.format_count(1608, "node")] == [
        "0 nodes",
        "1 node",
        "1,608 nodes",
    ]
    assert [f.format_count(1, "entry", "entries"), f.format_count(2, "entry", "entries")] == ["1 entry", "2 entries"]


def test_formats_queue_positions():
    assert [f.format_ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 112, 1608)] == [
        "first", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th", "1,608th",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "five", "three"),
    [
        (92.6881, "92.688", "92.7"), (15694.3, "15,694", "15.7k"), (99999.4, "99,999", "100k"),
        (1060430.2, "1,060,430", "1.06M"),
    ],
)  # fmt: skip
def test_formats_numbers_with_five_or_three_digits(value, five, three):
    assert (f.format_number(value), f.format_short_number(value)) == (five, three)


def test_missing_value_is_dash():
    assert [
        f.format_short_number(None),
        f.format_with_unit(None, "s"),
        f.format_difference(None, "s"),
        f.format_percent(None),
    ] == ["-", "-", "-", ""]
    assert f.format_difference_range(None, "s") == "none"


def test_measured_values_have_units():
    measured = [f.format_with_unit(7320, "s"), f.format_with_unit(12.34, "%"), f.format_with_unit(1234.56, "")]
    assert measured == ["2 h 02 min", "12.3 %", "1,235"]
    assert [f.format_percent(0.126), f.format_percent(0.126, 1), f.format_milliseconds(0.00123)] == [
        "13 %",
        "12.6 %",
        "1.2 ms",
    ]


def test_differences_have_sign_unless_zero():
    assert [f.format_difference(value, "s") for value in (90, -90, 0.2, -0.2)] == [
        "+1 min 30 s",
        "-1 min 30 s",
        "0 s",
        "0 s",
    ]
    assert f.format_difference_range((-5, 0.5), "%") == "-5.0 % to +0.5 %"
