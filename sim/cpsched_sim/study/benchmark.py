"""The benchmark: a fixed suite of workloads and dispatchers as a study, to which others add dispatchers of their own.

`benchmark.yaml` beside this module is the suite. A folder of its results is the folder of a study: what a study does
with it (going on after a stop, verifying, Parquet) holds here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from cpsched_sim.document import Table
from cpsched_sim.errors import Unusable
from cpsched_sim.experiments.keys import key_of
from cpsched_sim.experiments.statistics import LEVEL
from cpsched_sim.files import sha256_of
from cpsched_sim.reading.tree import read_tree
from cpsched_sim.study.campaign import Campaign, found_file
from cpsched_sim.study.deciding import ENDED
from cpsched_sim.study.ranking import Ratio, compared
from cpsched_sim.study.report import heading
from cpsched_sim.study.running import decision_ms
from cpsched_sim.study.store import Store
from cpsched_sim.study.verifying import results_in
from cpsched_sim.study.words import STRICT, LimitWords, Load, Seed, Text, TraceWords, Window

SUITE = Path(__file__).with_name("benchmark.yaml")
TABLE = "benchmark.md"
DECISION = "decision_cpu_ms"
Split = Literal["training", "test"]


class PartWords(BaseModel):
    """Some workloads of a split."""

    model_config = STRICT
    traces: Annotated[Sequence[Text], Field(min_length=1)]
    windows: Annotated[Sequence[Window], Field(min_length=1)] = ("whole",)
    seeds: Annotated[Sequence[Seed], Field(min_length=1)] = (0,)


class SuiteWords(BaseModel):
    """The whole suite."""

    model_config = STRICT
    title: Text
    traces: Mapping[Text, TraceWords]
    dispatchers: Mapping[Text, Text]
    baseline: Text
    """The dispatcher to which all figures are ratios."""
    estimates: Mapping[Text, Text]
    loads: Sequence[Load]
    splits: Mapping[Split, Sequence[PartWords]]
    quick: Sequence[Text]
    """The traces of the quick part."""
    limits: LimitWords
    metrics: Sequence[Text]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A benchmark to be run: the words of its study, and what was left out, a sentence each."""

    words: dict[str, Any]
    notes: tuple[str, ...]


def suite() -> SuiteWords:
    """The suite of this version of cpsched. Raises `InvalidFile`."""
    return read_tree(SUITE).as_model(SuiteWords)


def chosen(
    words: SuiteWords,
    folder: Path,
    own: Sequence[str] = (),
    split: Split = "test",
    quick: bool = False,
    alone: bool = False,
) -> Chosen:
    """The suite as a study, with dispatchers of one's `own` behind the suite's.

    Traces are looked for in `folder` and where `CPSCHED_TRACES` says; one that is missing, or another one than the
    suite's, is left out with a note. `quick`: the traces that need no file. `alone`: own dispatchers and the baseline.
    """
    here, notes = list[str](), list[str]()
    for name, trace in words.traces.items():
        if quick and name not in words.quick:
            continue
        why = _missing(name, trace, folder)
        if why:
            notes.append(why)
        else:
            here.append(name)
    names = [words.baseline] if alone else list(words.dispatchers)
    names += [name for name in dict.fromkeys(own) if name not in names]
    grids = [
        {**part.model_dump(mode="json"), "traces": usable, "loads": list(words.loads),
         "dispatchers": names, "predictors": list(words.estimates)}
        for part in words.splits[split]
        if (usable := [name for name in part.traces if name in here])
    ]  # fmt: skip
    traces = {name: words.traces[name].model_dump(mode="json", exclude_defaults=True) for name in here}
    title = f"{words.title}, {split}{', quick' if quick else ''}"
    report = {"baseline": f"{words.baseline} / {next(iter(words.estimates))}", "metrics": list(words.metrics)}
    study = {
        "title": title, "traces": traces, "dispatchers": dict(words.dispatchers), "predictors": dict(words.estimates),
        "grids": grids, "limits": words.limits.model_dump(), "report": report,
    }  # fmt: skip
    return Chosen(study, tuple(notes))


def _missing(name: str, trace: TraceWords, folder: Path) -> str:
    """Why a trace cannot be used, and how to get it; empty where it can."""
    if trace.file is None:
        return ""
    path = found_file(trace.file, folder)
    if path is None:
        return f"{name} is left out: {trace.file} is not here; to get it: {trace.recipe}"
    if (digest := sha256_of(path)) != trace.sha256:
        return f"{name} is left out: {path} is another file, by its digest {digest}; to get it: {trace.recipe}"
    return ""


def adopt(campaign: Campaign, store: Store, path: Path) -> tuple[int, int]:
    """Take over the results of a file of lines that are of today's code and traces, and not there yet.

    How many were taken, and how many are of other code, other traces or another suite. Raises `Unusable` where a line
    is no result, or is not as it was when it was kept.
    """
    taken = others = 0
    done, lines = store.before(campaign).done, list(results_in(path))
    for where, digest, line in lines:
        if line is None or key_of(line.inputs) != digest or not line.is_as_kept:
            raise Unusable(f"{where}: has changed since it was kept")
    for _, digest, line in lines:
        if digest not in campaign.distinct:
            others += 1
        elif digest not in done and line is not None:
            store.keep_line(campaign.distinct[digest], line)
            taken += 1
    return taken, others


def table(words: SuiteWords, rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of the benchmark as Markdown: ratios to the baseline under the same estimate, best first by the first
    measure, with intervals over workloads."""
    rows = [{**row, DECISION: decision_ms(row.get("cpu_s"), row.get("rounds"))} for row in rows]
    parts = [
        f"Ratios to {words.baseline} with the same estimates (geometric means over workloads), in brackets the "
        f"interval of {LEVEL:.0%}. Less is better. The last columns: CPU time of a decision, and cases with figures.",
    ]
    metrics = [*words.metrics, DECISION]
    headings = [heading(name).partition(",")[0] for name in words.metrics]
    for estimate in words.estimates:
        mine = [row for row in rows if row["predictor"] == estimate]
        names = list(dict.fromkeys(row["dispatcher"] for row in mine))
        found = {name: [_to_baseline(mine, words, metric, name) for metric in metrics] for name in names}
        names.sort(key=lambda name: _rank(found[name][0]))
        head = ["dispatcher", *headings, "decision", "cases"]
        lines = []
        for name in names:
            ended = [row["outcome"] == ENDED for row in mine if row["dispatcher"] == name]
            *measures, decision = found[name]
            cells = [*map(_cell, measures), "-" if decision is None else f"{decision.ratio:.2g}"]
            lines.append([name, *cells, f"{sum(ended)} of {len(ended)}"])
        parts.append(f"Estimates: {estimate}")
        parts.append(Table("", head, lines).markdown())
    return "\n\n".join(parts) + "\n"


def _to_baseline(rows: Sequence[Mapping[str, Any]], words: SuiteWords, metric: str, name: str) -> Ratio | None:
    return compared(rows, metric, name, words.baseline, by="dispatcher")


def _rank(ratio: Ratio | None) -> tuple[bool, float]:
    return ratio is None, ratio.ratio if ratio is not None else 0.0


def _cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio.ratio:.2f}" + (f" ({ratio.low:.2f}-{ratio.high:.2f})" if ratio.low is not None else "")
