"""The table of Slurm's releases that the live tests ran on: from the files that those runs wrote."""

from __future__ import annotations

import json
from pathlib import Path

from docs.scripts.markdown import table

RUNS = Path(__file__).resolve().parents[1] / "releases"
"""One file of `make test-conformance` for each release and transport."""


def tested() -> str:
    """By release and transport: how many tests passed, failed and were left out, and how long the run took."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RUNS.glob("*.json"))]
    rows = [
        (
            run["slurm"],
            f"`{run['transport']}`",
            str(run["passed"]),
            ", ".join(f"`{name.rpartition('::')[2]}`" for name in run["failed"]) or "none",
            str(len(run["skipped"])),
            f"{run['seconds'] // 60} min {run['seconds'] % 60} s",
        )
        for run in runs
    ]
    if not rows:
        return "No run has been recorded yet."
    return table(("Slurm", "transport", "passed", "failed", "left out", "took"), rows)
