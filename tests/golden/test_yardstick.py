"""RLScheduler's published bounded slowdowns (SC 2020, table V), reproduced to every printed digit in its own loop."""

import hashlib
import struct
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import yaml

from cpsched_sim.simulation import simulate
from cpsched_sim.workloads.workload_loader import load
from studies.yardstick.published_loop import PublishedLoop
from tests.docs.test_code_blocks import ROOT
from tests.traces import trace

STUDY = yaml.safe_load((ROOT / "studies" / "yardstick" / "study.yaml").read_text())
RULES = "fcfs", "wfp3", "unicep", "sjf", "f1"
PUBLISHED = {
    ("Lublin-1", False): (7273.77, 19753.53, 22274.74, 277.35, 258.37),
    ("Lublin-2", False): (7842.47, 9523.18, 11265.31, 787.89, 698.34),
    ("Lublin-1", True): (235.82, 133.87, 307.23, 73.31, 75.07),
    ("Lublin-2", True): (247.61, 318.35, 379.59, 91.99, 148.25),
}


@cache
def sequences(name):
    whole, (window,) = load(trace(STUDY["traces"][name]["file"])), STUDY["grids"][0]["windows"]
    return [replace(whole, jobs=whole.jobs[first : first + window["jobs"]]) for first in window["first"]]


@pytest.mark.parametrize(
    ("name", "backfill"),
    [pytest.param(*table, marks=() if table == ("Lublin-1", True) else pytest.mark.slow) for table in PUBLISHED],
)
@pytest.mark.parametrize("rule", RULES)
def test_replay_has_published_figure(name, backfill, rule):
    found = np.mean([simulate(part, PublishedLoop(rule, backfill)).bsld for part in sequences(name)])
    assert f"{found:.2f}" == f"{PUBLISHED[name, backfill][RULES.index(rule)]:.2f}"


def test_windows_are_those_of_gym_generator_with_seed_1():
    """Gym seeds NumPy by the SHA-512 of the text "1": its first 8 bytes, as two little-endian numbers."""
    (window,) = STUDY["grids"][0]["windows"]
    draw = np.random.RandomState(list(struct.unpack("<2I", hashlib.sha512(b"1").digest()[:8])))
    assert window["first"] == [int(draw.randint(1024, 10_000 - 1024 - 1)) for _ in range(10)]
