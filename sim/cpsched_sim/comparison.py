"""Compare replays of one trace, as percentages of a baseline.

There is one replay per combination of dispatcher and predictor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

from cpsched.errors import CpschedError, UnknownName, require
from cpsched.formatting import abbreviated_repr, format_number, join_repr_lines
from cpsched.metrics import METRICS, Metric, ScheduleData, find_metric
from cpsched.policy_spec import OVERRUN, PolicySpec, setting_names
from cpsched.registry import PolicyRegistries, import_path
from cpsched_sim import data_frames
from cpsched_sim.cluster.replay import SchedulingOverhead
from cpsched_sim.recorded_schedule import RECORDED_NAME as RECORDED
from cpsched_sim.recorded_schedule import RecordedSchedule, mismatch_warning, recorded_schedule_of
from cpsched_sim.report_document import ReportParagraph, ReportTable, render_fragment
from cpsched_sim.simulation import (
    DispatcherLike,
    MetricLike,
    PredictorLike,
    ReplaySpec,
    Simulation,
    plugin_display_name,
    policy_names_and_registries,
    replay_workload,
    to_workload,
)
from cpsched_sim.site.fairness import site_policy_metrics
from cpsched_sim.site.policy_file import SitePolicyFile
from cpsched_sim.workloads.workload_loader import Workload

if TYPE_CHECKING:
    from cpsched_sim.data_frames import DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class ComparisonRow:
    """One combination with its summary, or with the reason for its failure in `error`.

    The summary is that of `Simulation.summary`. `measures` is set if requested, and `simulation` if the replay ran in
    this process.
    """

    dispatcher: str
    predictor: str
    summary: Mapping[str, Any] | None = None
    error: str = ""
    measures: ScheduleData | None = None
    hints: tuple[str, ...] = ()
    """Hints about the settings (see `Simulation.hints`)."""
    simulation: Simulation | None = None

    __repr__ = abbreviated_repr

    @property
    def name(self) -> str:
        """Return "dispatcher/predictor".

        The recorded schedule has no predictor, so only its name is returned.
        """
        return f"{self.dispatcher}/{self.predictor}" if self.predictor else self.dispatcher


def recorded_schedule_rows(
    found: RecordedSchedule | None, baseline: str | None, more: Sequence[Metric] = ()
) -> list[ComparisonRow]:
    """Return the recorded schedule as a row, or [] if no starts are recorded.

    Raise `InvalidValue` if the recorded schedule is the baseline but missing.
    """
    require(found is not None or baseline != RECORDED, "baseline", baseline, "the trace has no recorded starts")
    return [ComparisonRow(RECORDED, "", found.summary(more), measures=found.measures)] if found is not None else []


def comparison_warnings(found: RecordedSchedule | None, rows: Iterable[ComparisonRow]) -> list[str]:
    """Return warnings about comparing replays with the recorded schedule.

    Each is one sentence.
    """
    waits_s = [row.summary["mean_wait_s"] for row in rows if row.summary is not None and row.name != RECORDED]
    why = mismatch_warning(found, waits_s)
    return [*(found.notes() if found is not None else ()), *([why] if why else [])]


def compared_metrics(more: Sequence[Metric] = ()) -> tuple[Metric, ...]:
    """Return the metrics that comparisons show as percentages of the baseline."""
    return (*(row for row in METRICS if row.compared), *more)


class PolicyCombination(NamedTuple):
    """A dispatcher and a predictor as text, with the registries of their names."""

    setup: ReplaySpec
    known: PolicyRegistries


def make_policy_combinations(
    dispatchers: Sequence[DispatcherLike],
    predictors: Sequence[PredictorLike],
    settings: Mapping[str, object],
    charge: SchedulingOverhead = None,
) -> list[PolicyCombination]:
    """Return all combinations, with the settings that apply to them.

    Raise `UnknownName` for unknown names.
    """
    found: list[PolicyCombination] = []
    taken, everything = set[str](), {OVERRUN}
    pairs = product(
        zip(dispatchers, make_unique_labels(dispatchers), strict=True),
        zip(predictors, make_unique_labels(predictors), strict=True),
    )
    for (one, label), (other, other_label) in pairs:
        (dispatcher, predictor), known = policy_names_and_registries(one, other, (label, other_label), afresh=True)
        names = setting_names(known.dispatchers.find(dispatcher)) | {OVERRUN}
        names |= setting_names(known.predictors.find(predictor))
        mine = {name: value for name, value in settings.items() if name.rpartition(".")[2] in names}
        setup = ReplaySpec(PolicySpec.of(dispatcher, predictor, mine, known), charge)
        setup.build(known=known)
        found.append(PolicyCombination(setup, known))
        taken |= set(mine)
        everything |= names
    require(bool(found), "--dispatcher, --predictor", "", "must each contain at least one name")
    for name in settings:
        if name not in taken:
            raise UnknownName("parameter of any of these", name, everything)
    return found


def make_unique_labels(things: Sequence[object]) -> list[str]:
    """Return a label for each item. Number repeated labels.

    Two instances of a class have the same label, for example.
    """
    words = [thing if isinstance(thing, str) else import_path(thing) for thing in things]
    return [f"{word}#{n}" if (n := words[: at + 1].count(word)) > 1 else word for at, word in enumerate(words)]


def require_known_baseline(chosen: Iterable[PolicyCombination], baseline: str | None) -> None:
    """Raise `UnknownName` unless `baseline` is a dispatcher or a combination."""
    policies = [setup.policy for setup, _ in chosen]
    known = {RECORDED} | {name for p in policies for name in (p.dispatcher, f"{p.dispatcher}/{p.predictor}")}
    if baseline is not None and baseline not in known:
        raise UnknownName("baseline", baseline, known)


def map_rows_to_baselines(rows: Sequence[ComparisonRow], baseline: str | None) -> dict[str, ComparisonRow | None]:
    """Return the baseline row for each row name.

    If `baseline` is a dispatcher, each row is compared with that dispatcher under the row's own predictor. If it is
    dispatcher/predictor, all rows are compared with that combination. The default is the first row.
    """
    by_name = {row.name: row for row in rows}
    if baseline is not None and baseline not in by_name:
        theirs = {row.predictor: by_name.get(f"{baseline}/{row.predictor}") for row in rows}
        first = next((row for row in theirs.values() if row is not None), None)
        return {row.name: theirs[row.predictor] if row.predictor else first for row in rows}
    return dict.fromkeys(by_name, by_name[baseline or rows[0].name])


def percent_of_baseline(
    row: ComparisonRow, baseline: ComparisonRow | None, more: Sequence[Metric] = ()
) -> dict[str, float]:
    """Return a row's metrics as percentages of the baseline's, or {} if either failed."""
    if row.summary is None or baseline is None or baseline.summary is None:
        return {}
    mine, theirs = row.summary, baseline.summary
    return {
        each.name: 100 * mine[each.name] / theirs[each.name] for each in compared_metrics(more) if theirs[each.name]
    }


def comparison_to_json(
    rows: Sequence[ComparisonRow], baselines: Mapping[str, ComparisonRow | None], more: Sequence[Metric] = ()
) -> dict[str, Any]:
    """Return the comparison as one JSON object."""
    return {
        "results": [
            {
                "dispatcher": row.dispatcher,
                "predictor": row.predictor,
                "summary": row.summary,
                "percent": percent_of_baseline(row, baselines[row.name], more),
                "error": row.error or None,
            }
            for row in rows
        ]
    }


def comparison_table_rows(
    rows: Sequence[ComparisonRow], baselines: Mapping[str, ComparisonRow | None], more: Sequence[Metric] = ()
) -> Iterable[Sequence[object]]:
    """Yield a table with the metrics of each combination, then their percentages."""
    times = ("mean_ms", "median_ms", "p99_ms", "max_ms")
    shown = tuple(each.name for each in compared_metrics(more))
    others = tuple(each.name for each in METRICS if not each.compared)
    plain = ("jobs", *shown, *others, "rounds", "cpu_s", "violations")
    yield (
        "dispatcher", "predictor", *plain, *(f"dispatch_{name}" for name in times),
        *(f"{name}_percent" for name in shown), "error",
    )  # fmt: skip
    for row in rows:
        summary = row.summary or {}
        percent = percent_of_baseline(row, baselines[row.name], more)
        yield (
            row.dispatcher,
            row.predictor,
            *(summary.get(name, "") for name in plain),
            *(summary.get("dispatch", {}).get(name, "") for name in times),
            *(percent.get(name, "") for name in shown),
            row.error,
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """Several simulations of one trace. Printing the object shows a table.

    `simulations` contains the successful simulations by "dispatcher/predictor". `rows` contains all combinations in the
    requested order, followed by the recorded schedule if the trace has one. `comparison_warnings` lists the differences
    between the replays and the record.
    """

    title: str
    rows: tuple[ComparisonRow, ...]
    baseline: str | None
    more: tuple[Metric, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def simulations(self) -> dict[str, Simulation]:
        """Return the successful simulations, by "dispatcher/predictor"."""
        return {row.name: row.simulation for row in self.rows if row.simulation is not None}

    @property
    def hints(self) -> list[str]:
        """Return the hints of all simulations, each with its combination's name."""
        return [f"{row.name}: {hint}" for row in self.rows for hint in row.hints]

    def __getitem__(self, name: str) -> Simulation:
        """Return the simulation of "dispatcher/predictor", or of a dispatcher with a single predictor.

        Raise `UnknownName` for other names.
        """
        known = self.simulations
        matches = [key for key in known if name in (key, key.partition("/")[0])]
        if len(matches) != 1:
            raise UnknownName("combination", name, known)
        return known[matches[0]]

    def to_frame(self) -> DataFrame:
        """Return the metrics as a pandas frame with one row per combination.

        Raise `InputError` without pandas.
        """
        lines = list(comparison_table_rows(self.rows, map_rows_to_baselines(self.rows, self.baseline), self.more))
        return data_frames.rows_to_frame(lines)

    def to_markdown(self) -> str:
        """Return the metrics and their percentages of the baseline as a Markdown table."""
        return self._build_table().markdown()

    def _repr_html_(self) -> str:
        """Return the table as HTML for a notebook."""
        return render_fragment(self._build_table(), *map(ReportParagraph, self.hints))

    def _build_table(self) -> ReportTable:
        shown, measured_by = compared_metrics(self.more), map_rows_to_baselines(self.rows, self.baseline)
        heading = ["dispatcher", "predictor"]
        heading += [text for each in shown for text in (f"{each.heading} {each.unit}".strip(), "%")]
        rows = [self._format_row(row, measured_by[row.name], shown) for row in self.rows]
        return ReportTable(self.title, heading, rows)

    def _format_row(self, row: ComparisonRow, measured_by: ComparisonRow | None, shown: Sequence[Metric]) -> list[str]:
        if row.summary is None:
            return [row.dispatcher, row.predictor, f"failed: {row.error}"]
        percent = percent_of_baseline(row, measured_by, self.more)
        shares = [f"{percent[each.name]:.1f}" if each.name in percent else "" for each in shown]
        figures = [format_number(row.summary[each.name]) for each in shown]
        return [row.dispatcher, row.predictor, *(text for pair in zip(figures, shares, strict=True) for text in pair)]

    def __repr__(self) -> str:
        shown = compared_metrics(self.more)
        cells = [["", *(metric.heading for metric in shown)]]
        for row in self.rows:
            name = " / ".join(plugin_display_name(part) for part in (row.dispatcher, row.predictor) if part)
            figures = (
                [format_number(row.summary[each.name]) for each in shown] if row.summary else [f"failed: {row.error}"]
            )
            cells.append([name, *figures])
        widths = [max(len(line[at]) for line in cells if len(line) > 2) for at in range(len(shown) + 1)]
        widths[0] = max(len(line[0]) for line in cells)
        lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=False)) for line in cells]
        lines += [f"hint: {hint}" for hint in self.hints]
        return join_repr_lines([self.title, *lines, *(f"warning: {each}" for each in self.warnings)], "to_frame()")


