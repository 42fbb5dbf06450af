"""Draw a schedule, from `schedule.csv.gz` or a replayed trace, to a file."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cpsched.errors import require
from cpsched.feasibility import amounts_by_node
from cpsched.formatting import format_count, format_duration
from cpsched.markup import Markup, make_markup_element
from cpsched.model import NEVER, Cluster, Placement, Request
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.views.status_view import GanttBar, GanttChartView
from cpsched_bridge.web.page import gantt_chart
from cpsched_bridge.web.page.gantt_chart import GanttWindow
from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES
from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.file_io import write_atomically
from cpsched_sim.input.text_line_reader import read_text_lines
from cpsched_sim.plugin_watchdog import STALL_TIMEOUT_S, watch_plugins
from cpsched_sim.result_files import require_new_files
from cpsched_sim.simulation import ReplaySpec, Simulation, replay_workload
from cpsched_sim.workloads.workload_loader import load

HEADING = ("job", "submit_s", "start_s", "end_s", "units", "nodes")
"""Header of a schedule file written by `cpsched simulate --out`."""
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class FinishedSchedule:
    """A finished schedule, with times in seconds on the trace's clock."""

    title: str
    node_names: Sequence[str]
    processors: Sequence[int]
    """Processors of each node. A schedule file does not contain them: the largest use of any node stands for them."""
    bars: Sequence[GanttBar]
    """Bars of the jobs that ran. An unknown `user` is empty."""
    from_s: int
    """Time of the first submission."""

    @property
    def end_s(self) -> int:
        """Time at which the last job ended."""
        return max((bar.end_s for bar in self.bars), default=self.from_s + 1)


def load_schedule(
    path: Path, system: str | None, dispatcher: str, predictor: str, max_jobs: int | None
) -> FinishedSchedule:
    """Return the schedule in a file or of a replayed trace.

    Raise `SimulationError` or `CpschedError`.
    """
    if is_schedule_file(path):
        return read_schedule(path)
    with watch_plugins(STALL_TIMEOUT_S) as patient:
        setup = ReplaySpec(PolicySpec.of(dispatcher, predictor, known=SIMULATION_REGISTRIES))
        workload = load(path, system, max_jobs=max_jobs, progress=patient.reset)
        return schedule_from_simulation(replay_workload(workload, setup, patient.reset))


def schedule_from_simulation(simulation: Simulation) -> FinishedSchedule:
    """Return the schedule that a replay produced."""
    schedule, workload = simulation.schedule, simulation.workload
    cluster = workload.cluster
    bars = [
        _make_bar(
            item.job.id,
            start_s,
            end_s,
            _count_processors(item.job.request, schedule.placement_of(at), cluster),
            item.job.user,
        )
        for at, (item, start_s, end_s) in enumerate(
            zip(workload.jobs, schedule.start_s.tolist(), schedule.end_s.tolist(), strict=True)
        )
        if start_s != NEVER
    ]
    from_s = min((item.job.submit_s for item in workload.jobs), default=0)
    return FinishedSchedule(workload.name, cluster.node_names, cluster.capacity[:, 0].tolist(), bars, from_s)


def _count_processors(request: Request, placement: Placement, cluster: Cluster) -> list[tuple[int, int]]:
    """Return the processors in use on each node of a placement."""
    amounts = amounts_by_node(request, placement, cluster.capacity)
    return [(node, int(used[0])) for node, used in amounts.items()]


def is_schedule_file(path: Path) -> bool:
    """Return whether a file begins with a schedule's header. Raise `InputError`."""
    first = next(read_text_lines(path), (1, ""))[1]
    return first.strip() == ",".join(HEADING)


def read_schedule(path: Path) -> FinishedSchedule:
    """Return the schedule from `cpsched simulate --out`.

    Raise `InvalidTrace`, with the line, or `InputError`.
    """
    rows = [_ScheduleFileRow(path, number, text) for number, text in read_text_lines(path) if number > 1]
    if not rows:
        raise InputError(f"{path}: contains no jobs")
    names = sorted(
        {name for row in rows for name, _ in row.nodes},
        key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)],
    )
    index = {name: at for at, name in enumerate(names)}
    bars = [
        _make_bar(
            row.parse_integer_column("job"),
            row.parse_integer_column("start_s"),
            row.parse_integer_column("end_s"),
            [(index[n], units) for n, units in row.nodes],
        )
        for row in rows
        if row.values["start_s"]
    ]
    most = _find_largest_use(bars)
    return FinishedSchedule(
        path.name, names, [most] * len(names), bars, min(row.parse_integer_column("submit_s") for row in rows)
    )


