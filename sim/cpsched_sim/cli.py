"""The commands of the simulator; `cpsched_bridge.program.cli` mounts them beside its own.

Heavy imports (NumPy, Numba, solvers) wait until a command runs, so that `--help` and `--version` are quick.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cpsched_sim import shell
from cpsched_sim.shell import SHORT_HELP, Commands, all_of, say

if TYPE_CHECKING:
    from cpsched.catalogue import Catalogue
    from cpsched_sim.experiment import Simulation

app = typer.Typer(
    cls=Commands,
    help="Replay traces, list what there is, make up workloads.",
    no_args_is_help=True,
    context_settings=SHORT_HELP,
    pretty_exceptions_enable=False,
)
workload_app = typer.Typer(help="Make up a workload.", no_args_is_help=True)
app.add_typer(workload_app, name="workload")
instances_app = typer.Typer(help="Record rounds, and solve them with several dispatchers.", no_args_is_help=True)
app.add_typer(instances_app, name="instances")

Trace = Annotated[Path, typer.Argument(help="A trace: SWF, `sacct -P` lines, or cpsched's own format; .gz too.")]
SystemName = Annotated[
    str | None, typer.Option("--system", help="A system by name or file; default: what the trace names, else pool.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the dispatcher, the predictor, or overrun."),
]
MaxJobs = Annotated[int | None, typer.Option(min=1, help="Replay the first so many jobs only.")]
Limit = Annotated[float | None, typer.Option(help="Seconds that a decision may take (dispatchers that search).")]
Effort = Annotated[int | None, typer.Option(help="Deterministic limit instead of seconds.")]
Objective = Annotated[
    str | None, typer.Option(help="Short for --set objective=NAME: what lookahead plans for (see its page).")
]
Seed = Annotated[int | None, typer.Option(help="Seed of dispatchers that draw.")]
ChargeText = Annotated[
    str, typer.Option("--charge", metavar="none|measured|MS", help="What a decision costs on the simulated clock.")
]
LaneName = Annotated[
    Literal["ordinary", "fast"],
    typer.Option(
        "--lane", help="fast: the loop compiled too, for list schedulers that learn nothing; the same starts."
    ),
]
Lenient = Annotated[bool, typer.Option("--lenient", help="Skip and count bad lines instead of stopping at the first.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]
FormatName = Annotated[
    str | None, typer.Option("--format", help="The trace's format by name; default: what its first line looks like.")
]
MetricNames = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="Show this metric, too: a plug-in's name, or package.module:METRIC."),
]
PolicyPath = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="A site's policy: shares, QOS, limits, weights of priority."),
]
OutDir = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the results there.")]


def look_here_too() -> None:
    """Let `package.module:Class` name a module of the current folder, too: after everything that is installed."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


reporting = shell.reporting(first=look_here_too)
"""Errors of a command in one line; its plug-ins may lie in the current folder."""


@app.command()
@reporting
def simulate(
    trace: Trace,
    system: SystemName = None,
    dispatcher: Annotated[str, typer.Option(help="A name (`cpsched dispatchers`), or package.module:Class.")] = "easy",
    predictor: Annotated[
        str, typer.Option(help="A name (`cpsched predictors`), or package.module:Class.")
    ] = "walltime",
    set_: Settings = None,
    objective: Objective = None,
    max_jobs: MaxJobs = None,
    limit: Limit = None,
    effort: Effort = None,
    seed: Seed = None,
    charge: ChargeText = "none",
    lane: LaneName = "ordinary",
    out: OutDir = None,
    as_json: AsJson = False,
    lenient: Lenient = False,
    format: FormatName = None,
    metric: MetricNames = None,
    policy: PolicyPath = None,
) -> None:
    """Replay TRACE and print what the schedule is worth."""
    from cpsched import metrics
    from cpsched.policy_spec import PolicySpec
    from cpsched_sim.experiment import Setup, run, write_results
    from cpsched_sim.files import check_folder
    from cpsched_sim.oracle import SIMULATED
    from cpsched_sim.site.policy_file import load_policy
    from cpsched_sim.views import print_simulation, progress_bar
    from cpsched_sim.workloads.load import load, under

    options, settings = _options(limit, effort, seed), parse_settings(set_, objective)
    spec = PolicySpec.of(dispatcher, predictor, settings, options, SIMULATED)
    setup, more = Setup(spec, parse_charge(charge), lane), tuple(map(metrics.metric, metric or ()))
    setup.build()
    site = load_policy(policy) if policy is not None else None
    if out is not None:
        check_folder(out)
    with progress_bar(f"{dispatcher} / {predictor}") as show:
        workload = load(trace, system, lenient, max_jobs, lambda jobs: show(jobs, None), format)
        workload = under(workload, site) if site is not None else workload
        simulation = run(workload, setup, show, more=more)
    _warn(simulation)
    show_it = partial(_echo_json, simulation.summary()) if as_json else partial(print_simulation, simulation)
    all_of(show_it, *([partial(write_results, simulation, out)] if out is not None else []))


