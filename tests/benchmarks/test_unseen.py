"""What is drawn anew with each seed in the sweeps over windows."""

import pytest

from tests.benchmarks.unseen import seeds_of


@pytest.mark.parametrize(
    "setting", ["lookahead", "lookahead/last-two:effort=5", "advised:every_s=60", "tests.benchmarks.narrow:Fair:late=1"]
)
def test_what_searches_is_run_with_each_seed(setting):
    assert seeds_of(setting, (0, 1, 2)) == (0, 1, 2)


@pytest.mark.parametrize("setting", ["easy", "slurm", "easy/last-two"])
def test_what_draws_nothing_is_run_once(setting):
    assert seeds_of(setting, (3, 4)) == (3,)