def _find_largest_use(bars: Sequence[GanttBar]) -> int:
    """Return the largest number of units in use on one node at any time. Ends come before begins."""
    changes = [(node, at_s, units) for bar in bars for node, number in bar.nodes
               for at_s, units in ((bar.begin_s, number), (bar.end_s, -number))]  # fmt: skip
    most, used = 1, Counter[int]()
    for node, _, units in sorted(changes):
        used[node] += units
        most = max(most, used[node])
    return most


class _ScheduleFileRow:
    """A line of a schedule file. Its methods raise `InvalidTrace`."""

    def __init__(self, path: Path, number: int, text: str) -> None:
        self.path, self.number = path, number
        cells = next(csv.reader([text]), [])
        if len(cells) != len(HEADING):
            raise InvalidTrace(path, number, "columns", str(len(cells)), f"must be {len(HEADING)}")
        self.values = dict(zip(HEADING, cells, strict=True))
        self.nodes = [self._parse_node_units(entry) for entry in self.values["nodes"].split()]

    def parse_integer_column(self, name: str) -> int:
        """Return the value of an integer column."""
        if not re.fullmatch(r"-?\d{1,15}", self.values[name]):
            raise InvalidTrace(self.path, self.number, name, self.values[name], "must be a whole number")
        return int(self.values[name])

    def _parse_node_units(self, entry: str) -> tuple[str, int]:
        name, colon, units = entry.rpartition(":")
        if not (colon and units.isascii() and units.isdigit()):
            raise InvalidTrace(self.path, self.number, "nodes", entry, "must be NAME:UNITS")
        return name, int(units)


def _make_bar(id: int, begin_s: int, end_s: int, nodes: list[tuple[int, int]], user: str = "") -> GanttBar:
    return GanttBar(id=id, label=str(id), user=user, kind="running", begin_s=begin_s, end_s=end_s, nodes=list(nodes))


def check_output_path(out: Path) -> None:
    """Raise `InvalidValue` or `InputError` if the drawing cannot be written.

    Call this before a long replay.
    """
    require(out.suffix in (".svg", ".html"), "--out", out, "must end in .svg or .html")
    require_new_files(out)


def parse_duration_option_s(option: str, text: str | None, otherwise: int) -> int:
    """Return the seconds in a duration such as `7200`, `120m`, `2h` or `1d`.

    Return `otherwise` if `text` is None. Raise `InvalidValue`.
    """
    if text is None:
        return otherwise
    found = re.fullmatch(r"(\d{1,12})([smhd]?)", text)
    require(found is not None, option, text, "must be a number of seconds, or a number followed by s, m, h or d")
    assert found is not None
    return int(found[1]) * _UNITS_S[found[2]]


def write_gantt_chart(found: FinishedSchedule, out: Path, from_text: str | None, to_text: str | None) -> str:
    """Draw part of a schedule to a file and return a summary line.

    The part's times are relative to the first submission. Raise `InvalidValue` for an invalid interval and `InputError`
    if the file cannot be written.
    """
    begin_s, end_s = found.from_s, found.end_s
    from_s = begin_s + parse_duration_option_s("--from", from_text, 0)
    to_s = begin_s + parse_duration_option_s("--to", to_text, end_s - begin_s)
    require(
        from_s < end_s,
        "--from",
        from_text or from_s,
        f"must be before the end, {format_duration(end_s - begin_s)} after the first submission",
    )
    require(to_s > from_s, "--to", to_text or to_s - begin_s, "must be after --from")
    check_output_path(out)
    bars = [bar for bar in found.bars if bar.begin_s < to_s and bar.end_s > from_s]
    chart = GanttChartView(
        now_s=begin_s, node_names=list(found.node_names), processors=list(found.processors), unavailable=[],
        outages=[], bars=bars,
    )  # fmt: skip
    window = GanttWindow(from_s, to_s, 0, len(found.node_names), live=False)
    title = f"{found.title}: {format_count(len(bars), 'job')} on {format_count(len(found.node_names), 'node')}"
    drawing = gantt_chart.draw_gantt_svg(chart, window, alone=True, title=title)
    write_atomically(out, (drawing if out.suffix == ".svg" else _make_html_page(title, drawing)).encode() + b"\n")
    legend = gantt_chart.BARS_LEGEND if gantt_chart.draws_single_jobs(chart, window) else gantt_chart.SHARES_LEGEND
    return f"wrote {out}: {title}\n{legend}"


def _make_html_page(title: str, drawing: Markup) -> str:
    """Return the drawing as a self-contained HTML page."""
    scheme = make_markup_element("meta", name="color-scheme", content="light dark")
    head = make_markup_element(
        "head", make_markup_element("meta", charset="utf-8"), scheme, make_markup_element("title", title)
    )
    return f"<!doctype html>\n{make_markup_element('html', head, make_markup_element('body', drawing), lang='en')}"
