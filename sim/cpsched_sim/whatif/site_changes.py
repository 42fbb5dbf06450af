"""List the changes at a site between two collections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from cpsched.formatting import format_count
from cpsched.slurm_text.known_fields import PARTITION
from cpsched.slurm_text.object_parsing import list_printed_objects
from cpsched.slurm_text.objects import SlurmNode
from cpsched.slurm_text.option_lists import parse_config
from cpsched_sim.errors import quote_value
from cpsched_sim.input.text_line_reader import read_text_lines
from cpsched_sim.systems.slurm_node_parsing import get_node_amounts, parse_slurm_nodes
from cpsched_sim.whatif.license_limits import read_license_totals
from cpsched_sim.whatif.slurm_collection import (
    CONFIG,
    LICENSES,
    NODES,
    PARTITIONS,
    QOS,
    RELEVANT_CONFIG_LINES,
    sacctmgr_rows,
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


def read_slurmctld_start_time(folder: Path) -> str:
    """Return slurmctld's start time as text, or "" if it is not in the configuration."""
    return _read_config(folder).get(BOOT_FIELD, "")


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
