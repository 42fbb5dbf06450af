"""Collect a replay's inputs with Slurm's commands into one portable folder.

All commands are read-only: `sacct`, `sacctmgr show`, `sshare`, `scontrol show`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex

from cpsched.errors import InvalidValue, require
from cpsched.slurm_text.accounts import ASSOCIATION_COLUMNS, QOS_COLUMNS, find_row_of_second_cluster
from cpsched.slurm_text.option_lists import CONTROLLER_OPTIONS, parse_config
from cpsched.slurm_text.output_values import parse_pipe_table
from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.file_io import require_writable_folder, write_atomically
from cpsched_sim.program_runner import run_slurm_command
from cpsched_sim.whatif.collected_policy import build_policy_file

JOBS, NODES, PARTITIONS, CONFIG, EVENTS = "jobs.txt", "nodes.txt", "partitions.txt", "config.txt", "events.txt"
ASSOCIATIONS, QOS, SHARES, RESERVATIONS = "associations.txt", "qos.txt", "shares.txt", "reservations.txt"
LICENSES = "licenses.txt"
POLICY, MANIFEST = "policy.yaml", "collected.json"
JOB_FORMAT = (
    "JobID,JobIDRaw,User,Account,Partition,QOS,Reservation,Submit,Eligible,Start,End,Elapsed,State,NNodes,NCPUS,ReqTRES,"
    "AllocTRES,Timelimit,NodeList,JobName"
)
USER_COLUMN, NAME_COLUMN = JOB_FORMAT.split(",").index("User"), -1
SACCT_COMMAND = (
    "sacct --local --allusers --allocations --duplicates --parsable2 --delimiter {between} "
    "--starttime {since} --endtime {until} --format " + JOB_FORMAT
)
OPTIONAL_TABLES = {
    EVENTS: "sacctmgr --parsable2 show event{of} Start={since} Format=NodeName,TimeStart,TimeEnd,State,Duration",
    ASSOCIATIONS: f"sacctmgr --parsable2 show association{{of}} Format={','.join(ASSOCIATION_COLUMNS)}",
    QOS: f"sacctmgr --parsable2 show qos Format={','.join(QOS_COLUMNS)}",
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
ONE_USER_ERROR = "sacct printed those of one user only, as with PrivateData=jobs; ask a Slurm operator to collect"
HOURS_PER_REQUEST = 24
"""Hours of accounting data per command. This bounds the size of an output."""
COMMAND_TIMEOUT_S = 600
RELEVANT_CONFIG_LINES = re.compile(
    r"\s*(Priority|Scheduler|Select|AccountingStorageEnforce|FairShare|Preempt|SLURM_VERSION|BOOT_TIME"
    rf"|{'|'.join(CONTROLLER_OPTIONS)})"
)
"""Configuration lines that affect job starts. With pseudonyms, all other lines are omitted."""
_SECRET = re.compile(r"\s(Reason|Comment|Extra|Owner|OS|AdminComment)=.*?(?=\s[A-Z]\w+=|$)")

Ask = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class SlurmCollectionSummary:
    """The result of a collection: lines per file, errors of the missing tables, and settings that are not replayed."""

    lines: Mapping[str, int]
    lacking: Mapping[str, str]
    notes: tuple[str, ...] = ()


def run_slurm_command_in_utc(command: str) -> str:
    """Return the output of a Slurm command, with times in UTC. Raise `InputError`."""
    elsewhere = "run collect on a host with Slurm, then copy the folder here"
    return run_slurm_command(command, "standard", COMMAND_TIMEOUT_S, elsewhere)


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
    users = {row.split("|")[USER_COLUMN] for row in files[JOBS].splitlines()[1:]}
    if len(users) == 1:
        lacking["the jobs of other users"] = ONE_USER_ERROR
    of = ""
    for name in sorted(OPTIONAL_TABLES, key=lambda name: name != CONFIG):  # first: contains the cluster's name
        try:
            files[name] = ask(OPTIONAL_TABLES[name].format(since=since.isoformat(), of=of))
        except InputError as error:
            lacking[name] = str(error)
        if name == CONFIG:
            of = _cluster_option(files.get(CONFIG, ""))
    if find_row_of_second_cluster(files.get(ASSOCIATIONS, "")) is not None:
        del files[ASSOCIATIONS]
        lacking[ASSOCIATIONS] = MIXED_CLUSTERS_ERROR
    if anonymous:
        files |= {name: pseudonymize(name, text, people) for name, text in files.items() if name != JOBS}
    notes: tuple[str, ...] = ()
    if CONFIG in files and PARTITIONS in files:
        dumps = {"associations": ASSOCIATIONS, "qos": QOS, "shares": SHARES}
        try:
            found = build_policy_file(
                parse_config(files[CONFIG]),
                files[PARTITIONS],
                files.get(QOS, ""),
                files.get(ASSOCIATIONS, ""),
                {name: file for name, file in dumps.items() if file in files},
            )
        except InvalidValue as error:
            lacking[POLICY] = str(error)
        else:
            files[POLICY], notes = found.text, found.notes
    for name, text in files.items():
        write_atomically(out / name, text.encode())
    lines = {name: text.count("\n") for name, text in files.items()}
    manifest = {
        "version": version("cpsched"), "since": since.isoformat(), "until": until.isoformat(), "zone": _local_zone(),
        "anonymous": anonymous, "lines": lines, "lacking": lacking, "notes": notes,
    }  # fmt: skip
    write_atomically(out / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    return SlurmCollectionSummary(lines, lacking, notes)


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
    name = parse_config(config).get("ClusterName", "")
    return f" Cluster={name}" if re.fullmatch(r"[\w.-]+", name) else ""


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


def sacctmgr_rows(path: Path) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a `sacctmgr --parsable2` table. A missing file has no rows."""
    if path.exists():
        text = path.read_text(encoding="utf-8", errors="replace")
        yield from (row.values for row in parse_pipe_table(text))
