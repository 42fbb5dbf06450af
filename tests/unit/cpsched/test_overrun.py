import pytest

from cpsched.model.overrun import expected_end_s


@pytest.mark.parametrize(
    ("overrun", "now_s", "expected"),
    [
        ("one-second", 5, 10),
        ("one-second", 10, 11),
        ("one-second", 500, 501),
        ("double", 10, 20),
        ("double", 39, 40),
        ("double", 40, 80),
        ("walltime", 12, 100),
        ("walltime", 100, 101),
    ],
)
def test_overdue_job_ends_after_now(overrun, now_s, expected):
    assert expected_end_s(0, 10, 100, now_s, overrun) == expected
