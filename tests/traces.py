"""Paths of the shared traces; tests that need a missing one are skipped with a message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

KTH, BLUE = "KTH-SP2.swf.gz", "SDSC-BLUE.swf.gz"
KIT, GAIA = "KIT-FH2-2016-1.first25k.swf.gz", "UniLu-Gaia-2014-2.swf.gz"
THETA, RICC, ATLAS = (
    "ALCF-Theta-2022nov-2023dec-users.swf.gz",
    "RICC-2010-2.swf.gz",
    "LLNL-Atlas-2006-2.1-cln.swf.gz",
)
XDMOD = "XDMoD-phillips-sacct-2016.log.gz"


def trace(name: str) -> Path:
    """Return the path of a shared trace; skip the test if it is missing."""
    folder = os.environ.get("CPSCHED_TRACES") or Path(__file__).parents[2] / "shared" / "traces"
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"{name} is not in {folder} (CPSCHED_TRACES names another folder)")
    return path
