"""Imports Slurm accounting data: the lines of `sacct --parsable2 --allocations`.

With a header line the columns are found by name, in any order, and whatever separates them (`sacct --delimiter`; a
field that holds the separator stands in double quotes). Without a header line they must be those that Open XDMoD asks
sacct for (`XDMOD_COLUMNS`), separated by `|`. Used are JobIDRaw (else JobID), Partition, Account, User, Submit, Start,
End, Timelimit, NNodes, NCPUS, ReqTRES, AllocTRES and JobName:

- run_s is End - Start; jobs that never started or have not ended are dropped; a run that outlived its limit is kept;
- walltime_s is Timelimit, the run time where that is not a time (UNLIMITED, Partition_Limit);
- a job that had N nodes asks for N units on distinct nodes, each with its share (rounded up) of the allocated CPUs
  (`cores`), memory (`memory_mib`) and GPUs (`gpus`, gres/gpu of whatever type);
- partition and queue are Slurm's partition; job steps and further runs of a requeued job are dropped.

Times are local times without a zone: they become seconds since 1970 as if they were UTC.
"""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime
from pathlib import Path
from sys import intern

from cpsched.listing import Listing
from cpsched_sim.reading.bounds import MAX_AMOUNT
from cpsched_sim.reading.lines import lines_of
from cpsched_sim.traces.record import Reader, Record, Units

