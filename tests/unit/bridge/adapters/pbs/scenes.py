"""A simulated PBS: records modelled on a real server's output, and the commands that change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cpsched_bridge.adapters.pbs import pbs_objects
from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.adapters.pbs.pbs_objects import (
    PbsCustomResource,
    PbsJob,
    PbsQueue,
    PbsRecords,
    PbsScheduler,
    PbsServer,
    Record,
)
from cpsched_bridge.adapters.pbs.transport import pbs_output_parsing
from cpsched_bridge.adapters.pbs.transport.pbs_output_parsing import parse_pbs_json
from cpsched_bridge.adapters.pbs.transport.pbs_programs import PbsProgramRunner
from cpsched_bridge.errors import BackendError, CommandRefused

RECORDED = Path(__file__).parent / "recorded"
NOW_S = 1795426890


@dataclass
class Printed:
    """What PBS prints: records by name, which tests may change."""

    now_s: int
    server: Record
    jobs: dict[str, Record] = field(default_factory=dict)
    queues: dict[str, Record] = field(default_factory=dict)
    vnodes: dict[str, Record] = field(default_factory=dict)
    reservations: dict[str, Record] = field(default_factory=dict)
    resources: dict[str, PbsCustomResource] = field(default_factory=dict)
    schedulers: dict[str, Record] = field(default_factory=dict)

    def parsed(self) -> PbsRecords:
        return PbsRecords(
            self.now_s,
            pbs_objects.parse_server(self.server),
            {name: pbs_objects.parse_job(record) for name, record in self.jobs.items()},
            {name: pbs_objects.parse_queue(name, record) for name, record in self.queues.items()},
            {name: pbs_objects.parse_vnode(record) for name, record in self.vnodes.items()},
            {name: pbs_objects.parse_reservation(record) for name, record in self.reservations.items()},
            self.resources,
            {name: pbs_objects.parse_scheduler(record) for name, record in self.schedulers.items()},
        )


def recorded(jobs: str = "queued.json", vnodes: str = "vnodes.json") -> Printed:
    """A reading of a real server: OpenPBS 23.06.06, one host with three vnodes of four processors."""

    def read(name: str, kind: str) -> dict[str, Record]:
        return parse_pbs_json((RECORDED / name).read_text(), kind).records

    (server,) = read("server.json", "Server").values()
    resources = pbs_output_parsing.parse_resource_definitions((RECORDED / "resources.txt").read_text())
    queues, nodes = read("queues.json", "Queue"), read(vnodes, "nodes")
    return Printed(NOW_S, server, read(jobs, "Jobs"), queues, nodes, {}, resources)


@dataclass
class Site:
    """Both ends of the backend: its readings and its commands."""

    seen: Printed = field(default_factory=recorded)
    sent: list[tuple[str, ...]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """What becomes of the queue of the left jobs, which is closed while starts are sent, and what is sent meanwhile."""
    scheduling: int = 0
    """How often PBS's scheduler will be found at work."""
    fails: dict[str, BackendError] = field(default_factory=dict)
    """By command, what it raises."""
    refuses: set[str] = field(default_factory=set)
    """Jobs that are not altered, nor any that are altered with them."""
    schedulers_seen: dict[str, Record] = field(default_factory=dict)

    def read(self) -> PbsRecords:
        return self.seen.parsed()

    def read_again(self, before: PbsRecords, while_idle: bool) -> PbsRecords:
        return self.seen.parsed()

    def read_jobs_and_queues(self) -> tuple[Mapping[str, PbsJob], Mapping[str, PbsQueue]]:
        return self.read().jobs, self.read().queues

    def read_queues(self) -> Mapping[str, PbsQueue]:
        return self.read().queues

    def read_server(self) -> PbsServer:
        return self.read().server

    def read_schedulers(self) -> Mapping[str, PbsScheduler]:
        if "schedulers" in self.fails:
            raise self.fails["schedulers"]
        if self.scheduling:
            self.scheduling -= 1
            self.left.append("at work")
            return {"default": PbsScheduler("scheduling")}
        return {name: pbs_objects.parse_scheduler(record) for name, record in self.schedulers_seen.items()}

    def wishes(self, job: str) -> dict[str, Any]:
        """What a job asks for, to be changed."""
        wishes = self.seen.jobs[job]["Resource_List"]
        assert isinstance(wishes, dict)
        return wishes

    def with_resources(self, kinds: dict[str, PbsCustomResource]) -> None:
        self.seen = replace(self.seen, resources=kinds)

    def with_schedulers(self, schedulers: dict[str, Record]) -> None:
        self.seen = replace(self.seen, schedulers=schedulers)

    def past(self, within_s: float) -> dict[str, PbsJob]:
        return {}

    def _tell(self, *words: str) -> None:
        self.sent.append(words)
        if words[0] in self.fails:
            raise self.fails[words[0]]

    def run_jobs(self, placements: Mapping[str, str], within_s: float) -> dict[str, BackendError | None]:
        errors: dict[str, BackendError | None] = {}
        for job, placed in placements.items():
            self.left.append("run")
            try:
                errors[job] = None
                self._tell("run", job, placed)
            except BackendError as error:
                errors[job] = error
        return errors

    def set_walltime(self, job: str, seconds: int, within_s: float) -> None:
        self._tell("walltime", job, str(seconds))

    def close_queue(self, queue: str) -> Mapping[str, PbsScheduler]:
        self._set_queue_started(queue, False)
        return self.read_schedulers()

    def open_queue(self, queue: str) -> PbsServer:
        self._set_queue_started(queue, True)
        return self.read_server()

    def _set_queue_started(self, queue: str, started: bool) -> None:
        if queue not in self.seen.queues:
            raise CommandRefused(f"qmgr: Unknown queue {queue}")
        if queue == "leftq":
            self.left.append("open" if started else "closed")
        else:
            self._tell("started", queue, str(started))
        self.seen.queues[queue]["started"] = str(started)

    def trigger_scheduling(self) -> None:
        if self.left[-1:] == ["open"]:
            self.left.append("look")
        else:
            self._tell("look")

    def move(self, job: str, queue: str) -> None:
        self._tell("move", job, queue)

    def set_boost_points(self, jobs: Sequence[str], resource: str, points: int, within_s: float) -> None:
        self._tell("points", resource, str(points), *jobs)
        if self.refuses & set(jobs):
            raise CommandRefused("qalter: Cannot modify attribute while job running")

    def write_lease(self, resource: str, words: str) -> None:
        self._tell("claim", words)
        self.seen.server["resources_available"] = {resource: words}

    def backend(self, left_queue: str = "leftq", starting_s: float = 20.0) -> PbsBackend:
        return PbsBackend(PbsProgramRunner(), ("managed",), left_queue, starting_s, reader=self, commands=self)  # type: ignore[arg-type]
