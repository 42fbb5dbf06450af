"""Write the Grafana dashboards as JSON from tables of panels: `python deploy/grafana/build.py`.

This program uses Grafana's foundation SDK. It is needed only to change a dashboard, because Grafana loads the JSON
files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
)

FOLDER = Path(__file__).resolve().parent / "dashboards"
DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
HERE = 'instance=~"$instance"'
THERE = HERE + ', partition=~"$partition"'
RATE = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: its title, description, unit (as in Grafana), and pairs of expression and legend."""

    title: str
    description: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    stacked: bool = False
    bounds: tuple[float, ...] = ()
    """For a single value: the thresholds for yellow and red."""
    words: tuple[tuple[str, str, str], ...] = ()
    """For a single value: (value, text, colour)."""


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard: single values at the top, followed by rows of panels."""

    uid: str
    title: str
    description: str
    figures: tuple[Panel, ...]
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def shares(metric: str, label: str, more: str = HERE) -> str:
    """Return an expression for the rate of a metric by label."""
    return f"sum by ({label}) (rate({metric}{{{more}}}{RATE}))"


def quantile(share: float, metric: str, more: str = HERE, label: str = "") -> str:
    """Return an expression for a quantile of a histogram."""
    return f"histogram_quantile({share}, sum by (le{label}) (rate({metric}_bucket{{{more}}}{RATE})))"


def mean(metric: str, more: str = HERE, label: str = "") -> str:
    """Return an expression for the mean of the values observed by a histogram or a summary."""
    by = f"by ({label}) " if label else ""
    return f"sum {by}(rate({metric}_sum{{{more}}}{RATE}))\n/ (sum {by}(rate({metric}_count{{{more}}}{RATE})) > 0)"


# --------------------------------------------------------------------------------------------------- the first figures

AT_A_GLANCE = (
    Panel("Mode", "The bridge's mode: control starts jobs, advise orders Slurm's queue, shadow only decides, paused "
          "releases jobs.", "none",
          ((f'sum by (instance) (3 * cpsched_mode{{{HERE}, mode="control"}} or 2 * cpsched_mode{{{HERE}, '
            f'mode="advise"}} or cpsched_mode{{{HERE}, mode="shadow"}})',
            "{{instance}}"),),
          words=(("0", "paused", "red"), ("1", "shadow", "blue"), ("2", "advise", "green"), ("3", "control", "green"))),
    Panel("Since the last successful cycle", "CpschedNoGoodCycle fires above one minute.", "s",
          ((f"time() - cpsched_last_success_timestamp_seconds{{{HERE}}}", "{{instance}}"),), bounds=(10, 60)),
    Panel("Failed cycles", "Share of failed cycles over ten minutes.", "percentunit",
          ((f"cpsched:failed_cycles:ratio10m{{{HERE}}}", "{{instance}}"),), bounds=(0.01, 0.05)),
    Panel("Jobs waiting", "Pending jobs that the bridge decides on.", "short",
          ((f"sum(cpsched_queued_jobs{{{THERE}}})", "jobs"),)),
    Panel("Oldest waiting", "Age of the oldest pending job that the bridge decides on.", "s",
          ((f"max(cpsched_oldest_pending_seconds{{{THERE}}})", "age"),), bounds=(3 * 86400, 7 * 86400)),
    Panel("Held by the bridge", "Jobs that the bridge may hold.", "short",
          ((f"sum(cpsched_held_jobs{{{HERE}}})", "jobs"),)),
    Panel("Failed starts", "Share of starts over ten minutes that Slurm rejected or did not execute.", "percentunit",
          ((f"max(cpsched:failed_starts:ratio10m{{{HERE}}}) or vector(0)", "share"),), bounds=(0.02, 0.1)),
    Panel("Alerts", "Firing alerts about the bridge.", "short",
          (('count(ALERTS{alertname=~"Cpsched.*", alertstate="firing"}) or vector(0)', "firing"),), bounds=(1, 2)),
)  # fmt: skip

SCHEDULING = Board(
    "cpsched-scheduling", "cpsched: Scheduling", "Service to jobs: waits, slowdowns, the queue and the machine.",
    AT_A_GLANCE,
    (
        ("The queue", (
            Panel("Waiting jobs by reason", "Pending jobs by kind of pending reason.", "short",
                  ((f"sum by (reason) (cpsched_waiting_jobs{{{HERE}}})", "{{reason}}"),), stacked=True),
            Panel("Waiting jobs by partition", "Pending jobs that the bridge decides on.", "short",
                  ((f"sum by (partition) (cpsched_queued_jobs{{{THERE}}})", "{{partition}}"),), stacked=True),
            Panel("Oldest by partition", "Age of the oldest pending job that the bridge decides on.", "s",
                  ((f"max by (partition) (cpsched_oldest_pending_seconds{{{THERE}}})", "{{partition}}"),)),
        )),
        ("Service to jobs", (
            Panel("Wait", "Queue time of started jobs: median and 95th percentile.", "s",
                  ((quantile(0.5, "cpsched_job_wait_seconds", THERE), "median"),
                   (quantile(0.95, "cpsched_job_wait_seconds", THERE), "95 %"))),
            Panel("Mean wait by partition", "Mean queue time of started jobs.", "s",
                  ((mean("cpsched_job_wait_seconds", THERE, "partition"), "{{partition}}"),)),
            Panel("Bounded slowdown", "Ratio of response time to run time (at least 10 s) of ended jobs.", "none",
                  ((quantile(0.5, "cpsched_job_bounded_slowdown_ratio"), "median"),
                   (quantile(0.95, "cpsched_job_bounded_slowdown_ratio"), "95 %"),
                   (mean("cpsched_job_bounded_slowdown_ratio"), "mean"))),
            Panel("Mean bounded slowdown by partition", "Mean bounded slowdown of ended jobs.", "none",
                  ((mean("cpsched_partition_bounded_slowdown_ratio", THERE, "partition"), "{{partition}}"),)),
            Panel("Starts and ends", "Jobs per second.", "ops",
                  ((f"sum(rate(cpsched_started_jobs_total{{{HERE}}}{RATE}))", "started"),
                   (f"sum(rate(cpsched_ended_jobs_total{{{HERE}}}{RATE}))", "ended"))),
            Panel("Starts by partition", "Started jobs per second.", "ops",
                  ((shares("cpsched_job_wait_seconds_count", "partition", THERE), "{{partition}}"),)),
        )),
        ("The machine", (
            Panel("In use", "Share of each resource that is in use, drained, down or reserved.",
                  "percentunit",
                  ((f"1 - sum by (resource) (cpsched_resource_free{{{HERE}}})\n"
                    f"/ (sum by (resource) (cpsched_resource_capacity{{{HERE}}}) > 0)", "{{resource}}"),)),
            Panel("Stranded GPUs", "Idle GPUs that the next typical job is expected not to be able to use.", "short",
                  ((f"sum(cpsched_stranded_gpus{{{HERE}}})", "stranded"),)),
            Panel("Running and starting", "Running jobs, and jobs that were released but have not been observed "
                  "running yet.", "short",
                  ((f"sum(cpsched_running_jobs{{{HERE}}})", "running"),
                   (f"sum(cpsched_starting_jobs{{{HERE}}})", "starting"))),
            Panel("Unmanaged jobs", "Unmanaged jobs as a share of all pending jobs.", "percentunit",
                  ((f"cpsched:unmanaged:ratio{{{HERE}}}", "{{instance}}"),)),
        )),
    ),
)  # fmt: skip

DECISIONS = Board(
    "cpsched-decisions", "cpsched: Decisions", "Cost of cycles, decision paths, and failures.",
    AT_A_GLANCE,
    (
        ("Time", (
            Panel("Decision time", "Median, 95th percentile and mean, compared with the time between two cycles.", "s",
                  ((quantile(0.5, "cpsched_cycle_phase_duration_seconds", HERE + ', phase="decide"'), "median"),
                   (quantile(0.95, "cpsched_cycle_phase_duration_seconds", HERE + ', phase="decide"'), "95 %"),
                   (mean("cpsched_cycle_phase_duration_seconds", HERE + ', phase="decide"'), "mean"),
                   (f"max(cpsched_cycle_interval_seconds{{{HERE}}})", "between two cycles"))),
            Panel("A cycle by phase", "Mean duration of each phase.", "s",
                  ((mean("cpsched_cycle_phase_duration_seconds", HERE, "phase"), "{{phase}}"),), stacked=True),
            Panel("From decision to running", "Time until a started job is observed running.", "s",
                  ((quantile(0.5, "cpsched_decision_to_running_seconds"), "median"),
                   (quantile(0.95, "cpsched_decision_to_running_seconds"), "95 %"))),
        )),
        ("How decisions are reached", (
            Panel("Paths", "Decisions per second by path and solver status.", "ops",
                  ((shares("cpsched_solves_total", "path, status"), "{{path}} {{status}}"),), stacked=True),
            Panel("Considered jobs and variables", "Mean size of decisions that considered at least one job.", "short",
                  ((mean("cpsched_decision_considered_jobs"), "jobs"),
                   (mean("cpsched_decision_variables"), "variables"))),
            Panel("Gap", "Mean gap between the best plan and its proven bound, as a share of the plan.", "percentunit",
                  ((mean("cpsched_decision_gap_ratio"), "gap"),)),
            Panel("Compared with EASY", "Results of recent jobs relative to a virtual EASY schedule.",
                  "percentunit", ((f"cpsched_easy_ratio{{{HERE}}}", "{{measure}}"),)),
            Panel("Weight of large jobs", "Weight of large jobs in the objective, adjusted from the comparison with "
                  "EASY.", "none",
                  ((f"cpsched_area_weight{{{HERE}}}", "{{instance}}"),)),
            Panel("Limits and fallbacks", "Share of searches that reached their limit, and share of "
                  "decisions made by the fallback.",
                  "percentunit",
                  ((f"cpsched:limit_hits:ratio15m{{{HERE}}}", "at the limit"),
                   (f"cpsched:fallbacks:ratio15m{{{HERE}}}", "fallback"))),
        )),
        ("Advice", (
            Panel("Order", "In advise mode: share of job pairs that Slurm's queue has in plan order.",
                  "percentunit", ((f"cpsched_boost_order_ratio{{{HERE}}}", "{{instance}}"),)),
            Panel("Boosts", "In advise mode: changed boosts per second.", "ops",
                  ((f"rate(cpsched_boost_changes_total{{{HERE}}}{RATE})", "{{instance}}"),)),
        )),
        ("Failures", (
            Panel("Cycles by result", "Cycles per second.", "ops",
                  ((shares("cpsched_cycles_total", "result"), "{{result}}"),), stacked=True),
            Panel("Events", "Events per second, by kind as in the journal.", "ops",
                  ((shares("cpsched_events_total", "kind"), "{{kind}}"),)),
            Panel("Commands", "Commands per second by kind and result; a command for several jobs counts once per job.",
                  "ops",
                  ((shares("cpsched_commands_total", "kind, result"), "{{kind}} {{result}}"),)),
        )),
        ("The process", (
            Panel("Memory", "Resident memory of the bridge.", "bytes",
                  ((f'process_resident_memory_bytes{{job="cpsched", {HERE}}}', "{{instance}}"),)),
            Panel("Processor", "CPU seconds per second.", "percentunit",
                  ((f'rate(process_cpu_seconds_total{{job="cpsched", {HERE}}}{RATE})', "{{instance}}"),)),
            Panel("Files", "Size of the journal and the ledger.", "bytes",
                  ((f"cpsched_journal_size_bytes{{{HERE}}}", "journal {{instance}}"),
                   (f"cpsched_ledger_size_bytes{{{HERE}}}", "ledger {{instance}}"))),
            Panel("Child process restarts", "Restarts per second of the process that calls the cluster.", "ops",
                  ((f"rate(cpsched_child_restarts_total{{{HERE}}}{RATE})", "{{instance}}"),)),
        )),
    ),
)  # fmt: skip


def directed(share: float, metric: str, direction: str) -> str:
    """Return an expression for a quantile in one direction."""
    return quantile(share, metric, f'{HERE}, direction="{direction}"')


PREDICTIONS = Board(
    "cpsched-predictions", "cpsched: Predictions and expected starts",
    "Accuracy of predicted run times and expected starts.",
    AT_A_GLANCE,
    (
        ("Predictions", (
            Panel("Prediction error", "Mean absolute binary logarithm of the ratio of actual to predicted run time: 1 "
                  "is a factor of two.", "none",
                  ((mean("cpsched_prediction_error_log2_ratio"), "now"),
                   (f"cpsched:prediction_error_log2:mean1h{{{HERE}}}", "one hour {{instance}}"))),
            Panel("Longer or shorter than predicted", "Ended jobs per second.", "ops",
                  ((shares("cpsched_prediction_error_log2_ratio_count", "direction"), "{{direction}}"),), stacked=True),
            Panel("Within a factor of two", "Share of ended jobs whose run time was predicted within a factor of two.",
                  "percentunit",
                  ((f'sum(rate(cpsched_prediction_error_log2_ratio_bucket{{{HERE}, le="1.0"}}{RATE}))\n'
                    f"/ (sum(rate(cpsched_prediction_error_log2_ratio_count{{{HERE}}}{RATE})) > 0)", "share"),)),
        )),
        ("Expected starts", (
            Panel("Late starts", "Delay relative to the first expected start: median and 95th percentile.", "s",
                  ((directed(0.5, "cpsched_start_time_error_seconds", "late"), "median"),
                   (directed(0.95, "cpsched_start_time_error_seconds", "late"), "95 %"))),
            Panel("Early starts", "Lead relative to the first expected start: median and 95th percentile.", "s",
                  ((directed(0.5, "cpsched_start_time_error_seconds", "early"), "median"),
                   (directed(0.95, "cpsched_start_time_error_seconds", "early"), "95 %"))),
            Panel("Early or late", "Starts per second for jobs with an expected start.", "ops",
                  ((shares("cpsched_start_time_error_seconds_count", "direction"), "{{direction}}"),), stacked=True),
            Panel("An hour late or more", "Share of starts over six hours. CpschedStartsSlip fires above 25 %.",
                  "percentunit", ((f"cpsched:late_starts:ratio6h{{{HERE}}}", "{{instance}}"),)),
        )),
        ("Intervals", (
            Panel("Intervals", "Starts per second for jobs with a forecast interval, by outcome.",
                  "ops", ((shares("cpsched_start_intervals_total", "outcome"), "{{outcome}}"),), stacked=True),
            Panel("Held", "Share of 80 % intervals that contained the start, over one day. CpschedIntervalsMiss fires "
                  "below 60 %.", "percentunit",
                  ((f"cpsched:held_intervals:ratio1d{{{HERE}}}", "{{instance}}"),)),
        )),
    ),
)  # fmt: skip

BOARDS = (SCHEDULING, DECISIONS, PREDICTIONS)


# -------------------------------------------------------------------------------------------------- into Grafana's JSON


def targets(panel: Panel) -> list[prometheus.Dataquery]:
    """Return the queries for a panel."""
    return [
        prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + i)).datasource(DATASOURCE)
        for i, (expression, legend) in enumerate(panel.lines)
    ]


def figure(panel: Panel, width: int) -> stat.Panel:
    """Return a panel with a single value."""
    made = stat.Panel().title(panel.title).description(panel.description).unit(panel.unit).datasource(DATASOURCE)
    made = made.height(4).span(width).color_mode(BigValueColorMode.BACKGROUND).targets(targets(panel))
    steps = [models.Threshold(value=None, color="green")]
    steps += [models.Threshold(value=b, color=c) for b, c in zip(panel.bounds, ("yellow", "red"), strict=False)]
    made = made.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    if panel.words:
        named = {value: models.ValueMappingResult(text=text, color=color) for value, text, color in panel.words}
        made = made.mappings([models.ValueMap(options=named)])
    return made


def lines(panel: Panel, width: int) -> timeseries.Panel:
    """Return a panel with lines over time."""
    made = timeseries.Panel().title(panel.title).description(panel.description).unit(panel.unit).datasource(DATASOURCE)
    made = made.height(8).span(width).min(0).fill_opacity(30 if panel.stacked else 5).targets(targets(panel))
    made = made.legend(
        common.VizLegendOptions()
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    return made.stacking(common.StackingConfig().mode(StackingMode.NORMAL)) if panel.stacked else made


def widths(panels: int) -> list[int]:
    """Return the widths of panels that fill each row, with at most three panels per row."""
    found: list[int] = []
    while panels:
        beside = 2 if panels in (2, 4) else min(3, panels)
        found += [24 // beside] * beside
        panels -= beside
    return found


def variables() -> Iterable[dashboard.DatasourceVariable | dashboard.QueryVariable]:
    """Return the dashboard variables: data source, instance and partition."""
    yield dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    for name, query in (
        ("instance", "label_values(cpsched_build_info, instance)"),
        ("partition", f"label_values(cpsched_queued_jobs{{{HERE}}}, partition)"),
    ):
        yield (
            dashboard.QueryVariable(name)
            .label(name.capitalize())
            .datasource(DATASOURCE)
            .query(query)
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )


def built(board: Board) -> str:
    """Return the dashboard as JSON."""
    made = dashboard.Dashboard(board.title).uid(board.uid).description(board.description).tags(["cpsched"])
    made = made.refresh("30s").time("now-6h", "now").timezone("browser").readonly()
    made = made.link(dashboard.DashboardLink("cpsched").type(models.DashboardLinkType.DASHBOARDS).tags(["cpsched"]))
    for variable in variables():
        made = made.with_variable(variable)
    number = count(1)
    made = made.with_row(dashboard.Row("At a glance").id(next(number)))
    for panel in board.figures:
        made = made.with_panel(figure(panel, 24 // len(board.figures)).id(next(number)))
    for title, panels in board.rows:
        made = made.with_row(dashboard.Row(title).id(next(number)))
        for panel, width in zip(panels, widths(len(panels)), strict=True):
            made = made.with_panel(lines(panel, width).id(next(number)))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


if __name__ == "__main__":
    for each in BOARDS:
        path = FOLDER / f"{each.uid}.json"
        path.write_text(built(each), encoding="utf-8")
        print("wrote", path)
