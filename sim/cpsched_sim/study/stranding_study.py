"""Studies of the GPUs that rules of node choice leave stranded, with departures.

A workload is a file of GPU jobs, or Eurora's generator. It is cut into windows: the weeks of a file, or one generated
trace per window. Each window is replayed under each rule, on an empty cluster. The typical requests are those of the
jobs before the window. Even windows are for choosing a setting, and odd windows for reporting.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field
from typing_extensions import override

from cpsched.model import NEVER, Cluster, Job, Request, TypicalRequests
from cpsched.model.typical_requests import TYPICAL_DAYS, find_typical_requests
from cpsched.policy_spec import PolicySpec
from cpsched_sim.cluster.replay import ReplayOptions, Schedule, replay
from cpsched_sim.errors import InputError
from cpsched_sim.experiments.case_store import Case, code_digest, compute_result_key
from cpsched_sim.experiments.task_runner import Tell
from cpsched_sim.file_io import file_sha256
from cpsched_sim.input.text_line_reader import read_text_lines
from cpsched_sim.input.yaml_tree import StrictFileSection, YamlTree
from cpsched_sim.report_document import ReportBlock, ReportParagraph, ReportTable
from cpsched_sim.simulation import ReplaySpec
from cpsched_sim.simulation_metrics import PlacedRun, mean_stranded_gpus
from cpsched_sim.study.json_case_results import JsonCaseResults, JsonCaseRun, PairedDifference, run_json_cases
from cpsched_sim.study.study_cases import require_input_file
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.eurora_generator import generate_eurora_jobs

STRANDING_KEY = "stranding"
"""The key in a study file that makes it a study of stranded GPUs."""
GPUS_PER_NODE = 8
LARGE_GPUS = 8
"""Number of GPUs from which a job counts as large."""
DAY_S, HOUR_S = 86_400, 3600
WARM_UP_SHARE = 0.1
"""Share of a window, at its beginning, that is not measured."""
HALVES = ("even", "odd")


class StrandingWorkloadSchema(StrictFileSection):
    """A workload: a CSV file (timestamp, duration, num_gpus), else Eurora's generator.

    The windows have `days` days. For a file, the number of nodes with 8 GPUs is such that the jobs of each window
    demand the share `load` of the GPUs. For Eurora, `load` scales the number of jobs.
    """

    jobs: str | None = None
    days: Annotated[float, Field(gt=0)]
    windows: Annotated[int, Field(ge=4, le=1000)]
    load: Annotated[float, Field(gt=0)]


class StrandingRuleSchema(StrictFileSection):
    """A rule of node choice: a dispatcher with settings, and whether it chooses nodes by the typical requests."""

    dispatcher: str
    least_stranded_gpus: bool = False


class StrandingSchema(StrictFileSection):
    """The workloads and rules of a study. Each rule is compared with `subject`."""

    workloads: Annotated[Mapping[str, StrandingWorkloadSchema], Field(min_length=1)]
    rules: Annotated[Mapping[str, StrandingRuleSchema], Field(min_length=2)]
    subject: str


class StrandingStudySchema(StrictFileSection):
    """A study file with the key `stranding`."""

    title: Annotated[str, Field(min_length=1, max_length=1000)]
    stranding: StrandingSchema


class StrandingResult(NamedTuple):
    """The result of one window with one rule."""

    stranded_gpu_h: float
    idle_gpu_h: float
    total_gpu_h: float
    large_wait_h: float
    """Mean wait of the jobs with at least 8 GPUs, in hours."""
    wait_h: float
    """Mean wait of all jobs, in hours."""


class StrandingCase(NamedTuple):
    """A window of a workload, with a rule."""

    workload: str
    window: int
    rule: str

    def __str__(self) -> str:
        return f"{self.workload}, window {self.window}, {self.rule}"


class StrandingWindow(NamedTuple):
    """A window's jobs and cluster."""

    jobs: Sequence[TraceJob]
    cluster: Cluster
    typical: TypicalRequests
    """The typical requests of the jobs before the window."""

    @classmethod
    def of(cls, jobs: Sequence[TraceJob], cluster: Cluster, before: Iterable[TraceJob]) -> StrandingWindow:
        """Return the window. Raise `InputError` if no job before it requests a GPU."""
        typical = find_typical_requests((item.job.request for item in before), cluster.resources)
        if typical is None:
            raise InputError("no job before the window requests a GPU")
        return cls(jobs, cluster, typical)


