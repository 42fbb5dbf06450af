"""`cpsched study` and `cpsched benchmark`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cpsched.formatting import format_duration
from cpsched_sim.cli.options import ParallelRunOptions, complete_dispatcher, expand_option_groups
from cpsched_sim.cli.simulator_app import app, reporting
from cpsched_sim.command_conventions import print_message, print_report

if TYPE_CHECKING:
    from cpsched_sim.experiments.task_runner import TaskExecutor
    from cpsched_sim.study.placement_study import PlacementStudy
    from cpsched_sim.study.result_store import StudyResultStore
    from cpsched_sim.study.stranding_study import StrandingStudy
    from cpsched_sim.study.study_cases import StudyCases
    from cpsched_sim.study.study_report import StudyResults

study_app = typer.Typer(help="Run many cases described in one file, and verify results.", no_args_is_help=True)
app.add_typer(study_app, name="study")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRunOptions(ParallelRunOptions):
    """Options for commands that run cases here or on a Dask cluster."""

    on: Annotated[
        str | None,
        typer.Option(
            "--on", metavar="ENGINE", help="A Dask cluster: tcp://HOST:PORT, a scheduler file, or module:function."
        ),
    ] = None

    def make_executor(self, case_limit_s: float = inf) -> TaskExecutor:
        """Return the executor of the cases, each of which takes at most `case_limit_s`."""
        from cpsched_sim.experiments.dask_executor import make_task_executor

        return make_task_executor(self.on, self.jobs, self.decide_timeout, case_limit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRunOptions(TaskRunOptions):
    """Options for commands that run all cases."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the cases, and estimate the time from finished cases.")
    ] = False
    retry: Annotated[bool, typer.Option("--retry", help="Rerun cases that failed or did not finish.")] = False


@study_app.command("run")
@reporting
@expand_option_groups
def study_run(
    *,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="The study file; `study example` prints one.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the results and the report.")],
    running: CaseRunOptions,
) -> None:
    """Run each case in FILE once, with results in --out. Repeat the command to resume."""
    from cpsched_sim.input.yaml_tree import read_yaml_tree
    from cpsched_sim.study.placement_study import read_placement_study
    from cpsched_sim.study.result_store import StudyResultStore
    from cpsched_sim.study.stranding_study import read_stranding_study
    from cpsched_sim.study.study_cases import build_cases_of_tree
    from cpsched_sim.study.study_report import MARKDOWN_REPORT

    tree = read_yaml_tree(source)
    gpu_study = read_placement_study(tree) or read_stranding_study(tree)
    if gpu_study is not None:
        run_gpu_study(gpu_study, out, running)
        return

    with redirect_stdout(sys.stderr):  # a plug-in may print when it is imported
        campaign, store = build_cases_of_tree(tree), StudyResultStore(out)
    for note in campaign.notes:
        print_message("note", note)
    if running.dry_run:
        print_case_counts(campaign, store, running)
        return
    rows = run_study_cases(campaign, store, source.read_bytes(), running).rows()
    print_study_results(rows, out, running.as_json, lambda: (out / MARKDOWN_REPORT).read_text(encoding="utf-8"))


def run_gpu_study(study: PlacementStudy | StrandingStudy, out: Path, running: CaseRunOptions) -> None:
    """Run a study of placement or of stranded GPUs, and print its report. Exit with code 1 if some cases failed."""
    from cpsched_sim.study.json_case_results import JsonCaseRun
    from cpsched_sim.terminal_tables import progress_bar

    if running.dry_run:
        counts = {"cases": len(study.cases)}
        print_report(counts, lambda _: typer.echo(f"{counts['cases']} cases"), running.as_json)
        return
    with progress_bar("study", "cases", running.quiet) as show:
        results = study.run(JsonCaseRun(out, running.make_executor(), show, running.retry))
    report = results.write(out)
    print_report(results.rows(), lambda _: typer.echo(report, nl=False), running.as_json)
    for failure in results.failures:
        print_message("error", failure)
    if results.failures:
        raise typer.Exit(1)


def run_study_cases(
    campaign: StudyCases,
    store: StudyResultStore,
    content: bytes,
    running: CaseRunOptions,
    first: Callable[[], None] = lambda: None,
) -> StudyResults:
    """Run a study with a progress bar, and write all results.

    `content` is the text of the study file. `first` is called while the folder is locked. Ctrl-C ends the command with
    exit code 130.
    """
    from cpsched_sim.file_io import write_atomically
    from cpsched_sim.study.study_report import write_study_outputs
    from cpsched_sim.study.study_runner import run_missing_cases
    from cpsched_sim.terminal_tables import progress_bar

    out = store.folder
    engine = running.make_executor(campaign.limit_s)
    with store.lock_exclusively():
        first()
        for change in store.list_changed_traces(campaign):
            print_message("note", change)
        before = store.load_earlier_results(campaign, running.retry)
        if altered := before.altered:
            print_message(
                "note",
                f"{len(altered)} results have changed since they were stored, so their cases run again: {altered[0]}",
            )
        if others := store.count_foreign_results(campaign):
            print_message("note", f"{others} results from different code, data or settings are not used")
        if before.done:
            print_message("note", f"{len(before.done)} of {len(campaign.distinct_cases)} replays had already finished")
        write_atomically(out / "study.yaml", content)
        store.write_case_list(campaign)
        with progress_bar("study", "cases", running.quiet) as show:
            try:
                found = run_missing_cases(campaign, store, engine, show, before)
            except KeyboardInterrupt:
                done = len(store.load_earlier_results(campaign, running.retry).done)
                progress = f"{done} of {len(campaign.distinct_cases)} cases are in {out}; repeat the command to resume"
                print_message("interrupted", progress)
                raise typer.Exit(130) from None
        for note in write_study_outputs(found):
            print_message("note", note)
    return found


