"""Query the cluster's topologies with scontrol.

Determine which nodes share a switch or block. Since Slurm 25.05, topology.yaml may define several topologies for
different partitions. Slurm then ignores TopologyPlugin and topology.conf, although `scontrol show config` still prints
TopologyPlugin. Only `scontrol show topoconf` prints the topologies in use. `scontrol show topology` prints nothing
unless topology.yaml also exists on this host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import yaml

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.object_parsing import parse_topology
from cpsched.slurm_text.objects import SlurmTopology
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import find_restricting_topology_plugins

TOPOCONF_COMMAND = ("scontrol", "show", "topoconf")
"""Command of Slurm 25.05 and later that prints the topologies in use, with the default first."""
TOPOCONF_SINCE = (25, 5)
TOPOLOGY_COMMAND = ("scontrol", "show", "topology")
"""Command that prints the switches or blocks of the default topology, or of a topology whose name is appended."""
QUERY_INTERVAL_S = 60.0
"""Seconds between queries. A reconfiguration of slurmctld may change the topologies."""
UNREADABLE_TOPOLOGY = "unreadable topology.yaml"

_ATTRIBUTES = ("topology", "cluster_default")
"""Attributes of a topology in topology.yaml other than its type."""
_UNSET: tuple[object, ...] = ({}, "", "false")
"""Values of the attributes that do not apply to the topology's type."""


def read_topologies(config: SlurmConfig, named: str, ask: Callable[[Sequence[str]], str]) -> dict[str, SlurmTopology]:
    """Return the topologies in the form of `SlurmRecords.topologies`.

    `named` is the output of `TOPOCONF_COMMAND`, or empty before Slurm 25.05. `ask` returns the output of a command, or
    "" if the command fails.
    """
    known = parse_topoconf(named)

    def read_topology(name: str, plugin: str) -> SlurmTopology:
        printed = ask((*TOPOLOGY_COMMAND, name) if name and known else TOPOLOGY_COMMAND) if plugin else ""
        return parse_topology(plugin, printed)

    return {
        name: read_topology(name, plugin) for name, plugin in find_restricting_topology_plugins(config, known).items()
    }


def parse_topoconf(printed: str) -> dict[str, str]:
    """Return each topology's plugin by name, or {} without topology.yaml.

    The default comes first.
    """
    try:
        read = yaml.load(printed, yaml.BaseLoader) or ()
        types = {
            each["topology"]: [name for name, value in each.items() if name not in _ATTRIBUTES and value not in _UNSET]
            for each in read
        }
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        return {"": UNREADABLE_TOPOLOGY}
    return {name: f"topology/{found[0]}" for name, found in types.items() if found}


def list_restricting_topology_plugins(found: Mapping[str, SlurmTopology]) -> list[str]:
    """Return the plugins that may reject nodes, for the doctor."""
    return sorted({each.plugin for each in found.values()} - {""})
