"""Queues of debs24, figures 5 and 7, as far as they can be had: into `studies/debs24/queues.json`.

`python -m docs.scripts.papers.queues`, with the traces in the folder that CPSCHED_TRACES names. For figure 7 the share
of rounds by queue size, under List-REG; for figure 5 the mean queue of each of 60 parts of SDSC-BLUE. The first jobs of
a trace stand for it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.metrics import ScheduleData
from cpsched_sim.files import write_atomically
from cpsched_sim.simulation import simulate
from cpsched_sim.workloads.load import load
from docs.scripts.papers.spreads import STUDIES

TRACES = {"KTH-SP2": "KTH-SP2.swf.gz", "SDSC-BLUE": "SDSC-BLUE.swf.gz"}
SIZES = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)
MOST = 40_000
"""Jobs of a trace."""
PARTS = 60
FILE = STUDIES / "debs24" / "queues.json"


def by_round(jobs: ScheduleData) -> list[float]:
    """The share of rounds, after each arrival and end, with a queue of at most each of `SIZES`."""
    at, length = jobs.queue_length()
    rounds = np.unique(np.concatenate([jobs.submit_s, jobs.end_s]))
    place = np.searchsorted(at, rounds, side="right") - 1
    sizes = np.sort(np.where(place >= 0, length[place], 0))
    return [round(float(share), 4) for share in np.searchsorted(sizes, SIZES, side="right") / len(sizes)]


def over_time(jobs: ScheduleData) -> list[list[float]]:
    """[days from the first arrival, mean queue] of each of `PARTS` parts of the time."""
    at, length = jobs.queue_length()
    begin, end = int(at[0]), int(jobs.submit_s.max())
    edges = np.linspace(begin, end, PARTS + 1)
    moments = np.unique(np.concatenate([at[(at >= begin) & (at <= end)].astype(np.float64), edges]))
    lasting = np.diff(moments)
    level = length[np.searchsorted(at, moments[:-1], side="right") - 1]
    part = np.searchsorted(edges, moments[:-1], side="right") - 1
    means = np.bincount(part, level * lasting, PARTS) / np.bincount(part, lasting, PARTS)
    days = (edges[:-1] - begin) / 86_400
    return [[round(float(day), 1), round(float(mean), 1)] for day, mean in zip(days, means, strict=True)]


def main() -> None:
    """Write the file."""
    folder = Path(os.environ["CPSCHED_TRACES"])
    found: dict[str, Any] = {"sizes": list(SIZES), "by_round": {}, "over_time": {}}
    for name, file in TRACES.items():
        workload = load(folder / file, max_jobs=MOST)
        schedule = simulate(workload, "list-reg", "oracle").measures
        found["by_round"][name] = by_round(schedule)
        if name == "SDSC-BLUE":
            other = simulate(workload, "list-saf", "oracle").measures
            found["over_time"] = {"list-reg": over_time(schedule), "list-saf": over_time(other)}
    write_atomically(FILE, (json.dumps(found) + "\n").encode())


if __name__ == "__main__":
    main()
