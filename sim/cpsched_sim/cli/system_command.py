"""`cpsched system`: write system files from a cluster's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cpsched.formatting import format_count
from cpsched_sim.cli.options import TraceFormatOptions, expand_option_groups
from cpsched_sim.cli.simulator_app import app, reporting
from cpsched_sim.command_conventions import print_message

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
