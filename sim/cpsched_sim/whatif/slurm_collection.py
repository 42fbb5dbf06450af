"""Collect a replay's inputs with Slurm's commands into one portable folder.

All commands are read-only: `sacct`, `sacctmgr show`, `sshare`, `scontrol show`.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import get_args

import yaml

from cpsched.errors import require
from cpsched.parsing.slurm_limits import has_flag, parse_flags, parse_key_values
from cpsched.site.preemption import PreemptionType
from cpsched.site.slurm_victims import parse_victim_order
from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.file_io import require_writable_folder, write_atomically
from cpsched_sim.systems.slurm_queries import run_slurm_command
from cpsched_sim.traces.slurm_durations import is_plain_number, number_to_seconds, parse_slurm_duration_s

JOBS, NODES, PARTITIONS, CONFIG, EVENTS = "jobs.txt", "nodes.txt", "partitions.txt", "config.txt", "events.txt"
ASSOCIATIONS, QOS, SHARES, RESERVATIONS = "associations.txt", "qos.txt", "shares.txt", "reservations.txt"
LICENSES = "licenses.txt"
POLICY, MANIFEST = "policy.yaml", "collected.json"
JOB_FORMAT = (
    "JobID,JobIDRaw,User,Account,Partition,QOS,Reservation,Submit,Eligible,Start,End,Elapsed,State,NNodes,NCPUS,ReqTRES,"
    "AllocTRES,Timelimit,NodeList,JobName"
)
USER_COLUMN, NAME_COLUMN = JOB_FORMAT.split(",").index("User"), -1
LIMITS = "GrpJobs,GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpWall,MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall"
_PREEMPTION_FIELDS = "Preempt,PreemptMode,PreemptExemptTime,GraceTime"
_QOS_FIELDS = (
    f"Name,Priority,Flags,UsageFactor,LimitFactor,{LIMITS},MaxTRESPU,MaxJobsPU,MaxTRESPA,MaxJobsPA,{_PREEMPTION_FIELDS}"
)
_ASSOCIATION_FIELDS = f"Account,User,Partition,ParentName,Share,Priority,DefaultQOS,MaxJobs,{LIMITS}"
SACCT_COMMAND = (
    "sacct --local --allusers --allocations --duplicates --parsable2 --delimiter {between} "
    "--starttime {since} --endtime {until} --format " + JOB_FORMAT
)
OPTIONAL_TABLES = {
    EVENTS: "sacctmgr --parsable2 show event{of} Start={since} Format=NodeName,TimeStart,TimeEnd,State,Duration",
    ASSOCIATIONS: f"sacctmgr --parsable2 show association{{of}} Format={_ASSOCIATION_FIELDS}",
    QOS: f"sacctmgr --parsable2 show qos Format={_QOS_FIELDS}",
    SHARES: "sshare --all --long --parsable2",
    RESERVATIONS: "sacctmgr --parsable2 show reservation{of} Start={since} Format=Name,Start,End,NodeNames",
    CONFIG: "scontrol show config",
    PARTITIONS: "scontrol -o show partition",
    LICENSES: "scontrol -o show license",
}
"""The commands for the optional tables. Only the accounting data and the nodes are required. `{of}` is the option that
selects the cluster.
"""
MIXED_CLUSTERS_ERROR = (
    "sacctmgr printed associations of more than one cluster, so the accounts' shares and limits are omitted; "
    "to add those of this cluster, run sacctmgr --parsable2 show association Cluster=NAME"
)
ENVIRONMENT = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
HOURS_PER_REQUEST = 24
"""Hours of accounting data per command. This bounds the size of an output."""
COMMAND_TIMEOUT_S = 600
RELEVANT_CONFIG_LINES = re.compile(
    r"\s*(Priority|Scheduler|Select|AccountingStorageEnforce|FairShare|Preempt|SLURM_VERSION|BOOT_TIME)"
)
"""Configuration lines that affect job starts. With pseudonyms, all other lines are omitted."""
_SECRET = re.compile(r"\s(Reason|Comment|Extra|Owner|OS|AdminComment)=.*?(?=\s[A-Z]\w+=|$)")

Ask = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class SlurmCollectionSummary:
    """The result of a collection: lines per file, and errors of the missing tables."""

    lines: Mapping[str, int]
    lacking: Mapping[str, str]


def run_slurm_command_in_utc(command: str) -> str:
    """Return the output of a Slurm command, with times in UTC. Raise `InputError`."""
    elsewhere = "run collect on a host with Slurm, then copy the folder here"
    return run_slurm_command(command, {**os.environ, **ENVIRONMENT}, COMMAND_TIMEOUT_S, elsewhere)


def collect_from_slurm(
    days: float, out: Path, anonymous: bool = False, ask: Ask = run_slurm_command_in_utc, now: datetime | None = None
) -> SlurmCollectionSummary:
    """Collect the last `days` days from Slurm into `out`.

    Raise `InputError` or `InvalidValue`.
    """
    require(days > 0, "--days", days, "must be positive")
    require_writable_folder(out)
    if (out / MANIFEST).exists():
        raise InputError(f"{out}: already contains collected data: choose another folder")
    until = (now or datetime.now(UTC)).astimezone(UTC).replace(microsecond=0, tzinfo=None)
    since = (until - timedelta(days=days)).replace(microsecond=0)  # sacct does not accept fractions of a second
    people = PseudonymTable("u")
    files = {
        JOBS: _collect_accounting(since, until, ask, people if anonymous else None),
        NODES: ask("scontrol -o show node"),
    }
    lacking: dict[str, str] = {}
    of = ""
    for name in sorted(OPTIONAL_TABLES, key=lambda name: name != CONFIG):  # first: contains the cluster's name
        try:
            files[name] = ask(OPTIONAL_TABLES[name].format(since=since.isoformat(), of=of))
        except InputError as error:
            lacking[name] = str(error)
        if name == CONFIG:
            of = _cluster_option(files.get(CONFIG, ""))
    if _has_several_clusters(files.get(ASSOCIATIONS, "")):
        del files[ASSOCIATIONS]
        lacking[ASSOCIATIONS] = MIXED_CLUSTERS_ERROR
    if anonymous:
        files |= {name: pseudonymize(name, text, people) for name, text in files.items() if name != JOBS}
    if CONFIG in files and PARTITIONS in files:
        files[POLICY] = build_policy_yaml(files)
    for name, text in files.items():
        write_atomically(out / name, text.encode())
    lines = {name: text.count("\n") for name, text in files.items()}
    manifest = {
        "version": version("cpsched"), "since": since.isoformat(), "until": until.isoformat(), "zone": _local_zone(),
        "anonymous": anonymous, "lines": lines, "lacking": lacking,
    }  # fmt: skip
    write_atomically(out / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    return SlurmCollectionSummary(lines, lacking)


def _collect_accounting(since: datetime, until: datetime, ask: Ask, people: PseudonymTable | None) -> str:
    """Return the accounting data of the whole period.

    sacct prints a job that spans two requests twice. Here, it occurs once.
    """
    between, wanted = f"|{token_hex(8)}|", JOB_FORMAT.split(",")
    jobs: dict[str, None] = {}
    works, begin = PseudonymTable("j"), since
    while begin < until:
        end = min(until, begin + timedelta(hours=HOURS_PER_REQUEST))
        output = ask(SACCT_COMMAND.format(between=between, since=begin.isoformat(), until=end.isoformat()))
        head, _, rest = output.partition("\n")
        separator = between if between in head else "|"  # user text may contain `|`, but not this separator
        if head.split(separator) != wanted and (output or begin == since):
            raise InputError(f"sacct: starts with {quote_value(head) or 'nothing'} instead of the requested columns")
        for fields in _split_job_rows(rest, separator, len(wanted)):
            if people is not None:
                fields[USER_COLUMN], fields[NAME_COLUMN] = people.of(fields[USER_COLUMN]), works.of(fields[NAME_COLUMN])
            jobs["|".join(fields)] = None
        begin = end
    return "\n".join(["|".join(wanted), *jobs, ""])


def _split_job_rows(text: str, separator: str, count: int) -> Iterator[list[str]]:
    """Yield the fields of each job. The last field is the job's name.

    A line with too few fields continues the name in the previous line. Blanks replace line breaks in a name, because
    each job must be one line.
    """
    row: list[str] = []
    for line in text.split("\n"):
        fields = line.split(separator, count - 1)
        if len(fields) == count:
            if row:
                yield [_join_lines(field) for field in row]
            row = fields
        elif row and line:
            row[-1] += f" {line}"
    if row:
        yield [_join_lines(field) for field in row]


def _join_lines(text: str) -> str:
    return " ".join(text.splitlines())


def _cluster_option(config: str) -> str:
    """Return the sacctmgr option that selects the configured cluster, or ""."""
    found = re.search(r"^\s*ClusterName\s*=\s*([\w.-]+)\s*$", config, re.MULTILINE)
    return f" Cluster={found[1]}" if found else ""


def _has_several_clusters(associations: str) -> bool:
    return sum(row["Account"] == "root" and not row["User"] for row in _parse_sacctmgr_table(associations)) > 1


def _parse_sacctmgr_table(text: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(io.StringIO(text), delimiter="|", quoting=csv.QUOTE_NONE)


class PseudonymTable:
    """Numbered pseudonyms for names, in order of first occurrence."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Return the name's pseudonym, which is always the same. Return "" for ""."""
        return self._known.setdefault(name, f"{self.prefix}{len(self._known) + 1}") if name else ""


