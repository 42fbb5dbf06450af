"""PBS's commands over a stand-in server, and `PbsProgramRunner` that run them: exit status, stdout and stderr."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cpsched_bridge.adapters.pbs.pbs_objects import PbsRecords
from cpsched_bridge.adapters.pbs.transport.pbs_programs import PbsProgramRunner, interpret_result
from cpsched_bridge.adapters.pbs.transport.pbs_reader import PbsStateReader
from cpsched_bridge.errors import BackendError, BackendTimeout, CommandRefused
from cpsched_sim.program_runner import ProgramResult
from tests.chaos.site import Fuse
from tests.pbs import printing
from tests.pbs.server import POINTS, Refused, Server

UNREACHED = {
    "qstat": (255, "Connection refused\nqstat: cannot connect to server vm (errno=15010)"),
    "pbsnodes": (1, "Connection refused\npbsnodes: cannot connect to server vm, error=15010"),
    "qmgr": (3, "Connection refused\nqmgr: cannot connect to server "),
    "qrun": (2, "Connection refused\nqrun: could not connect to server  (15010)"),
    "pbs_rstat": (162, "Connection refused\npbs_rstat: cannot connect to server (errno=15010)"),
    "qalter": (162, "Connection refused\nqalter: cannot connect to server vm (errno=15010)"),
    "qmove": (162, "Connection refused\nqmove: cannot connect to server vm (errno=15010)"),
}
"""The commands' results without a server; qstat still prints an answer without objects."""
_SET_QUEUE = re.compile(r"set queue (\S+) started = (True|False)")
_SET_VALUE = re.compile(r'set server resources_available\.(\w+) = "(.*)"')
_UNSET_VALUE = re.compile(r"unset server resources_available\.(\w+)")

Answer = tuple[int, str, str]


def execute(server: Server, argv: Sequence[str]) -> Answer:
    """Run a command; raise `AssertionError` for an unknown one."""
    if server.down:
        status, words = UNREACHED[argv[0]]
        return status, printing.answer(server, "", {}) if argv[0] == "qstat" else "", words
    try:
        return 0, _printed(server, list(argv)), ""
    except Refused as error:
        return error.status, "", str(error)


def _printed(server: Server, argv: list[str]) -> str:
    match argv:
        case ["qstat", "-f", "-F", "json", "-t"]:
            return printing.jobs(server, server.jobs, subjobs=True)
        case ["qstat", "-x", "-f", "-F", "json"]:
            return printing.jobs(server, {**server.past, **server.jobs}, subjobs=False)
        case ["qstat", "-f", "-F", "json", id]:
            if id not in server.jobs:
                raise Refused(153, f"qstat: Unknown Job Id {id}")
            return printing.jobs(server, {id: server.jobs[id]}, subjobs=True)
        case ["qstat", "-Q", "-f", "-F", "json"]:
            return printing.queues(server)
        case ["qstat", "-B", "-f", "-F", "json"]:
            return printing.whole_server(server)
        case ["pbs_rstat", "-F"]:
            return ""
        case ["pbsnodes", "-av", "-F", "json"]:
            return printing.vnodes(server)
        case ["pbsnodes", "-av"]:
            return printing.vnodes_as_text(server)
        case ["qmgr", "-c", words]:
            return _managed(server, words)
        case ["qrun", "-H", where, id]:
            server.run(id, where)
            return ""
        case ["qalter", "-l", wish, *some]:
            name, _, number = wish.partition("=")
            if name == "walltime":
                server.alter_walltime(*some, int(number))
                return ""
            assert name == POINTS
            return _altered(server, some, int(number))
        case ["qmove", queue, id]:
            server.move(id, queue)
            return ""
    raise AssertionError(f"the stand-in knows no {argv}")


def _altered(server: Server, some: Sequence[str], points: int) -> str:
    """Alter each job separately. A rejected change does not affect the other jobs."""
    refused = None
    for id in some:
        try:
            server.advise(id, points)
        except Refused as error:
            refused = error
    if refused is not None:
        raise refused
    return ""


