"""Slow files are dealt to the processes that share the tests."""

from pathlib import Path

import pytest

from tests.slow_first import SLOW, dealt

FILES = [file for number in range(8) for file in [SLOW[number]] * 3] + [
    f"unit/test_{number}.py" for number in range(77)
]


def test_each_share_begins_with_slow_files_and_no_test_is_lost_or_run_twice():
    order = dealt(FILES, 4)

    begun = [[FILES[index] for index in order[first : first + 6]] for first in (0, 25, 50, 75)]  # 101 tests
    assert begun == [[SLOW[hand]] * 3 + [SLOW[hand + 4]] * 3 for hand in range(4)]
    assert sorted(order) == list(range(len(FILES)))


def test_other_tests_stay_in_the_order_of_their_collection():
    others = [index for index in dealt(FILES, 4) if FILES[index] not in SLOW]
    assert others == sorted(others)


def test_a_file_with_more_tests_than_a_share_stays_together():
    files = [SLOW[0]] * 9 + ["unit/test_1.py"] * 6 + [SLOW[1]]
    assert dealt(files, 4) == [*range(9), 15, *range(9, 15)]


def test_pytest_hands_them_out_so(pytestconfig):
    """Seen where this test itself was handed out by xdist; elsewhere the order is that of the folders."""
    hooks = pytestconfig.pluginmanager.get_plugins()
    conftest = next(
        each for each in hooks if getattr(each, "__file__", "") == str(Path(__file__).parent / "conftest.py")
    )

    class Item:
        def __init__(self, name):
            self.path = Path(__file__).parent / name

    class Config:
        def __init__(self, **given):
            self.__dict__.update(given)

    alone, among = [Item(name) for name in FILES], [Item(name) for name in FILES]
    conftest.pytest_collection_modifyitems(Config(), alone)
    conftest.pytest_collection_modifyitems(Config(workerinput={"workercount": 4}), among)

    folder = Path(__file__).parent
    assert [str(item.path.relative_to(folder)) for item in alone] == FILES
    assert [str(item.path.relative_to(folder)) for item in among] == [FILES[index] for index in dealt(FILES, 4)]


@pytest.mark.parametrize("file", SLOW)
def test_every_slow_file_is_there(file):
    assert (Path(__file__).parent / file).is_file()
