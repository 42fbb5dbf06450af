"""The last checkpoint in a job's comment, whatever users write there."""

from __future__ import annotations

import pytest

from cpsched.parsing.checkpoints import last_checkpoint_s

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