@dataclass(frozen=True)
class StrandingStudy:
    """A study of stranded GPUs with its input files."""

    schema: StrandingStudySchema
    folder: Path

    @property
    def cases(self) -> list[StrandingCase]:
        """Return all cases in order."""
        stranding = self.schema.stranding
        return [
            StrandingCase(name, window, rule)
            for name, workload in stranding.workloads.items()
            for window in range(workload.windows)
            for rule in stranding.rules
        ]

    def run(self, run: JsonCaseRun) -> StrandingResults:
        """Run the cases that have no result yet, and return all results."""
        stranding = self.schema.stranding
        paths = {
            name: None if workload.jobs is None else require_input_file(workload.jobs, self.folder)
            for name, workload in stranding.workloads.items()
        }
        digests = {name: path and file_sha256(Path(path)) for name, path in paths.items()}
        cases = []
        for case in self.cases:
            workload, rule = stranding.workloads[case.workload], stranding.rules[case.rule]
            inputs = {
                "workload": workload.model_dump() | {"jobs": digests[case.workload]}, "window": case.window,
                "rule": rule.model_dump(), "code": code_digest(),
            }  # fmt: skip
            task = (workload.model_copy(update={"jobs": paths[case.workload]}), case.window, rule)
            cases.append(Case(compute_result_key(inputs), task))
        results = run_json_cases(run_window, StrandingResult, cases, run)
        return StrandingResults(self.schema.title, dict(zip(self.cases, results, strict=True)), self.schema)


def read_stranding_study(tree: YamlTree) -> StrandingStudy | None:
    """Return the study in a file, or None if it is not a study of stranded GPUs. Raise `InvalidFile`."""
    if not isinstance(tree.content, dict) or STRANDING_KEY not in tree.content:
        return None
    schema = tree.to_model(StrandingStudySchema)
    if schema.stranding.subject not in schema.stranding.rules:
        raise tree.make_error((STRANDING_KEY, "subject"), schema.stranding.subject, "must be a rule")
    return StrandingStudy(schema, tree.path.absolute().parent)


# ------------------------------------------------------------------------------------------ windows


def run_window(task: Any, tell: Tell) -> StrandingResult:
    """Run one case in a worker process."""
    workload, number, rule = task
    window = _file_window(workload, number) if workload.jobs else _eurora_window(workload, number)
    cluster = replace(window.cluster, typical=window.typical if rule.least_stranded_gpus else None)
    policy = ReplaySpec(PolicySpec.parse(rule.dispatcher)).build()
    return measure_window(window, replay(window.jobs, cluster, policy, ReplayOptions(strict=True)))


def measure_window(window: StrandingWindow, schedule: Schedule) -> StrandingResult:
    """Return the result of a replayed window. It is measured after the warm-up, until the last submission."""
    jobs, typical = window.jobs, window.typical
    submit_s = np.array([item.job.submit_s for item in jobs])
    from_s, to_s = int(submit_s[0] + WARM_UP_SHARE * (submit_s[-1] - submit_s[0])), int(submit_s[-1])
    started = np.flatnonzero(schedule.start_s != NEVER).tolist()
    runs = [
        PlacedRun(jobs[at].job.request, int(schedule.start_s[at]), int(schedule.end_s[at]), schedule.placement_of(at))
        for at in started
    ]
    use = mean_stranded_gpus(runs, window.cluster, typical, from_s, to_s)
    hours = (to_s - from_s) / HOUR_S
    gpus = np.array([item.job.request.units * item.job.request.per_unit[typical.gpu] for item in jobs])
    wait_h, counted = (schedule.start_s - submit_s) / HOUR_S, (schedule.start_s != NEVER) & (submit_s >= from_s)
    large = counted & (gpus >= LARGE_GPUS)
    return StrandingResult(
        use.stranded * hours, use.idle * hours, use.total * hours,
        float(wait_h[large].mean()) if large.any() else 0.0, float(wait_h[counted].mean()),
    )  # fmt: skip


def _file_window(workload: StrandingWorkloadSchema, number: int) -> StrandingWindow:
    """Return a window of a file. The first window begins `days` days after the first job."""
    jobs = read_gpu_jobs(Path(workload.jobs or ""))
    length_s = workload.days * DAY_S
    from_s = jobs[0].job.submit_s + (1 + number) * length_s
    window = [item for item in jobs if from_s <= item.job.submit_s < from_s + length_s]
    before = [item for item in jobs if from_s - TYPICAL_DAYS * DAY_S <= item.job.submit_s < from_s]
    demand = sum(item.job.request.units * item.job.request.per_unit[0] * item.run_s for item in window)
    largest = max(item.job.request.units for item in window)
    nodes = max(largest, ceil(demand / (length_s * workload.load * GPUS_PER_NODE)))
    return StrandingWindow.of(window, Cluster.of([[GPUS_PER_NODE]] * nodes, ["gpus"]), before)


