"""`cpsched system` and `cpsched workload`: write system files and synthetic traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cpsched.formatting import format_count
from cpsched_sim.cli.options import TraceFormatOptions, expand_option_groups
from cpsched_sim.cli.simulator_app import app, reporting
from cpsched_sim.command_conventions import print_message

workload_app = typer.Typer(help="Generate a workload.", no_args_is_help=True)
app.add_typer(workload_app, name="workload")
system_app = typer.Typer(help="Write a cluster's system file.", no_args_is_help=True)
app.add_typer(system_app, name="system")


@system_app.command("from-slurm")
@reporting
@expand_option_groups
def system_from_slurm(
    *,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="Output of `scontrol show node` or `sinfo`, or a trace for its peak use; -: standard input; "
            "default: run scontrol.",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="The system's name.")] = "site",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Output file; default: standard output.")] = None,
    reading: TraceFormatOptions,
) -> None:
    """Write a system file from Slurm's nodes or an accounting file's peak use.

    Comments mark guesses.
    """
    from cpsched_sim.file_io import write_atomically
    from cpsched_sim.result_files import require_new_files
    from cpsched_sim.systems.system_draft import render_and_parse_draft
    from cpsched_sim.workloads.system_draft_sources import draft_system

    dialect = reading.to_dialect()
    if out is not None:
        require_new_files(out)
    draft, notes = draft_system(source, name, reading.lenient, reading.format, dialect)
    for note in notes:
        print_message("note", note)
    text, system = render_and_parse_draft(draft)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_atomically(out, text.encode())
    nodes = sum(kind.count for kind in system.node_types.values())
    kinds, partitions = len(system.node_types), len(system.partitions)
    typer.echo(
        f"{out}: {format_count(nodes, 'node')} of {format_count(kinds, 'node type')}, {format_count(partitions, 'partition')}"  # noqa: E501
    )


@workload_app.command("eurora")
@reporting
def workload_eurora(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Output file, gzipped if its name ends in .gz.")],
    days: Annotated[float, typer.Option(help="Number of days.")] = 30.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same seed gives the same jobs.")] = 0,
    load: Annotated[float, typer.Option(help="Factor that scales the jobs per day of Eurora's busiest months.")] = 1.0,
) -> None:
    """Generate jobs that resemble Eurora's, in cpsched's own trace format.

    `cpsched_sim/workloads/eurora_generator.py` describes them.
    """
    from cpsched_sim.result_files import require_new_files
    from cpsched_sim.traces import native_format
    from cpsched_sim.workloads.eurora_generator import RESOURCES, generate_eurora_records

    require_new_files(out)
    records = generate_eurora_records(days, seed, load)
    native_format.write(out, records, RESOURCES, {"system": "eurora", "days": days, "seed": seed, "load": load})
    typer.echo(f"{out}: {format_count(len(records), 'job')}")


@workload_app.command("lublin")
@reporting
def workload_lublin(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Output file, gzipped if its name ends in .gz.")],
    jobs: Annotated[int, typer.Option(help="Number of jobs.")] = 10_000,
    processors: Annotated[int, typer.Option(help="Number of processors of the machine.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same seed gives the same jobs.")] = 0,
    load: Annotated[float, typer.Option(help="Factor that scales the model's jobs per day (about 93).")] = 1.0,
) -> None:
    """Generate jobs in SWF with published models.

    The models are those of Lublin and Feitelson (2003) and Tsafrir et al. (2005).
    """
    from cpsched_sim.result_files import require_new_files
    from cpsched_sim.traces import swf
    from cpsched_sim.workloads.lublin_generator import generate_lublin_records, lublin_swf_header

    require_new_files(out)
    records = generate_lublin_records(jobs, seed, processors, load)
    swf.write(out, records, lublin_swf_header(jobs, seed, processors, load))
    typer.echo(f"{out}: {format_count(len(records), 'job')}")
