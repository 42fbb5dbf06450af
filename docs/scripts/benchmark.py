"""The table of the benchmark's landed results, `studies/benchmark/results.jsonl`."""

from __future__ import annotations

import json

from cpsched_sim.study import benchmark_suite
from cpsched_sim.study.campaign import Case
from cpsched_sim.study.result_store import StoredResult
from cpsched_sim.study.study_results import row_of
from docs.scripts.papers.spreads import STUDIES

FILE = STUDIES / "benchmark" / "results.jsonl"


def table() -> str:
    """What `cpsched benchmark` prints of these results."""
    lines = map(json.loads, FILE.read_text(encoding="utf-8").splitlines())
    rows = [
        row_of(Case(line["labels"], {}, line["inputs"]), StoredResult(line["inputs"], line["result"], line["made"]))
        for line in lines
    ]
    return benchmark_suite.table(benchmark_suite.suite()["report"]["metrics"], rows).rstrip()
