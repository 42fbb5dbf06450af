"""Query PBS for a complete reading.

`qstat` sleeps for 0.2 s if the account's last `qstat` ended in the same second (OpenPBS 23.06.06, `delay_query` in
`misc_utils.c`). A cycle therefore runs it at few points, and in parallel there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace

from cpsched_bridge.adapters.pbs.pbs_objects import (
    UNREADABLE_KEY,
    PbsCustomResource,
    PbsJob,
    PbsQueue,
    PbsRecords,
    PbsReservationRecord,
    PbsScheduler,
    PbsServer,
    PbsVnode,
    Record,
    UnquotedValue,
    is_text_resource,
    make_unusable_object,
    parse_job,
    parse_queue,
    parse_reservation,
    parse_scheduler,
    parse_server,
    parse_vnode,
)
from cpsched_bridge.adapters.pbs.transport import pbs_output_parsing
from cpsched_bridge.adapters.pbs.transport.pbs_output_parsing import parse_pbs_json
from cpsched_bridge.adapters.pbs.transport.pbs_programs import Clock, PbsProgramRunner
from cpsched_bridge.errors import BackendError, BackendUnavailable
from cpsched_bridge.ports import UnusableObject

JOBS_COMMAND = ("qstat", "-f", "-F", "json", "-t")
QUEUES_COMMAND = ("qstat", "-Q", "-f", "-F", "json")
SERVER_COMMAND = ("qstat", "-B", "-f", "-F", "json")
RESERVATIONS_COMMAND = ("pbs_rstat", "-F")
VNODES_COMMAND = ("pbsnodes", "-av", "-F", "json")
VNODES_TEXT_COMMAND = ("pbsnodes", "-av")
RESOURCES_COMMAND = ("qmgr", "-c", "list resource")
SCHEDULERS_COMMAND = ("qmgr", "-c", "list sched")
ENDED_JOBS_COMMAND = ("qstat", "-x", "-f", "-F", "json")
MALFORMED = "its record is malformed"
RESOURCES_CACHE_S = 60.0
"""Time in seconds for which the list of custom resources is cached."""
MAX_SINGLE_QUERIES = 20
"""Maximum number of doubtful jobs per reading that are queried individually."""
JOB_PATTERN = re.compile(r"\d{1,12}(?:\[\d{0,7}\])?\.[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)


class PbsStateReader:
    """A reader that runs `programs` to read PBS's state.

    Jobs are read before vnodes, so that the free amounts account for jobs that start in between.
    """

    def __init__(self, programs: PbsProgramRunner, clock: Clock = time.monotonic) -> None:
        self._programs = programs
        self._clock = clock
        self._kinds: tuple[float, Mapping[str, PbsCustomResource]] | None = None

    def read(self) -> PbsRecords:
        """Return a complete reading. Raise a `BackendError` if a part is missing."""
        until_s = time.monotonic() + self._programs.within_s
        asked = {
            "jobs": JOBS_COMMAND,
            "queues": QUEUES_COMMAND,
            "server": SERVER_COMMAND,
            "reservations": RESERVATIONS_COMMAND,
        }
        if self._kinds is None or self._clock() - self._kinds[0] >= RESOURCES_CACHE_S:
            asked["resources"] = RESOURCES_COMMAND
        texts = self._programs.query(asked, until_s)
        if "resources" in texts:
            self._kinds = self._clock(), pbs_output_parsing.parse_resource_definitions(texts["resources"])
        jobs, unreadable = self._parse_jobs(texts["jobs"], until_s)
        assert self._kinds is not None
        kinds = self._kinds[1]
        return PbsRecords(
            now_s=int(time.time()),
            server=_parse_server(texts["server"]),
            jobs=jobs,
            queues=_parse_queues(texts["queues"]),
            vnodes=self._read_vnodes(kinds, until_s),
            reservations=_parse_reservations(texts["reservations"]),
            resources=kinds,
            unreadable=unreadable,
        )

    def read_again(self, before: PbsRecords, while_idle: bool) -> PbsRecords:
        """Return a reading soon after the reading `before`, with fewer programs.

        The server's record and the resources are those of `before`. Reservations are read again if the vnodes show
        other ones. With `while_idle`, no job starts meanwhile, so that jobs and vnodes are read in parallel.
        """
        until_s = time.monotonic() + self._programs.within_s
        asked = {"jobs": JOBS_COMMAND, "queues": QUEUES_COMMAND}
        texts = self._programs.query(asked | ({"vnodes": VNODES_COMMAND} if while_idle else {}), until_s)
        jobs, unreadable = self._parse_jobs(texts["jobs"], until_s)
        vnodes = self._read_vnodes(before.resources, until_s, texts.get("vnodes"))
        reservations = before.reservations
        if _find_shown_reservations(vnodes) != _find_shown_reservations(before.vnodes):
            text = self._programs.query({"reservations": RESERVATIONS_COMMAND}, until_s)["reservations"]
            reservations = _parse_reservations(text)
        return replace(
            before,
            now_s=int(time.time()),
            jobs=jobs,
            queues=_parse_queues(texts["queues"]),
            vnodes=vnodes,
            reservations=reservations,
            unreadable=unreadable,
        )

    def _read_vnodes(
        self, kinds: Mapping[str, PbsCustomResource], until_s: float, text: str | None = None
    ) -> dict[str, PbsVnode]:
        """Return the vnodes with the exact text of their resources. `text` is the output of `VNODES_COMMAND`."""
        if text is None:
            text = self._programs.query({"vnodes": VNODES_COMMAND}, until_s)["vnodes"]
        found = _parse_objects_marking_unreadable(text, "nodes")
        unsure = {name: _find_unquoted_vnode_texts(record, kinds) for name, record in found.items()}
        if any(unsure.values()):
            texts = pbs_output_parsing.parse_vnodes(
                self._programs.query({"vnodes": VNODES_TEXT_COMMAND}, until_s)["vnodes"]
            )
            for name, attributes in unsure.items():
                for attribute, part in attributes:
                    text = texts.get(name, {}).get(f"{attribute}.{part}" if part else attribute)
                    _set_attribute_text(found[name], attribute, part, text)
        return {name: parse_vnode(record) for name, record in found.items()}

    def read_jobs_and_queues(self) -> tuple[dict[str, PbsJob], dict[str, PbsQueue]]:
        """Return the jobs and the queues, by name."""
        until_s = time.monotonic() + self._programs.within_s
        texts = self._programs.query({"jobs": JOBS_COMMAND, "queues": QUEUES_COMMAND}, until_s)
        return self._parse_jobs(texts["jobs"], until_s)[0], _parse_queues(texts["queues"])

    def read_queues(self) -> dict[str, PbsQueue]:
        """Return the queues by name."""
        return _parse_queues(self._programs.query({"queues": QUEUES_COMMAND})["queues"])

    def read_server(self) -> PbsServer:
        """Return the server."""
        return _parse_server(self._programs.query({"server": SERVER_COMMAND})["server"])

    def read_schedulers(self) -> dict[str, PbsScheduler]:
        """Return PBS's schedulers by name."""
        return parse_schedulers(self._programs.query({"schedulers": SCHEDULERS_COMMAND})["schedulers"])

    def read_history(self, within_s: float) -> dict[str, PbsJob]:
        """Return the readable jobs in PBS's history, by name."""
        found = parse_pbs_json(
            self._programs.query({"past": ENDED_JOBS_COMMAND}, time.monotonic() + within_s)["past"], "Jobs"
        )
        return {
            name: parse_job(record)
            for name, record in found.records.items()
            if name not in found.doubtful and JOB_PATTERN.fullmatch(name) is not None
        }

    def _parse_jobs(self, text: str, until_s: float) -> tuple[dict[str, PbsJob], tuple[UnusableObject, ...]]:
        """Return the jobs by name, and the unreadable objects."""
        found = parse_pbs_json(text, "Jobs")
        odd = [name for name in found.records if not JOB_PATTERN.fullmatch(name)]
        for name in odd:
            del found.records[name]
        for at, name in enumerate(sorted(found.doubtful - set(odd))):
            alone = self._query_job_alone(name, until_s) if at < MAX_SINGLE_QUERIES else None
            found.records[name] = {UNREADABLE_KEY: MALFORMED} if alone is None else alone
        jobs = {name: parse_job(record) for name, record in found.records.items()}
        return jobs, tuple(make_unusable_object("job", name, "is not a job name") for name in odd)

    def _query_job_alone(self, name: str, until_s: float) -> Record | None:
        """Return a job queried alone, or None if it is still unreadable."""
        try:
            text = self._programs.query({"alone": ("qstat", "-f", "-F", "json", name)}, until_s)["alone"]
            found = parse_pbs_json(text, "Jobs")
        except BackendError:
            return None
        return found.records[name] if set(found.records) == {name} and not found.doubtful else None


