"""`cpsched benchmark`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from cpsched_sim.cli.name_completion import complete_dispatcher
from cpsched_sim.cli.options import ParallelRunOptions, expand_option_groups
from cpsched_sim.cli.simulator_app import app, reporting
from cpsched_sim.cli.study_command import print_case_counts, print_study_results, run_study_cases
from cpsched_sim.command_conventions import print_message


@app.command()
@reporting
@expand_option_groups
def benchmark(
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the results and the table.")],
    dispatcher: Annotated[
        list[str] | None,
        typer.Option(
            "--dispatcher",
            "-d",
            metavar="NAME",
            help="Add a dispatcher: a name with settings, or my.module:Class.",
            autocompletion=complete_dispatcher,
        ),
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="Run only these dispatchers and the baseline.")] = False,
    results: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Reuse results from an earlier results.jsonl written by the same code."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use only synthetic workloads, which need no trace.")] = False,
    training: Annotated[
        bool, typer.Option("--training", help="Use the training half, on which settings are chosen.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the cases and list missing traces.")] = False,
    on: Annotated[
        str | None, typer.Option("--on", metavar="ENGINE", help="A Dask cluster, as for cpsched study.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Rerun cases that failed or did not finish.")] = False,
    running: ParallelRunOptions,
) -> None:
    """Run the benchmark's workloads with the suite's dispatchers and yours.

    Repeat the command to resume.

    `cpsched study verify DIR` runs a sample again.
    """
    import yaml

    from cpsched.errors import require
    from cpsched_sim.file_io import write_atomically
    from cpsched_sim.study.benchmark_suite import (
        TABLE_FILE,
        import_benchmark_results,
        make_benchmark_study,
        render_benchmark_table,
    )
    from cpsched_sim.study.result_store import StudyResultStore
    from cpsched_sim.study.study_cases import build_study_cases

    require(not only or bool(dispatcher), "--only", "nothing", "requires --dispatcher")
    words, store = make_benchmark_study(dispatcher or (), training, quick, only), StudyResultStore(out)
    with redirect_stdout(sys.stderr):  # a plug-in may print when it is imported
        campaign = build_study_cases(words)
    for note in campaign.notes:
        print_message("note", note)
    if dry_run:
        print_case_counts(campaign, store, running.jobs, retry, running.as_json)
        return

    def import_earlier_results() -> None:
        if results is not None:
            taken, others = import_benchmark_results(campaign, store, results)
            print_message(
                "note",
                f"{taken} results reused from {results}; {others} skipped: different code, traces or dispatchers",
            )

    content = yaml.safe_dump(words, sort_keys=False).encode()
    rows = run_study_cases(campaign, store, content, running, on, retry, import_earlier_results).rows()
    text = render_benchmark_table(words["report"]["metrics"], rows)
    write_atomically(out / TABLE_FILE, text.encode())
    print_study_results(rows, out, running.as_json, lambda: text)