def pseudonymize(name: str, text: str, people: PseudonymTable) -> str:
    """Return a file's content with pseudonyms for users and without free text."""
    if name == CONFIG:
        return "".join(f"{line}\n" for line in text.split("\n") if RELEVANT_CONFIG_LINES.match(line))
    header, *rest = text.removesuffix("\n").split("\n")
    if name in (NODES, PARTITIONS):
        return "".join(f"{_SECRET.sub('', line)}\n" for line in (header, *rest))
    names = header.split("|")
    if "User" not in names:
        return text
    at = names.index("User")
    rows = [line.split("|") for line in rest]
    kept = ["|".join([*row[:at], people.of(row[at]), *row[at + 1 :]]) for row in rows if len(row) == len(names)]
    return "\n".join([header, *kept, ""])


def _local_zone() -> str:
    """Return the IANA name of the local time zone, or "" if it is unknown."""
    parts = os.path.realpath("/etc/localtime").partition("zoneinfo/")
    return parts[2] if parts[2] not in ("", "localtime") else ""


# ------------------------------------------------------------------------------------------ the site's policy


def build_policy_yaml(files: Mapping[str, str]) -> str:
    """Return the content of the policy file for the collected data.

    It contains the file names of the dumps.
    """
    config = {}
    for line in files[CONFIG].split("\n"):
        name, equals, value = line.partition("=")
        if equals:
            config[name.strip()] = "" if value.strip() == "(null)" else value.strip()
    flags = parse_flags(config.get("PriorityFlags", ""))
    kind = "basic" if config.get("PriorityType", "").endswith("basic") else "multifactor"

    def config_number(name: str) -> int:
        value = config.get(name, "")
        return int(value) if value.isdecimal() else 0

    priority: dict[str, object] = {
        "kind": kind, "age": config_number("PriorityWeightAge"), "fair_share": config_number("PriorityWeightFairShare"),
        "job_size": config_number("PriorityWeightJobSize"), "partition": config_number("PriorityWeightPartition"),
        "qos": config_number("PriorityWeightQOS"), "association": config_number("PriorityWeightAssoc"),
        "tres": dict(_parse_priority_weight_tres(config.get("PriorityWeightTRES", ""))),
        "max_age": config.get("PriorityMaxAge") or "7-0",
        "favor_small": config.get("PriorityFavorSmall", "").lower() in ("yes", "1", "true"),
        "size_over_time": has_flag(flags, "SMALL_RELATIVE_TO_TIME"),
    }  # fmt: skip
    half_life = parse_slurm_duration_days(config.get("PriorityDecayHalfLife", ""))
    enforced = config.get("AccountingStorageEnforce", "").lower().split(",")
    dumps = {"associations": ASSOCIATIONS, "qos": QOS, "shares": SHARES}
    content = {
        "partitions": dict(_partition_policy_entries(files[PARTITIONS], files.get(QOS, ""))),
        "priority": priority,
        "fair_share": {
            "algorithm": "classic" if has_flag(flags, "NO_FAIR_TREE") else "fair-tree",
            "half_life_days": 7.0 if half_life is None else half_life,
        },
        **_preemption_section(config),
        "enforce": [word for word in ("limits", "safe") if word in enforced],
        "dumps": {name: file for name, file in dumps.items() if file in files},
    }
    text = "# From Slurm's settings at the time of collection. Correct settings that were different in earlier weeks.\n"
    return text + yaml.safe_dump(content, sort_keys=False)


