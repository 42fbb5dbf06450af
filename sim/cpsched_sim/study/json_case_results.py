"""Run the cases of a study whose results are small, and store results and failures as JSON, one file per case."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from cpsched_sim.experiments.bootstrap_statistics import mean_interval
from cpsched_sim.experiments.case_store import Case, CaseRunner, CaseStore, ResultFormat
from cpsched_sim.experiments.task_runner import Fractions, TaskExecutor, TaskFailure, Work
from cpsched_sim.file_io import require_writable_folder, write_atomically
from cpsched_sim.report_document import ReportBlock, render_markdown, render_page
from cpsched_sim.study.study_report import HTML_REPORT, MARKDOWN_REPORT


class CaseFailure(NamedTuple):
    """Why a case has no result. Like a result, it is stored."""

    why: str


class JsonCaseRun(NamedTuple):
    """How the cases of a study run."""

    out: Path
    """Folder of the results."""
    engine: TaskExecutor
    progress: Fractions | None = None
    retry: bool = False
    """Whether a case that failed runs again."""


def run_json_cases(work: Work, result_type: type[Any], cases: Sequence[Case], run: JsonCaseRun) -> list[Any]:
    """Run the cases that have no result yet. Return each result, or a `CaseFailure`.

    `result_type` is the `NamedTuple` that `work` returns.
    """
    require_writable_folder(run.out)

    def decode(content: bytes) -> Any:
        fields = json.loads(content)
        return CaseFailure(**fields) if fields.keys() == {"why"} else result_type(**fields)

    def to_stored_result(case: Case, returned: Any) -> Any:
        return CaseFailure(returned.why) if isinstance(returned, TaskFailure) else returned

    result_format = ResultFormat(
        ".json", lambda result: (json.dumps(result._asdict(), sort_keys=True) + "\n").encode(), decode
    )
    runner = CaseRunner(work, run.engine, CaseStore(run.out / "cases", result_format), to_stored_result)
    earlier = runner.find_results(cases)
    if run.retry:
        earlier = {at: result for at, result in earlier.items() if not isinstance(result, CaseFailure)}
    return runner.run(cases, run.progress, earlier)


class PairedDifference(NamedTuple):
    """The mean of paired differences, and its 95 % interval (Student's t). Each is None if there are too few pairs."""

    mean: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Mapping[int, float], others: Mapping[int, float]) -> PairedDifference:
        """Compare the values with the others of the same number."""
        paired = [value - others[number] for number, value in values.items() if number in others]
        low, high = mean_interval(paired) or (None, None)
        return cls(fmean(paired) if paired else None, low, high)


@dataclass(frozen=True)
class JsonCaseResults(ABC):
    """The results of a study by case: (workload, number, rule), where the number is a seed or a window."""

    title: str
    results: Mapping[Any, Any]
    """A result, or a `CaseFailure`, by case."""

    @property
    def failures(self) -> list[str]:
        """Return a sentence for each failed case."""
        return [f"{case}: {result.why}" for case, result in self.results.items() if isinstance(result, CaseFailure)]

    def by_number(self, workload: str, rule: str) -> dict[int, Any]:
        """Return the results of a workload and a rule without failures, by the seed or window of the case."""
        return {
            number: result
            for (of_workload, number, of_rule), result in self.results.items()
            if (of_workload, of_rule) == (workload, rule) and not isinstance(result, CaseFailure)
        }

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of `results.json`."""

    @abstractmethod
    def report_blocks(self, rows: Sequence[Mapping[str, Any]]) -> Iterable[ReportBlock]:
        """Return the blocks of the report on these rows."""

    def write(self, out: Path) -> str:
        """Write `results.json` and the report. Return the report as Markdown."""
        rows = self.rows()
        blocks = list(self.report_blocks(rows))
        write_atomically(out / "results.json", (json.dumps(rows, indent=1) + "\n").encode())
        write_atomically(out / HTML_REPORT, render_page(self.title, blocks).encode())
        text = render_markdown(self.title, blocks)
        write_atomically(out / MARKDOWN_REPORT, text.encode())
        return text