XDMOD_COLUMNS = (
    "JobID|JobIDRaw|Cluster|Partition|QOS|Account|Group|GID|User|UID|Submit|Eligible|Start|End|Elapsed|ExitCode|State|"
    "NNodes|NCPUS|ReqCPUS|ReqMem|ReqTRES|AllocTRES|Timelimit|NodeList|JobName"
)
_NEEDED = ("User", "Submit", "Start", "End", "Timelimit", "NNodes", "NCPUS")
_KNOWN = {name.lower() for name in XDMOD_COLUMNS.split("|")}
_SEPARATORS = "|,;\t^~"
_TIME_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?$", re.ASCII)
_MIB_PER = {"": 1 / 1024**2, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MEMORY = re.compile(r"(\d+(?:\.\d*)?)([KMGTP]?)$", re.ASCII)


def separator_of(line: str) -> str:
    """What separates the columns of a header line of sacct; "" where the line is none."""
    for separator in _SEPARATORS:
        names = {name.strip(' "\r\n').lower() for name in line.split(separator)}
        if names & {"jobid", "jobidraw"} and len(names & _KNOWN) > 1:
            return separator
    return ""


class SacctReader(Reader):
    """Accounting data as a trace. It knows nothing of the machine: replay it on a system file."""

    @classmethod
    def recognises(cls, first: str) -> bool:
        """See `Reader.recognises`: a header line, or fields separated by `|`."""
        return bool(separator_of(first)) or (first.count("|") > 2 and not first.lstrip().startswith((";", "#")))

    def __init__(self, path: Path, lenient: bool = False) -> None:
        super().__init__(path, lenient)
        self.resources = ("cores", "memory_mib", "gpus")
        self._ran: set[int] = set()
        self._asks: dict[Units, Units] = {}
        self._separator, columns = self._read_columns()
        self._columns = {name.strip().lower(): at for at, name in enumerate(columns)}
        self._count, self._last = len(columns), columns[-1].strip().lower()
        for name in _NEEDED:
            if name.lower() not in self._columns:
                raise self._wrong("columns", name, "is missing")

    def _read_columns(self) -> tuple[str, list[str]]:
        """(separator, names) of the header line; without one, those of Open XDMoD."""
        first = next((text.strip() for _, text in lines_of(self.path) if text.strip()), "")
        if separator := separator_of(first):
            return separator, first.rstrip(separator).replace('"', "").split(separator)
        return "|", XDMOD_COLUMNS.split("|")

    def _record(self, text: str) -> Record | None:
        if not text.strip() or ("JobID" in text and separator_of(text)):
            return None
        fields = self._split(text)
        id_field = "JobIDRaw" if "jobidraw" in self._columns else "JobID"
        id_text = self._get(fields, id_field)
        if "." in id_text:
            self.tally.dropped["job step"] += 1
            return None
        id = self._whole(id_field, id_text)
        if id in self._ran:
            self.tally.dropped["another run of a requeued job"] += 1
            return None
        start_s, end_s = self._time(fields, "Start"), self._time(fields, "End")
        submit_s = self._time(fields, "Submit")
        if submit_s is None:
            raise self._wrong("Submit", self._get(fields, "Submit"), "must be a time")
        if start_s is None or end_s is None or end_s <= start_s:
            self.tally.dropped["never started, not ended, or run time below 1 s"] += 1
            return None
        self._ran.add(id)
        run_s, partition = end_s - start_s, self._get(fields, "Partition")
        return Record(
            id,
            submit_s,
            run_s,
            self._limit_s(fields) or run_s,
            self._ask(fields, partition),
            self._get(fields, "User"),
            self._get(fields, "JobName"),
            partition,
            self._get(fields, "Account"),
        )

    def _split(self, text: str) -> list[str]:
        """The fields of a line. The separator may also end the line, and stand in a job name that comes last."""
        separator, count = self._separator, self._count
        fields = text.rstrip("\r\n").split(separator)
        if len(fields) != count and '"' in text:
            try:
                fields = next(csv.reader([text], delimiter=separator), [])
            except csv.Error as error:
                raise self._wrong("line", text.strip(), f"must be readable as CSV: {error}") from error
        if len(fields) == count + 1 and not fields[-1]:
            del fields[-1]
        if len(fields) > count and self._last == "jobname":
            fields[count - 1 :] = [separator.join(fields[count - 1 :])]
        if len(fields) != count:
            raise self._wrong("fields", len(fields), f"must be {count}")
        return fields

    def _ask(self, fields: list[str], partition: str) -> Units:
        tres = self._tres(self._get(fields, "ReqTRES")) | self._tres(self._get(fields, "AllocTRES"))
        nodes = self._whole("NNodes", tres.get("node") or self._get(fields, "NNodes"))
        cores = self._whole("NCPUS", tres.get("cpu") or self._get(fields, "NCPUS"))
        if nodes < 1 or cores < 1:
            raise self._wrong("NNodes, NCPUS", (nodes, cores), "must be positive")
        gpus = self._whole("gres/gpu", tres.get("gres/gpu", "0"))
        if gpus < 0:
            raise self._wrong("gres/gpu", gpus, "must not be negative")
        totals = {"cores": cores, "memory_mib": self._mib(tres.get("mem", "0")), "gpus": gpus}
        each = tuple((name, -(-total // nodes)) for name, total in totals.items() if total)
        ask = Units(nodes, each, distinct=nodes > 1, partition=partition)
        return self._asks.setdefault(ask, ask)

    def _tres(self, text: str) -> dict[str, str]:
        pairs = (part.partition("=") for part in text.split(",") if part)
        return {name: value for name, _, value in pairs}

    def _mib(self, text: str) -> int:
        match = _MEMORY.match(text)
        if not match:
            raise self._wrong("mem", text, "must be a number with K, M, G, T or P")
        mib = -(-float(match[1]) * _MIB_PER[match[2]] // 1)
        if not mib <= MAX_AMOUNT:  # not a number where the digits are too many
            raise self._wrong("mem", text, f"must not be more than {MAX_AMOUNT:,} MiB")
        return int(mib)

    def _limit_s(self, fields: list[str]) -> int | None:
        match = _TIME_LIMIT.match(self._get(fields, "Timelimit"))
        if not match:
            return None
        days, hours, minutes, seconds = (self._whole("Timelimit", part or "0") for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    def _time(self, fields: list[str], field: str) -> int | None:
        text = self._get(fields, field)
        if text in ("", "Unknown", "None"):
            return None
        try:
            return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
        except (ValueError, OverflowError):
            raise self._wrong(field, text, "must be a time like 2016-12-22T07:15:12") from None

    def _get(self, fields: list[str], name: str) -> str:
        at = self._columns.get(name.lower())
        return "" if at is None else intern(fields[at])

    def _whole(self, field: str, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise self._wrong(field, text, "must be a whole number") from None


LISTED = (
    Listing("sacct", "Slurm accounting data: `sacct --parsable2 --allocations`.", "Slurm; Open XDMoD", SacctReader),
)