def parse_schedulers(text: str) -> dict[str, PbsScheduler]:
    """Return the schedulers in the output of `qmgr -c 'list sched'`, by name."""
    records = pbs_output_parsing.parse_qmgr_objects(text, "Sched")
    return {name: parse_scheduler(record) for name, record in records.items()}


def _parse_queues(text: str) -> dict[str, PbsQueue]:
    records = _parse_objects_marking_unreadable(text, "Queue")
    return {name: parse_queue(name, record) for name, record in records.items()}


def _parse_reservations(text: str) -> dict[str, PbsReservationRecord]:
    records = pbs_output_parsing.parse_reservations(text)
    return {name: parse_reservation(record) for name, record in records.items()}


def _parse_objects_marking_unreadable(text: str, kind: str) -> dict[str, Record]:
    """Return the objects of one kind, marking doubtful ones with `UNREADABLE_KEY`.

    Only managers can write these objects.
    """
    found = parse_pbs_json(text, kind)
    return found.records | {name: {UNREADABLE_KEY: MALFORMED} for name in found.doubtful}


def _find_shown_reservations(vnodes: Mapping[str, PbsVnode]) -> dict[str, frozenset[str]]:
    return {name: vnode.reservations for name, vnode in vnodes.items() if vnode.reservations}


def _find_unquoted_vnode_texts(vnode: Record, kinds: Mapping[str, PbsCustomResource]) -> list[tuple[str, str]]:
    """Return (attribute, part) for each text of a vnode that PBS printed unquoted."""
    attributes = [(name, "") for name in ("queue", "partition") if isinstance(vnode.get(name), UnquotedValue)]
    parts = vnode.get("resources_available")
    named = parts.items() if isinstance(parts, dict) else ()
    unquoted = [("resources_available", name) for name, value in named if not _is_quoted(value)]
    return attributes + [each for each in unquoted if is_text_resource(each[1], kinds)]


def _is_quoted(value: str | tuple[str, ...]) -> bool:
    return isinstance(value, str) and not isinstance(value, UnquotedValue)


def _set_attribute_text(record: Record, attribute: str, part: str, text: str | None) -> None:
    """Set the text of an attribute or part.

    If `text` is None, mark the record as unreadable.
    """
    parts = record.get(attribute)
    if text is None:
        record[UNREADABLE_KEY] = f"{part or attribute} is printed as a number instead of text"
    elif isinstance(parts, dict):
        parts[part] = text
    else:
        record[attribute] = text


def _parse_server(text: str) -> PbsServer:
    found = parse_pbs_json(text, "Server")
    if found.doubtful or len(found.records) != 1:
        raise BackendUnavailable(f"qstat -B: {MALFORMED if found.doubtful else f'shows {len(found.records)} servers'}")
    return parse_server(next(iter(found.records.values())))