def compare(
    trace: str | PathLike[str] | Workload,
    dispatchers: Sequence[DispatcherLike],
    predictors: Sequence[PredictorLike] = ("walltime",),
    *,
    baseline: str | None = None,
    settings: Mapping[str, object] | None = None,
    charge: SchedulingOverhead = None,
    metrics: Sequence[MetricLike] = (),
    policy: str | PathLike[str] | SitePolicyFile | None = None,
) -> Comparison:
    """Replay a trace with every dispatcher and every predictor in this process.

    The arguments are those of `simulate`, but `dispatchers` and `predictors` are sequences. A setting applies to the
    combinations that have it. Each combination uses its own copy of an instance, in its state before the first
    simulation, so that no combination benefits from what another has learned. The row of a failed combination contains
    the error. If the trace has recorded starts, the last row is the recorded schedule, and `baseline` may be "as
    recorded". Raise `CpschedError` for invalid names and values, and `SimulationError` for unusable files.
    """
    workload = to_workload(trace, policy)
    more = tuple(map(find_metric, metrics))
    chosen = make_policy_combinations(dispatchers, predictors, settings or {}, charge)
    require_known_baseline(chosen, baseline)
    shown = (*more, *(site_policy_metrics(workload.site) if workload.site is not None else ()))
    found = recorded_schedule_of(workload)
    recorded = recorded_schedule_rows(found, baseline, shown)
    rows = (*(_replay_combination(workload, setup, known, more) for setup, known in chosen), *recorded)
    return Comparison(
        f"{workload.name} on {workload.system}", rows, baseline, shown, tuple(comparison_warnings(found, rows))
    )


def _replay_combination(
    workload: Workload, setup: ReplaySpec, known: PolicyRegistries, more: tuple[Metric, ...]
) -> ComparisonRow:
    names = setup.policy.dispatcher, setup.policy.predictor
    try:
        simulation = replay_workload(workload, setup, known=known, more=more)
        summary, hints = simulation.summary(), simulation.hints
        return ComparisonRow(*names, summary, measures=simulation.measures, hints=hints, simulation=simulation)
    except CpschedError as error:
        return ComparisonRow(*names, error=str(error))
    except Exception as error:  # a failing plug-in must not affect the other rows
        return ComparisonRow(*names, error=f"{type(error).__name__}: {error}")
