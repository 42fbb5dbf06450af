"""The commands of the simulator; `cpsched_bridge.program.cli` mounts them beside its own.

Heavy imports (NumPy, Numba, solvers) wait until a command runs, so that `--help` and `--version` are quick.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

if TYPE_CHECKING:
    from cpsched.catalogue import Entry
    from cpsched_sim.experiment import Outcome

app = typer.Typer(help="Replay traces, list what there is, make up workloads.", no_args_is_help=True)
workload_app = typer.Typer(help="Make up a workload.", no_args_is_help=True)
app.add_typer(workload_app, name="workload")

F = TypeVar("F", bound=Callable[..., Any])

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
OutDir = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the results there.")]


def reporting(command: F) -> F:
    """Errors that are the outside's fault become one line on stderr and exit code 2; Ctrl-C exits 130."""

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        from cpsched.errors import CpschedError
        from cpsched_sim.errors import SimError

        try:
            return command(*args, **kwargs)
        except (CpschedError, SimError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from error
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None

    return guarded  # type: ignore[return-value]


@app.command()
@reporting
def simulate(
    trace: Trace,
    system: SystemName = None,
    dispatcher: Annotated[str, typer.Option(help="See `cpsched dispatchers`.")] = "easy",
    predictor: Annotated[str, typer.Option(help="See `cpsched predictors`.")] = "walltime",
    set_: Settings = None,
    max_jobs: MaxJobs = None,
    limit: Limit = None,
    effort: Effort = None,
    seed: Seed = None,
    charge: ChargeText = "none",
    lane: LaneName = "ordinary",
    out: OutDir = None,
    as_json: AsJson = False,
    lenient: Lenient = False,
) -> None:
    """Replay TRACE and print what the schedule is worth."""
    from cpsched_sim.experiment import Setup, run, write_outcome
    from cpsched_sim.views import print_outcome, progress_bar
    from cpsched_sim.workloads.load import load

    options, settings = _options(limit, effort, seed), parse_settings(set_)
    setup = Setup(dispatcher, predictor, settings, options, parse_charge(charge), lane)
    setup.policy(())
    with progress_bar(f"{dispatcher} / {predictor}") as show:
        workload = load(trace, system, lenient, max_jobs, lambda jobs: show(jobs, None))
        outcome = run(workload, setup, show)
    if out is not None:
        write_outcome(outcome, out)
    _warn(outcome)
    if as_json:
        typer.echo(json.dumps(outcome.summary()))
    else:
        print_outcome(outcome)


def parse_settings(texts: Iterable[str] | None) -> dict[str, str]:
    """NAME=VALUE texts as a mapping; raises `InvalidValue`."""
    from cpsched.errors import require

    found: dict[str, str] = {}
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
    """What only dispatchers that search can be told."""
    from cpsched.errors import require

    require(limit is None or effort is None, "--limit, --effort", (limit, effort), "only one of them")
    require(limit is None or limit > 0, "--limit", limit, "must be positive")
    require(effort is None or effort > 0, "--effort", effort, "must be positive")
    given = {"limit_s": limit, "effort": effort, "seed": seed}
    return {name: str(value) for name, value in given.items() if value is not None}


def _warn(outcome: Outcome) -> None:
    """What a reader of the figures must know; on stderr."""
    for note in outcome.workload.notes:
        typer.echo(f"note: {note}", err=True)
    if outcome.left_waiting:
        refused = next(iter(outcome.schedule.refused.values()), "the dispatcher never chose them")
        typer.echo(f"warning: {outcome.left_waiting} jobs never started: {refused}", err=True)
    for violation in outcome.schedule.violations[:10]:
        typer.echo(f"warning: refused a start that breaks a rule: {violation}", err=True)


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
    from cpsched_sim.experiment import PREDICTORS

    _list("predictors", PREDICTORS, as_json)


def _list(title: str, entries: Iterable[Entry], as_json: bool) -> None:
    from cpsched_sim.experiment import parameters
    from cpsched_sim.views import print_list

    keys = ("name", "summary", "parameters", "source")
    rows = [
        dict(zip(keys, (e.name, e.summary, {p.name: p.default for p in parameters(e)}, e.source), strict=True))
        for e in entries
    ]
    if as_json:
        typer.echo(json.dumps({title: rows}, default=str))
    else:
        print_list(rows)


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
) -> None:
    """How good predictors are on TRACE: errors, under- and over-estimates. --out writes accuracy.csv and ecdf.csv."""
    from cpsched_sim.accuracy import study, write_study
    from cpsched_sim.views import print_accuracy
    from cpsched_sim.workloads.load import load, load_jobs

    jobs = load_jobs(trace, lenient, max_jobs) if system is None else load(trace, system, lenient, max_jobs).jobs
    found = study(jobs, _names(predictors))
    if out is not None:
        write_study(found, out)
    rows = {name: asdict(row.accuracy) for name, row in found.items()}
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        print_accuracy(trace.name, rows)


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
    max_jobs: MaxJobs = None,
    limit: Limit = None,
    effort: Effort = None,
    seed: Seed = None,
    charge: ChargeText = "none",
    lane: LaneName = "ordinary",
    jobs: Annotated[int, typer.Option(min=1, help="How many processes at once.")] = 2,
    out: OutDir = None,
    plots: Annotated[bool, typer.Option("--plots", help="Also draw bars.png and ecdf.png in --out.")] = False,
    as_json: AsJson = False,
    lenient: Lenient = False,
) -> None:
    """Replay TRACE with every dispatcher and every predictor; --out writes compare.csv and every schedule."""
    from cpsched.errors import require
    from cpsched_sim import compare as study
    from cpsched_sim.files import write_table
    from cpsched_sim.report import plots as report
    from cpsched_sim.views import print_comparison, progress_bar
    from cpsched_sim.workloads.load import load

    if plots:
        require(out is not None, "--plots", plots, "needs --out DIR")
        report.check()
    options, settings = _options(limit, effort, seed), parse_settings(set_)
    chosen = study.setups(_names(dispatchers), _names(predictors), settings, options, parse_charge(charge), lane)
    study.check_baseline(chosen, baseline)
    for note in load(trace, system, lenient, max_jobs).notes:
        typer.echo(f"note: {note}", err=True)
    with progress_bar("compare", "combinations") as show:
        rows = study.compare(study.Study(trace, system, max_jobs, lenient, out), chosen, jobs, show)
    baselines = study.baselines(rows, baseline)
    if out is not None:
        write_table(out / "compare.csv", study.table_rows(rows, baselines))
        if plots:
            report.write_comparison(rows, out)
    if as_json:
        typer.echo(json.dumps(study.as_json(rows, baselines)))
    else:
        print_comparison(trace.name, rows, baselines)
    if failed := [row for row in rows if row.summary is None]:
        for row in failed:
            typer.echo(f"error: {row.name}: {row.error}", err=True)
        raise typer.Exit(1)


def _names(text: str) -> list[str]:
    """Names separated by commas, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


@workload_app.command("eurora")
@reporting
def workload_eurora(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write it; gzipped if the name ends in .gz.")],
    days: Annotated[float, typer.Option(help="How many days.")] = 30.0,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same jobs.")] = 0,
    load: Annotated[float, typer.Option(help="Times the jobs per day of Eurora's busiest months.")] = 1.0,
) -> None:
    """Jobs like Eurora's (see `cpsched_sim/workloads/eurora.py`), in cpsched's own trace format."""
    from cpsched_sim.traces import table as own
    from cpsched_sim.workloads.eurora import RESOURCES, eurora

    records = eurora(days, seed, load)
    own.write(out, records, RESOURCES, {"system": "eurora", "days": days, "seed": seed, "load": load})
    typer.echo(f"{out}: {len(records):,} jobs")


def main() -> None:
    """Run as `python -m cpsched_sim.cli`."""
    app(prog_name="cpsched")


if __name__ == "__main__":
    main()