def print_study_results(rows: Sequence[Mapping[str, Any]], out: Path, as_json: bool, text: Callable[[], str]) -> None:
    """Print the results of a study. Exit with code 1 if some cases have no figures."""
    from cpsched_sim.study.study_report import HTML_REPORT

    bad = [row for row in rows if row["outcome"] != "ended"]
    counts = {"cases": len(rows), "bad": len(bad), "report": str(out / HTML_REPORT)}
    print_report(counts, lambda _: typer.echo(text(), nl=False), as_json)
    if not as_json:
        print_message("note", f"the report with plots is in {out / HTML_REPORT}")
    for row in bad:
        print_message("error", f"{row['case'] or row['policy']}, {row['trace']}, seed {row['seed']}: {row['why']}")
    if bad:
        raise typer.Exit(1)


def print_case_counts(campaign: StudyCases, store: StudyResultStore, running: CaseRunOptions) -> None:
    """Print the number of cases, and the estimated time for the unfinished cases."""
    done, jobs = store.load_earlier_results(campaign, running.retry).done, running.jobs
    left, costs_s = len(campaign.distinct_cases) - len(done), store.earlier_wall_times_s()
    estimate_s = 0.0 if not left else left * fmean(costs_s) / min(jobs, left) if costs_s else None
    counts = {
        "cases": len(campaign.cases), "replays": len(campaign.distinct_cases), "finished": len(done),
        "remaining": left, "excluded": sum(campaign.excluded.values()), "estimate_s": estimate_s,
    }  # fmt: skip

    def print_text(_: object) -> None:
        typer.echo("{cases} cases, {replays} distinct replays; {excluded} omitted".format_map(counts))
        typer.echo(f"{len(done)} finished, {left} to run, {jobs} in parallel")
        unknown = "unknown, because no case has run in this folder"
        typer.echo(f"estimated time: {format_duration(estimate_s) if estimate_s is not None else unknown}")

    print_report(counts, print_text, running.as_json)


@study_app.command("verify")
@reporting
@expand_option_groups
def study_verify(
    *,
    results: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of results, or a file results.jsonl.")],
    file: Annotated[
        Path | None, typer.Option("--study", metavar="FILE", help="The study file, if it is not DIR/study.yaml.")
    ] = None,
    sample: Annotated[int, typer.Option(min=0, help="Number of cases to run again.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the random selection of these cases.")] = 0,
    running: TaskRunOptions,
) -> None:
    """Check results by their digests, and run a sample of the cases again."""
    from cpsched_sim.errors import InputError
    from cpsched_sim.study.study_cases import load_stored_study_cases, read_study
    from cpsched_sim.study.study_runner import verify_study_results

    path = file or (results if results.is_dir() else results.parent) / "study.yaml"
    if not path.is_file():
        raise InputError(f"{path}: study file not found; specify it with --study")
    campaign = read_study(path) if file is not None else load_stored_study_cases(path, results)
    found = verify_study_results(campaign, results, running.make_executor(), sample, seed)
    counts = f"{found.read} results read, {found.decided} run again, {found.same} of them identical"
    print_report(found, lambda _: typer.echo(counts), running.as_json)
    if found.other:
        print_message(
            "note", f"{len(found.other)} results were computed with different code or data, such as {found.other[0]}"
        )
    if found.by_clock:
        print_message("note", f"{found.by_clock} cases in the sample have a time limit and cannot be repeated")
    for sentence in found.differs:
        print_message("error", sentence)
    if found.differs:
        raise typer.Exit(1)


@study_app.command("example")
@reporting
def study_example() -> None:
    """Print the file of a small study that needs no trace and runs in about a minute."""
    from cpsched_sim.study.study_schema import EXAMPLE_STUDY

    typer.echo(EXAMPLE_STUDY, nl=False)


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
    running: CaseRunOptions,
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
    if running.dry_run:
        print_case_counts(campaign, store, running)
        return

    def import_earlier_results() -> None:
        if results is not None:
            taken, others = import_benchmark_results(campaign, store, results)
            print_message(
                "note",
                f"{taken} results reused from {results}; {others} skipped: different code, traces or dispatchers",
            )

    content = yaml.safe_dump(words, sort_keys=False).encode()
    rows = run_study_cases(campaign, store, content, running, import_earlier_results).rows()
    text = render_benchmark_table(words["report"]["metrics"], rows)
    write_atomically(out / TABLE_FILE, text.encode())
    print_study_results(rows, out, running.as_json, lambda: text)
