"""`cpsched benchmark`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from cpsched_sim.cli.name_completion import complete_dispatcher
from cpsched_sim.cli.options import ParallelRunOptions, grouped
from cpsched_sim.cli.simulator_app import app, reporting
from cpsched_sim.cli.study_command import count, print_study, run_campaign
from cpsched_sim.cli_shell import print_message


@app.command()
@reporting
@grouped
def benchmark(
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for results and table.")],
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
            "--from", metavar="FILE", help="Reuse results from an earlier results.jsonl if the same code made them."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use only synthetic workloads, which need no trace.")] = False,
    training: Annotated[
        bool, typer.Option("--training", help="Use the training half, on which settings are chosen.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the cases and list missing traces.")] = False,
    on: Annotated[
        str | None, typer.Option("--on", metavar="ENGINE", help="Dask cluster, as for cpsched study.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Rerun cases that failed or did not end.")] = False,
    running: ParallelRunOptions,
) -> None:
    """Run the benchmark: fixed workloads, the suite's dispatchers, and yours. Repeat the command to resume.

    `cpsched study verify DIR` decides a sample again.
    """
    import yaml

    from cpsched.errors import require
    from cpsched_sim.file_io import write_atomically
    from cpsched_sim.study.benchmark_suite import TABLE, import_results, make_suite, render_table
    from cpsched_sim.study.campaign import campaign_of
    from cpsched_sim.study.result_store import StudyResultStore

    require(not only or bool(dispatcher), "--only", "nothing", "requires --dispatcher")
    words, store = make_suite(dispatcher or (), training, quick, only), StudyResultStore(out)
    with redirect_stdout(sys.stderr):  # a plug-in may print when it is imported
        campaign = campaign_of(words)
    for note in campaign.notes:
        print_message("note", note)
    if dry_run:
        count(campaign, store, running.jobs, retry, running.as_json)
        return

    def take_over() -> None:
        if results is not None:
            taken, others = import_results(campaign, store, results)
            print_message(
                "note",
                f"{taken} results taken from {results}; {others} skipped: other code, traces or dispatchers",
            )

    content = yaml.safe_dump(words, sort_keys=False).encode()
    rows = run_campaign(campaign, store, content, running, on, retry, take_over).rows()
    text = render_table(words["report"]["metrics"], rows)
    write_atomically(out / TABLE, text.encode())
    print_study(rows, out, running.as_json, lambda: text)
