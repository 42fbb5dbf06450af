"""Test node classes that are carried between rounds on a busy cluster: they are split, merged and renumbered.

`make bounds` runs this with every index checked.
"""

import pytest

from cpsched_sim import simulate
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.workloads.eurora_generator import generate_eurora_jobs
from cpsched_sim.workloads.workload_loader import Workload


@pytest.mark.parametrize(
    ("dispatcher", "settings"),
    [
        ("easy", {}),
        ("list-reg", {}),
        pytest.param("lookahead", {"effort": "10"}, marks=pytest.mark.slow),
    ],
)
def test_crowded_morning_replays_without_violation(dispatcher, settings):
    cluster = System(load_system("eurora")).cluster
    jobs = generate_eurora_jobs(days=0.2, seed=0, load=8)
    result = simulate(Workload("made up", "eurora", cluster, jobs, {}, ()), dispatcher, "last-two", settings=settings)
    assert (result.schedule.violations, result.never_started_count) == ((), 0)
