"""A job's request as readable text."""

import pytest

from cpsched.model import NodeSetCondition
from cpsched_bridge.web.page.job_request_text import list_job_request_details, summarize_job_request
from tests.unit.bridge.web.page.views import an_asked

RESOURCES = ["cores", "memory_mib", "gpu"]


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
    assert summarize_job_request(an_asked(**facts), RESOURCES) == words


def test_lists_request_details():
    asked = an_asked(
        units=4,
        per_unit=[64, 262_144, 0],
        distinct=True,
        exclusive=True,
        nodes_from=(NodeSetCondition("partition", "gpu"), NodeSetCondition("feature", "bigmem")),
    )
    assert dict(list_job_request_details(asked, RESOURCES)) == {
        "where": "on 4 nodes", "cores": "256: 64 for each node", "memory": "1,024 GiB: 256 GiB for each node",
        "sharing": "exclusive nodes", "allowed nodes": "gpu, bigmem", "time limit": "1 h 00 min",
    }  # fmt: skip
    assert dict(list_job_request_details(an_asked(units=8, per_unit=[2]), RESOURCES))["where"].startswith(
        "as 8 equal tasks"
    )
    assert dict(list_job_request_details(an_asked(per_unit=[2]), RESOURCES))["cores"] == "2"
