"""Faults against properties: the tool tells what a property notices, what not, and what was not tried."""

from pathlib import Path

import pytest

from tests.mutants import examples
from tests.mutants.examples import WatchedFault, faults, noticed, row, verdicts

FAULT = WatchedFault("cpsched.goals", "ONE = 1", "ONE = 2", "one is two", "test_it.py::test_one_is_one")
TESTS = """
import time
from pathlib import Path

def test_one_is_one():
    assert "ONE = 1" in Path("cpsched/goals.py").read_text()

def test_that_takes_long():
    until = time.process_time() + 30
    while time.process_time() < until: pass
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text((examples.ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "cpsched").mkdir()
    (tmp_path / "cpsched" / "goals.py").write_text("ONE = 1\n")
    return tmp_path


def test_a_fault_is_planted_tried_by_a_part_and_by_all_and_taken_out(tree: Path) -> None:
    assert verdicts(tree, FAULT, 1, 60) == ([True], True)
    assert (tree / "cpsched" / "goals.py").read_text() == "ONE = 1\n"
    assert noticed(tree, FAULT.property, (), 60) is False


def test_a_run_that_takes_too_long_says_nothing_and_one_that_cannot_begin_is_an_error(tree: Path) -> None:
    assert noticed(tree, "test_it.py::test_that_takes_long", (), 2) is None
    with pytest.raises(RuntimeError, match="not found"):
        noticed(tree, "test_it.py::test_that_is_not_there", (), 60)


@pytest.mark.parametrize(
    ("quick", "whole", "told"),
    [
        ([True, None, False], True, "1 of 2 | yes"),
        ([None], None, "not tried | not tried"),
        ([False], False, "0 of 1 | no"),
    ],
)
def test_what_was_not_tried_is_not_told_as_noticed(quick: list[bool | None], whole: bool | None, told: str) -> None:
    assert row(FAULT, quick, whole) == f"| `cpsched.goals`: one is two | one is one | {told} |"


def test_each_fault_fits_its_module_and_its_property_is_there() -> None:
    found = faults()
    assert len(found) >= 25
    for fault in found:
        fault.planted_in((examples.ROOT / fault.file).read_text())
        test, _, name = fault.property.partition("::")
        assert f"def {name}(" in (examples.ROOT / test).read_text()
