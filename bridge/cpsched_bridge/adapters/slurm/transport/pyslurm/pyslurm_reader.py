"""Read the configuration, the cluster and the accounting database with pyslurm."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.controller_options import find_unmodelled_options
from cpsched.slurm_text.objects import SlurmNode, SlurmPartition, SlurmReservation, SlurmTopology
from cpsched.slurm_text.option_lists import parse_config
from cpsched_bridge.adapters.slurm.slurm_records import (
    ENDED_JOB_FIELDS,
    JOB_FIELDS,
    NODE_FILTER_PARAMETER,
    Record,
)
from cpsched_bridge.adapters.slurm.translation import slurm_states
from cpsched_bridge.adapters.slurm.transport import CONFIG_INTERVAL_S, PARTITIONS_INTERVAL_S
from cpsched_bridge.adapters.slurm.transport.programs import topology_queries
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import has_lua_submit_plugin
from cpsched_bridge.adapters.slurm.transport.programs.layout_queries import CachingJobLayoutReader
from cpsched_bridge.adapters.slurm.transport.programs.rpc_rate_limit import make_rate_limit_facts, parse_rate_limit
from cpsched_bridge.adapters.slurm.transport.programs.slurm_program_calls import run_and_read_output
from cpsched_bridge.adapters.slurm.transport.programs.unix_groups import CachingUnixGroupLookup
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_rows import (
    Table,
    list_fields,
    table_to_records,
    to_config,
    to_job_table,
    to_partition_table,
    to_table,
)
from cpsched_bridge.host_users import find_user_name

_NAME, _TOPOLOGY = (list_fields(SlurmPartition).index(name) for name in ("name", "topology"))
_STATE = JOB_FIELDS.index("state")
_EXTRA = JOB_FIELDS.index("extra")
_CONFIG_COMMAND = ["scontrol", "show", "config"]


class PyslurmReader:
    """A reader that returns plain values. `pyslurm_rows` describes its tables."""

    def __init__(self, pyslurm: Any) -> None:
        self._pyslurm = pyslurm
        self._groups = CachingUnixGroupLookup()
        self._layouts = CachingJobLayoutReader()
        self._singletons = SingletonDependencyLookup()
        self._unlimited = UnlimitedJobLookup()
        self._loaded: dict[str, tuple[float, Any]] = {}
        """Time and value of what several readings use, by name."""
        self._topology: tuple[float, dict[str, SlurmTopology], dict[str, str]] | None = None

    def hello(self) -> Record:
        """Return the pid, uid, pyslurm version, call limit and controller configuration."""
        return self._build_hello_reply(run_and_read_output(_CONFIG_COMMAND) or "")

    def _build_hello_reply(self, printed: str) -> Record:
        """Return the facts of `hello` from the output of `scontrol show config`."""
        config = _make_config_record(self._pyslurm.slurmctld.Config.load())
        # pyslurm has no field for the job defaults, and shows a repeated option only once
        settings = parse_config(printed)
        texts = {
            "job_defaults": settings.get("JobDefaults") or None,
            "scheduler_parameters": settings.get("SchedulerParameters", ""),
        }
        return {
            "pid": os.getpid(),
            "uid": os.getuid(),
            "pyslurm": str(getattr(self._pyslurm, "__version__", "")),
            "config": {**config, **texts},
            "rate_limit": make_rate_limit_facts(parse_rate_limit(printed, os.getuid())),
            "unmodelled_options": list(find_unmodelled_options(settings)),
        }

    def facts(self) -> Record:
        """Return the doctor's facts that do not need accounting.

        These are the facts of `hello`, the topology plugins, the user, the clock difference and the versions.
        """
        user = find_user_name(os.getuid())
        controller_s = int(self._pyslurm.slurmctld.diag().request_time)
        nodes = self._pyslurm.Nodes.load().values()
        printed = run_and_read_output(_CONFIG_COMMAND) or ""
        hello = self._build_hello_reply(printed)
        return {
            **hello,
            "topology_plugins": topology_queries.list_restricting_topology_plugins(
                self._get_topologies(to_config(hello["config"]))[0]
            ),
            "user": user,
            "clock_ahead_s": controller_s - int(time.time()),
            "clients": query_program_version(["scontrol", "--version"]),
            "node_versions": sorted({node.slurm_version or "" for node in nodes} - {""}),
        }

    def snapshot(self) -> Record:
        """Return one reading, as `SlurmTransport.read` specifies.

        Jobs are read first and nodes last.
        """
        slurm = self._pyslurm
        config = self._load_periodically("config", slurm.slurmctld.Config.load, CONFIG_INTERVAL_S)
        guarded = has_lua_submit_plugin(config.job_submit_plugins)
        jobs = to_job_table(slurm.Jobs.load().values())
        if NODE_FILTER_PARAMETER not in (config.scheduler_parameters or ()):
            for row in jobs["rows"]:
                row[_EXTRA] = None
        placed = {**jobs, "rows": [row for row in jobs["rows"] if row[_STATE] in slurm_states.OCCUPYING_STATES]}
        records = table_to_records(jobs)
        loaded = self._load_periodically("partitions", slurm.Partitions.load, PARTITIONS_INTERVAL_S)
        partitions = to_partition_table(loaded.values())
        topologies, named = self._get_topologies(to_config(_make_config_record(config)))
        for row in partitions["rows"]:
            row[_TOPOLOGY] = named.get(row[_NAME])
        reservations = to_table(slurm.Reservations.load().values(), list_fields(SlurmReservation))
        nodes = to_table(slurm.Nodes.load().values(), list_fields(SlurmNode))
        return {
            "now_s": int(time.time()),
            "nodes": nodes,
            "partitions": partitions,
            "reservations": reservations,
            "jobs": jobs,
            "layouts": self._layouts.read(table_to_records(placed)),
            "singletons": self._singletons.read(records),
            "unlimited": self._unlimited.read(records),
            "guarded": guarded,
            "outside": self._find_nonmember_groups(jobs, partitions),
            "topologies": {name: dataclasses.asdict(topology) for name, topology in topologies.items()},
        }

    def _load_periodically(self, name: str, load: Callable[[], Any], interval_s: float) -> Any:
        """Return what `load` returned at most `interval_s` seconds ago."""
        now_s = time.monotonic()
        if name not in self._loaded or now_s - self._loaded[name][0] >= interval_s:
            self._loaded[name] = now_s, load()
        return self._loaded[name][1]

    def _get_topologies(self, config: SlurmConfig) -> tuple[dict[str, SlurmTopology], dict[str, str]]:
        """Return the topologies, and the topology that each partition names.

        pyslurm reports neither.
        """
        if self._topology is None or time.monotonic() - self._topology[0] >= topology_queries.QUERY_INTERVAL_S:

            def read_output_or_empty(command: Sequence[str]) -> str:
                return run_and_read_output(list(command)) or ""

            found = topology_queries.read_topologies(
                config, read_output_or_empty(topology_queries.TOPOCONF_COMMAND), read_output_or_empty
            )
            named = (
                topology_queries.parse_partitions(read_output_or_empty(topology_queries.PARTITIONS_COMMAND))
                if topology_queries.list_restricting_topology_plugins(found)
                else {}
            )
            self._topology = time.monotonic(), found, named
        return self._topology[1], self._topology[2]

    def _find_nonmember_groups(self, jobs: Table, partitions: Table) -> dict[str, list[str]]:
        """Return, by user, the groups in AllowGroups to which the user does not belong.

        The result includes only users with pending jobs and groups with known members.
        """
        allowed = {
            name for row in table_to_records(partitions) for name in row["allowed_groups"] or () if name != "ALL"
        }
        if not allowed:
            return {}
        user = JOB_FIELDS.index("user_name")
        waiting = {row[user] for row in jobs["rows"] if row[_STATE] == slurm_states.PENDING and row[user]}
        return self._groups.find_nonmember_groups(waiting, allowed)

    def past(self, since_s: int) -> Record:
        """Return a table of the jobs that the accounting database lists since `since_s`."""
        database = self._pyslurm.db
        found = database.Jobs.load(database.JobFilter(start_time=since_s))
        return to_table(found.values(), ENDED_JOB_FIELDS)


def _make_config_record(config: Any) -> Record:
    return table_to_records(to_table([config], list_fields(SlurmConfig)))[0]


def query_program_version(command: list[str]) -> str | None:
    """Return a program's version, the last word of its output, or None on failure."""
    words = (run_and_read_output(command) or "").split()
    return words[-1] if words else None


