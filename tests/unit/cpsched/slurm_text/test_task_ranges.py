"""Array indices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.slurm_text.task_ranges import format_ranges, parse_task_ranges


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
