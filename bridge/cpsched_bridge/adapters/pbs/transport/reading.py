"""Asks PBS for everything that one reading takes, whole or not at all."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from cpsched_bridge.adapters.pbs.records import UNREADABLE, Reading, Record, ResourceKind
from cpsched_bridge.adapters.pbs.transport import wording
from cpsched_bridge.adapters.pbs.transport.json_text import objects
from cpsched_bridge.adapters.pbs.transport.programs import Clock, Programs
from cpsched_bridge.errors import BackendError, BackendUnavailable

JOBS = ("qstat", "-f", "-F", "json", "-t")
QUEUES = ("qstat", "-Q", "-f", "-F", "json")
SERVER = ("qstat", "-B", "-f", "-F", "json")
RESERVATIONS = ("pbs_rstat", "-F")
VNODES = ("pbsnodes", "-av", "-F", "json")
RESOURCES = ("qmgr", "-c", "list resource")
SCHEDULERS = ("qmgr", "-c", "list sched")
PAST = ("qstat", "-x", "-f", "-F", "json")
RESOURCES_S = 60.0
"""How long the list of custom resources is kept."""
ALONE = 20
"""Doubtful jobs that are asked for alone in one reading; the others cannot be read in it."""
JOB = re.compile(r"\d{1,12}(?:\[\d{0,7}\])?\.[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)


class Reader:
    """Reads PBS through `programs`. Jobs come before vnodes: what starts in between shows in what is free."""

    def __init__(self, programs: Programs, clock: Clock = time.monotonic) -> None:
        self._programs = programs
        self._clock = clock
        self._kinds: tuple[float, Mapping[str, ResourceKind]] | None = None

    def read(self) -> Reading:
        """PBS now. Raises a `BackendError` where any part of it is missing."""
        until_s = time.monotonic() + self._programs.within_s
        asked = {"jobs": JOBS, "queues": QUEUES, "server": SERVER, "reservations": RESERVATIONS}
        if self._kinds is None or self._clock() - self._kinds[0] >= RESOURCES_S:
            asked["resources"] = RESOURCES
        texts = self._programs.ask(asked, until_s)
        if "resources" in texts:
            self._kinds = self._clock(), wording.resources(texts["resources"])
        jobs = self._jobs(texts["jobs"], until_s)
        vnodes = self._programs.ask({"vnodes": VNODES}, until_s)["vnodes"]
        assert self._kinds is not None
        return Reading(
            now_s=int(time.time()),
            server=_server(texts["server"]),
            jobs=jobs,
            queues=_sure(texts["queues"], "Queue"),
            vnodes=_sure(vnodes, "nodes"),
            reservations=wording.reservations(texts["reservations"]),
            resources=self._kinds[1],
        )

    def jobs_and_queues(self) -> tuple[dict[str, Record], dict[str, Record]]:
        """Jobs and queues alone."""
        until_s = time.monotonic() + self._programs.within_s
        texts = self._programs.ask({"jobs": JOBS, "queues": QUEUES}, until_s)
        return self._jobs(texts["jobs"], until_s), _sure(texts["queues"], "Queue")

    def queues(self) -> dict[str, Record]:
        """Queues alone."""
        return _sure(self._programs.ask({"queues": QUEUES})["queues"], "Queue")

    def server(self) -> Record:
        """The server alone."""
        return _server(self._programs.ask({"server": SERVER})["server"])

    def schedulers(self) -> dict[str, Record]:
        """PBS's own schedulers."""
        return wording.schedulers(self._programs.ask({"schedulers": SCHEDULERS})["schedulers"])

    def past(self, within_s: float) -> dict[str, Record]:
        """Jobs of PBS's history, as far as they can be read."""
        found = objects(self._programs.ask({"past": PAST}, time.monotonic() + within_s)["past"], "Jobs")
        return {name: record for name, record in found.records.items() if _is_sure(name, found.doubtful)}

    def _jobs(self, text: str, until_s: float) -> dict[str, Record]:
        found = objects(text, "Jobs")
        for at, name in enumerate(sorted(found.doubtful)):
            if not JOB.fullmatch(name):
                del found.records[name]
                continue
            alone = self._alone(name, until_s) if at < ALONE else None
            found.records[name] = {UNREADABLE: "its record makes no sense"} if alone is None else alone
        odd = [name for name in found.records if not JOB.fullmatch(name)]
        for name in odd:
            del found.records[name]
        return found.records

    def _alone(self, name: str, until_s: float) -> Record | None:
        """What PBS prints of one job and no other; None where that makes no sense either."""
        try:
            text = self._programs.ask({"alone": ("qstat", "-f", "-F", "json", name)}, until_s)["alone"]
            found = objects(text, "Jobs")
        except BackendError:
            return None
        return found.records[name] if set(found.records) == {name} and not found.doubtful else None


def _is_sure(name: str, doubtful: set[str]) -> bool:
    return name not in doubtful and JOB.fullmatch(name) is not None


def _sure(text: str, kind: str) -> dict[str, Record]:
    """Objects that managers alone write; raises `BackendUnavailable` where one of them is doubtful."""
    found = objects(text, kind)
    if found.doubtful:
        raise BackendUnavailable(f"{kind} {min(found.doubtful)!r} cannot be read")
    return found.records


def _server(text: str) -> Record:
    found = list(_sure(text, "Server").values())
    if len(found) != 1:
        raise BackendUnavailable(f"qstat -B: tells of {len(found)} servers")
    return found[0]