def _preemption_section(config: Mapping[str, str]) -> dict[str, dict[str, object]]:
    """Return the section `preemption` of the policy file.

    It is empty if Slurm does not preempt jobs, or neither requeues nor cancels them.
    """
    kind = config.get("PreemptType", "").removeprefix("preempt/")
    mode = config.get("PreemptMode", "").lower()
    if kind not in get_args(PreemptionType) or mode not in ("requeue", "cancel"):
        return {}
    order, _ = parse_victim_order(config.get("PreemptParameters", ""), config.get("SchedulerParameters", ""))
    return {
        "preemption": {
            "type": kind, "mode": mode, "exempt_time": config.get("PreemptExemptTime", ""), **dataclasses.asdict(order)
        }
    }  # fmt: skip


def _parse_priority_weight_tres(text: str) -> Iterator[tuple[str, float]]:
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, weight = part.partition("=")
        if re.fullmatch(r"\d+(\.\d+)?", weight):
            yield name.lower(), float(weight)


def _partition_policy_entries(text: str, qos: str) -> Iterator[tuple[str, dict[str, object]]]:
    known = {line.split("|")[0] for line in qos.split("\n")}
    for line in text.split("\n"):
        words = dict(parse_key_values(line))
        if "PartitionName" not in words:
            continue
        entry: dict[str, object] = {
            word: int(words[key])
            for word, key in (("tier", "PriorityTier"), ("factor", "PriorityJobFactor"), ("grace_time", "GraceTime"))
            if words.get(key, "").isdecimal()
        }  # fmt: skip
        if words.get("PreemptMode", "").lower() in ("off", "requeue", "cancel"):
            entry["preempt_mode"] = words["PreemptMode"].lower()
        if words.get("QoS", "N/A") in known:
            entry["qos"] = words["QoS"]
        yield words["PartitionName"], entry


def parse_slurm_duration_days(text: str) -> float | None:
    """Parse a Slurm time such as `7-00:00:00` into days.

    Return None if it is not a time or means no limit.
    """
    try:
        seconds = number_to_seconds(text, 60) if is_plain_number(text) else parse_slurm_duration_s(text)
    except ValueError:
        return None
    return None if seconds is None else seconds / 86_400


def sacctmgr_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a `sacctmgr --parsable2` table. A missing file has no rows."""
    if path.exists():
        text = path.read_text(encoding="utf-8", errors="replace")
        yield from _parse_sacctmgr_table(text)