def _managed(server: Server, words: str) -> str:
    """Run one directive of qmgr."""
    if "&" in words:
        at = " " * words.index('"')
        raise Refused(4, f"qmgr: Syntax error\n{words}\n{at}^")
    if words == "list resource":
        return printing.RESOURCES
    if words == "list sched":
        return printing.schedulers(server)
    if words == "list server scheduling":
        return f"Server vm\n    scheduling = {server.schedules}\n\n"
    if found := _SET_QUEUE.fullmatch(words):
        if found[1] not in server.queues:
            words = f"qmgr obj={found[1]} svr=default: Unknown queue\nqmgr: Error (15018) returned from server"
            raise Refused(170, words)
        server.queues[found[1]].started = found[2] == "True"
    elif found := _SET_VALUE.fullmatch(words):
        server.values[found[1]] = found[2]
    elif words == "set server scheduling = True":
        server.schedules = server.looks = True
    elif found := _UNSET_VALUE.fullmatch(words):
        server.values.pop(found[1], None)
    else:
        raise AssertionError(f"the stand-in knows no qmgr -c {words!r}")
    return ""


@dataclass
class Fault:
    """A fault of the next command that `fits`: it is not answered, before or `after` it acts."""

    fits: Callable[[Sequence[str]], bool]
    kind: str
    """unreached, timeout, late (the command acts, but its answer is lost)."""


@dataclass
class StandIn(PbsProgramRunner):
    """A `PbsProgramRunner` for a stand-in server. The bridge may be killed at each command."""

    server: Server
    fuse: Fuse = field(default_factory=Fuse)
    faults: list[Fault] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__("", 10.0)

    def list_missing_programs(self) -> list[str]:
        return []

    def query(self, commands: Mapping[str, Sequence[str]], until_s: float | None = None) -> dict[str, str]:
        found = {}
        for name, argv in commands.items():
            status, text, complaint = self._execute(argv)
            if error := interpret_result(ProgramResult(argv[0], complaint, text, status)):
                raise error
            found[name] = text
        return found

    def run_commands(
        self, commands: Sequence[Sequence[str]], within_s: float | None = None
    ) -> list[BackendError | None]:
        """Run them in any order, as if in parallel; a bridge that dies may have run any of them."""
        errors: dict[int, BackendError | None] = {}
        for at in random.Random(len(self.asked)).sample(range(len(commands)), len(commands)):
            try:
                errors[at] = None
                self._act(commands[at])
            except BackendError as error:
                errors[at] = error
        return [errors[at] for at in range(len(commands))]

    def run_directives(self, directives: Sequence[str]) -> str:
        return "".join(self._act(["qmgr", "-c", directive]) for directive in directives)

    def _act(self, command: Sequence[str]) -> str:
        status, text, complaint = self._execute(command)
        self.fuse.burn()
        if complaint == UNREACHED[command[0]][1]:
            raise BackendTimeout(complaint)
        if status:
            raise CommandRefused(complaint)
        return text

    def _execute(self, argv: Sequence[str]) -> Answer:
        self.fuse.burn()
        self.asked.append(list(argv))
        self.server.meanwhile()
        fault = next((each for each in self.faults if each.fits(argv)), None)
        if fault is None:
            return execute(self.server, argv)
        self.faults.remove(fault)
        if fault.kind == "unreached":
            return UNREACHED[argv[0]][0], "", UNREACHED[argv[0]][1]
        if fault.kind == "late":
            execute(self.server, argv)
        raise BackendTimeout(f"{argv[0]}: no answer within 10 s")


class ServersClock(PbsStateReader):
    """Uses the server's time for readings."""

    def __init__(self, programs: StandIn) -> None:
        super().__init__(programs, lambda: float(programs.server.now_s))
        self._server = programs.server

    def read(self) -> PbsRecords:
        return replace(super().read(), now_s=self._server.now_s)

    def read_again(self, before: PbsRecords, while_idle: bool) -> PbsRecords:
        return replace(super().read_again(before, while_idle), now_s=self._server.now_s)
