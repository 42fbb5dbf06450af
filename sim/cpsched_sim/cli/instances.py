"""`cpsched instances`: rounds of a replay, recorded and solved again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cpsched_sim.cli.options import (
    ArrivalName,
    AsJson,
    Columns,
    DecideTimeout,
    Dispatcher,
    Dispatchers,
    Effort,
    FormatName,
    Lenient,
    Limit,
    MaxJobs,
    Predictor,
    Seed,
    Settings,
    SystemName,
    Trace,
    Zone,
    dialect_of,
    names_of,
    parse_settings,
    search_options,
)
from cpsched_sim.cli.program import app, echo_json, reporting
from cpsched_sim.patience import LIMIT_S, patience
from cpsched_sim.shell import all_of

instances_app = typer.Typer(help="Record rounds, and solve them with several dispatchers.", no_args_is_help=True)
app.add_typer(instances_app, name="instances")


@instances_app.command("record")
@reporting
def instances_record(
    trace: Trace,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write them; gzipped if the name ends in .gz.")],
    system: SystemName = None,
    dispatcher: Dispatcher = "pcp19",
    predictor: Predictor = "walltime",
    set_: Settings = None,
    max_jobs: MaxJobs = None,
    limit: Limit = None,
    effort: Effort = None,
    seed: Seed = None,
    contended: Annotated[bool, typer.Option("--contended", help="Only rounds in which there is a choice.")] = False,
    every: Annotated[int, typer.Option(min=1, help="Record every n-th of them.")] = 1,
    most: Annotated[int | None, typer.Option(min=1, help="Record at most this many.")] = None,
    lenient: Lenient = False,
    format: FormatName = None,
    columns: Columns = None,
    zone: Zone = None,
    arrival: ArrivalName = "eligible",
    decide_timeout: DecideTimeout = LIMIT_S,
) -> None:
    """Replay TRACE, and write the rounds that the dispatcher was asked for."""
    from cpsched.policy_spec import PolicySpec
    from cpsched_sim.cluster.replay import check_all_started, replay
    from cpsched_sim.experiment import Setup, identity
    from cpsched_sim.instances import Recording, header_to_json, write_instances
    from cpsched_sim.oracle import SIMULATED
    from cpsched_sim.results import check_new
    from cpsched_sim.views import progress_bar
    from cpsched_sim.workloads.load import load

    options = search_options(limit, effort, seed)
    check_new(out)
    dialect = dialect_of(columns, zone, arrival)
    with patience(decide_timeout) as patient, progress_bar(f"{dispatcher} / {predictor}") as show:
        setup = Setup(PolicySpec.of(dispatcher, predictor, parse_settings(set_), options, SIMULATED))
        told = patient.and_tell(lambda jobs: show(jobs, None))
        workload = load(trace, system, lenient, max_jobs, told, format, dialect)
        policy = setup.build(workload.jobs)
        policy.dispatcher = recording = Recording(policy.dispatcher, contended, every, most)
        schedule = replay(workload.jobs, workload.cluster, policy, progress=patient.and_tell(show), strict=True)
        check_all_started(workload.jobs, schedule.start_s, schedule.refused, policy)
    write_instances(out, header_to_json(workload.cluster, identity(setup, workload)), recording.lines)
    typer.echo(f"{out}: {len(recording.lines):,} instances")


@instances_app.command("solve")
@reporting
def instances_solve(
    file: Annotated[Path, typer.Argument(help="What `cpsched instances record` wrote.")],
    dispatcher: Dispatchers,
    set_: Settings = None,
    limit: Limit = None,
    effort: Effort = None,
    seed: Seed = None,
    most: Annotated[int | None, typer.Option(min=1, help="Solve only this many, from the first.")] = None,
    baseline: Annotated[str | None, typer.Option(help="Ratios are over this one; default: the first.")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all rows.")] = None,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the ratios as a PNG.")] = None,
    as_json: AsJson = False,
    decide_timeout: DecideTimeout = LIMIT_S,
) -> None:
    """Solve the instances of FILE with each dispatcher, in a process of its own; a table of what it took."""
    from cpsched.catalogue import DISPATCHERS
    from cpsched.errors import require
    from cpsched.policy_spec import setting_names
    from cpsched_sim.files import sha256_of, write_table
    from cpsched_sim.instances import COLUMNS, Solved, digest
    from cpsched_sim.instances_solving import solve_all
    from cpsched_sim.report import instances as report
    from cpsched_sim.report import plots
    from cpsched_sim.results import check_new, write_manifest
    from cpsched_sim.views import print_instances, progress_bar

    names = names_of("--dispatcher", dispatcher)
    over = baseline or names[0]
    require(over in names, "--baseline", over, f"must be one of {', '.join(names)}")
    given, options = parse_settings(set_), search_options(limit, effort, seed)
    with patience(decide_timeout):
        known = {name: setting_names(DISPATCHERS.find(name)) for name in names}
    for key in given:
        require(any(key in keys for keys in known.values()), "--set", key, "is a parameter of none of them")
    settings = {name: {k: v for k, v in (options | given).items() if k in keys} for name, keys in known.items()}
    check_new(*(path for path in (csv, picture) if path is not None))
    if picture is not None:
        plots.check()
    rows: list[Solved] = []
    with progress_bar("solve", "dispatchers") as show:
        for done, found in enumerate(solve_all(file, names, settings, most, decide_timeout), start=1):
            rows += found
            show(done, len(names))
    require(bool(rows), "FILE", file, "holds no instances")
    found_digest = digest(rows, over)
    steps: list[Callable[[], object]] = [
        partial(echo_json, {"instances": found_digest})
        if as_json
        else partial(print_instances, file.name, over, found_digest)
    ]
    if csv is not None:
        made_of = {"instances": file.name, "instances_sha256": sha256_of(file), "most": most, "settings": settings}
        steps.append(partial(write_table, csv, [COLUMNS, *([getattr(r, c) for c in COLUMNS] for r in rows)]))
        steps.append(partial(write_manifest, csv, made_of))
    if picture is not None:
        steps.append(partial(report.write_ratios, rows, over, picture, file.name))
    all_of(*steps)


@instances_app.command("export")
@reporting
def instances_export(
    file: Annotated[Path, typer.Argument(help="What `cpsched instances record` wrote.")],
    number: Annotated[int, typer.Option(help="The round to export: its `number` in the file.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write it.")],
) -> None:
    """Write the pooled problem of one instance in Patterson's format (.rcp), which solvers of the RCPSP read."""
    from cpsched.errors import require
    from cpsched_sim.files import write_whole
    from cpsched_sim.instances import read_instances, to_rcp
    from cpsched_sim.results import check_new

    check_new(out)
    found = next((instance for instance in read_instances(file) if instance.number == number), None)
    require(found is not None, "--number", number, f"is not in {file.name}")
    if found is not None:
        write_whole(out, to_rcp(found.snapshot).encode())
        typer.echo(f"{out}: {len(found.snapshot.queue)} jobs")
