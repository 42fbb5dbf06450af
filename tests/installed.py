"""Make a folder look like installed packages with modules and entry points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent


def install(
    folder: Path, name: str, modules: Mapping[str, str], entry_points: Mapping[str, Mapping[str, str]] | None = None
) -> None:
    """Install a package `name` 1.0 into `folder`, which must be on `sys.path`; entry points by group and name."""
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(dedent(text))
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, points in (entry_points or {}).items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


SMALLEST = """
    import cpsched

    class SmallestFirst(cpsched.Dispatcher):
        \"\"\"Smallest area first.\"\"\"

        def __init__(self, reservations: int = 1):
            self.reservations = reservations

        def decide(self, snapshot, need="plan"):
            return cpsched.plan(snapshot, order="saf", reservations=self.reservations, need=need)
"""
HALF = """
    import cpsched

    class Half(cpsched.Predictor):
        \"\"\"Half of what was asked for.\"\"\"

        def predict(self, job):
            return max(1, job.walltime_s // 2)
"""
