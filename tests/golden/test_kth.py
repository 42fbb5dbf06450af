"""KTH-SP2 compared with published results of list schedulers, to all digits (debs24, with the same SWF filter)."""

from functools import lru_cache

import numpy as np
import pytest

from cpsched import registry
from cpsched.metrics import ScheduleData
from cpsched.model import Cluster
from cpsched.policy import Policy
from cpsched_sim.clairvoyant_policies import OraclePredictor
from cpsched_sim.cluster.replay import TraceReplay
from cpsched_sim.workloads.workload_loader import load
from tests.traces import KTH, trace

ROWS = """
list-reg  oracle   67.1223849291086   15887.11804360802  73511.5190766495   131484.58834628822
list-sjf  oracle   22.039469078700666 13002.821530142903 82216.92258026623  265910.7170075313
list-saf  oracle   20.98430749344632  13143.422281521014 123766.56979933947 885937.8260116731
list-spf  oracle   19.245623595488773 12677.069765808785 101005.7382682662  553301.4840146111
list-laf  oracle   145.63128990224894 19953.78968435097  69220.54911425097  211559.4050266294
easy      oracle   71.72238511244177  15187.607703381202 74030.66138818627  136735.3081627823
easy-sjbf oracle   49.847241941155154 14295.739615884273 74462.67605581135  138628.27240774347
list-reg  walltime 101.82693415668228 16796.097152487622 74724.21151858008  132225.4029564194
list-sjf  walltime 44.33248039161654  13649.564797584355 87203.70314842957  434606.8881561986
list-saf  walltime 45.11273417304839  15743.074470699765 219598.23434356306 4027437.973723374
list-spf  walltime 44.10652849176524  13565.0905515958   103893.2645783348  621255.4060673876
list-laf  walltime 137.0342062357578  20084.351181489415 70119.10686572157  167882.98306595313
easy      walltime 92.6876537427081   15694.513359783716 75574.00273559267  140658.62352166875
easy-sjbf walltime 69.39363613564694  14763.612478494435 75570.00480613518  145626.07413300368
greedy    walltime 71.45348769837558  14579.287630350058 80688.77067990425  616731.7308606572
fcfs      walltime 6814.973310176226  362636.3352410379  407311.8932598089  686308.7794292198
"""
CASES = [line.split() for line in ROWS.split("\n") if line]


@lru_cache
def kth():
    return load(trace(KTH))


def replay_of(dispatcher, predictor, cluster):
    estimate = OraclePredictor(kth().jobs) if predictor == "oracle" else registry.PREDICTORS.build(predictor)
    return TraceReplay(kth().jobs, cluster, Policy(estimate, registry.DISPATCHERS.build(dispatcher)))


@pytest.mark.parametrize(("dispatcher", "predictor", "bsld", "af", "awf", "p2sf"), CASES)
def test_schedule_has_reference_figures(dispatcher, predictor, bsld, af, awf, p2sf):
    """One pool on the ordinary loop, a hundred one-core nodes in the compiled loop: the same starts, these figures."""
    pooled = replay_of(dispatcher, predictor, kth().cluster).run()
    jobs = [item.job for item in kth().jobs]
    measures = ScheduleData(
        np.array([job.submit_s for job in jobs]),
        pooled.start_s,
        pooled.end_s,
        np.array([job.request.units for job in jobs]),
    )
    found = (measures.bsld, measures.af, measures.awf, measures.p2sf)
    assert found == pytest.approx([float(x) for x in (bsld, af, awf, p2sf)], rel=1e-12)
    assert pooled.violations == ()
    placed = replay_of(dispatcher, predictor, Cluster.of([[1]] * 100, ["cores"])).run_compiled()
    assert np.array_equal(placed.start_s, pooled.start_s)
    assert placed.violations == ()
