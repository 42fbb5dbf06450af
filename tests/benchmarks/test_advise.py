"""What the study of advice prints."""

import numpy as np

from tests.benchmarks.advise import control_of, kept, settings_of


def test_advice_is_measured_against_control_with_its_objective():
    rows = [*settings_of(["default", "waits"], [60])]
    assert rows == [
        "slurm",
        "lookahead:objective=default", "advised:objective=default,every_s=60",
        "lookahead:objective=waits", "advised:objective=waits,every_s=60",
    ]  # fmt: skip
    assert control_of(rows[-1]) == rows[-2]


def test_the_share_kept_is_that_of_the_sums():
    rows = np.array([[[10.0, 20.0]], [[30.0, 30.0]]])
    assert kept(rows) == "80 (50-100)"
