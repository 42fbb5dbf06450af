"""Studies of GPU placement without departures, as in FGD (Weng et al., USENIX ATC 2023, section 6).

Requests for whole GPUs or parts of one arrive one after the other until the capacity is exceeded. Nothing ends, and a
request that fits on no node is rejected. A study compares rules of placement by the share of GPUs that is allocated.

The nodes and the requests are files in openb's format (github.com/alibaba/clusterdata, cluster-trace-gpu-v2023), CSV
with a header, compressed or not. A file of arrivals has the columns `seed` and `order`: the requests in order, as row
numbers from 0.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from typing_extensions import override

from cpsched.kernels.device_placement import (
    BEST_FIT,
    FRAGMENTATION,
    MOST_DEVICES,
    PARTS,
    ROLLOUT,
    DeviceNodes,
    DevicePlacementRule,
    DeviceRequests,
    place_arrivals,
)
from cpsched.model import IntArray
from cpsched.model.typical_requests import typical_shares
from cpsched_sim.errors import InputError, InvalidFile
from cpsched_sim.experiments.case_store import Case, code_digest, compute_result_key
from cpsched_sim.experiments.task_runner import Tell
from cpsched_sim.file_io import file_sha256
from cpsched_sim.input.text_line_reader import read_text_lines
from cpsched_sim.input.yaml_tree import StrictFileSection, YamlTree
from cpsched_sim.report_document import ReportBlock, ReportParagraph, ReportTable
from cpsched_sim.study.json_case_results import JsonCaseResults, JsonCaseRun, PairedDifference, run_json_cases
from cpsched_sim.study.study_cases import require_input_file

PLACEMENT_KEY = "placement"
"""The key in a study file that makes it a study of placement."""
RULES = {"best-fit": BEST_FIT, "fgd": FRAGMENTATION, "rollout": ROLLOUT}
ROLLOUTS, ROLLOUT_ARRIVALS, ROLLOUT_SEED = 16, 100, 1
REPORTED_LOADS = (100, 130)
"""Requested GPUs in per cent of the cluster's, at which results are reported."""
_MAX_DEVICE_TYPES = 62


class PlacementSchema(StrictFileSection):
    """The files, workloads and rules of a study of placement. `{workload}` in a path is a workload's name."""

    nodes: Annotated[str, Field(min_length=1)]
    requests: Annotated[str, Field(min_length=1)]
    arrivals: Annotated[str, Field(min_length=1)]
    workloads: Annotated[Sequence[str], Field(min_length=1)]
    seeds: Annotated[Sequence[int], Field(min_length=1)]
    rules: Annotated[Sequence[Literal["best-fit", "fgd", "rollout"]], Field(min_length=1)]
    baseline: Literal["best-fit", "fgd", "rollout"] = "fgd"
    published: str | None = None
    """A CSV file with the columns workload, rule, allocated_100 and allocated_130 in per cent."""


class PlacementStudySchema(StrictFileSection):
    """A study file with the key `placement`."""

    title: Annotated[str, Field(min_length=1, max_length=1000)]
    placement: PlacementSchema


class PlacementResult(NamedTuple):
    """The result of one case: per cent of the cluster's GPUs, by requested per cent."""

    allocated: Mapping[str, float]
    fragmented: Mapping[str, float]
    """Idle GPUs that the next typical request is not expected to use."""
    rejected: int
    """Number of requests that fitted on no node."""


class PlacementCase(NamedTuple):
    """One workload with one order of arrivals and one rule."""

    workload: str
    seed: int
    rule: str

    def __str__(self) -> str:
        return f"{self.workload}, seed {self.seed}, {self.rule}"


