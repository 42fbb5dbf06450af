"""Published values beside ours: how a verdict is found."""

import pytest

from docs.scripts.papers import verdict_of


@pytest.mark.parametrize(
    ("published", "ours", "verdict"),
    [
        (100.0, 101.0, "reproduced"), (100.0, 98.9, "same order"), (100.0, 110.1, "differs"), (None, 5.0, "cannot be"),
        (5.0, None, "not measured"),
    ],
)  # fmt: skip
def test_a_verdict_is_how_far_two_values_are_apart(published, ours, verdict):
    assert verdict_of(published, ours) == verdict
