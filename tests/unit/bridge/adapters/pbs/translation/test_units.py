from fractions import Fraction

import pytest

from cpsched_bridge.adapters.pbs.translation.units import amount, duration_s, size_bytes, time_s


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("5", 5),
        ("5b", 5),
        ("2kb", 2048),
        ("3MB", 3 << 20),
        ("1gb", 1 << 30),
        ("1tb", 1 << 40),
        ("2w", 16),
        ("1kw", 8192),
    ],
)
def test_sizes_are_in_bytes_and_a_word_has_eight(text, bytes_):
    assert size_bytes(text) == bytes_


@pytest.mark.parametrize("text", ["", "kb", "-1kb", "1.5gb", "1xb", "1kbb", "１kb", "1" * 19 + "kb"])
def test_other_words_are_no_sizes(text):
    with pytest.raises(ValueError, match="is no size"):
        size_bytes(text)


def test_an_amount_is_a_size_in_mebibytes_or_a_number():
    assert amount("512kb", True) == Fraction(1, 2)
    assert amount("2.5", False) == Fraction(5, 2)
    with pytest.raises(ValueError, match="is no number"):
        amount("2gb", False)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("30:00", 1800), ("01:02:03", 3723), ("100:00:00", 360_000)])
def test_durations_are_in_seconds(text, seconds):
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "1:2:3:4", "-5", "1h", "00:00:xx"])
def test_other_words_are_no_durations(text):
    with pytest.raises(ValueError, match="is no duration"):
        duration_s(text)


def test_times_are_unix_time():
    assert time_s("1795426890") == 1_795_426_890
    assert time_s("Thu Jan  1 00:01:05 1970") == 65
    with pytest.raises(ValueError):  # noqa: PT011
        time_s("tomorrow")
