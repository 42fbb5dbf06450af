"""Plots of results for notebooks and papers. Each function returns a `Chart`.

An example is:

    from cpsched_sim import compare, draw_bars
    draw_bars(compare("day.csv.gz", ["easy", "list-saf"])).save("bars.png")
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpsched.errors import require
from cpsched.metrics import METRICS, count_overlapping_intervals
from cpsched_sim.comparison import Comparison, ComparisonRow
from cpsched_sim.report import comparison_plots
from cpsched_sim.simulation import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """A plot that a notebook displays.

    `figure` is a matplotlib figure, which may be changed before it is shown or saved.
    """

    figure: Figure

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the plot in the format of the file name: png, svg or pdf.

        Raise the same exceptions as matplotlib.
        """
        self.figure.savefig(path, dpi=120)
        return Path(path)

    def _repr_png_(self) -> bytes:
        """Return the plot as a PNG image for a notebook."""
        drawn = io.BytesIO()
        self.figure.savefig(drawn, dpi=96, format="png")
        return drawn.getvalue()


def draw_bars(results: Comparison | Simulation) -> Chart:
    """Draw one panel of bars per metric. Raise `InputError` without matplotlib."""
    rows, title = _successful_rows(results)
    drawn = [metric for metric in METRICS if metric.drawn] + list(results.more)
    summaries = {row.name: row.summary for row in rows if row.summary is not None}
    return Chart(comparison_plots.draw_metric_bars(summaries, drawn, comparison_plots.line_styles(rows), title))


def draw_distributions(results: Comparison | Simulation) -> Chart:
    """Draw the cumulative distributions of waits and bounded slowdowns."""
    rows, title = _successful_rows(results)
    measures = {row.name: row.measures for row in rows if row.measures is not None}
    return Chart(comparison_plots.draw_distributions(measures, comparison_plots.line_styles(rows), title))


def draw_account_shares(results: Comparison | Simulation) -> Chart:
    """Draw each account's usage and target share over time.

    Raise `InvalidValue` without a site policy.
    """
    rows, title = _successful_rows(results)
    summaries: Mapping[str, Any] = {row.name: row.summary for row in rows}
    of_site = all("accounts" in summary for summary in summaries.values())
    require(of_site, "policy", None, "must be set in simulate or compare, because shares come from a site's policy")
    return Chart(comparison_plots.draw_account_shares(summaries, title))


def draw_utilization(results: Comparison | Simulation) -> Chart:
    """Draw waiting jobs and used processors over time, one line per combination."""
    rows, title = _successful_rows(results)
    figure, (waiting, use) = comparison_plots.new_figure(2, 3.6)
    styles = comparison_plots.line_styles(rows)
    for row in rows:
        if (jobs := row.measures) is None:
            continue
        style = {
            **styles[row.name],
            "label": comparison_plots.escape_mathtext(row.name),
            "drawstyle": "steps-post",
            "linewidth": 1,
        }
        first_s = int(jobs.submit_s.min())
        at, length = jobs.queue_length()
        waiting.plot((at - first_s) / 3600, length, **style)
        at, busy = count_overlapping_intervals(jobs.start_s, jobs.end_s, jobs.processors)
        use.plot((at - first_s) / 3600, busy / max(1, jobs.machine), **style)
    for axes, name in ((waiting, "waiting jobs"), (use, "share of processors in use")):
        axes.set_xlabel("hours")
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    use.legend(fontsize="small")
    figure.suptitle(comparison_plots.escape_mathtext(title))
    return Chart(figure)


def _successful_rows(results: Comparison | Simulation) -> tuple[Sequence[ComparisonRow], str]:
    """Return the successful rows and a title. Raise `InvalidValue` if there are none."""
    comparison_plots.require_matplotlib()
    if isinstance(results, Simulation):
        policy = results.setup.policy
        row = ComparisonRow(policy.dispatcher, policy.predictor, results.summary(), measures=results.measures)
        return [row], f"{results.workload.name} on {results.workload.system}"
    require(isinstance(results, Comparison), "results", type(results).__name__, "must be a comparison or a simulation")
    done = [row for row in results.rows if row.summary is not None]
    require(bool(done), "results", results.title, "must contain at least one successful combination")
    return done, results.title
