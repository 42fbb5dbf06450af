"""How figures are spread over the jobs of a study: what pictures and claims need, without the schedules themselves.

`python -m docs.scripts.papers.spreads mod17`: from the schedules in `build/studies/mod17`, which the study must keep
(`jobs: true`), into `studies/mod17/spreads.jsonl`. A line for each case, and one for each policy over all seeds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cpsched.metrics import FloatArray, step_counts
from cpsched_sim.files import write_atomically

ROOT = Path(__file__).resolve().parents[3]
STUDIES = ROOT / "studies"
BUILT = ROOT / "build" / "studies"
AXES = ("trace", "system", "load", "window", "site_policy", "seed", "drawn")
"""The labels that say whose jobs they are: cases that agree in them have the same jobs."""
SPREAD = ("count", "min", "first quartile", "median", "third quartile", "max", "mean", "deviation")
ALL = "all"
HOUR_S = 3600

Columns = Mapping[str, Any]
"""A schedule: `submit_s`, `start_s`, `end_s`, in order of arrival."""


def spread(values: FloatArray, weights: FloatArray | None = None) -> list[float]:
    """The figures that `SPREAD` names, four digits each; `weights` are how long each value holds."""
    if not len(values):
        return [0.0] * len(SPREAD)
    weights = np.ones(len(values)) if weights is None else weights
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    reached = np.cumsum(weights)
    quartiles = values[np.searchsorted(reached, np.array([0.25, 0.5, 0.75]) * reached[-1])]
    mean = float(np.average(values, weights=weights))
    deviation = float(np.sqrt(np.average((values - mean) ** 2, weights=weights)))
    found = [float(reached[-1]), float(values[0]), *quartiles.tolist(), float(values[-1]), mean, deviation]
    return [float(f"{value:.4g}") for value in found]


def slowdowns(jobs: Columns) -> FloatArray:
    """Slowdown of each job (mod17 section 5): (wait + run time) / run time."""
    found: FloatArray = (jobs["end_s"] - jobs["submit_s"]) / (jobs["end_s"] - jobs["start_s"])
    return found


def queues(schedules: Sequence[Columns]) -> list[tuple[FloatArray, FloatArray]]:
    """Of each schedule (queue length, seconds it held), without the time in which no schedule had a queue (mod17)."""
    lines = [step_counts(jobs["submit_s"], jobs["start_s"]) for jobs in schedules]
    at = np.unique(np.concatenate([times for times, _ in lines]))
    held = np.diff(at).astype(np.float64)
    lengths = []
    for times, length in lines:
        place = np.searchsorted(times, at[:-1], side="right") - 1
        lengths.append(np.where(place >= 0, length[place], 0).astype(np.float64))
    busy = np.any([length > 0 for length in lengths], axis=0)
    return [(length[busy], held[busy]) for length in lengths]


def of_workload(cases: Mapping[str, Columns], classes: Mapping[str, Sequence[float]], judged: str) -> dict[str, Any]:
    """By policy, the values behind each spread of one workload: {"slowdown": {class: values}, ..., "queue": ...}."""
    waited = np.any([jobs["start_s"] > jobs["submit_s"] for jobs in cases.values()], axis=0)
    found: dict[str, Any] = {}
    for (policy, jobs), queue in zip(cases.items(), queues(list(cases.values())), strict=True):
        run_s = jobs["end_s"] - jobs["start_s"]
        inside = waited if judged == "waiting" else np.ones(len(run_s), np.bool_)
        parts = {ALL: inside} | {
            name: inside & (run_s >= low * HOUR_S) & (run_s < high * HOUR_S) for name, (low, high) in classes.items()
        }
        columns = {"slowdown": slowdowns(jobs), "wait_s": (jobs["start_s"] - jobs["submit_s"]).astype(np.float64)}
        found[policy] = {name: {part: values[at] for part, at in parts.items()} for name, values in columns.items()}
        found[policy]["queue"] = queue
    return found


def lines(study: Path, built: Path) -> Iterator[dict[str, Any]]:
    """The lines of `spreads.jsonl`: cases in the order of the results, then policies over all their seeds."""
    paper = yaml.safe_load((study / "paper.yaml").read_text(encoding="utf-8"))
    workloads: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for text in (built / "results.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["result"]["outcome"] == "ended":
            key = tuple(line["labels"][axis] for axis in AXES)
            workloads.setdefault(key, {})[line["labels"]["policy"]] = line
    pooled: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for key, cases in workloads.items():
        schedules = {policy: _schedule(built, line["digest"]) for policy, line in cases.items()}
        for policy, values in of_workload(schedules, paper["classes"], paper["judged"]).items():
            labels = dict(zip(AXES, key, strict=True))
            result = cases[policy]["result"]
            pooled.setdefault((labels["trace"], policy), []).append(values)
            yield {**labels, "policy": policy, "schedule_sha256": result["schedule_sha256"], **_spreads([values])}
    for (trace, policy), values in pooled.items():
        yield {"trace": trace, "policy": policy, "seed": ALL, **_spreads(values)}


def _spreads(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Spreads of the values of one workload, or of several together."""
    found: dict[str, Any] = {}
    for name in ("slowdown", "wait_s"):
        parts = values[0][name]
        found[name] = {part: spread(np.concatenate([each[name][part] for each in values])) for part in parts}
    lengths, held = (np.concatenate([each["queue"][at] for each in values]) for at in (0, 1))
    return {**found, "queue": {ALL: spread(lengths, held)}}


def _schedule(built: Path, digest: str) -> dict[str, Any]:
    with np.load(built / "jobs" / f"{digest}.npz") as columns:
        return {name: columns[name] for name in ("submit_s", "start_s", "end_s")}


def main(names: Sequence[str]) -> None:
    """Write the spreads of each named study."""
    for name in names:
        found = list(lines(STUDIES / name, BUILT / name))
        text = "".join(json.dumps(line) + "\n" for line in found)
        write_atomically(STUDIES / name / "spreads.jsonl", text.encode())
        print(f"{name}: {len(found)} lines")


if __name__ == "__main__":
    main(sys.argv[1:])
