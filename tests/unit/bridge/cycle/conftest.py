import pytest

from tests.bridges import Metrics
from tests.builders import a_job
from tests.fakes import FakeCluster


@pytest.fixture
def at(bridge_at):
    """Build a bridge over a fake cluster with two held jobs. Return it with the cluster and its metrics."""

    def build(**changes):
        cluster, metrics = FakeCluster(), Metrics()
        cluster.submit(a_job(1, per_unit=3), a_job(2, per_unit=3))
        return bridge_at(cluster, listeners=(metrics,), **changes), cluster, metrics.value

    return build
