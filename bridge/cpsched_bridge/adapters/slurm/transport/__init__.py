"""Connect to one Slurm controller.

- `cli`: parses the output of Slurm's own commands.
- `pyslurm`: reads jobs and nodes, and changes jobs, with Slurm's library in a child process, and uses `cli` otherwise.
- `programs`: runs Slurm's programs for changes and lookups, and decides which jobs may change.

A transport is `cli.cli_transport.SlurmCliTransport` or a subclass, and returns the classes of `cpsched.slurm_text`.
"""

from __future__ import annotations

from typing import Literal

from cpsched_bridge.ports import StartOrder, UndoOrder, Victim

CONFIG_INTERVAL_S = 15.0
PARTITIONS_INTERVAL_S = 15.0
"""Seconds for which readings use the configuration and the partitions again.

A change of the submit plugin, which requires a reconfiguration or a restart of slurmctld, may go unnoticed for so long.
"""


JobOrder = StartOrder | UndoOrder | Victim
OrderKind = Literal["start", "hold", "release", "unpin", "preempt"]
