"""Small studies for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.unit.sim.test_cli import FOUR_JOBS


def words(**more: Any) -> dict[str, Any]:
    """A study of four jobs: two dispatchers, two loads."""
    grid = {"traces": ["four"], "dispatchers": ["easy", "list-sjf"], "loads": [1.0, 2.0]}
    return {"title": "four jobs", "traces": {"four": {"file": "four.swf"}}, "grids": [grid], **more}


def written(folder: Path, **more: Any) -> Path:
    """The file of such a study, its trace beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "four.swf").write_text(FOUR_JOBS)
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(words(**more), sort_keys=False))
    return path


PLUGIN = """
from cpsched import Dispatcher, plan
from helper import ORDER


class Own(Dispatcher):
    def decide(self, snapshot, need="plan"):
        {body}
        return plan(snapshot, ORDER(snapshot))
"""
"""A plug-in dispatcher, which imports another module of its author's."""


def plugin(folder: Path, body: str = "pass", order: str = "range(len(snapshot.queue))") -> str:
    """The words for a dispatcher in a file of that folder."""
    (folder / "mine.py").write_text(PLUGIN.format(body=body))
    (folder / "helper.py").write_text(f"def ORDER(snapshot):\n    return list({order})\n")
    return "mine:Own"
