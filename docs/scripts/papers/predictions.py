"""How good estimates are on the made-up Eurora: mod17 section 5.1 and figures 1 and 2, cp19 figure 1.

`python -m docs.scripts.papers.predictions` writes `studies/mod17/predictions.json`: months of three seeds together.
Jobs are learned from as `cpsched accuracy` does it, whatever a dispatcher does.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from cpsched_sim.files import write_atomically
from cpsched_sim.predictor_accuracy import Accuracy, study_predictors
from cpsched_sim.traces.trace_job import TraceJob
from cpsched_sim.workloads.eurora import eurora_jobs
from docs.scripts.papers.spreads import STUDIES

DAYS, SEEDS = 30, (1, 2, 3)
NAMES = {"W": "walltime", "D": "profile"}
"""The papers' letters; R, real durations, has no error."""
ERRORS_MIN = (0, 1, 5, 15, 30, 60, 120, 240, 480, 1440, 1e9)
DURATIONS_S = (0, 10, 60, 300, 900, 3600, 2 * 3600, 4 * 3600, 8 * 3600, 12 * 3600, 1e9)
RATIOS = tuple(float(f"{10 ** (at / 10):.3g}") for at in range(-30, 11))
FILE = STUDIES / "mod17" / "predictions.json"


def shares(values: Any, edges: tuple[float, ...]) -> list[float]:
    """Which share of the values lies in each class: from one edge to below the next."""
    found, _ = np.histogram(values, bins=np.array(edges, np.float64))
    return [round(float(count) / len(values), 4) for count in found]


def found() -> dict[str, Any]:
    """Shares of jobs by duration; by estimate, the published figures, shares by error, and the distribution of A."""
    months = [eurora_jobs(DAYS, seed) for seed in SEEDS]
    studied = [study_predictors(month, tuple(NAMES.values())) for month in months]
    jobs: list[TraceJob] = [job for month in months for job in month]
    run_s = np.array([job.run_s for job in jobs], np.float64)
    told: dict[str, Any] = {
        "days": DAYS,
        "seeds": list(SEEDS),
        "jobs": len(jobs),
        "durations": shares(run_s, DURATIONS_S),
    }
    for letter, name in NAMES.items():
        real = np.concatenate([each[name].run_s for each in studied])
        expected = np.concatenate([each[name].predicted_s for each in studied])
        accuracy = {key: round(value, 4) for key, value in asdict(Accuracy.of(real, expected)).items()}
        below = np.searchsorted(np.sort(real / expected), RATIOS, side="right") / len(real)
        errors = shares(np.abs(real - expected) / 60, ERRORS_MIN)
        told[letter] = {**accuracy, "errors": errors, "ecdf": [round(float(share), 4) for share in below]}
    return told


def main() -> None:
    """Write the file."""
    write_atomically(FILE, (json.dumps(found(), indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
