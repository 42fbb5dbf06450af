"""Fixtures and helpers that the simulator's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sim.test_cli import FOUR_JOBS


@pytest.fixture
def four_jobs(tmp_path: Path) -> Path:
    """The path of a trace of four jobs."""
    path = tmp_path / "four.swf"
    path.write_text(FOUR_JOBS)
    return path