def _echo_json(content: object) -> None:
    """Print one JSON object, and flush it at once."""
    typer.echo(json.dumps(content))
    sys.stdout.flush()


def parse_settings(texts: Iterable[str] | None, objective: str | None = None) -> dict[str, str]:
    """NAME=VALUE texts as a mapping, and the objective where one is given; raises `InvalidValue`."""
    from cpsched.errors import require

    found: dict[str, str] = {} if objective is None else {"objective": objective}
    for text in texts or ():
        name, equals, value = text.partition("=")
        require(bool(name and equals), "--set", text, "must be NAME=VALUE")
        found[name] = value
    return found


def parse_charge(text: str) -> Any:
    """None, "measured" or milliseconds; raises `InvalidValue`."""
    from cpsched.errors import InvalidValue

    if text == "none":
        return None
    if text == "measured":
        return text
    try:
        if 0 <= (milliseconds := float(text)) < float("inf"):
            return milliseconds
    except ValueError:
        pass
    raise InvalidValue("--charge", text, "must be none, measured, or milliseconds, not negative")


def _options(limit: float | None, effort: int | None, seed: int | None) -> dict[str, str]:
    """The settings that only dispatchers with a search understand."""
    from cpsched.errors import require

    require(limit is None or effort is None, "--limit, --effort", (limit, effort), "only one of them")
    require(limit is None or limit > 0, "--limit", limit, "must be positive")
    require(effort is None or effort > 0, "--effort", effort, "must be positive")
    given = {"limit_s": limit, "effort": effort, "seed": seed}
    return {name: str(value) for name, value in given.items() if value is not None}


def _warn(simulation: Simulation) -> None:
    """Say on stderr what a reader of the figures must know."""
    for note in simulation.workload.notes:
        say("note", note)
    if simulation.left_waiting:
        refused = next(iter(simulation.schedule.refused.values()), "the dispatcher never chose them")
        say("warning", f"{simulation.left_waiting} jobs never started: {refused}")
    for violation in simulation.schedule.violations[:10]:
        say("warning", f"refused a start that breaks a rule: {violation}")


@app.command()
@reporting
def dispatchers(as_json: AsJson = False) -> None:
    """List the dispatchers: name, one sentence, parameters with defaults, source."""
    from cpsched.catalogue import DISPATCHERS

    _list("dispatchers", DISPATCHERS, as_json)


@app.command()
@reporting
def predictors(as_json: AsJson = False) -> None:
    """List the predictors: name, one sentence, parameters with defaults, source."""
    from cpsched_sim.oracle import PREDICTORS

    _list("predictors", PREDICTORS, as_json)


def _list(title: str, known: Catalogue[Any], as_json: bool) -> None:
    """Print one entry per name on stdout, and a line on stderr for each plug-in that is broken."""
    from cpsched.catalogue import Broken
    from cpsched_sim.views import print_list

    rows = []
    for found in known.all():
        if isinstance(found, Broken):
            say("error", found.error)
            continue
        parameters = {parameter.name: parameter.default for parameter in found.parameters()}
        rows.append({"name": found.name, "summary": found.summary, "parameters": parameters, "source": found.source})
    if as_json:
        typer.echo(json.dumps({title: rows}, default=str))
    else:
        print_list(rows)


