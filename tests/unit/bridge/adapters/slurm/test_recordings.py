"""Recorded clusters, read by text and with pyslurm, give the expected observations: see `tests.recordings`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.recordings import FOLDER, Recording, compare, expect, expected_path


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json.xz")), ids=lambda path: path.name.removesuffix(".json.xz"))
def test_recorded_cluster_gives_expected_observation(path: Path) -> None:
    """After an intended change, `python -m tests.recordings` writes the expectations again; read the difference."""
    expected = yaml.load(expected_path(path).read_text(), yaml.CSafeLoader)
    assert compare(expected, expect(Recording.load(path))) == {}
