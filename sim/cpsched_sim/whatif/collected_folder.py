"""A folder of `cpsched whatif collect`: jobs, nodes and their outages, Slurm's own parameters, the site's policy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cpsched.errors import InvalidValue
from cpsched.parsing.hostlist import expand_if_valid as nodes_named
from cpsched_sim.errors import InputError
from cpsched_sim.input.dated_files import has_dated_files
from cpsched_sim.site.policy_file import SitePolicy, load_policy
from cpsched_sim.systems import system_draft
from cpsched_sim.systems.slurm_node_parsing import SlurmNode, is_away
from cpsched_sim.systems.system_file import SystemFile
from cpsched_sim.traces.timestamps import possible_times, zone_of
from cpsched_sim.traces.trace_record import TraceRecord
from cpsched_sim.whatif.licences import read_totals
from cpsched_sim.whatif.site_changes import booted, nodes_in
from cpsched_sim.whatif.slurm_collection import CONFIG, EVENTS, JOBS, LICENSES, MANIFEST, NODES, POLICY, rows_of
from cpsched_sim.whatif.trace_window import Outage
from cpsched_sim.workloads.system_drafts import draft_of

SITE = "site"


@dataclass(frozen=True, slots=True)
class CollectedFolder:
    """What a folder holds. `zone` is of the site's clocks; the times in its files are UTC."""

    path: Path
    zone: str
    until_s: int

    @classmethod
    def of(cls, path: Path) -> CollectedFolder:
        """The folder of a path. Raises `InputError` where nothing was collected there."""
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            until, zone = str(manifest["until"]), str(manifest.get("zone", ""))
            zone_of(zone)
            until_s = possible_times(until, zone_of(""))[0]
        except (OSError, ValueError, LookupError, TypeError, InvalidValue) as error:
            rule = "is no folder of `cpsched whatif collect`"
            raise InputError(f"{path}: {rule} ({MANIFEST}: {type(error).__name__})") from error
        return cls(path, zone, until_s)

    @classmethod
    def at(cls, path: Path) -> CollectedFolder | None:
        """The folder of a path; None for a file, and for a folder of accounting files. Raises `InputError`."""
        if not path.is_dir() or (not (path / MANIFEST).exists() and has_dated_files(path)):
            return None
        return cls.of(path)

    @property
    def jobs(self) -> Path:
        """The accounting."""
        return self.path / JOBS

    @property
    def config(self) -> Path | None:
        """What `scontrol show config` printed, if it did."""
        return self._there(CONFIG)

    def policy(self) -> SitePolicy | None:
        """The site's policy, if there is one. Raises `InvalidPolicy`."""
        path = self._there(POLICY)
        return load_policy(path) if path is not None else None

    def licences(self) -> dict[str, int]:
        """How many licences there are, as far as Slurm told. Raises `InvalidSystem`."""
        path = self._there(LICENSES)
        return read_totals(path) if path is not None else {}

    def system(self) -> SystemFile:
        """The nodes as Slurm has them."""
        draft, _ = draft_of(str(self.path / NODES), SITE)
        return system_draft.checked_draft(draft)[1]

    def outages(self, system: SystemFile) -> tuple[list[Outage], int]:
        """When nodes were away, by their kind; and how many events tell of nodes that are not there any more."""
        kinds = {name: _kind_of(node, system) for name, node in nodes_in(self.path).items()}
        found, strange = [], 0
        for name, begin_s, end_s in self._events():
            kind = kinds.get(name, "")
            strange += not kind
            if kind:
                found.append(Outage(kind, begin_s, end_s))
        return found, strange

    def not_yet(self, earlier: CollectedFolder, system: SystemFile, ran: Sequence[TraceRecord]) -> list[Outage]:
        """The nodes that came after `earlier` was collected, away until a job first ran on each."""
        came = nodes_in(self.path)
        for name in nodes_in(earlier.path):
            came.pop(name, None)
        first_s = dict.fromkeys(came, self.until_s)
        spelled: dict[str, Sequence[str]] = {}
        for record in ran if came else ():
            if record.nodes not in spelled:
                spelled[record.nodes] = [name for name in nodes_named(record.nodes) if name in came]
            for name in spelled[record.nodes]:
                first_s[name] = min(first_s[name], record.start_s or self.until_s)
        kinds = {name: _kind_of(node, system) for name, node in came.items()}
        return [Outage(kinds[name], 0, at_s) for name, at_s in first_s.items() if kinds[name]]

    @property
    def booted_s(self) -> int | None:
        """When slurmctld began before this was collected; None where nobody says."""
        try:
            at = possible_times(booted(self.path), zone_of(""))
        except InvalidValue:
            return None
        return at[0] if at else None

    def _events(self) -> Iterator[tuple[str, int, int]]:
        """(node, from when, until when) of each time in which a node could not be used."""
        utc = zone_of("")
        for row in rows_of(self.path / EVENTS):
            name, state = row.get("NodeName") or "", row.get("State") or ""
            if not name or not is_away(state):
                continue
            try:
                begin, end = (possible_times(row.get(column) or "", utc) for column in ("TimeStart", "TimeEnd"))
            except InvalidValue:
                continue
            if begin:
                yield name, begin[0], end[0] if end else self.until_s

    def _there(self, name: str) -> Path | None:
        path = self.path / name
        return path if path.exists() else None


def _kind_of(node: SlurmNode, system: SystemFile) -> str:
    """The kind of a node in the system that was made of all of them; "" where there is none."""
    amounts = {"cores": node.cores, "memory_mib": node.memory_mib, "gpus": node.gpus}
    wanted = {name: amount for name, amount in amounts.items() if amount}
    partitions = set(node.partitions)
    return next(
        (
            kind
            for kind, there in system.node_types.items()
            if {name: amount for name, amount in there.each.items() if amount} == wanted
            and {name for name, kinds in system.partitions.items() if kind in kinds} == partitions
        ),
        "",
    )
