"""Run the cases of a study whose results are small, and store results and failures as JSON, one file per case."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cpsched_sim.experiments.case_store import Case, CaseRunner, CaseStore, ResultFormat
from cpsched_sim.experiments.task_runner import Fractions, TaskExecutor, TaskFailure, Work
from cpsched_sim.file_io import require_writable_folder


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