@app.command("warm-up")
@reporting
def warm_up() -> None:
    """Compile all kernels, so that no later command has to; the owner of a shared install does so for all its users."""
    from cpsched_sim.compiling import warm_up

    done = warm_up()
    typer.echo(done)
    raise typer.Exit(1 if done.lost else 0)


@app.command()
@reporting
def metrics(as_json: AsJson = False) -> None:
    """List the metrics: name, heading, unit, formula, which way is better, source."""
    from cpsched.catalogue import Broken
    from cpsched.metrics import known_metrics
    from cpsched_sim.views import print_metrics

    rows = []
    for found in known_metrics().all():
        if isinstance(found, Broken):
            say("error", found.error)
            continue
        metric = found.build()
        rows.append({key: getattr(metric, key) for key in ("name", "heading", "unit", "formula", "better", "source")})
    if as_json:
        typer.echo(json.dumps({"metrics": rows}))
    else:
        print_metrics(rows)


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

    chosen = _names("--predictors", predictors)
    if out is not None:
        check_folder(out)
    if system is None:
        jobs = load_jobs(trace, lenient, max_jobs, format)
    else:
        jobs = load(trace, system, lenient, max_jobs, format=format).jobs
    found = study(jobs, chosen)
    rows = {name: asdict(row.accuracy) for name, row in found.items()}
    show_it = partial(_echo_json, rows) if as_json else partial(print_accuracy, trace.name, rows)
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

    options, settings = _options(None, effort, seed), parse_settings(set_, objective)
    chosen = comparison.combinations(_names("--dispatchers", dispatchers), [predictor], settings, options)
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
    show_it = partial(_echo_json, rows) if as_json else partial(print_promises, title, rows)
    all_of(show_it, *([partial(told.write_promises, found, out)] if out is not None else []))


@app.command()
@reporting
def compare(
    trace: Trace,
    dispatchers: Annotated[str, typer.Option(help="Names, separated by commas.")],
    predictors: Annotated[str, typer.Option(help="Names, separated by commas.")] = "walltime",
    baseline: Annotated[
        str | None, typer.Option(help="Dispatcher, or dispatcher/predictor, that is 100 %; default: the first.")
    ] = None,
    system: SystemName = None,
    set_: Settings = None,
    objective: Objective = None,
    max_jobs: MaxJobs = None,
    limit: Limit = None,
    effort: Effort = None,
    seed: Seed = None,
    charge: ChargeText = "none",
    lane: LaneName = "ordinary",
    jobs: Annotated[int, typer.Option(min=1, help="How many processes at once.")] = 2,
    out: OutDir = None,
    plots: Annotated[
        bool, typer.Option("--plots", help="Also draw bars.png and ecdf.png in --out, with --policy shares.png.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take from --out what an earlier run finished, and replay the rest.")
    ] = False,
    as_json: AsJson = False,
    lenient: Lenient = False,
    format: FormatName = None,
    metric: MetricNames = None,
    policy: PolicyPath = None,
) -> None:
    """Replay TRACE with every dispatcher and every predictor; --out writes compare.csv and every schedule."""
    from cpsched import metrics
    from cpsched.errors import require
    from cpsched_sim import comparison
    from cpsched_sim.files import check_folder, write_table
    from cpsched_sim.processes import Study, compare_in_processes, finished_before
    from cpsched_sim.report import plots as report
    from cpsched_sim.site.fairness import site_metrics
    from cpsched_sim.site.policy_file import load_policy
    from cpsched_sim.views import print_comparison, progress_bar
    from cpsched_sim.workloads.load import load, under

    if plots:
        require(out is not None, "--plots", plots, "needs --out DIR")
        report.check()
    require(not resume or out is not None, "--resume", resume, "needs --out DIR")
    options, settings = _options(limit, effort, seed), parse_settings(set_, objective)
    names, more = tuple(metric or ()), tuple(map(metrics.metric, metric or ()))
    chosen = comparison.combinations(
        _names("--dispatchers", dispatchers), _names("--predictors", predictors), settings, options,
        parse_charge(charge), lane,
    )  # fmt: skip
    comparison.check_baseline(chosen, baseline)
    site = load_policy(policy) if policy is not None else None
    if out is not None:
        check_folder(out)
    workload = load(trace, system, lenient, max_jobs, format=format)
    if site is not None:
        workload = under(workload, site)
        more = (*more, *site_metrics(site))
    for note in workload.notes:
        say("note", note)
    study = Study(trace, system, max_jobs, lenient, out, format, names, measures=plots, policy=policy)
    setups = [setup for setup, _ in chosen]
    done = finished_before(study, setups, workload) if resume else {}
    if resume:
        say("note", f"{len(done)} of {len(setups)} combinations were finished before")
    interrupted = False
    try:
        with progress_bar("compare", "combinations") as show:
            compare_in_processes(study, setups, jobs, show, done)
    except KeyboardInterrupt:
        interrupted = True
    rows = [done[index] for index in sorted(done)]
    if interrupted:
        goes_on = "; --resume goes on" if out is not None else ""
        say("interrupted", f"{len(rows)} of {len(setups)} combinations are finished{goes_on}")
        if not rows:
            raise typer.Exit(130)
    baselines = comparison.baselines(rows, baseline)
    title = f"{workload.name} on {workload.system}"
    steps: list[Callable[[], object]] = [
        partial(_echo_json, comparison.as_json(rows, baselines, more))
        if as_json
        else partial(print_comparison, title, rows, baselines, more)
    ]
    if out is not None:
        steps.append(partial(write_table, out / "compare.csv", comparison.table_rows(rows, baselines, more)))
    if out is not None and plots and not interrupted:
        steps.append(partial(report.write_comparison, rows, out, more, title))
    for row in rows:
        if row.error:
            say("error", f"{row.name}: {row.error}")
    all_of(*steps)
    if interrupted:
        raise typer.Exit(130)
    if failed := [row for row in rows if row.error]:
        raise typer.Exit(1 if any(row.summary is None for row in failed) else 2)


