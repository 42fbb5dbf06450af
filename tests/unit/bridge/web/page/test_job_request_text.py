"""A job's request as readable text."""

import pytest

from cpsched.model import NodeSetCondition
from cpsched_bridge.web.page.page_rendering import list_job_request_details, summarize_job_request
from tests.unit.bridge.web.page.views import a_request

RESOURCES = ("cores", "memory_mib", "gpu")


def a_request_of(per_unit, **given):
    return a_request(amounts=dict(zip(RESOURCES, per_unit, strict=False)), **given)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"per_unit": [1, 512, 0]}, "1 node · 1 core · 512 MiB · up to 1 h 00 min"),
        ({"units": 4, "per_unit": [64, 262_144, 2], "distinct": True},
         "4 nodes · 256 cores · 1,024 GiB · 8 GPUs · up to 1 h 00 min"),
        ({"units": 8, "per_unit": [1, 0, 0]}, "8 tasks · 8 cores · up to 1 h 00 min"),
        ({"per_unit": [1, 0, 1], "exclusive": True}, "1 node · 1 core · 1 GPU · whole nodes · up to 1 h 00 min"),
        ({"per_unit": []}, "1 node · up to 1 h 00 min"),
    ],
)  # fmt: skip
def test_summarizes_request(facts, words):
    assert summarize_job_request(a_request_of(**facts), 3600) == words


def test_lists_request_details():
    asked = a_request_of(
        units=4,
        per_unit=[64, 262_144, 0],
        distinct=True,
        exclusive=True,
        nodes_from=(NodeSetCondition("partition", "gpu"), NodeSetCondition("feature", "bigmem")),
    )
    assert dict(list_job_request_details(asked, 3600)) == {
        "where": "on 4 nodes", "cores": "256: 64 for each node", "memory": "1,024 GiB: 256 GiB for each node",
        "sharing": "exclusive nodes", "allowed nodes": "gpu, bigmem", "time limit": "1 h 00 min",
    }  # fmt: skip
    assert dict(list_job_request_details(a_request(units=8, amounts={"cores": 2}), 3600))["where"].startswith(
        "as 8 equal tasks"
    )
    assert dict(list_job_request_details(a_request(amounts={"cores": 2}), 3600))["cores"] == "2"
