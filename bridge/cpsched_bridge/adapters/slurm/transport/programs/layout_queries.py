"""Query with scontrol how nodes are connected, and how running jobs are laid out on them.

Since Slurm 25.05, topology.yaml may define several topologies for different partitions. Slurm then ignores
TopologyPlugin and topology.conf, although `scontrol show config` still prints TopologyPlugin. Only `scontrol show
topoconf` prints the topologies in use. `scontrol show topology` prints nothing unless topology.yaml also exists on this
host.

`scontrol --details` shows a job's layout, that is, its resources on each node, while pyslurm's own call crashes. The
layout is queried once, when the job is first seen on its nodes.

scontrol prints job names and comments unchanged. The parsed lines are those that users cannot imitate without a line
break. A layout is valid only if the job has exactly one record, whose parts list each of the job's nodes once. If
another job imitates a job's record, the job is queried alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import yaml

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.gres import parse_gres
from cpsched.slurm_text.hostlist import expand_hostlist
from cpsched.slurm_text.jobs import NodeShare, SlurmJob
from cpsched.slurm_text.object_parsing import parse_topology
from cpsched.slurm_text.objects import SlurmTopology
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import find_restricting_topology_plugins
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import run_and_read_output

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


SHOW_JOB_COMMAND = ["scontrol", "--details", "show", "job"]
MAX_SINGLE_QUERIES = 5
"""Maximum number of jobs that are queried one by one. For a larger number, one query for all jobs comes first."""

Layout = tuple[NodeShare, ...]
_RECORD = re.compile(r"^JobId=(\d{1,12}) ", re.MULTILINE)
_SPAN = r"\d{1,6}(?:-\d{1,6})?"
_PART = re.compile(
    rf"^ +Nodes=(\S+) CPU_IDs=({_SPAN}(?:,{_SPAN})*) Mem=(\d{{1,15}}) GRES=(\S*) *$", re.MULTILINE | re.ASCII
)


class CachingJobLayoutReader:
    """A cache of the layouts of multi-node jobs.

    `show` runs a command and returns its output, or None if the command fails.
    """

    def __init__(self, show: Callable[[list[str]], str | None] = run_and_read_output) -> None:
        self._show = show
        self._known: dict[int, tuple[object, Layout | None]] = {}

    def read(self, jobs: Iterable[SlurmJob]) -> dict[int, Layout]:
        """Return the readable layouts of the multi-node jobs among `jobs`, by job number."""
        keys = {  # the values change after a requeue or the loss of a node
            job.id: (job.num_nodes, job.cpus, job.start_time)
            for job in jobs
            if job.state in slurm_states.OCCUPYING_STATES and job.num_nodes > 1
        }
        self._known = {number: known for number, known in self._known.items() if keys.get(number) == known[0]}
        missing = keys.keys() - self._known.keys()
        if len(missing) > MAX_SINGLE_QUERIES and (shown := self._show(SHOW_JOB_COMMAND)) is not None:
            found = parse_layouts(shown, {number: keys[number][0] for number in missing})
            self._known |= {number: (keys[number], layout) for number, layout in found.items()}
        for number in sorted(keys.keys() - self._known.keys())[:MAX_SINGLE_QUERIES]:
            shown = self._show([*SHOW_JOB_COMMAND, str(number)])
            if shown is None:
                break
            self._known[number] = (keys[number], parse_layouts(shown, {number: keys[number][0]}).get(number))
        return {number: layout for number, (_, layout) in self._known.items() if layout is not None}


def parse_layouts(text: str, nodes: Mapping[int, int]) -> dict[int, Layout]:
    """Return the unambiguous layouts in scontrol's output, by job number.

    `nodes` maps each job number to its number of nodes.
    """
    _, *pieces = _RECORD.split(text)
    found: dict[int, Layout | None] = {}
    for words, record in zip(pieces[::2], pieces[1::2], strict=True):
        number = int(words)
        if number in nodes:
            found[number] = None if number in found else _parse_layout_parts(record, nodes[number])
    return {number: layout for number, layout in found.items() if layout is not None}


def _parse_layout_parts(record: str, count: int) -> Layout | None:
    """Return the parts of one record.

    Return None unless they list `count` different nodes.
    """
    try:
        parts = tuple(
            NodeShare(nodes, _count_ids(ids), int(mib), _parse_gres_text(gres))
            for nodes, ids, mib, gres in _PART.findall(record)
        )
        names = [name for part in parts for name in expand_hostlist(part.nodes)]
    except ValueError:
        return None
    return parts if len(names) == len(set(names)) == count else None


def _count_ids(ids: str) -> int:
    """Return the number of ids in a list such as "0-3,8"."""
    ends = [piece.partition("-") for piece in ids.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def _parse_gres_text(text: str) -> dict[str, int]:
    """Return the counts of generic resources.

    Example: "gpu:a100:2(IDX:0-1)" becomes {"gpu:a100": 2}.
    """
    found: dict[str, int] = {}
    for each in parse_gres(text):
        found[each.key] = found.get(each.key, 0) + each.count
    return found
