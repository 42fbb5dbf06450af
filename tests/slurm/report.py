"""Write the results of the live tests to a small file, for the table in docs/supported-settings.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def report(slurm: str, transport: str, seconds: float, outcomes: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the file's content. `slurm` is the output of `scontrol --version`; `outcomes` are pytest's reports."""
    failed = sorted({each.nodeid for kind in ("failed", "error") for each in outcomes.get(kind, ())})
    return {
        "slurm": slurm.split()[-1],
        "transport": transport,
        "passed": len(outcomes.get("passed", ())),
        "failed": failed,
        "skipped": sorted(each.nodeid for each in outcomes.get("skipped", ())),
        "seconds": round(seconds),
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
