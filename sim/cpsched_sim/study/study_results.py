"""A study with the results of its cases, as flat rows or a pandas frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpsched.formatting import format_count
from cpsched_sim.study.result_store import StoredCaseResult
from cpsched_sim.study.study_cases import StudyCase, StudyCases


@dataclass(frozen=True, slots=True, eq=False)
class StudyResults:
    """A study and the results of its cases. A case that has not run has no result."""

    campaign: StudyCases
    kept: Mapping[str, StoredCaseResult]
    """Stored results by digest."""
    folder: Path

    def __repr__(self) -> str:
        outcomes = Counter(kept.result["outcome"] for kept in self.kept.values())
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
        cases = format_count(len(self.campaign.cases), "case")
        return f"<StudyResults {self.campaign.words.title}: {cases}, {counts or 'no results'}, in {self.folder}>"

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row per case: labels, outcome, metric values and cost."""
        return [flat_case_row(case, self.kept[case.digest]) for case in self.campaign.cases if case.digest in self.kept]

    def to_frame(self) -> Any:
        """Return the rows as a pandas frame. Raise `InputError` without pandas."""
        from cpsched_sim import data_frames

        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        return data_frames.rows_to_frame([names, *([row.get(name) for name in names] for row in rows)])


def flat_case_row(case: StudyCase, kept: StoredCaseResult) -> dict[str, Any]:
    """Return one case as a flat row."""
    result, made = kept.result, kept.made
    decision = {f"decision_{name}": value for name, value in (made.get("decision") or {}).items()}
    versions = {f"version_{name}": value for name, value in (made.get("versions") or {}).items()}
    return {
        **case.labels, "digest": case.digest, "outcome": result["outcome"], "why": result["why"],
        **{name: value for name, value in (result.get("figures") or {}).items() if isinstance(value, int | float)},
        **{name: result.get(name) for name in ("left_waiting", "rounds", "violations", "schedule_sha256")},
        "cpu_s": made.get("cpu_s"), "wall_s": made.get("wall_s"), "share": made.get("share"), **decision, **versions,
        "machine": made.get("machine"), "machine_load": made.get("load"), "date": made.get("date"),
        "result_sha256": made.get("result_sha256"),
    }  # fmt: skip


def cpu_ms_per_round(cpu_s: float | None, rounds: int | None) -> float | None:
    """Return the CPU time per round in ms, or None if either is unknown or 0."""
    return 1000 * cpu_s / rounds if cpu_s and rounds else None
