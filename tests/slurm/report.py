"""What a run of the live tests came to, as a small file: the table of docs/supported-settings.md shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def report(slurm: str, transport: str, seconds: float, outcomes: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The file's content. `slurm` is what `scontrol --version` prints; `outcomes` are pytest's reports by outcome."""
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
    """Write the file, and the folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