_SINGLETON = re.compile(r"(?:^|[,?])singleton(?:$|[(,?])")


class PendingJobColumnLookup:
    """A squeue lookup of one column of pending jobs, for a fact that pyslurm does not report.

    Each job is queried once, and again if its key changes. The columns in use contain no text that users wrote. `show`
    runs a command and returns its output, or None if the command fails.
    """

    def __init__(self, column: str, show: Callable[[list[str]], str | None] = run_and_read_output) -> None:
        self._command = ["squeue", "--noheader", "--all", "--states=PENDING", f"--format=%A {column}"]
        self._show = show
        self._known: dict[int, tuple[str, str]] = {}

    def read(self, keys: Mapping[int, str]) -> dict[int, str]:
        """Return the column's text by number of the jobs in `keys`. Jobs that squeue did not list are missing."""
        self._known = {number: known for number, known in self._known.items() if keys.get(number) == known[0]}
        if keys.keys() - self._known.keys() and (shown := self._show(self._command)) is not None:
            records = dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)
            self._known |= {
                number: (key, records[str(number)].strip()) for number, key in keys.items() if str(number) in records
            }
        return {number: text for number, (_, text) in self._known.items()}


class SingletonDependencyLookup:
    """A lookup of pending jobs with an unsatisfied `singleton` dependency.

    pyslurm reports `singleton` only once it is satisfied.
    """

    def __init__(self, show: Callable[[list[str]], str | None] = run_and_read_output) -> None:
        self._lookup = PendingJobColumnLookup("%E", show)

    def read(self, jobs: Iterable[Record]) -> dict[int, bool]:
        """Return whether `singleton` is among a job's dependencies, by job number."""
        keys = {
            job["id"]: str(job["dependencies"])
            for job in jobs
            if job["state"] == slurm_states.PENDING and job["dependencies"]
        }
        return {number: _SINGLETON.search(text) is not None for number, text in self._lookup.read(keys).items()}


class UnlimitedJobLookup:
    """A lookup of pending jobs without a time limit. pyslurm reports them like jobs with their partition's limit."""

    def __init__(self, show: Callable[[list[str]], str | None] = run_and_read_output) -> None:
        self._lookup = PendingJobColumnLookup("%l", show)

    def read(self, jobs: Iterable[Record]) -> list[int]:
        """Return the numbers of the jobs."""
        keys = {job["id"]: "" for job in jobs if job["state"] == slurm_states.PENDING and job["time_limit"] is None}
        return [number for number, text in self._lookup.read(keys).items() if text == "UNLIMITED"]
