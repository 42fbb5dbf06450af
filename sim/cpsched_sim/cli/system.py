"""`cpsched system`: system files from what a cluster says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cpsched.formatting import many
from cpsched_sim.cli.options import FormatOptions, grouped
from cpsched_sim.cli.program import app, reporting
from cpsched_sim.shell import say

system_app = typer.Typer(help="Write the system file of a cluster.", no_args_is_help=True)
app.add_typer(system_app, name="system")


@system_app.command("from-slurm")
@reporting
@grouped
def system_from_slurm(
    *,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="What `scontrol show node` or `sinfo` printed, or a trace, for what was in use at once; - for "
            "standard input; default: scontrol is asked.",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the system.")] = "site",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it; default: standard output.")
    ] = None,
    reading: FormatOptions,
) -> None:
    """Write a system file from Slurm's nodes, or from an accounting file's peaks; its comments say what was guessed."""
    from cpsched_sim.files import write_whole
    from cpsched_sim.results import check_new
    from cpsched_sim.systems.drafting import checked
    from cpsched_sim.workloads.drafts import draft_of

    dialect = reading.dialect()
    if out is not None:
        check_new(out)
    draft, notes = draft_of(source, name, reading.lenient, reading.format, dialect)
    for note in notes:
        say("note", note)
    text, system = checked(draft)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_whole(out, text.encode())
    nodes = sum(kind.count for kind in system.node_types.values())
    kinds, partitions = len(system.node_types), len(system.partitions)
    typer.echo(f"{out}: {many(nodes, 'node')} of {many(kinds, 'kind')}, {many(partitions, 'partition')}")
