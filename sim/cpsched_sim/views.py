"""What the commands show in a terminal: progress on stderr, tables on stdout. Every table fits 80 columns.

Lists of names are shown without the simulator, which is imported where a comparison is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from cpsched.metrics import Metric
    from cpsched_sim.comparison import Row
    from cpsched_sim.experiment import Simulation


@contextmanager
def progress_bar(title: str, of: str = "jobs") -> Iterator[Callable[[float, int | None], None]]:
    """A function of (done, total) that draws on stderr if that is a terminal; gone when finished."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(of))
    hidden = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_simulation(simulation: Simulation) -> None:
    """The summary of one replay."""
    policy, workload = simulation.setup.policy, simulation.workload
    console = Console()
    console.print(f"[bold]{policy.dispatcher} / {policy.predictor}[/]: {escape(workload.name)} on {workload.system}")
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in _flat(simulation.summary()):
        table.add_row(name, f"{value:,.6g}" if isinstance(value, float) else f"{value:,}")
    console.print(table)


def _flat(summary: Mapping[str, Any]) -> Iterator[tuple[str, float | int]]:
    for name, value in summary.items():
        if isinstance(value, Mapping):
            for part, figure in value.items():
                yield f"{name} {part}", figure
        else:
            yield name, value


def print_list(rows: Sequence[Mapping[str, Any]]) -> None:
    """Names with a sentence each; below it the parameters with their defaults, and the source."""
    table = Table(show_header=False, box=None, padding=(0, 2, 1, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        settings = "  ".join(f"{name}={value}" for name, value in row["parameters"].items())
        parts = [row["summary"], *([f"[cyan]{escape(settings)}[/]"] if settings else []), f"[dim]{row['source']}[/]"]
        table.add_row(row["name"], "\n".join(parts))
    Console().print(table)


def print_metrics(rows: Sequence[Mapping[str, str]]) -> None:
    """Names with their formulas; below, the unit, which way is better, and the source."""
    table = Table(show_header=False, box=None, padding=(0, 2, 1, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        unit = f" in {row['unit']}" if row["unit"] else ""
        facts = f"[cyan]{escape(row['heading'])}{unit}, {row['better']} is better[/]"
        table.add_row(row["name"], f"{escape(row['formula'])}\n{facts}\n[dim]{escape(row['source'])}[/]")
    Console().print(table)


def print_accuracy(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    """One line per predictor."""
    table = Table(title=title)
    table.add_column("predictor")
    for column in ("jobs", "mean error\nmin", "under\n%", "over\n%", "0.75 to 1.25\n%"):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        shares = (f"{100 * row[share]:.1f}" for share in ("under", "over", "close"))
        table.add_row(name, f"{row['jobs']:,}", f"{row['mean_absolute_error_min']:,.1f}", *shares)
    Console().print(table)


def print_comparison(
    title: str, rows: Sequence[Row], baselines: Mapping[str, Row | None], more: Sequence[Metric] = ()
) -> None:
    """Two lines per combination: figures, and below them their percentage of the baseline's."""
    from cpsched_sim.comparison import compared, percentages

    shown = compared(more)
    table = Table(title=f"{title}: figures, and % of the baseline", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.caption = _which_way(shown)
    table.add_column("dispatcher\npredictor", no_wrap=True)
    for heading in (*map(_column, shown), "dispatch ms\nCPU s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        label = f"[bold]{row.dispatcher}[/]\n{row.predictor}"
        if row.summary is None:
            table.add_row(label, "failed", style="red")
            continue
        percent = percentages(row, baselines[row.name], more)
        names = [metric.name for metric in shown]
        shares = [f"{short(percent[name])}%" if name in percent else "" for name in names]
        cells = [f"{short(row.summary[name])}\n{share}" for name, share in zip(names, shares, strict=True)]
        table.add_row(label, *cells, f"{short(row.summary['dispatch']['mean_ms'])}\n{short(row.summary['cpu_s'])}")
    Console().print(table)


def _column(metric: Metric) -> str:
    """A narrow heading: its first word, and below it the rest with the unit."""
    first, *rest = metric.heading.split()
    return "\n".join(line for line in (first, " ".join((*rest, metric.unit)).strip()) if line)


def _which_way(shown: Sequence[Metric]) -> str:
    """`lower is better, but for: in use`."""
    others = [metric.heading for metric in shown if metric.better == "higher"]
    return "lower is better" + (f", but for: {', '.join(others)}" if others else "")


def short(value: float) -> str:
    """Three digits: 132k, 16.8k, 0.686."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.3g}"
