"""Array indices, and the last checkpoint in a job's comment, whatever users write there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.slurm_text.jobs import format_ranges, last_checkpoint_s, parse_task_ranges


def tasks(waiting: str | None) -> list[int]:
    return [task for some in parse_task_ranges(waiting) for task in some]


def test_array_indices_may_have_steps() -> None:
    assert tasks("0-2,7,10-20:5") == [0, 1, 2, 7, 10, 15, 20]
    assert tasks(None) == []


@pytest.mark.parametrize("text", ["0-99999999999", str(2**70), "1-x", "0-4:0", "-5", "1-5:-1", "0-3,..."])
def test_rejects_invalid_array_indices(text: str) -> None:
    with pytest.raises(ValueError, match=r"array task|int|arg 3"):
        tasks(text)


def test_huge_array_stays_range() -> None:
    assert parse_task_ranges(f"0-{2**22}") == (range(2**22 + 1),)


@given(st.sets(st.integers(0, 300)))
def test_formatted_ranges_parse_to_same_tasks(numbers: set[int]) -> None:
    assert set(tasks(format_ranges(list(numbers)))) == numbers


START_S, NOW_S = 1000, 2000


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("", None),
        ("checkpoint=1500", 1500),
        ("run 7\ncheckpoint=1500\nnotes", 1500),
        ("checkpoint=1500 cpsched:wait", 1500),
        ("checkpoint=1900\ncheckpoint=1100", 1900),
        ("checkpoint=1000", 1000),
        ("checkpoint=999", None),  # before the start
        ("checkpoint=2000", 2000),
        ("checkpoint=2001", None),  # in the future
        ("checkpoint=9999999\ncheckpoint=1200", 1200),
        ("checkpoint=-1500", None),
        ("checkpoint=1500.5", None),
        ("checkpoint=0x5dc", None),
        ("checkpoint= 1500", None),
        ("checkpoint=\u0661\u0665\u0660\u0660", None),  # digits that int() reads
        ("nocheckpoint=1500", None),
        ("checkpoint=" + "1" * 100_000, None),  # more digits than int() reads
        ("checkpoint=1500 " * 100_000, 1500),
    ],
)
def test_reads_only_plausible_times(comment, expected):
    assert last_checkpoint_s(comment, START_S, NOW_S) == expected
