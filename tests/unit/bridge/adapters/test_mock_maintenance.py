"""Maintenance of the simulated site: no jobs start on its nodes while it lasts."""

import pytest

from cpsched_bridge.adapters.mock import Options, connect
from cpsched_bridge.adapters.mock.mock_cluster import MockCluster, NodeMaintenance
from cpsched_bridge.errors import SettingsError
from cpsched_bridge.ports import StartOrder
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.builders import a_cluster, a_job


def a_site(*jobs, plugin=True):
    """Two nodes; the first is under maintenance from second 100 to 200."""
    trace = [TraceJob(job, run_s=50) for job in jobs]
    return MockCluster(
        a_cluster(nodes=2, cores=4), trace, plugin, maintenance=[NodeMaintenance("update", (0,), 100, 200)]
    )


@pytest.mark.parametrize(
    ("now_s", "free", "told"), [(99, [4, 4], 1), (100, [0, 4], 1), (199, [0, 4], 1), (200, [4, 4], 0)]
)
def test_maintenance_nodes_are_unusable_and_reported_until_end(now_s, free, told):
    site = a_site()
    site.advance(now_s)
    seen = site.observe()
    assert seen.free[:, 0].tolist() == free
    assert len(seen.outages) == told


def test_refuses_start_on_maintenance_nodes():
    job = a_job(1)
    site = a_site(job)
    site.advance(150)
    (refused,) = site.start([StartOrder(job, (("n0", 1),))])
    assert (refused.result, refused.detail) == ("refused", "node n0 is in maintenance")
    (done,) = site.start([StartOrder(job, (("n1", 1),))])
    assert done.result == "done"


def test_built_in_scheduler_waits_for_end_of_maintenance():
    site = a_site(a_job(1, units=2, per_unit=4, submit_s=120), plugin=False)
    site.advance(199)
    assert site.pending_count == 1
    assert site.next_event_s() == 200
    site.advance(200)
    assert site.pending_count == 0


def test_configures_maintenance_by_node_names():
    maintenance = {"name": "update", "nodes": ["node02", "node01"], "from_s": 0, "for_s": 60}
    options = {"days": 0.01, "maintenance": [maintenance]}
    (told,) = connect(Options.model_validate(options)).observe().outages
    assert (told.name, told.nodes, told.to_s - told.from_s) == ("update", (0, 1), 60)
    with pytest.raises(SettingsError, match="nobody: must be a node of the system"):
        connect(Options.model_validate(options | {"maintenance": [maintenance | {"nodes": ["nobody"]}]}))
