import pytest

from cpsched.errors import join_abbreviated


@pytest.mark.parametrize(
    ("count", "most", "between", "told"),
    [
        (0, 2, ", ", ""), (2, 2, ", ", "0, 1"), (3, 2, ", ", "0, 1 and 1 more"), (2002, 1, ", ", "0 and 2,001 more"),
        (4, 2, "; ", "0; 1; and 2 more"),
    ],
)  # fmt: skip
def test_names_first_items_and_counts_others(count, most, between, told):
    assert join_abbreviated(range(count), most, between) == told
