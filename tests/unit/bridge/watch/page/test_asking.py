"""What a job asked for, as people say it."""

import pytest

from cpsched.model import NodeSetPart
from cpsched_bridge.watch.page.asking import in_full, in_short
from cpsched_bridge.watch.page.words import amount, ordinal, quantity, resource
from tests.unit.bridge.watch.page.views import an_asked

RESOURCES = ["cores", "memory_mib", "gpu"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"per_unit": [1, 512, 0]}, "1 node · 1 core · 512 MiB · up to 1 h 00 min"),
        ({"units": 4, "per_unit": [64, 262_144, 2], "distinct": True},
         "4 nodes · 256 cores · 1,024 GiB · 8 GPUs · up to 1 h 00 min"),
        ({"units": 8, "per_unit": [1, 0, 0]}, "8 parts · 8 cores · up to 1 h 00 min"),
        ({"per_unit": [1, 0, 1], "exclusive": True}, "1 node · 1 core · 1 GPU · whole nodes · up to 1 h 00 min"),
        ({"per_unit": []}, "1 node · up to 1 h 00 min"),
    ],
)  # fmt: skip
def test_in_short(facts, words):
    assert in_short(an_asked(**facts), RESOURCES) == words


def test_in_full():
    asked = an_asked(
        units=4,
        per_unit=[64, 262_144, 0],
        distinct=True,
        exclusive=True,
        nodes_from=(NodeSetPart("partition", "gpu"), NodeSetPart("feature", "bigmem")),
    )
    assert dict(in_full(asked, RESOURCES)) == {
        "where": "on 4 nodes", "cores": "256: 64 for each node", "memory": "1,024 GiB: 256 GiB for each node",
        "sharing": "whole nodes, shared with nobody", "allowed nodes": "gpu, bigmem", "time limit": "1 h 00 min",
    }  # fmt: skip
    assert dict(in_full(an_asked(units=8, per_unit=[2]), RESOURCES))["where"].startswith("in 8 equal parts")
    assert dict(in_full(an_asked(per_unit=[2]), RESOURCES))["cores"] == "2"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("memory_mib", 1_048_576, "1,024 GiB"), ("memory_mib", 1_536, "1.5 GiB"), ("memory_mib", 1023, "1,023 MiB"),
        ("memory_mib", 0, "0 GiB"), ("memory_gib", 256, "256 GiB"), ("cores", 4164, "4,164"),
        ("memory_mib", 153_601, "150 GiB"),
    ],
)  # fmt: skip
def test_memory_is_in_gib_and_numbers_can_be_read(name, value, words):
    assert amount(name, value) == words


def test_resources_have_names_for_people():
    assert [resource(name) for name in ("memory_mib", "gpus", "gpu:a100", "gres/gpu", "cores", "fpga")] == [
        "memory", "GPUs", "GPUs (a100)", "GPUs", "cores", "fpga",
    ]  # fmt: skip
    assert quantity("gpu:a100", 1) == "1 GPU (a100)"


def test_places_in_a_queue():
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 112, 1608)] == [
        "first", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th", "1,608th",
    ]  # fmt: skip
