"""Terminal output of the commands: progress on stderr, tables of at most 80 columns on stdout.

Lists of names are shown without importing the simulator, which is imported only to print a comparison.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from cpsched.formatting import format_duration, format_short_number

if TYPE_CHECKING:
    from cpsched.metrics import Metric
    from cpsched_sim.comparison import ComparisonRow
    from cpsched_sim.simulation import Simulation
    from cpsched_sim.tuning.tuner import TuningResult

BESIDE = 7
"""Number of value columns that fit on a terminal of 80 columns; further ones are printed in another table."""

TOLD_EVERY_S = 60.0
_UNBROKEN = 240
_SYMBOLS = "W: wait, D: run time, F = W + D: response time, r: processors"


def _console() -> Console:
    """Return a console for standard output that wraps lines only on a terminal."""
    found = Console()
    return found if found.is_terminal else Console(width=_UNBROKEN)


@contextmanager
def progress_bar(title: str, of: str = "jobs", quiet: bool = False) -> Iterator[Callable[[float, int | None], None]]:
    """Yield a function of (done, total) that draws on stderr; without a terminal, it prints one line per minute."""
    console = Console(stderr=True)
    began_s = told_s = time.monotonic()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn(of))
    hidden = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden or quiet) as bar:
        task = bar.add_task(title, total=None)

        def show(done: float, total: int | None) -> None:
            nonlocal told_s
            bar.update(task, completed=done, total=total)
            now_s = time.monotonic()
            if hidden and not quiet and done and total and now_s - told_s > TOLD_EVERY_S:
                told_s = now_s
                left = format_duration((now_s - began_s) * (total - done) / done)
                console.print(Text(f"note: {int(done)} of {total} {of}, about {left} left"))

        yield show


def print_simulation(simulation: Simulation, summed_up: Mapping[str, Any]) -> None:
    """Print the summary of one replay."""
    policy, workload = simulation.setup.policy, simulation.workload
    console = _console()
    who = Text(f"{policy.dispatcher} / {policy.predictor}", style="bold")
    console.print(who.append(f": {workload.name} on {workload.system}", style="not bold"))
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    summary = dict(summed_up)
    groups = {name: summary.pop(name) for name in ("accounts", "qos") if name in summary}
    for name, value in _flat(summary):
        table.add_row(Text(name), _plain(value))
    console.print(table)
    for name, rows in groups.items():
        if name == "accounts" or len(rows) > 1:
            console.print(_groups(name, rows))
    for metric in simulation.more:
        console.print(Text(f"{metric.heading}: {metric.formula}", "dim"))


def _groups(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a table with one line per account or QOS."""
    shares = all("share" in row for row in rows.values())
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column({"accounts": "account", "qos": "QOS"}[title])
    for heading in (*(("share %", "used %") if shares else ()), "jobs", "mean wait s", "BSLD"):
        table.add_column(heading, justify="right")
    for name, row in rows.items():
        part = [format_short_number(100 * row[key]) for key in ("share", "used")] if shares else []
        table.add_row(
            Text(name or "-"),
            *part,
            f"{row['jobs']:,}",
            format_short_number(row["mean_wait_s"]),
            format_short_number(row["bsld"]),
        )
    return table


def _plain(value: float | None) -> str:
    """Format a value in full, or as a dash if it was not measured."""
    if value is None:
        return "-"
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"


