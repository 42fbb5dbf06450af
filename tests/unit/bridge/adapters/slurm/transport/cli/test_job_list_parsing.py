"""squeue's output format: no text in a job ends a field, and incomplete output is rejected."""

from __future__ import annotations

import pytest

from cpsched_bridge.adapters.slurm.transport.cli import job_list_parsing
from cpsched_bridge.errors import BackendUnavailable

FIELDS, END = job_list_parsing.ALL_COLUMNS[:2], "~w"
BLANK = job_list_parsing.SqueueRow()


def test_command_uses_end_mark_for_fields() -> None:
    command = job_list_parsing.build_squeue_command(FIELDS, END, [9, 3])
    assert (command[-1], command[command.index("--jobs") + 1]) == ("JobID:~w,JobArrayID:~w", "3,9")
    assert {"--all", "--states=all", "--local", "--noheader"} <= set(command)


def test_end_mark_is_new_each_time_and_no_width() -> None:
    words = {job_list_parsing.make_field_terminator() for _ in range(100)}
    assert len(words) == 100
    assert all(word[0] == "~" and not {",", ":", " "} & set(word) for word in words)


def test_keeps_line_breaks_and_separators_in_name() -> None:
    rows = job_list_parsing.CachingSqueueParser(FIELDS).read("1~wa\n2,b~ ~w\n2~w~w\n", END)
    assert [row[:2] for row in rows] == [("1", "a\n2,b~ "), ("2", "")]
    assert job_list_parsing.CachingSqueueParser(FIELDS).read("", END) == []


def test_keeps_leading_line_breaks_in_fields() -> None:
    wide = job_list_parsing.ALL_COLUMNS[:4]
    printed = "1~w\n2~w\n\n~wa~w\n3~w\n~w\n4~w\nb~w\n"
    reading = job_list_parsing.CachingSqueueParser(wide)
    for _ in range(2):
        assert [row[:4] for row in reading.read(printed, END)] == [
            ("1", "\n2", "\n\n", "a"),
            ("3", "\n", "\n4", "\nb"),
        ]


def test_forged_rows_stay_in_own_name() -> None:
    """The forged lines are those of a job that is known from the answer before."""
    reading = job_list_parsing.CachingSqueueParser(FIELDS)
    (known,) = reading.read("2~wb~w\n", END)
    forger, other = reading.read("1~w\n2\0b~w\n2~wb~w\n".replace("\0", "|"), END)
    assert (forger.job_array_id, other) == ("\n2|b", known)


def test_unchanged_row_is_not_parsed_again() -> None:
    """A failed answer keeps the cached rows."""
    reading = job_list_parsing.CachingSqueueParser(FIELDS)
    one, two = reading.read("1~wa~w\n2~wb~w\n", END)
    with pytest.raises(BackendUnavailable):
        reading.read("1~wa~w\n2~w", END)
    again, other = reading.read("1~vwa~vw\n2~vwc~vw\n", "~vw")
    assert (again is one, other.job_array_id, two.job_array_id) == (True, "c", "b")
    assert reading.read("2~wb~w\n", END)[0] is not two


@pytest.mark.parametrize(
    "printed",
    [
        "1~wa~w",
        "1~wa~w\n2~w",
        "1~wa~w\n2~w\n",
        "1~wa~w\n2~wb",
        "error",
        "1~wa~w2~wb~w\n",
        "1~wa~wx\n2~wb~w\n",
        "1~wa\0~w\n",
    ],
)
def test_rejects_incomplete_answer(printed: str) -> None:
    with pytest.raises(BackendUnavailable):
        job_list_parsing.CachingSqueueParser(FIELDS).read(printed, END)


@pytest.mark.parametrize(("job_id", "error"), [("1", "twice"), ("x", "number")])
def test_rejects_duplicate_or_invalid_job_id(job_id: str, error: str) -> None:
    with pytest.raises(BackendUnavailable, match=error):
        job_list_parsing.index_rows_by_job_number([BLANK._replace(job_id=job_id)] * 2)


@pytest.mark.parametrize(("release", "expected"), [((26, 5), True), ((25, 11), False)])
def test_queries_exclusive_field_since_26_05(release: tuple[int, int], expected: bool) -> None:
    assert ("Exclusive" in job_list_parsing.select_squeue_fields(release)) is expected


def test_splits_many_jobs_into_chunks() -> None:
    assert [len(part) for part in job_list_parsing.split_into_query_chunks(range(4500))] == [2000, 2000, 500]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {}, True),
        ({}, {"priority": "9", "reason": "Resources"}, True),
        ({}, {"name": "b"}, False),
        ({"state": "RUNNING"}, {"state": "RUNNING", "priority": "9"}, False),
        ({}, {"state": "RUNNING"}, False),
    ],
)
def test_ignores_changes_that_slurm_makes_to_pending_jobs(
    before: dict[str, str], now: dict[str, str], expected: bool
) -> None:
    row = BLANK._replace(state="PENDING", reason="Priority", priority="1", name="a")
    assert job_list_parsing.is_job_row_unchanged(row._replace(**before), row._replace(**now)) is expected
    assert not job_list_parsing.is_job_row_unchanged(None, row)
