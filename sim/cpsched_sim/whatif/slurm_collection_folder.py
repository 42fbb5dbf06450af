"""Read the data that `cpsched whatif collect` has collected in a folder, and list the changes between two folders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cpsched.errors import InvalidValue
from cpsched.formatting import format_count
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.known_fields import PARTITION
from cpsched.slurm_text.object_parsing import list_printed_objects
from cpsched.slurm_text.objects import SlurmNode
from cpsched.slurm_text.option_lists import parse_config
from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.input.text_line_reader import has_dated_files, read_text_lines
from cpsched_sim.site.policy_file import SitePolicyFile, load_site_policy_file
from cpsched_sim.systems import system_draft
from cpsched_sim.systems.slurm_node_parsing import get_node_amounts, is_unavailable_state, parse_slurm_nodes
from cpsched_sim.systems.system_file import SystemFile
from cpsched_sim.traces.slurm_times import parse_time_zone, possible_unix_times_s
from cpsched_sim.traces.trace_record import TraceRecord
from cpsched_sim.whatif.license_limits import read_license_totals
from cpsched_sim.whatif.slurm_collection import (
    CONFIG,
    EVENTS,
    JOBS,
    LICENSES,
    MANIFEST,
    NODES,
    PARTITIONS,
    POLICY,
    QOS,
    RELEVANT_CONFIG_LINES,
    sacctmgr_rows,
)
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
            at = possible_unix_times_s(_read_config(self.path).get(BOOT_FIELD, ""), parse_time_zone(""))
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


PARTITION_FIELDS = (
    "Nodes", "MaxTime", "MaxNodes", "PriorityTier", "PriorityJobFactor", "QoS", "State", "OverSubscribe", "AllowQos",
)  # fmt: skip
"""The fields of `scontrol show partition` that affect starts."""
BOOT_FIELD = "BOOT_TIME"
MAX_LISTED_CHANGES = 5

Facts = Mapping[str, str]


def list_site_changes(earlier: Path, later: Path) -> list[str]:
    """Return a sentence for each change. Ignore files that are missing in a folder."""
    before, after = read_collected_nodes(earlier), read_collected_nodes(later)
    return [
        *_list_differences("slurm.conf", {"": read_slurm_parameters(earlier)}, {"": read_slurm_parameters(later)}),
        *_list_differences("partition", _read_partitions(earlier), _read_partitions(later)),
        *_list_differences("QOS", _read_qos(earlier), _read_qos(later)),
        *_list_differences("license", _read_licenses(earlier), _read_licenses(later)),
        *_describe_node_changes("new: unavailable until the first job ran there", after.keys() - before.keys()),
        *_describe_node_changes("removed and not in the replay", before.keys() - after.keys()),
        *_describe_node_changes(
            "with changed amounts; the replay uses the later amounts",
            {
                name
                for name in before.keys() & after.keys()
                if get_node_amounts(before[name]) != get_node_amounts(after[name])
            },
        ),
    ]


def read_slurm_parameters(folder: Path) -> dict[str, str]:
    """Return the scheduling parameters in `scontrol show config`.

    Omit slurmctld's start time, which this command also prints.
    """
    settings = _read_config(folder)
    return {name: value for name, value in settings.items() if RELEVANT_CONFIG_LINES.match(name) and name != BOOT_FIELD}


def _read_config(folder: Path) -> dict[str, str]:
    return parse_config("".join(line for _, line in _read_lines_if_exists(folder / CONFIG)))


def read_collected_nodes(folder: Path) -> dict[str, SlurmNode]:
    """Return a folder's nodes by name. Raise `InputError` if they cannot be read."""
    text = "".join(line for _, line in read_text_lines(folder / NODES))
    return {node.name: node for node in parse_slurm_nodes(text, NODES).nodes}


def _read_partitions(folder: Path) -> dict[str, Facts]:
    found: dict[str, Facts] = {}
    text = "".join(line for _, line in _read_lines_if_exists(folder / PARTITIONS))
    for _, printed in list_printed_objects(text, "PartitionName"):
        values = PARTITION.parse_fields(printed)
        found[values["PartitionName"]] = {key: values.get(key, "") for key in PARTITION_FIELDS}
    return found


def _read_qos(folder: Path) -> dict[str, Facts]:
    rows = sacctmgr_rows(folder / QOS)
    return {row.get("Name") or "": {key: value or "" for key, value in row.items() if key} for row in rows}


def _read_licenses(folder: Path) -> dict[str, Facts]:
    path = folder / LICENSES
    return {name: {"Total": str(total)} for name, total in read_license_totals(path).items()} if path.exists() else {}


def _list_differences(what: str, before: Mapping[str, Facts], after: Mapping[str, Facts]) -> Iterator[str]:
    """Yield a sentence for each changed, added or removed item.

    Yield nothing if either side has no data.
    """
    if not any(before.values()) or not any(after.values()):
        return
    for name in sorted(before.keys() | after.keys()):
        called = f"{what} {quote_value(name)}".rstrip() if name else what
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield f"{called} {'was added' if old is None else 'was removed'}"
            continue
        for key in sorted(old.keys() & new.keys()):
            if old[key] != new[key]:
                yield f"{called}: {key} was {quote_value(old[key]) or 'not set'}, is {quote_value(new[key]) or 'not set'}"  # noqa: E501
        for key in sorted(old.keys() ^ new.keys()):
            yield f"{called}: {key} {'was added' if key in new else 'was removed'}"


def _describe_node_changes(what: str, names: set[str]) -> Iterator[str]:
    if names:
        some = ", ".join(sorted(names)[:MAX_LISTED_CHANGES])
        more = ", ..." if len(names) > MAX_LISTED_CHANGES else ""
        yield f"{format_count(len(names), 'node is', 'nodes are')} {what}: {quote_value(some)}{more}"


def _read_lines_if_exists(path: Path) -> Iterator[tuple[int, str]]:
    return read_text_lines(path) if path.exists() else iter(())
