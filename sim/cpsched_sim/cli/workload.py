"""`cpsched workload`: made-up traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cpsched_sim.cli.program import app, reporting

workload_app = typer.Typer(help="Make up a workload.", no_args_is_help=True)
app.add_typer(workload_app, name="workload")


@workload_app.command("eurora")
@reporting
def workload_eurora(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write it; gzipped if the name ends in .gz.")],
    days: Annotated[float, typer.Option(help="How many days.")] = 30.0,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same jobs.")] = 0,
    load: Annotated[float, typer.Option(help="Times the jobs per day of Eurora's busiest months.")] = 1.0,
) -> None:
    """Jobs like Eurora's (see `cpsched_sim/workloads/eurora.py`), in cpsched's own trace format."""
    from cpsched_sim.results import check_new
    from cpsched_sim.traces import native
    from cpsched_sim.workloads.eurora import RESOURCES, eurora

    check_new(out)
    records = eurora(days, seed, load)
    native.write(out, records, RESOURCES, {"system": "eurora", "days": days, "seed": seed, "load": load})
    typer.echo(f"{out}: {len(records):,} jobs")