class GpuWorkload(NamedTuple):
    """Kinds of requests. `kinds` has one row per kind: cores, memory, devices, parts and the bits of accepted types."""

    kinds: IntArray
    kind_of_request: IntArray
    typical_kinds: IntArray
    """Indices of typical kinds. Kinds that differ only in memory count as one."""
    typical_shares: np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class PlacementStudy:
    """A study of placement with its input files."""

    schema: PlacementStudySchema
    folder: Path
    """The folder of the study file."""

    @cached_property
    def cases(self) -> list[PlacementCase]:
        """Return all cases in order."""
        placement = self.schema.placement
        return [
            PlacementCase(workload, seed, rule)
            for workload in placement.workloads
            for seed in placement.seeds
            for rule in placement.rules
        ]

    def run(self, run: JsonCaseRun) -> PlacementResults:
        """Run the cases that have no result yet, and return all results."""
        digests: dict[str, str] = {}

        def make_case(case: PlacementCase) -> Case:
            placement = self.schema.placement
            paths = [
                require_input_file(template.replace("{workload}", case.workload), self.folder)
                for template in (placement.nodes, placement.requests, placement.arrivals)
            ]
            for path in paths:
                digests.setdefault(path, file_sha256(Path(path)))
            inputs = {
                "files": [digests[path] for path in paths], "seed": case.seed, "rule": case.rule, "code": code_digest(),
            }  # fmt: skip
            return Case(compute_result_key(inputs), (*paths, case.seed, case.rule))

        cases = [make_case(case) for case in self.cases]
        results = run_json_cases(run_placement, PlacementResult, cases, run)
        return PlacementResults(self.schema.title, dict(zip(self.cases, results, strict=True)), self)


def read_placement_study(tree: YamlTree) -> PlacementStudy | None:
    """Return the study in a file, or None if it is not a study of placement. Raise `InvalidFile`."""
    if not isinstance(tree.content, dict) or PLACEMENT_KEY not in tree.content:
        return None
    return PlacementStudy(tree.to_model(PlacementStudySchema), tree.path.absolute().parent)


def run_placement(task: Any, tell: Tell) -> PlacementResult:
    """Run one case in a worker process."""
    nodes_path, requests_path, arrivals_path, seed, rule = task
    nodes, types = read_nodes(Path(nodes_path))
    workload = read_gpu_workload(Path(requests_path), types)
    order = read_arrivals(Path(arrivals_path), seed, len(workload.kind_of_request))
    return place_workload(nodes, workload, order, rule)


def place_workload(nodes: DeviceNodes, workload: GpuWorkload, order: IntArray, rule: str) -> PlacementResult:
    """Place the requests in order, and measure after each request.

    The value at a load is the mean over the requests after which the rounded load has this value.
    """
    gpus = nodes.free_parts.sum()
    kinds = workload.kinds
    typical = _make_requests(kinds[workload.typical_kinds], workload.typical_shares)
    rollouts = np.random.default_rng(ROLLOUT_SEED).choice(
        len(workload.typical_shares), size=(ROLLOUTS, ROLLOUT_ARRIVALS), p=workload.typical_shares
    )
    scratch = np.zeros((2, nodes.free_parts.shape[1]), np.int64)
    arrivals = workload.kind_of_request[order]
    requests = _make_requests(kinds, np.zeros(len(kinds)))
    placed_on, fragmented = place_arrivals(
        nodes, requests, arrivals, DevicePlacementRule(RULES[rule], typical, rollouts, scratch)
    )

    parts = (kinds[:, 2] * kinds[:, 3])[arrivals]
    load = np.round(100 * parts.cumsum() / gpus)
    allocated = 100 * np.where(placed_on >= 0, parts, 0).cumsum() / gpus
    at_load = {str(percent): load == percent for percent in REPORTED_LOADS if (load == percent).any()}
    return PlacementResult(
        {percent: float(allocated[at].mean()) for percent, at in at_load.items()},
        {percent: float(100 * fragmented[at].mean() / gpus) for percent, at in at_load.items()},
        int((placed_on < 0).sum()),
    )


def _make_requests(kinds: IntArray, shares: np.ndarray[Any, np.dtype[np.float64]]) -> DeviceRequests:
    cores, memory, devices, parts, types = np.ascontiguousarray(kinds.T)
    return DeviceRequests(cores=cores, memory=memory, devices=devices, parts=parts, types=types, shares=shares)