def _flat(summary: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    for name, value in summary.items():
        if isinstance(value, Mapping):
            for part, figure in value.items():
                yield f"{name} {part}", figure
        else:
            yield name, value


def print_list(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print names, each with a one-sentence description, its parameters with defaults, and its source."""
    table = Table(show_header=False, box=None, padding=(0, 2, 1, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        settings = "  ".join(f"{name}={value}" for name, value in row["parameters"].items())
        parts = [(row["summary"], ""), *([(settings, "cyan")] if settings else []), (row["source"], "dim")]
        table.add_row(Text(row["name"]), Text("\n").join(Text(text, style) for text, style in parts))
    _console().print(table)


def print_metrics(rows: Sequence[Mapping[str, str]]) -> None:
    """Print metrics, each with its formula, unit, direction, and source."""
    table = Table(show_header=False, box=None, padding=(0, 2, 1, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        unit = f" in {row['unit']}" if row["unit"] else ""
        facts = Text(f"{row['heading']}{unit}, {row['better']} is better", "cyan")
        table.add_row(Text(row["name"]), Text("\n").join((Text(row["formula"]), facts, Text(row["source"], "dim"))))
    _console().print(table)


class MetricColumn(NamedTuple):
    """A table column: heading, name of the value, factor and format."""

    heading: str
    name: str
    scale: float = 1.0
    form: str = ",.1f"


_JOBS = MetricColumn("jobs", "jobs", 1, ",d")
ACCURACY = (
    _JOBS, MetricColumn("mean error\nmin", "mean_absolute_error_min"), MetricColumn("under\n%", "under", 100),
    MetricColumn("over\n%", "over", 100), MetricColumn("0.75 to 1.25\n%", "close", 100),
)  # fmt: skip
CALIBRATION = (
    _JOBS, MetricColumn("held\n%", "held", 100), MetricColumn("shorter\n%", "shorter", 100),
    MetricColumn("longer\n%", "longer", 100), MetricColumn("median width\n% of walltime", "median_width", 100),
)  # fmt: skip
PROMISES = (
    _JOBS, MetricColumn("no later\n%", "on_time", 100), MetricColumn("median error\nmin", "median_error_s", 1 / 60),
    MetricColumn("mean error\nmin", "mean_error_s", 1 / 60),
    MetricColumn("mean |error|\nmin", "mean_absolute_error_s", 1 / 60),
    MetricColumn("late, p95\nmin", "late_p95_s", 1 / 60),
)  # fmt: skip
INTERVALS = (
    MetricColumn("intervals", "told", 1, ",d"), MetricColumn("held\n%", "held", 100),
    MetricColumn("earlier\n%", "early", 100), MetricColumn("later\n%", "late", 100),
    MetricColumn("median width\nmin", "median_width_s", 1 / 60),
    MetricColumn("median wait\nmin", "median_wait_s", 1 / 60),
)  # fmt: skip


def print_figures(
    title: str, labels: Sequence[str], rows: Mapping[str, Mapping[str, Any]], columns: Sequence[MetricColumn]
) -> None:
    """Print one line per name (with two labels: per name and category)."""
    table = Table(title=Text(title))
    for label in labels:
        table.add_column(label)
    for column in columns:
        table.add_column(column.heading, justify="right")
    for name, row in rows.items():
        parts = row.items() if len(labels) == 2 else [("", row)]
        for at, (part, figures) in enumerate(parts):
            cells = [f"{each.scale * figures[each.name]:{each.form}}" for each in columns]
            table.add_row(Text(name if at == 0 else ""), *([part] if len(labels) == 2 else []), *cells)
    _console().print(table)


def print_comparison(
    title: str,
    rows: Sequence[ComparisonRow],
    baselines: Mapping[str, ComparisonRow | None],
    more: Sequence[Metric] = (),
) -> None:
    """Print two lines per combination, the values and their percentages of the baseline, followed by a legend."""
    from cpsched_sim.comparison import compared_metrics

    shown, console = compared_metrics(more), _console()
    beside = BESIDE if console.is_terminal else len(shown)
    for at in range(0, len(shown), beside):
        part = shown[at : at + beside]
        last = at + beside >= len(shown)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.title = None if at else Text(f"{title}: figures, and % of the baseline")
        table.caption = Text(f"{_which_way(shown)}; 74x: 74 times the baseline") if last else None
        _fill_in(table, rows, baselines, part, more, times=at == 0)
        console.print(table)
    for metric in shown:
        console.print(Text(f"{metric.heading}: {metric.formula}", "dim"))
    console.print(Text(_SYMBOLS, "dim"))


def _fill_in(
    table: Table, rows: Sequence[ComparisonRow], baselines: Mapping[str, ComparisonRow | None], shown: Sequence[Metric],
    more: Sequence[Metric], times: bool,
) -> None:  # fmt: skip
    """Add the columns of the given metrics to the table, and decision times if `times` is set."""
    from cpsched_sim.comparison import percent_of_baseline

    table.add_column("dispatcher\npredictor", no_wrap=True)
    for heading in (*map(_column, shown), *(["dispatch ms\nCPU s"] if times else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        label = Text(row.dispatcher, "bold").append(f"\n{row.predictor}", "not bold")
        if row.summary is None:
            table.add_row(label, "failed", style="red")
            continue
        percent = percent_of_baseline(row, baselines[row.name], more)
        names = [metric.name for metric in shown]
        shares = [share(percent[name]) if name in percent else "" for name in names]
        cells = [f"{format_short_number(row.summary[name])}\n{part}" for name, part in zip(names, shares, strict=True)]
        took = (
            [f"{format_short_number(row.summary['dispatch']['mean_ms'])}\n{format_short_number(row.summary['cpu_s'])}"]
            if times
            else []
        )
        table.add_row(label, *cells, *took)


def _column(metric: Metric) -> str:
    """Return a narrow column heading: the first word, and below it the remaining words with the unit."""
    first, *rest = metric.heading.split()
    return "\n".join(line for line in (first, " ".join((*rest, metric.unit)).strip()) if line)


def _which_way(shown: Sequence[Metric]) -> str:
    """Return a phrase such as `lower is better, except for: in use`."""
    others = [metric.heading for metric in shown if metric.better == "higher"]
    return "lower is better" + (f", except for: {', '.join(others)}" if others else "")


def share(percent: float) -> str:
    """Format a percentage, or a large one as a factor: 83.1%, 74x."""
    return f"{format_short_number(percent)}%" if percent < 999.5 else f"{format_short_number(percent / 100)}x"


_FEW_TRIED = 6


def print_tuned(title: str, found: TuningResult) -> None:
    """Print the result of `cpsched tune`: the verdict, the settings on the test windows, and the best settings."""
    from cpsched.goal_presets import GOAL_METRICS
    from cpsched_sim.tuning.tuner import BASELINE, format_percent_range

    console = _console()
    console.print(Text(found.sentence, "bold"))
    console.print(Text(f"{title}; goal: {found.goal}", "dim"))
    rows = {"present": found.present, **({"chosen": found.chosen} if found.chosen else {})}
    rows |= {each.spec.dispatcher: each for each in found.beside}
    judged = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    judged.title = (
        f"{found.windows[1]} windows not used for choosing, {found.jobs[1]:,} jobs: % of {BASELINE.dispatcher}"
    )
    judged.add_column("")
    judged.add_column(BASELINE.dispatcher, justify="right")
    for name in rows:
        judged.add_column(name, justify="right")
    for figure, words in GOAL_METRICS.items():
        shares = [f"{100 * each.against_baseline[figure].ratio:.1f}" for each in rows.values()]
        judged.add_row(words, format_short_number(found.baseline[figure]), *shares)
    console.print(judged)
    if found.chosen is not None:
        for figure in ("score", *found.goal.weights):
            words = "by the goal" if figure == "score" else GOAL_METRICS[figure]
            gain = format_percent_range(found.chosen.against_present[figure])
            console.print(Text(f"chosen compared with present, {words}: {gain}"))
    tried = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    tried.title = f"{found.windows[0]} windows used for choosing, {found.jobs[0]:,} jobs: % of {BASELINE.dispatcher}"
    for heading, side in (("changes", "left"), ("score", "right"), ("beyond a limit", "left")):
        tried.add_column(heading, justify="left" if side == "left" else "right", overflow="fold")
    for each in found.tried[:_FEW_TRIED]:
        beyond = each.error or " ".join(f"{name} {percent:.0f}" for name, percent in each.broken.items())
        tried.add_row(Text(each.changes), "-" if each.error else f"{100 * each.score:.1f}", Text(beyond))
    console.print(tried)
    if len(found.tried) > _FEW_TRIED:
        console.print(Text(f"{len(found.tried) - _FEW_TRIED} more settings were tried; --json lists all.", "dim"))