def _eurora_window(workload: StrandingWorkloadSchema, number: int) -> StrandingWindow:
    """Return the second half of a generated trace. Its first half determines the typical requests."""
    jobs = generate_eurora_jobs(2 * workload.days, number, workload.load)
    from_s = workload.days * DAY_S
    window = [item for item in jobs if item.job.submit_s >= from_s]
    before = [item for item in jobs if item.job.submit_s < from_s]
    return StrandingWindow.of(window, System(load_system("eurora")).cluster, before)


def read_gpu_jobs(path: Path) -> list[TraceJob]:
    """Read jobs (timestamp, duration, num_gpus) in order of submission, for nodes of 8 GPUs.

    A job takes equal numbers of GPUs on as few nodes as possible. Its walltime is its run time.
    """
    rows = csv.DictReader(text for _, text in read_text_lines(path))
    jobs = []
    for row in rows:
        gpus, run_s = int(row["num_gpus"]), max(1, round(float(row["duration"])))
        nodes = ceil(gpus / GPUS_PER_NODE)
        request = Request(nodes, (ceil(gpus / nodes),), distinct=True)
        jobs.append((int(datetime.fromisoformat(row["timestamp"] + "+00:00").timestamp()), run_s, request))
    jobs.sort(key=lambda job: job[0])
    return [TraceJob(Job(id, *job), job[1]) for id, job in enumerate(jobs, start=1)]


# ------------------------------------------------------------------------------------------ results


@dataclass(frozen=True)
class StrandingResults(JsonCaseResults):
    """The results of a study by case."""

    schema: StrandingStudySchema

    @override
    def rows(self) -> list[dict[str, Any]]:
        """Return a row per workload, half of the windows, and rule.

        `stranded_percent` is the share of all GPU-hours. The differences are those of the subject to the rule, paired
        by window: the mean, and its 95 % interval (Student's t).
        """
        stranding = self.schema.stranding
        return [
            row
            for workload in stranding.workloads
            for half in range(len(HALVES))
            for rule in stranding.rules
            if (row := self._row(workload, half, rule)) is not None
        ]

    def _row(self, workload: str, half: int, rule: str) -> dict[str, Any] | None:
        subjects, others = (self._by_window(workload, half, name) for name in (self.schema.stranding.subject, rule))
        if not others:
            return None
        found = others.values()
        return {
            "workload": workload, "half": HALVES[half], "rule": rule, "windows": len(others),
            "stranded_gpu_h": fmean(each.stranded_gpu_h for each in found),
            "stranded_percent": fmean(map(_stranded_percent, found)),
            "idle_percent": fmean(100 * each.idle_gpu_h / each.total_gpu_h for each in found),
            "large_wait_h": fmean(map(_large_wait_h, found)), "wait_h": fmean(each.wait_h for each in found),
            "differences": {
                name: PairedDifference.of(
                    {window: value(result) for window, result in subjects.items()},
                    {window: value(result) for window, result in others.items()},
                )._asdict()
                for name, value in (("stranded_percent", _stranded_percent), ("large_wait_h", _large_wait_h))
            },
        }  # fmt: skip

    def _by_window(self, workload: str, half: int, rule: str) -> dict[int, StrandingResult]:
        results = self.by_number(workload, rule)
        return {window: result for window, result in results.items() if window % len(HALVES) == half}

    @override
    def report_blocks(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[ReportBlock]:
        yield ReportParagraph(
            f"Means over windows. Differences are those of {self.schema.stranding.subject} to the rule, paired "
            "by window, with 95 % intervals (Student's t). A negative difference is an improvement."
        )
        headings = ["half", "rule", "stranded, % of all GPU-hours", "difference", "wait of large jobs, h", "difference",
                    "wait, h"]  # fmt: skip
        for workload in dict.fromkeys(row["workload"] for row in rows):
            cells = [
                [
                    row["half"], row["rule"], f"{row['stranded_percent']:.2f}",
                    _format_difference(row["differences"]["stranded_percent"]), f"{row['large_wait_h']:.2f}",
                    _format_difference(row["differences"]["large_wait_h"]), f"{row['wait_h']:.2f}",
                ]
                for row in rows if row["workload"] == workload
            ]  # fmt: skip
            yield ReportTable(workload, headings, cells)


def _stranded_percent(result: StrandingResult) -> float:
    return 100 * result.stranded_gpu_h / result.total_gpu_h


def _large_wait_h(result: StrandingResult) -> float:
    return result.large_wait_h


def _format_difference(difference: Mapping[str, float | None]) -> str:
    if difference["mean"] is None or difference["low"] is None:
        return "-"
    return f"{difference['mean']:+.2f} ({difference['low']:+.2f} to {difference['high']:+.2f})"
