"""The calls that read: configuration, the cluster as it is, the accounting database."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from cpsched_bridge.adapters.slurm.slurm_records import (
    CONFIG_FIELDS,
    JOB_FIELDS,
    NODE_FIELDS,
    PARTITION_FIELDS,
    PAST_FIELDS,
    RESERVATION_FIELDS,
    Record,
)
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import has_topology
from cpsched_bridge.adapters.slurm.transport.programs import topology
from cpsched_bridge.adapters.slurm.transport.programs.call_budget import rate_limit, told_of
from cpsched_bridge.adapters.slurm.transport.programs.command_rules import has_plugin
from cpsched_bridge.adapters.slurm.transport.programs.layout_queries import LayoutQueries
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_calls import output_of
from cpsched_bridge.adapters.slurm.transport.programs.unix_groups import UnixGroups
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_rows import Table, job_table, records, table

_STATE = JOB_FIELDS.index("state")
_CONFIGURATION = ["scontrol", "show", "config"]
_JOB_DEFAULTS = re.compile(r"^JobDefaults *= *(?!\(null\))(\S.*?) *$", re.MULTILINE)


class Reading:
    """Each call returns plain values; tables travel as `rows` describes them."""

    def __init__(self, pyslurm: Any) -> None:
        self._pyslurm = pyslurm
        self._groups = UnixGroups()
        self._layouts = LayoutQueries()
        self._singletons = Singletons()
        self._networks: tuple[float, dict[str, str]] | None = None

    def hello(self) -> Record:
        """Which process answers and as whom, and how the controller is configured."""
        return self._hello(output_of(_CONFIGURATION) or "")

    def _hello(self, printed: str) -> Record:
        """`printed`: what `scontrol show config` prints."""
        config = records(table([self._pyslurm.slurmctld.Config.load()], CONFIG_FIELDS))[0]
        defaults = _JOB_DEFAULTS.search(printed)  # pyslurm has no field for them
        return {
            "pid": os.getpid(),
            "uid": os.getuid(),
            "pyslurm": str(getattr(self._pyslurm, "__version__", "")),
            "config": {**config, "job_defaults": defaults and defaults[1]},
        }

    def facts(self) -> Record:
        """What the doctor asks for: configuration, versions, clocks, as whom; nothing that needs accounting."""
        user = pwd.getpwuid(os.getuid()).pw_name
        controller_s = int(self._pyslurm.slurmctld.diag().request_time)
        nodes = self._pyslurm.Nodes.load().values()
        printed = output_of(_CONFIGURATION) or ""
        return {
            **self._hello(printed),
            "user": user,
            "clock_ahead_s": controller_s - int(time.time()),
            "clients": version_of(["scontrol", "--version"]),
            "rate_limit": told_of(rate_limit(printed, os.getuid())),
            "node_versions": sorted({node.slurm_version or "" for node in nodes} - {""}),
        }

    def snapshot(self) -> Record:
        """Jobs first, nodes last: what starts or ends in between shows in what the nodes have left."""
        slurm = self._pyslurm
        config = slurm.slurmctld.Config.load()
        guarded = has_plugin(config.job_submit_plugins)
        jobs = job_table(slurm.Jobs.load().values())
        placed = {**jobs, "rows": [row for row in jobs["rows"] if row[_STATE] in slurm_states.OCCUPYING]}
        partitions = table(slurm.Partitions.load().values(), PARTITION_FIELDS)
        reservations = table(slurm.Reservations.load().values(), RESERVATION_FIELDS)
        nodes = table(slurm.Nodes.load().values(), NODE_FIELDS)
        return {
            "now_s": int(time.time()),
            "nodes": nodes,
            "partitions": partitions,
            "reservations": reservations,
            "jobs": jobs,
            "layouts": self._layouts.of(records(placed)),
            "singletons": self._singletons.of(records(jobs)),
            "guarded": guarded,
            "outside": self._outside(jobs, partitions),
            "networks": self._networks_now(records(table([config], CONFIG_FIELDS))[0]),
        }

    def _networks_now(self, config: Record) -> dict[str, str]:
        """The highest switch or the block of each node, which pyslurm does not have."""
        if not has_topology(config):
            return {}
        if self._networks is None or time.monotonic() - self._networks[0] >= topology.PERIOD_S:
            self._networks = time.monotonic(), topology.parse_topology(output_of(list(topology.COMMAND)) or "")
        return self._networks[1]

    def _outside(self, jobs: Table, partitions: Table) -> dict[str, list[str]]:
        """By user with a pending job, the groups allowed by partitions that the user is known not to be in."""
        allowed = {name for row in records(partitions) for name in row["allowed_groups"] or () if name != "ALL"}
        if not allowed:
            return {}
        user = JOB_FIELDS.index("user_name")
        waiting = {row[user] for row in jobs["rows"] if row[_STATE] == slurm_states.PENDING and row[user]}
        return self._groups.outside(waiting, allowed)

    def past(self, since_s: int) -> Record:
        """Jobs of the accounting database that ended after `since_s`."""
        database = self._pyslurm.db
        found = database.Jobs.load(database.JobFilter(start_time=since_s))
        return table(found.values(), PAST_FIELDS)


def version_of(command: list[str]) -> str | None:
    """The last word that a command says of itself: its version."""
    words = (output_of(command) or "").split()
    return words[-1] if words else None


SHOW = ["squeue", "--noheader", "--all", "--states=PENDING", "--format=%A %E"]
_SINGLE = re.compile(r"(?:^|[,?])singleton(?:$|[(,?])")


class Singletons:
    """Which waiting jobs have `singleton` among their dependencies, by squeue: pyslurm loses the word until it is met.

    A job is asked for once, and again when its dependencies change. squeue prints no text of a user here. `show` runs a
    command: what it prints, None where it fails.
    """

    def __init__(self, show: Callable[[list[str]], str | None] = output_of) -> None:
        self._show = show
        self._known: dict[int, tuple[str, bool]] = {}

    def of(self, jobs: Iterable[Record]) -> dict[int, bool]:
        """Whether `singleton` is among the dependencies, by number; without the jobs that squeue did not list."""
        keys = {
            job["id"]: str(job["dependencies"])
            for job in jobs
            if job["state"] == slurm_states.PENDING and job["dependencies"]
        }
        self._known = {number: known for number, known in self._known.items() if keys.get(number) == known[0]}
        if keys.keys() - self._known.keys() and (shown := self._show(SHOW)) is not None:
            told = dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)
            self._known |= {
                number: (key, _SINGLE.search(told[str(number)].strip()) is not None)
                for number, key in keys.items()
                if str(number) in told
            }
        return {number: single for number, (_, single) in self._known.items()}