def _names(option: str, text: str) -> list[str]:
    """Names separated by commas, each once. Raises `InvalidValue` where there is none."""
    from cpsched.errors import require

    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    require(bool(names), option, text, "must name one at least")
    return names


@workload_app.command("eurora")
@reporting
def workload_eurora(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write it; gzipped if the name ends in .gz.")],
    days: Annotated[float, typer.Option(help="How many days.")] = 30.0,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same jobs.")] = 0,
    load: Annotated[float, typer.Option(help="Times the jobs per day of Eurora's busiest months.")] = 1.0,
) -> None:
    """Jobs like Eurora's (see `cpsched_sim/workloads/eurora.py`), in cpsched's own trace format."""
    from cpsched_sim.files import check_folder
    from cpsched_sim.traces import native
    from cpsched_sim.workloads.eurora import RESOURCES, eurora

    check_folder(out.parent)
    records = eurora(days, seed, load)
    native.write(out, records, RESOURCES, {"system": "eurora", "days": days, "seed": seed, "load": load})
    typer.echo(f"{out}: {len(records):,} jobs")


@instances_app.command("record")
@reporting
def instances_record(
    trace: Trace,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write them; gzipped if the name ends in .gz.")],
    system: SystemName = None,
    dispatcher: Annotated[str, typer.Option(help="Whose rounds.")] = "pcp19",
    predictor: Annotated[str, typer.Option(help="Where its estimates come from.")] = "walltime",
    set_: Settings = None,
    max_jobs: MaxJobs = None,
    limit: Limit = None,
    effort: Effort = None,
    seed: Seed = None,
    contended: Annotated[bool, typer.Option("--contended", help="Only rounds in which there is a choice.")] = False,
    every: Annotated[int, typer.Option(min=1, help="Only every so many of them.")] = 1,
    most: Annotated[int | None, typer.Option(min=1, help="So many at most.")] = None,
    lenient: Lenient = False,
    format: FormatName = None,
) -> None:
    """Replay TRACE, and write the rounds that the dispatcher was asked for."""
    from cpsched.policy_spec import PolicySpec
    from cpsched_sim.cluster.replay import replay
    from cpsched_sim.experiment import Setup, identity
    from cpsched_sim.files import check_folder
    from cpsched_sim.instances import Recording, header_to_json, write_instances
    from cpsched_sim.oracle import SIMULATED
    from cpsched_sim.views import progress_bar
    from cpsched_sim.workloads.load import load

    options = _options(limit, effort, seed)
    setup = Setup(PolicySpec.of(dispatcher, predictor, parse_settings(set_), options, SIMULATED))
    check_folder(out.parent)
    with progress_bar(f"{dispatcher} / {predictor}") as show:
        workload = load(trace, system, lenient, max_jobs, lambda jobs: show(jobs, None), format)
        setup = setup.on(workload)
        policy = setup.build(workload.jobs)
        policy.dispatcher = recording = Recording(policy.dispatcher, contended, every, most)
        replay(workload.jobs, workload.cluster, policy, progress=show)
    write_instances(out, header_to_json(workload.cluster, identity(setup, workload)), recording.lines)
    typer.echo(f"{out}: {len(recording.lines):,} instances")


