import pytest

from cpsched_sim.clairvoyant_predictors import SoftWalltimePredictor
from cpsched_sim.traces.trace_job import TraceJob
from tests.builders import a_job


@pytest.mark.parametrize(("soft_s", "expected_s"), [(40, 40), (None, 100), (100, 100), (101, 100)])
def test_estimate_is_soft_walltime_if_shorter(soft_s, expected_s):
    job = a_job(1, walltime_s=100)
    assert SoftWalltimePredictor([TraceJob(job, 30, soft_walltime_s=soft_s)]).predict(job) == expected_s


def test_unknown_job_uses_walltime():
    assert SoftWalltimePredictor().predict(a_job(1, walltime_s=100)) == 100
