"""`cpsched accuracy` and `cpsched promises`: what predictions and expected starts are worth."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from cpsched_sim.cli.options import (
    AsJson,
    Effort,
    FormatName,
    Lenient,
    MaxJobs,
    Objective,
    OutDir,
    Seed,
    Settings,
    SystemName,
    Trace,
    names_of,
    parse_settings,
    search_options,
)
from cpsched_sim.cli.program import app, echo_json, reporting
from cpsched_sim.shell import all_of, say


@app.command()
@reporting
def accuracy(
    trace: Trace,
    predictors: Annotated[str, typer.Option(help="Names, separated by commas.")] = "walltime,last-two,profile",
    system: SystemName = None,
    max_jobs: MaxJobs = None,
    out: OutDir = None,
    as_json: AsJson = False,
    lenient: Lenient = False,
    format: FormatName = None,
) -> None:
    """How good predictors are on TRACE: errors, under- and over-estimates. --out writes accuracy.csv and ecdf.csv."""
    from cpsched_sim.accuracy import study, write_study
    from cpsched_sim.files import check_folder
    from cpsched_sim.views import print_accuracy
    from cpsched_sim.workloads.load import load, load_jobs

    chosen = names_of("--predictors", predictors)
    if out is not None:
        check_folder(out)
    if system is None:
        jobs = load_jobs(trace, lenient, max_jobs, format)
    else:
        jobs = load(trace, system, lenient, max_jobs, format=format).jobs
    found = study(jobs, chosen)
    rows = {name: asdict(row.accuracy) for name, row in found.items()}
    show_it = partial(echo_json, rows) if as_json else partial(print_accuracy, trace.name, rows)
    all_of(show_it, *([partial(write_study, found, out)] if out is not None else []))


@app.command()
@reporting
def promises(
    trace: Trace,
    dispatchers: Annotated[str, typer.Option(help="Names, separated by commas.")] = "lookahead,list-reg",
    predictor: Annotated[str, typer.Option(help="A name (`cpsched predictors`).")] = "walltime",
    system: SystemName = None,
    set_: Settings = None,
    objective: Objective = None,
    max_jobs: MaxJobs = None,
    effort: Effort = None,
    seed: Seed = None,
    out: OutDir = None,
    as_json: AsJson = False,
    lenient: Lenient = False,
    format: FormatName = None,
) -> None:
    """How good the expected starts are that jobs of TRACE are told, by how far ahead. --out writes promises.csv."""
    from cpsched_sim import comparison
    from cpsched_sim import promises as told
    from cpsched_sim.files import check_folder
    from cpsched_sim.views import print_promises
    from cpsched_sim.workloads.load import load

    options, settings = search_options(None, effort, seed), parse_settings(set_, objective)
    chosen = comparison.combinations(names_of("--dispatchers", dispatchers), [predictor], settings, options)
    if out is not None:
        check_folder(out)
    workload = load(trace, system, lenient, max_jobs, format=format)
    for note in workload.notes:
        say("note", note)
    found = [(setup.policy.dispatcher, told.promises(workload, setup.build(workload.jobs))) for setup, _ in chosen]
    for name, each in found:
        for violation in each.violations[:3]:
            say("warning", f"{name}: {violation}")
    rows = {name: told.figures(each) for name, each in found}
    title = f"{workload.name} on {workload.system}, {predictor}: real start less the first one told"
    show_it = partial(echo_json, rows) if as_json else partial(print_promises, title, rows)
    all_of(show_it, *([partial(told.write_promises, found, out)] if out is not None else []))