def read_nodes(path: Path) -> tuple[DeviceNodes, list[str]]:
    """Read nodes (sn, cpu_milli, memory_mib, gpu, model). Return them by name, and the device types.

    Raise `InvalidFile` with the line and the field.
    """
    rows = sorted(_read_rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")), key=lambda row: row.text("sn"))
    types = sorted({row.text("model") for row in rows})
    if len(types) > _MAX_DEVICE_TYPES:
        raise InputError(f"{path}: {len(types)} device types: must be at most {_MAX_DEVICE_TYPES}")

    free_parts = np.zeros((len(rows), MOST_DEVICES), np.int64)
    for node, row in enumerate(rows):
        free_parts[node, : row.number("gpu", MOST_DEVICES)] = PARTS
    nodes = DeviceNodes(
        free_cores=np.array([row.number("cpu_milli") for row in rows]),
        free_memory=np.array([row.number("memory_mib") for row in rows]),
        free_parts=free_parts,
        types=np.array([1 << types.index(row.text("model")) for row in rows]),
    )
    return nodes, types


def read_gpu_workload(path: Path, types: Sequence[str]) -> GpuWorkload:
    """Read requests (cpu_milli, memory_mib, num_gpu, gpu_milli and optionally gpu_spec, types separated by `|`).

    Raise `InvalidFile` with the line and the field.
    """
    index: dict[tuple[int, int, int, int, int], int] = {}
    kind_of_request = []
    for row in _read_rows(path, ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")):
        devices = row.number("num_gpu", MOST_DEVICES)
        parts = row.number("gpu_milli", PARTS) if devices else 0
        if (devices and not parts) or (devices > 1 and parts != PARTS):
            raise row.error("gpu_milli", f"must be {PARTS} for each of several GPUs, and at least 1 for one GPU")
        accepted = [name for name in row.fields.get("gpu_spec", "").split("|") if name] or types
        bits = sum(1 << types.index(name) for name in set(accepted) if name in types)
        kind = (row.number("cpu_milli"), row.number("memory_mib"), devices, parts, bits)
        kind_of_request.append(index.setdefault(kind, len(index)))

    # Fragmentation ignores memory, as in FGD.
    counts = Counter[tuple[int, int, int, int]]()
    without_memory = [(cores, parts, devices, bits) for cores, _, devices, parts, bits in index]
    counts.update(without_memory[kind] for kind in kind_of_request)
    typical = typical_shares(counts)
    return GpuWorkload(
        np.array(list(index), np.int64),
        np.array(kind_of_request),
        np.array([without_memory.index(key) for key in typical]),
        np.array(list(typical.values())),
    )


def read_arrivals(path: Path, seed: int, requests: int) -> IntArray:
    """Return the order of arrivals with this seed, as row numbers of requests. Raise `InvalidFile`."""
    for row in _read_rows(path, ("seed", "order")):
        if row.number("seed") == seed:
            try:
                order = np.array(row.text("order").split(), np.int64)
            except (ValueError, OverflowError):
                raise row.error("order", "must be row numbers") from None
            if not len(order) or order.min() < 0 or order.max() >= requests:
                raise row.error("order", f"must be row numbers from 0 to {requests - 1}")
            return order
    raise InputError(f"{path}: has no arrivals with seed {seed}")


@dataclass(frozen=True, slots=True)
class _CsvRow:
    path: Path
    line: int
    fields: Mapping[str, str]

    def error(self, field: str, rule: str) -> InvalidFile:
        return InvalidFile(self.path, self.line, field, self.fields.get(field, ""), rule)

    def text(self, field: str) -> str:
        return self.fields[field]

    def number(self, field: str, most: int = 2**40) -> int:
        """Return a whole number from 0 to `most`."""
        text = self.fields[field]
        if not text.isascii() or not text.isdigit() or len(text) > len(str(most)) or int(text) > most:
            raise self.error(field, f"must be a whole number from 0 to {most}")
        return int(text)


def _read_rows(path: Path, columns: Sequence[str]) -> Iterator[_CsvRow]:
    """Iterate over the rows of a CSV file with a header that contains these columns."""
    header: list[str] = []
    rows = 0
    for line, text in read_text_lines(path):
        cells = next(csv.reader([text]), [])
        if not header:
            header = cells
            for column in columns:
                if column not in header:
                    raise InvalidFile(path, line, column, text.strip()[:80], "is not in the header")
        elif cells:
            if len(cells) != len(header):
                raise InvalidFile(path, line, "columns", str(len(cells)), f"must be {len(header)}, as in the header")
            rows += 1
            yield _CsvRow(path, line, dict(zip(header, cells, strict=True)))
    if not rows:
        raise InputError(f"{path}: has no rows")


@dataclass(frozen=True)
class PlacementResults(JsonCaseResults):
    """The results of a study by case."""

    study: PlacementStudy

    @override
    def rows(self) -> list[dict[str, Any]]:
        """Return a row per workload, rule and load, in per cent of the cluster's GPUs.

        - `allocated`, `allocated_stdev`, `fragmented`: over the seeds.
        - `published`: the published mean, or None.
        - `gain`, `gain_low`, `gain_high`: the paired difference to the baseline's allocated GPUs over the seeds, and
          its 95 % interval (Student's t).
        """
        placement = self.study.schema.placement
        published = self._read_published()
        rows = []
        for workload in placement.workloads:
            for load in map(str, REPORTED_LOADS):
                baseline = self._allocated(workload, placement.baseline, load)
                for rule in placement.rules:
                    by_seed = self._allocated(workload, rule, load)
                    if not by_seed:
                        continue
                    allocated, results = list(by_seed.values()), self.by_number(workload, rule)
                    gain = PairedDifference.of(by_seed, baseline)
                    rows.append({
                        "workload": workload, "load": int(load), "rule": rule, "seeds": len(by_seed),
                        "allocated": fmean(allocated),
                        "allocated_stdev": stdev(allocated) if len(allocated) > 1 else None,
                        "fragmented": fmean(results[seed].fragmented[load] for seed in by_seed),
                        "published": published.get((workload, rule, load)),
                        "gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high,
                    })  # fmt: skip
        return rows

    def _allocated(self, workload: str, rule: str, load: str) -> dict[int, float]:
        """Return the allocated GPUs at a load, by seed."""
        results = self.by_number(workload, rule)
        return {seed: result.allocated[load] for seed, result in results.items() if load in result.allocated}

    def _read_published(self) -> dict[tuple[str, str, str], float]:
        name = self.study.schema.placement.published
        if name is None:
            return {}
        path = Path(require_input_file(name, self.study.folder))
        published = {}
        for row in _read_rows(path, ("workload", "rule", *(f"allocated_{load}" for load in REPORTED_LOADS))):
            for load in REPORTED_LOADS:
                try:
                    value = float(row.text(f"allocated_{load}"))
                except ValueError:
                    raise row.error(f"allocated_{load}", "must be a number") from None
                published[row.text("workload"), row.text("rule"), str(load)] = value
        return published

    @override
    def report_blocks(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[ReportBlock]:
        yield ReportParagraph(
            "Per cent of the cluster's GPUs, means over the orders of arrivals. Gains are paired with "
            f"{self.study.schema.placement.baseline}, with 95 % intervals (Student's t)."
        )
        formats: dict[str, Callable[[Any], str]] = {
            "workload": str, "rule": str, "allocated": "{:.2f}".format, "allocated_stdev": "{:.2f}".format,
            "published": "{:.2f}".format, "gain": "{:+.2f}".format, "fragmented": "{:.2f}".format,
        }  # fmt: skip
        headings = ["workload", "rule", "allocated", "deviation", "published", "gain", "interval", "fragmented"]
        for load in REPORTED_LOADS:
            cells = []
            for row in rows:
                if row["load"] == load:
                    shown = {name: "-" if row[name] is None else form(row[name]) for name, form in formats.items()}
                    interval = "-" if row["gain_low"] is None else f"{row['gain_low']:+.2f} to {row['gain_high']:+.2f}"
                    values = list(shown.values())
                    cells.append([*values[:-1], interval, values[-1]])
            if cells:
                yield ReportTable(f"Requests for {load} % of the GPUs", headings, cells)
