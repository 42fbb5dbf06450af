from fractions import Fraction

import pytest

from cpsched_bridge.adapters.pbs.translation.pbs_units import parse_resource_amount, parse_unix_time_s


def test_amount_is_mebibytes_or_number():
    assert parse_resource_amount("512kb", True) == Fraction(1, 2)
    assert parse_resource_amount("2.5", False) == Fraction(5, 2)
    with pytest.raises(ValueError, match="is not a number"):
        parse_resource_amount("2gb", False)


def test_times_are_unix_seconds():
    assert parse_unix_time_s("1795426890") == 1_795_426_890
    assert parse_unix_time_s("Thu Jan  1 00:01:05 1970") == 65
    with pytest.raises(ValueError):  # noqa: PT011
        parse_unix_time_s("tomorrow")
