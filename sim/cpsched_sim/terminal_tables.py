"""Print command output: progress on stderr, and narrow tables on stdout.

A table has at most 80 columns. The simulator is imported only to print a comparison, not to print lists of names.
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

COLUMNS_PER_TABLE = 7
"""Number of value columns that fit on a terminal with 80 columns. Other values are in further tables."""

PROGRESS_LINE_EVERY_S = 60.0
_UNWRAPPED_WIDTH = 240
_SYMBOL_LEGEND = "W: wait, D: run time, F = W + D: response time, r: processors"


def _make_console() -> Console:
    """Return a console for standard output that wraps lines only on a terminal."""
    found = Console()
    return found if found.is_terminal else Console(width=_UNWRAPPED_WIDTH)


@contextmanager
def progress_bar(title: str, of: str = "jobs", quiet: bool = False) -> Iterator[Callable[[float, int | None], None]]:
    """Yield a function of (done, total) that shows progress on stderr.

    It draws a bar or, without a terminal, prints a line per minute.
    """
    console = Console(stderr=True)
    began_s = told_s = time.monotonic()
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn(of),
        TimeRemainingColumn(), TextColumn("left"),
    )  # fmt: skip
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden or quiet) as bar:
        task = bar.add_task(title, total=None)

        def show_progress(done: float, total: int | None) -> None:
            nonlocal told_s
            bar.update(task, completed=done, total=total)
            now_s = time.monotonic()
            if hidden and not quiet and done and total and now_s - told_s > PROGRESS_LINE_EVERY_S:
                told_s = now_s
                left = format_duration((now_s - began_s) * (total - done) / done)
                console.print(Text(f"note: {int(done)} of {total} {of}, about {left} left"))

        yield show_progress


def print_simulation(simulation: Simulation, summed_up: Mapping[str, Any]) -> None:
    """Print the summary of one replay."""
    policy, workload = simulation.setup.policy, simulation.workload
    console = _make_console()
    who = Text(f"{policy.dispatcher} / {policy.predictor}", style="bold")
    console.print(who.append(f": {workload.name} on {workload.system}", style="not bold"))
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    summary = dict(summed_up)
    groups = {name: summary.pop(name) for name in ("accounts", "qos") if name in summary}
    for name, value in _flatten_summary(summary):
        table.add_row(Text(name), _format_full_value(value))
    console.print(table)
    for name, rows in groups.items():
        if name == "accounts" or len(rows) > 1:
            console.print(_account_or_qos_table(name, rows))
    for metric in simulation.more:
        console.print(Text(f"{metric.heading}: {metric.formula}", "dim"))


def _account_or_qos_table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
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


def _format_full_value(value: float | None) -> str:
    """Format a value in full, or as a dash if it was not measured."""
    if value is None:
        return "-"
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"


def _flatten_summary(summary: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    for name, value in summary.items():
        if isinstance(value, Mapping):
            for part, figure in value.items():
                yield f"{name} {part}", figure
        else:
            yield name, value


def print_plugin_list(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print names with description, parameters, defaults and source."""
    table = Table(show_header=False, box=None, padding=(0, 2, 1, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        settings = "  ".join(f"{name}={value}" for name, value in row["parameters"].items())
        parts = [(row["summary"], ""), *([(settings, "cyan")] if settings else []), (row["source"], "dim")]
        table.add_row(Text(row["name"]), Text("\n").join(Text(text, style) for text, style in parts))
    _make_console().print(table)


def print_metric_definitions(rows: Sequence[Mapping[str, str]]) -> None:
    """Print metrics, each with its formula, unit, direction, and source."""
    table = Table(show_header=False, box=None, padding=(0, 2, 1, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        unit = f" in {row['unit']}" if row["unit"] else ""
        facts = Text(f"{row['heading']}{unit}, {row['better']} is better", "cyan")
        table.add_row(Text(row["name"]), Text("\n").join((Text(row["formula"]), facts, Text(row["source"], "dim"))))
    _make_console().print(table)


class MetricTableColumn(NamedTuple):
    """A table column: heading, name of the value, factor and format."""

    heading: str
    name: str
    scale: float = 1.0
    form: str = ",.1f"


_JOBS = MetricTableColumn("jobs", "jobs", 1, ",d")
ACCURACY_COLUMNS = (
    _JOBS, MetricTableColumn("mean error\nmin", "mean_absolute_error_min"), MetricTableColumn("under\n%", "under", 100),
    MetricTableColumn("over\n%", "over", 100), MetricTableColumn("0.75 to 1.25\n%", "close", 100),
)  # fmt: skip
CALIBRATION_COLUMNS = (
    _JOBS, MetricTableColumn("covered\n%", "covered", 100), MetricTableColumn("shorter\n%", "shorter", 100),
    MetricTableColumn("longer\n%", "longer", 100),
    MetricTableColumn("median width\n% of walltime", "median_width", 100),
)  # fmt: skip
START_TIME_COLUMNS = (
    MetricTableColumn("cases", "cases", 1, ",.0f"),
    *(MetricTableColumn(f"in {percent} %\n%", f"coverage_{percent}") for percent in (50, 80, 95)),
    MetricTableColumn("pinball\nmin", "pinball_s", 1 / 60),
    MetricTableColumn("width 80 %\nmin", "median_width_80_s", 1 / 60),
    MetricTableColumn("within 1 min\n%", "within_1_min"), MetricTableColumn("within 10 min\n%", "within_10_min"),
    MetricTableColumn("own estimate's\npinball, min", "estimate_pinball_s", 1 / 60),
    MetricTableColumn("forecast's\npinball, min", "estimated_pinball_s", 1 / 60),
)  # fmt: skip

SLURM_ESTIMATE_COLUMNS = (
    START_TIME_COLUMNS[4], MetricTableColumn("absolute error\nmin", "absolute_error_s", 1 / 60),
    *START_TIME_COLUMNS[6:8],
)  # fmt: skip


def print_metric_table(
    title: str, label: str, rows: Mapping[str, Mapping[str, Any]], columns: Sequence[MetricTableColumn]
) -> None:
    """Print one line per name. `label` is the heading of the names."""
    table = Table(title=Text(title))
    table.add_column(label)
    for column in columns:
        table.add_column(column.heading, justify="right")
    for name, row in rows.items():
        table.add_row(Text(name), *(f"{each.scale * row[each.name]:{each.form}}" for each in columns))
    _make_console().print(table)


def print_comparison(
    title: str,
    rows: Sequence[ComparisonRow],
    baselines: Mapping[str, ComparisonRow | None],
    more: Sequence[Metric] = (),
) -> None:
    """Print two lines per combination: values, and percentages of the baseline.

    A legend follows.
    """
    from cpsched_sim.comparison import compared_metrics, percent_of_baseline

    shown, console = compared_metrics(more), _make_console()
    percents = {row.name: percent_of_baseline(row, baselines[row.name], more) for row in rows if row.summary}
    columns = COLUMNS_PER_TABLE if console.is_terminal else len(shown)
    for at in range(0, len(shown), columns):
        part = shown[at : at + columns]
        last = at + columns >= len(shown)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.title = None if at else Text(f"{title}: values, and % of the baseline")
        table.caption = Text(f"{_direction_note(shown)}; 74x: 74 times the baseline") if last else None
        _fill_comparison_table(table, rows, percents, part, times=at == 0)
        console.print(table)
    for metric in shown:
        console.print(Text(f"{metric.heading}: {metric.formula}", "dim"))
    console.print(Text(_SYMBOL_LEGEND, "dim"))


def _fill_comparison_table(
    table: Table,
    rows: Sequence[ComparisonRow],
    percents: Mapping[str, Mapping[str, float]],
    shown: Sequence[Metric],
    times: bool,
) -> None:
    """Add columns for the metrics and, with `times`, for decision times.

    `percents` contains the percentages of the baseline by row and metric.
    """
    table.add_column("dispatcher\npredictor", no_wrap=True)
    for heading in (*map(_format_heading, shown), *(["dispatch ms\nCPU s"] if times else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        label = Text(row.dispatcher, "bold").append(f"\n{row.predictor}", "not bold")
        if row.summary is None:
            table.add_row(label, "failed", style="red")
            continue
        percent = percents[row.name]
        names = [metric.name for metric in shown]
        shares = [format_percent_or_factor(percent[name]) if name in percent else "" for name in names]
        cells = [f"{format_short_number(row.summary[name])}\n{part}" for name, part in zip(names, shares, strict=True)]
        took = (
            [f"{format_short_number(row.summary['dispatch']['mean_ms'])}\n{format_short_number(row.summary['cpu_s'])}"]
            if times
            else []
        )
        table.add_row(label, *cells, *took)


def _format_heading(metric: Metric) -> str:
    """Return a narrow column heading on two lines.

    The second line has all but the first word, and the unit.
    """
    first, *rest = metric.heading.split()
    return "\n".join(line for line in (first, " ".join((*rest, metric.unit)).strip()) if line)


def _direction_note(shown: Sequence[Metric]) -> str:
    """Return a phrase such as `lower is better, except for: in use`."""
    others = [metric.heading for metric in shown if metric.better == "higher"]
    return "lower is better" + (f", except for: {', '.join(others)}" if others else "")


def format_percent_or_factor(percent: float) -> str:
    """Format a percentage, as a factor if it is large: 83.1%, 74x."""
    return f"{format_short_number(percent)}%" if percent < 999.5 else f"{format_short_number(percent / 100)}x"


_SHOWN_CANDIDATES = 6


def print_tuning_result(title: str, found: TuningResult) -> None:
    """Print the result of `cpsched tune`.

    It consists of the verdict, the settings on the test windows, and the best settings.
    """
    from cpsched.goal_presets import GOAL_METRICS
    from cpsched_sim.tuning.tuner import BASELINE_POLICY, format_exceeded_limits, format_relative_change

    console = _make_console()
    console.print(Text(found.verdict_sentence, "bold"))
    console.print(Text(f"{title}; goal: {found.goal}", "dim"))
    rows = {"current": found.present, **({"chosen": found.chosen} if found.chosen else {})}
    rows |= {each.spec.dispatcher: each for each in found.beside}
    judged = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    judged.title = (
        f"{found.windows[1]} windows not used for the choice, {found.jobs[1]:,} jobs: % of {BASELINE_POLICY.dispatcher}"
    )
    judged.caption = f"{BASELINE_POLICY.dispatcher}: in seconds, except bsld; lower is better"
    judged.add_column("")
    judged.add_column(BASELINE_POLICY.dispatcher, justify="right")
    for name in rows:
        judged.add_column(name, justify="right")
    for figure, words in GOAL_METRICS.items():
        shares = [f"{100 * each.against_baseline[figure].ratio:.1f}" for each in rows.values()]
        judged.add_row(f"{words} ({figure})", format_short_number(found.baseline[figure]), *shares)
    console.print(judged)
    if found.chosen is not None:
        for figure in ("score", *found.goal.weights):
            words = GOAL_METRICS.get(figure, figure)
            gain = format_relative_change(found.chosen.against_present[figure])
            console.print(Text(f"chosen compared with current, {words}: {gain}"))
    tried = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    tried.title = (
        f"{found.windows[0]} windows used for the choice, {found.jobs[0]:,} jobs: % of {BASELINE_POLICY.dispatcher}"
    )
    tried.caption = f"score: weighted geometric mean of {', '.join(found.goal.weights)}"
    for heading, side in (("changes", "left"), ("seeds", "right"), ("score", "right"), ("beyond a limit", "left")):
        tried.add_column(heading, justify="left" if side == "left" else "right", overflow="fold")
    for each in found.tried[:_SHOWN_CANDIDATES]:
        changes = "none (current setting)" if each.spec == found.present.spec else each.changes
        score = "-" if each.error else f"{100 * each.score:.1f}"
        tried.add_row(Text(changes), str(each.seeds), score, Text(each.error or format_exceeded_limits(each.broken)))
    console.print(tried)
    if len(found.tried) > _SHOWN_CANDIDATES:
        console.print(
            Text(f"{len(found.tried) - _SHOWN_CANDIDATES} more settings were tried; --json lists all.", "dim")
        )
