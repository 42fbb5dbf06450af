"""squeue's form: nothing that a job holds ends a field, and an answer that is not whole is none."""

from __future__ import annotations

import pytest

from cpsched_bridge.adapters.slurm.transport.cli import squeue
from cpsched_bridge.errors import BackendUnavailable

FIELDS, END = ("JobID", "Name"), "~w"


def test_fields_are_asked_for_with_the_word_as_their_end() -> None:
    command = squeue.command(FIELDS, END, [9, 3])
    assert command[-1] == "JobID:~w,Name:~w"
    assert command[command.index("--jobs") + 1] == "3,9"
    assert {"--all", "--states=all", "--local", "--noheader"} <= set(command)


def test_a_word_is_new_each_time_and_no_width() -> None:
    words = {squeue.word() for _ in range(100)}
    assert len(words) == 100
    assert all(word[0] == "~" and not {",", ":", " "} & set(word) for word in words)


def test_line_breaks_and_separators_in_a_name_stay_in_it() -> None:
    assert squeue.rows("1~wa\n2,b~ ~w\n2~w~w\n", FIELDS, END) == [
        {"JobID": "1", "Name": "a\n2,b~ "},
        {"JobID": "2", "Name": ""},
    ]
    assert squeue.rows("", FIELDS, END) == []


@pytest.mark.parametrize(
    "printed",
    ["1~wa~w", "1~wa~w\n2~w", "1~wa~w\n2~w\n", "1~wa~w\n2~wb", "error", "1~wa~w2~wb~w\n", "1~wa~wx\n2~wb~w\n"],
)
def test_an_answer_that_is_not_whole_is_none(printed: str) -> None:
    with pytest.raises(BackendUnavailable):
        squeue.rows(printed, FIELDS, END)


def test_a_number_that_stands_there_twice_or_is_none_is_refused() -> None:
    with pytest.raises(BackendUnavailable, match="twice"):
        squeue.by_number([{"JobID": "1"}, {"JobID": "1"}])
    with pytest.raises(BackendUnavailable, match="number"):
        squeue.by_number([{"JobID": "x"}])


def test_whole_nodes_have_a_field_of_their_own_since_26_05() -> None:
    assert "Exclusive" in squeue.fields_for((26, 5))
    assert "Exclusive" not in squeue.fields_for((25, 11))


def test_many_jobs_are_asked_for_in_parts() -> None:
    assert [len(part) for part in squeue.chunks(range(4500))] == [2000, 2000, 500]
