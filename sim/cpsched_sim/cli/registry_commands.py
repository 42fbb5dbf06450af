"""The commands `cpsched dispatchers`, `predictors`, `metrics` and `warm-up`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic_core import to_jsonable_python

from cpsched.errors import UnknownName
from cpsched_sim.cli.options import AsJson
from cpsched_sim.cli.simulator_app import app, reporting
from cpsched_sim.command_conventions import print_message, print_report

if TYPE_CHECKING:
    from cpsched.registry import Registry


Name = Annotated[str, typer.Argument(metavar="[NAME]", help="Show only this entry.")]


@app.command()
@reporting
def dispatchers(name: Name = "", as_json: AsJson = False) -> None:
    """List the dispatchers, or one of them, with description, parameters, defaults and source."""
    from cpsched.registry import DISPATCHERS

    _print_registry("dispatchers", DISPATCHERS, name, as_json)


@app.command()
@reporting
def predictors(name: Name = "", as_json: AsJson = False) -> None:
    """List the predictors, or one of them, with description, parameters, defaults and source."""
    from cpsched_sim.clairvoyant_policies import PREDICTORS

    _print_registry("predictors", PREDICTORS, name, as_json)


def _print_registry(title: str, known: Registry[Any], name: str, as_json: bool) -> None:
    """Print one entry per name on stdout, and one line per broken plug-in on stderr."""
    from cpsched.registry import BrokenPlugin
    from cpsched_sim.terminal_tables import print_plugin_list

    rows = []
    for found in known.iterate_registrations():
        if isinstance(found, BrokenPlugin):
            print_message("error", found.error)
            continue
        rows.append(
            {"name": found.name, "summary": found.summary, "parameters": found.defaults(), "source": found.source}
        )
    if name:
        rows = [row for row in rows if row["name"] == name]
        if not rows:
            raise UnknownName(title.removesuffix("s"), name, known.names())
    print_report(rows, print_plugin_list, as_json, lambda rows: {title: to_jsonable_python(rows, fallback=str)})


@app.command("warm-up")
@reporting
def warm_up() -> None:
    """Compile all kernels for later commands.

    In a shared installation, its owner does this for all users.
    """
    from cpsched_sim.kernel_warm_up import warm_up_kernels

    done = warm_up_kernels()
    typer.echo(done)
    raise typer.Exit(1 if done.lost else 0)


@app.command()
@reporting
def metrics(as_json: AsJson = False) -> None:
    """List the metrics with heading, unit, formula, direction and source."""
    from cpsched.metrics import known_metrics
    from cpsched.registry import BrokenPlugin
    from cpsched_sim.terminal_tables import print_metric_definitions

    rows = []
    for found in known_metrics().iterate_registrations():
        if isinstance(found, BrokenPlugin):
            print_message("error", found.error)
            continue
        metric = found.build()
        rows.append({key: getattr(metric, key) for key in ("name", "heading", "unit", "formula", "better", "source")})
    print_report(rows, print_metric_definitions, as_json, lambda rows: {"metrics": rows})
