"""Test that more search effort does not worsen results if run times are known, because plans are then carried out."""

from statistics import mean

import pytest

from cpsched_sim import Workload, simulate
from cpsched_sim.workloads.lublin_generator import generate_lublin_jobs

SEEDS = range(3)


@pytest.fixture(scope="module")
def workloads():
    """Return busy workloads from the model of Lublin and Feitelson, one per seed."""
    generated = (generate_lublin_jobs(700, seed, load=2.2) for seed in SEEDS)
    return [Workload(f"seed {seed}", "", system.cluster, jobs, {}, ()) for seed, (system, jobs) in enumerate(generated)]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["bsld", "af", "awf", "p2sf"])
def test_more_effort_is_not_worse(objective, workloads):
    """Objectives with targets are omitted, because the results determine the weight of large jobs."""

    def mean_metric(effort):
        settings = {"objective": objective, "effort": effort}
        return mean(simulate(w, "lookahead", "oracle", settings=settings).metric(objective) for w in workloads)

    assert mean_metric(200) <= mean_metric(5)
