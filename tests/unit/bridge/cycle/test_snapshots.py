"""The scene of an observation, whatever the adapter says."""

import numpy as np
import pytest

from cpsched_bridge.cycle.snapshots import scene_of
from cpsched_bridge.ports import Hold, Observation, PendingJob
from tests.builders import a_cluster, a_job, a_running


@pytest.mark.parametrize("controlling", [False, True])
def test_nothing_less_than_nothing_is_free_and_no_job_is_there_twice(controlling):
    cluster = a_cluster(nodes=2)
    pending = tuple(PendingJob(a_job(id), Hold.NONE) for id in (1, 1, 2, 9))
    running = (a_running(a_job(9), ((0, 1),)), a_running(a_job(9), ((1, 1),)))
    seen = Observation(5, cluster, np.array([[-3], [4]]), pending, running)
    scene = scene_of(seen, {}, controlling)
    assert scene.free.tolist() == [[0], [4]]
    assert [job.id for job in scene.queue] == ([] if controlling else [1, 2])
    assert [(r.job.id, r.placement) for r in scene.running] == [(9, ((0, 1),))]
