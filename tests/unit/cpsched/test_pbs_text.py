import pytest

from cpsched.errors import InvalidValue
from cpsched.pbs_text import (
    PbsPlaceDirective,
    PbsSelectChunk,
    parse_duration_s,
    parse_pbs_place,
    parse_pbs_select,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("5", 5), ("5b", 5), ("2kb", 2048), ("3MB", 3 << 20), ("1gb", 1 << 30), ("1tb", 1 << 40), ("2w", 16),
        ("1kw", 8192), (" 1gb\n", 1 << 30),
    ],
)  # fmt: skip
def test_parses_sizes_to_bytes(text, bytes_):
    assert parse_size_bytes(text) == bytes_


@pytest.mark.parametrize("text", ["", "kb", "-1kb", "1.5gb", "1xb", "1kbb", "１kb", "1" * 19 + "kb"])
def test_rejects_invalid_sizes(text):
    with pytest.raises(InvalidValue, match="must be a size"):
        parse_size_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("30:00", 1800), ("01:02:03", 3723), ("100:00:00", 360_000), ("2777777:46:39", 9_999_999_999),
        ("90.25", 90),
    ],
)  # fmt: skip
def test_parses_durations_to_seconds(text, seconds):
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "1:2:3:4", "-5", "1h", "00:00:xx", ":30"])
def test_rejects_invalid_durations(text):
    with pytest.raises(InvalidValue, match="must be a time"):
        parse_duration_s(text)


def test_parses_select_into_chunks():
    assert parse_pbs_select("2:ncpus=4:mem=8gb+ncpus=1+3") == [
        PbsSelectChunk(2, {"ncpus": "4", "mem": "8gb"}), PbsSelectChunk(1, {"ncpus": "1"}), PbsSelectChunk(3, {}),
    ]  # fmt: skip
    quoted = """1:host="a:b+c":ncpus=1"""
    assert parse_pbs_select(quoted) == [PbsSelectChunk(1, {"host": "a:b+c", "ncpus": "1"})], (
        "a quoted value is one word"
    )


@pytest.mark.parametrize(
    "select", ["", "+", "1:ncpus=1+", "1:ncpus", "1::ncpus=1", "1:ncpus=1:ncpus=2", "1:n cpus=1", '1:host="a', ":"]
)
def test_rejects_invalid_select_with_field_and_rule(select):
    with pytest.raises(InvalidValue, match=r"^Resource_List\.select=.*: must be like 2:ncpus=4"):
        parse_pbs_select(select, "Resource_List.select")


def test_errors_truncate_long_text():
    with pytest.raises(InvalidValue) as error:
        parse_pbs_select("x" * 100_000)
    assert len(str(error.value)) < 200


def test_parses_place_into_arrangement_sharing_and_group():
    assert parse_pbs_place("scatter:excl:group=rack") == PbsPlaceDirective("scatter", "excl", "rack")
    assert parse_pbs_place("") == PbsPlaceDirective("free", "", "")
    assert parse_pbs_place("nearby:pack").unknown == ("nearby",)
