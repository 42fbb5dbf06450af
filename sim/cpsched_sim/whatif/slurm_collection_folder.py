"""Read the data that `cpsched whatif collect` has collected in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cpsched.errors import InvalidValue
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.objects import SlurmNode
from cpsched_sim.errors import InputError
from cpsched_sim.input.dated_files import has_dated_files
from cpsched_sim.site.policy_file import SitePolicyFile, load_site_policy_file
from cpsched_sim.systems import system_draft
from cpsched_sim.systems.slurm_node_parsing import get_node_amounts, is_unavailable_state
from cpsched_sim.systems.system_file import SystemFile
from cpsched_sim.traces.slurm_times import parse_time_zone, possible_unix_times_s
from cpsched_sim.traces.trace_record import TraceRecord
from cpsched_sim.whatif.license_limits import read_license_totals
from cpsched_sim.whatif.site_changes import read_collected_nodes, read_slurmctld_start_time
from cpsched_sim.whatif.slurm_collection import CONFIG, EVENTS, JOBS, LICENSES, MANIFEST, NODES, POLICY, sacctmgr_rows
from cpsched_sim.whatif.whatif_window import NodeOutage
from cpsched_sim.workloads.system_draft_sources import draft_system

SITE = "site"


@dataclass(frozen=True, slots=True)
class SlurmCollectionFolder:
    """A folder of collected data. Times in its files are in UTC.

    `zone` is the site's time zone. `until_s` is the end of the collected period. `notes` name the site's settings that
    the policy file does not have.
    """

    path: Path
    zone: str
    until_s: int
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path) -> SlurmCollectionFolder:
        """Open a folder. Raise `InputError` unless `cpsched whatif collect` wrote it."""
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            until, zone = str(manifest["until"]), str(manifest.get("zone", ""))
            notes = tuple(map(str, manifest.get("notes", ())))
            parse_time_zone(zone)
            until_s = possible_unix_times_s(until, parse_time_zone(""))[0]
        except (OSError, ValueError, LookupError, TypeError, InvalidValue) as error:
            rule = "was not written by `cpsched whatif collect`"
            raise InputError(f"{path}: {rule} ({MANIFEST}: {type(error).__name__})") from error
        return cls(path, zone, until_s, notes)

    @classmethod
    def find(cls, path: Path) -> SlurmCollectionFolder | None:
        """Open a folder, or return None for a file or a folder of accounting files.

        Raise `InputError` for any other folder.
        """
        if not path.is_dir() or (not (path / MANIFEST).exists() and has_dated_files(path)):
            return None
        return cls.of(path)

    @property
    def accounting_path(self) -> Path:
        """Return the path of the accounting file."""
        return self.path / JOBS

    @property
    def slurm_config_path(self) -> Path | None:
        """Return the path of `scontrol show config`'s output, or None if it is missing."""
        return self._existing_path(CONFIG)

    def policy(self) -> SitePolicyFile | None:
        """Return the site's policy, or None. Raise `InvalidPolicy`."""
        path = self._existing_path(POLICY)
        return load_site_policy_file(path) if path is not None else None

    def licenses(self) -> dict[str, int]:
        """Return the total of each license that Slurm reports. Raise `InvalidSystem`."""
        path = self._existing_path(LICENSES)
        return read_license_totals(path) if path is not None else {}

    def system(self) -> SystemFile:
        """Return a system with the nodes that Slurm reported."""
        draft, _ = draft_system(str(self.path / NODES), SITE)
        return system_draft.render_and_parse_draft(draft)[1]

    def outages(self, system: SystemFile) -> tuple[list[NodeOutage], int]:
        """Return the outages by node type, and the number of outages without a type.

        The system has no type for a node that was removed or changed.
        """
        kinds = {name: _find_node_type(node, system) for name, node in read_collected_nodes(self.path).items()}
        found, strange = [], 0
        for name, begin_s, end_s in self._unavailable_periods():
            kind = kinds.get(name, "")
            strange += not kind
            if kind:
                found.append(NodeOutage(kind, begin_s, end_s))
        return found, strange

    def outages_of_added_nodes(
        self, earlier: SlurmCollectionFolder, system: SystemFile, ran: Sequence[TraceRecord]
    ) -> list[NodeOutage]:
        """Return an outage for each node that was added after `earlier` was collected.

        The outage lasts until the first job ran on the node.
        """
        came = read_collected_nodes(self.path)
        for name in read_collected_nodes(earlier.path):
            came.pop(name, None)
        first_s = dict.fromkeys(came, self.until_s)
        spelled: dict[str, Sequence[str]] = {}
        for record in ran if came else ():
            if record.nodes not in spelled:
                spelled[record.nodes] = [name for name in expand_hostlist_or_empty(record.nodes) if name in came]
            for name in spelled[record.nodes]:
                first_s[name] = min(first_s[name], record.start_s or self.until_s)
        kinds = {name: _find_node_type(node, system) for name, node in came.items()}
        return [NodeOutage(kinds[name], 0, at_s) for name, at_s in first_s.items() if kinds[name]]

    @property
    def slurmctld_start_s(self) -> int | None:
        """Return the time of slurmctld's last start, or None if it is unknown."""
        try:
            at = possible_unix_times_s(read_slurmctld_start_time(self.path), parse_time_zone(""))
        except InvalidValue:
            return None
        return at[0] if at else None

    def _unavailable_periods(self) -> Iterator[tuple[str, int, int]]:
        """Yield (node, from, to) for each period in which a node was unavailable."""
        utc = parse_time_zone("")
        for row in sacctmgr_rows(self.path / EVENTS):
            name, state = row.get("NodeName") or "", row.get("State") or ""
            if not name or not is_unavailable_state(state):
                continue
            try:
                begin, end = (possible_unix_times_s(row.get(column) or "", utc) for column in ("TimeStart", "TimeEnd"))
            except InvalidValue:
                continue
            if begin:
                yield name, begin[0], end[0] if end else self.until_s

    def _existing_path(self, name: str) -> Path | None:
        path = self.path / name
        return path if path.exists() else None


def _find_node_type(node: SlurmNode, system: SystemFile) -> str:
    """Return the type of a node in the system, or "" if no type matches."""
    wanted = {name: amount for name, amount in get_node_amounts(node)._asdict().items() if amount}
    partitions = set(node.partitions or ())
    return next(
        (
            kind
            for kind, there in system.node_types.items()
            if {name: amount for name, amount in there.each.items() if amount} == wanted
            and {name for name, kinds in system.partitions.items() if kind in kinds} == partitions
        ),
        "",
    )
