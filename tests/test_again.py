import json
from pathlib import Path

import pytest

from tests.again import MOST, again, failed_tests


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    file = tmp_path / "v/cache/lastfailed"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"tests/slurm/test_b.py::test_two": True, "tests/slurm/test_a.py::test_one": True}))
    return tmp_path


def test_each_failed_test_runs_once_more_alone(notes):
    ran: list[str] = []
    assert again(notes, lambda name: not ran.append(name)) == 0
    assert ran == ["tests/slurm/test_a.py::test_one", "tests/slurm/test_b.py::test_two"]


def test_a_test_that_fails_again_fails_the_run_and_every_name_is_told(notes, capsys):
    assert again(notes, lambda name: "test_a" in name) == 1
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "tests: tests/slurm/test_a.py::test_one failed; alone it passed",
        "tests: tests/slurm/test_b.py::test_two failed; alone it FAILED again",
    ]


def test_many_failures_are_the_code_s_and_no_test_runs_again(notes, capsys):
    file = notes / "v/cache/lastfailed"
    ran: list[str] = []
    for count, status in ((MOST, 0), (MOST + 1, 1)):
        file.write_text(json.dumps({f"tests/test_a.py::test_{number}": True for number in range(count)}))
        assert again(notes, lambda name: not ran.append(name)) == status
    assert len(ran) == MOST
    assert capsys.readouterr().out.splitlines()[-1] == "tests: 11 failed, more than 10: none runs again"


def test_a_run_that_left_no_notes_has_failed_for_another_reason(tmp_path):
    assert failed_tests(tmp_path) == []
    assert again(tmp_path, lambda name: True) == 1