@instances_app.command("solve")
@reporting
def instances_solve(
    file: Annotated[Path, typer.Argument(help="What `cpsched instances record` wrote.")],
    dispatcher: Annotated[list[str], typer.Option(help="A name, or package.module:Class; once for each.")],
    set_: Settings = None,
    limit: Limit = None,
    effort: Effort = None,
    seed: Seed = None,
    most: Annotated[int | None, typer.Option(min=1, help="The first so many instances only.")] = None,
    baseline: Annotated[str | None, typer.Option(help="Ratios are over this one; default: the first.")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all rows.")] = None,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the ratios as a PNG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Solve the instances of FILE with each dispatcher, in a process of its own; a table of what it took."""
    from cpsched.catalogue import DISPATCHERS
    from cpsched.errors import require
    from cpsched.policy_spec import setting_names
    from cpsched_sim.files import check_folder, write_table
    from cpsched_sim.instances import COLUMNS, Solved, digest
    from cpsched_sim.instances_solving import solve_all
    from cpsched_sim.report import instances as report
    from cpsched_sim.report import plots
    from cpsched_sim.views import print_instances, progress_bar

    names = list(dict.fromkeys(dispatcher))
    over = baseline or names[0]
    require(over in names, "--baseline", over, f"must be one of {', '.join(names)}")
    given, options = parse_settings(set_), _options(limit, effort, seed)
    known = {name: setting_names(DISPATCHERS.find(name)) for name in names}
    for key in given:
        require(any(key in keys for keys in known.values()), "--set", key, "is a parameter of none of them")
    settings = {name: {k: v for k, v in (options | given).items() if k in keys} for name, keys in known.items()}
    for path in (csv, picture):
        if path is not None:
            check_folder(path.parent)
    if picture is not None:
        plots.check()
    rows: list[Solved] = []
    with progress_bar("solve", "dispatchers") as show:
        for done, found in enumerate(solve_all(file, names, settings, most), start=1):
            rows += found
            show(done, len(names))
    require(bool(rows), "FILE", file, "holds no instances")
    found_digest = digest(rows, over)
    steps: list[Callable[[], object]] = [
        partial(_echo_json, {"instances": found_digest})
        if as_json
        else partial(print_instances, file.name, over, found_digest)
    ]
    if csv is not None:
        steps.append(partial(write_table, csv, [COLUMNS, *([getattr(r, c) for c in COLUMNS] for r in rows)]))
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
    from cpsched_sim.files import check_folder, write_whole
    from cpsched_sim.instances import read_instances, to_rcp

    check_folder(out.parent)
    found = next((instance for instance in read_instances(file) if instance.number == number), None)
    require(found is not None, "--number", number, f"is not in {file.name}")
    if found is not None:
        write_whole(out, to_rcp(found.snapshot).encode())
        typer.echo(f"{out}: {len(found.snapshot.queue)} jobs")


def main() -> None:
    """Run as `python -m cpsched_sim.cli`."""
    app(prog_name="cpsched")


if __name__ == "__main__":
    main()
