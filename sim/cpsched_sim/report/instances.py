"""Draws solved instances: ratios of variables and of time between dispatchers (pcp20 figures 6 and 7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cpsched_sim.instances import Solved, ratios
from cpsched_sim.report.plots import new_figure, plain, save

_PANELS = (("variables", "decision variables"), ("cpu_ms", "CPU time of a decision"))


def write_ratios(rows: Sequence[Solved], baseline: str, path: Path, title: str) -> Path:
    """One line per dispatcher, instances sorted by ratio; below 1 it needs less than `baseline`."""
    names = [name for name in dict.fromkeys(row.dispatcher for row in rows) if name != baseline]
    figure, panels = new_figure(len(_PANELS), 3.6)
    for axes, (column, label) in zip(panels, _PANELS, strict=True):
        for name in names:
            values = sorted(ratios(rows, name, baseline, column))
            axes.plot([i / max(1, len(values) - 1) for i in range(len(values))], values, label=plain(name))
        axes.axhline(1.0, color="grey", linewidth=0.8)
        axes.set_yscale("log")
        axes.set_xlabel("share of instances")
        axes.set_ylabel(f"{label}, over {plain(baseline)}")
        axes.grid(alpha=0.3)
    panels[-1].legend(fontsize="small")
    figure.suptitle(plain(title))
    return save(figure, path)
