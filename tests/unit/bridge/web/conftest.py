import json

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched_bridge.settings import Settings
from cpsched_bridge.web.http_server import HttpServer
from cpsched_bridge.web.status_application import StatusApplication
from tests.builders import a_cluster
from tests.fakes import FakeCluster
from tests.unit.bridge.web.endpoint_requests import get


class Site:
    """A bridge over a fake cluster, with its page."""

    def __init__(self, bridge_at, dispatcher=None, **page):
        self.cluster = FakeCluster(cluster=a_cluster(nodes=3, cores=4), now_s=1000)
        self.watch = StatusApplication(Settings.model_validate({"mode": "control", "page": page}))
        self.bridge = bridge_at(self.cluster, dispatcher=dispatcher or EasyDispatcher(), listeners=(self.watch,))
        self.endpoint = HttpServer(self.watch.build_app(), "127.0.0.1", 0)

    def cycle(self, to_s=None):
        self.cluster.now_s = to_s or self.cluster.now_s
        self.bridge.cycle()
        return self.view

    @property
    def view(self):
        return self.watch.page_state.get_view()

    def get(self, path="", **headers):
        return get(self.endpoint, path, **headers)

    def json(self, name):
        return json.loads(self.get(f"api/v1/{name}")[2])


@pytest.fixture
def site_with(bridge_at):
    made = []

    def make(dispatcher=None, **page):
        made.append(Site(bridge_at, dispatcher, **page))
        return made[-1]

    yield make
    for site in made:
        site.endpoint.close()


@pytest.fixture
def site(site_with):
    return site_with()
