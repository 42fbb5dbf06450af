"""Test that each field this release prints is in one of the adapter's lists (`known_fields`).

A new release may print new fields. Add each to the list that states how the adapter uses it. An object with an unlisted
field is unmanaged.
"""

import pytest

from cpsched.slurm_text import object_parsing
from cpsched.slurm_text.known_fields import KNOWN_COLUMNS, KNOWN_FIELDS_BY_KIND
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import CachingNodeParser
from cpsched_sim.program_runner import FIXED_ENVIRONMENT
from tests.slurm.harness import RELEASE, Slurm

PLURAL = {"node": "nodes", "partition": "partitions", "reservation": "reservations", "job": "jobs"}


@pytest.mark.conformance
def test_every_printed_field_is_known_and_usable(slurm: Slurm) -> None:
    slurm.reserve("fields", "Nodes=n4", "Flags=MAINT")
    runs = slurm.sbatch("--time=10", "--ntasks=2", "--nodes=2", script="sleep 60")
    slurm.sbatch("--time=10", "--hold", "--array=1-3%2", "--comment=x", "--dependency=afterany:" + runs)
    slurm.wait_for_state(runs, "RUNNING", 20)
    for kind, known in KNOWN_FIELDS_BY_KIND.items():
        printed = slurm.run("scontrol", "--all", "--details", "show", PLURAL[kind])
        records = [text for text in printed.split("\n\n") if "=" in text]
        assert records
        assert set().union(*(known.parse_fields(text) for text in records)) <= known.names, kind

    def shown(kind: str) -> str:
        settings = (f"{name}={value}" for name, value in FIXED_ENVIRONMENT.items())
        return slurm.run("env", *settings, "scontrol", "--all", "show", kind)

    found = [
        *CachingNodeParser().read(shown("nodes")),
        *object_parsing.parse_partitions(shown("partitions")),
        *object_parsing.parse_reservations(shown("reservations")),
    ]
    assert {each.name: (each.unreadable, each.unknown) for each in found if each.has_unusable_field} == {}
    assert found[-1].name == "fields"


@pytest.mark.conformance
@pytest.mark.skipif(RELEASE["slurm"] == "22.05", reason="this release does not list its columns")
def test_every_squeue_and_sinfo_column_is_known(cluster: Slurm) -> None:
    """`--helpFormat` lists all columns. sinfo's `-O ALL` prints only some of them, and squeue does not accept it."""
    for tool, known in KNOWN_COLUMNS.items():
        assert set(cluster.run(tool, "--helpFormat").split()) <= known, tool
