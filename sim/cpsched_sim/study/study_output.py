"""Write a study's outputs: a table as JSON Lines and as Parquet, and the report."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any
from zipfile import BadZipFile

import numpy as np

from cpsched_sim.errors import InputError
from cpsched_sim.file_io import write_atomically
from cpsched_sim.report_document import render_markdown, render_page
from cpsched_sim.study import study_report
from cpsched_sim.study.result_store import RESULTS_FILE, StudyResultStore
from cpsched_sim.study.study_results import StudyResults

RESULTS_TABLE, JOBS_TABLE, MARKDOWN_REPORT, HTML_REPORT = "results.parquet", "jobs.parquet", "report.md", "report.html"


def write_study_outputs(results: StudyResults) -> list[str]:
    """Write all outputs. Raise `InputError`.

    Return a sentence for each optional output that could not be written.
    """
    folder, notes = results.folder, []
    write_atomically(folder / RESULTS_FILE, study_json_lines(results).encode())
    if find_spec("pyarrow"):
        write_atomically(folder / RESULTS_TABLE, _rows_to_parquet(results.rows()))
        if results.campaign.words.jobs:
            write_atomically(folder / JOBS_TABLE, _schedules_to_parquet(results))
    else:
        notes.append(f"no {RESULTS_TABLE}: Parquet requires pyarrow: pip install 'cpsched[study]'")
    title, blocks = results.campaign.words.title, list(study_report.study_report_blocks(results))
    write_atomically(folder / MARKDOWN_REPORT, render_markdown(title, blocks).encode())
    write_atomically(folder / HTML_REPORT, render_page(title, blocks).encode())
    return notes


def study_json_lines(results: StudyResults) -> str:
    """Return one line of JSON per case: labels, digest, inputs, result and made."""
    return "".join(f"{json.dumps(line, sort_keys=True)}\n" for line in _result_lines(results))


def _result_lines(results: StudyResults) -> Iterator[dict[str, object]]:
    for case in results.campaign.cases:
        if (kept := results.kept.get(case.digest)) is not None:
            made = {name: value for name, value in kept.made.items() if name != "labels"}
            yield {
                "labels": dict(case.labels), "digest": case.digest, "inputs": kept.inputs, "result": kept.result,
                "made": made,
            }  # fmt: skip


def _schedules_to_parquet(results: StudyResults) -> bytes:
    """Return all schedules as one Parquet table, with a row per job and distinct case."""
    schedules = StudyResultStore(results.folder).schedules
    parts: list[dict[str, np.ndarray]] = []
    for digest, kept in results.kept.items():
        if kept.has_metric_values:
            path = schedules.path(digest)
            try:
                with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as columns:
                    found = {name: columns[name] for name in columns.files}
            except (OSError, ValueError, EOFError, BadZipFile) as error:
                rule = "is not a schedule: delete it, and run the same command again"
                raise InputError(f"{path}: {rule}") from error
            parts.append({"digest": np.full(len(found["job"]), digest), **found})
    names = list(parts[0]) if parts else []
    return _columns_to_parquet({name: np.concatenate([part[name] for part in parts]) for name in names})


def _rows_to_parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as a Parquet file with one column per name. Raise `InputError`.

    A missing value is null.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return _columns_to_parquet({name: [row.get(name) for row in rows] for name in names})


def _columns_to_parquet(columns: Mapping[str, Any]) -> bytes:
    """Return columns as a Parquet file. Raise `InputError`."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("Parquet requires pyarrow: pip install 'cpsched[study]'") from error
    file = io.BytesIO()
    table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
    parquet.write_table(table, file, compression="zstd")
    return file.getvalue()
