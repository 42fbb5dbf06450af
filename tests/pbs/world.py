"""Run a history: a bridge on a PBS stand-in, its crashes, users' and operators' actions, and failing commands."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.dispatchers.list_dispatchers import ListDispatcher
from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.cycle.bridge_loop import Bridge
from cpsched_bridge.cycle_report import CycleReport
from tests.bridges import a_bridge, narrow_advice
from tests.chaos.site import Death
from tests.fakes import FakePace
from tests.pbs.commands import Fault, ServersClock, StandIn
from tests.pbs.judge import Judge
from tests.pbs.server import POINTS, RUNS, WAITS, Job, Server, words_of

CALM_CYCLES = 300
"""Seconds after a history in which every job must have run."""
QUEUE, LEFT = "workq", "leftq"
KINDS: tuple[dict[str, object], ...] = (
    {"select": "1:ncpus=1"}, {"select": "1:ncpus=3:mem=1gb"}, {"select": "2:ncpus=2"},
    {"select": "3:ncpus=2", "place": "vscatter"}, {"select": "2:ncpus=1", "place": "pack:excl"},
    {"select": "1:ncpus=2+2:ncpus=1:mem=100mb"}, {"select": "1:ncpus=1:ngpus=1"},
    {"select": "1:ncpus=4", "place": "excl"}, {"array": range(1, 4)}, {"holds": "u"}, {"rerunable": False},
    {"account": 'x" start=5 y="'},
)  # fmt: skip
SHRINKING: tuple[dict[str, object], ...] = (
    *KINDS, {"select": "1:ncpus=2", "between_s": (60, 900)}, {"select": "2:ncpus=2", "between_s": (30, 30)},
)  # fmt: skip
GROUPED: tuple[dict[str, object], ...] = (
    *KINDS, {"select": "2:ncpus=2", "place": "free:group=rack"},
    {"select": "2:ncpus=1", "place": "vscatter:group=rack"},
)  # fmt: skip
SHARED: tuple[dict[str, object], ...] = (
    *KINDS, *({"select": "1:ncpus=3+1:ncpus=2"},) * 4, *({"select": "2:ncpus=1", "place": "scatter"},) * 2,
)  # fmt: skip
"""A third of them are left to PBS."""
STEPS = (
    *("cycle",) * 40, *("submit",) * 14, *("kill",) * 5, *("fault",) * 5, "stop", "delete", "hold", "release",
    "release", "requeue", "offline", "online", "online", "by_hand", "open", "close", "close", "server_down",
)  # fmt: skip

ADVISED_STEPS = (*STEPS, *("points",) * 3, *("change_mode",) * 2)


@dataclass
class World:
    """A server, the commands, and a bridge that is running or starts with the next cycle."""

    state_dir: Path
    rng: random.Random
    server: Server = field(default_factory=Server.of)
    mode: str = "control"
    kinds: tuple[dict[str, object], ...] = KINDS
    """The kinds of jobs submitted."""
    counts: Counter[str] = field(default_factory=Counter)
    deleted: set[str] = field(default_factory=set)
    pace: FakePace = field(default_factory=FakePace)
    log: list[str] = field(default_factory=list)
    _bridge: Bridge | None = None

    def __post_init__(self) -> None:
        self.commands = StandIn(self.server)
        if self.mode == "advise":
            self.server.formula = POINTS

    def play(self, steps: int, kinds: Sequence[str] = STEPS) -> list[str]:
        """Run steps, then a calm period. Return the errors at the end."""
        for _ in range(steps):
            step = self.rng.choice(kinds)
            self.log.append(f"{self.server.now_s}: {step}")
            getattr(self, step)()
        return self.calm()

    def advice_ends(self) -> list[str]:
        """Return jobs with the bridge's points after an orderly stop, having advised some new jobs.

        Older jobs may still have points of a killed bridge, even if the next one is in control.
        """
        self.server.down, self.commands.faults, self.commands.fuse.left = False, [], None
        come = {self.server.submit("1:ncpus=4", 60, queue=QUEUE, walltime_s=900 - 60 * at) for at in range(8)}
        for _ in range(60):
            self.cycle()
            if any(job.points_of == "bridge" and job.points for job in self.server.jobs.values() if job.id in come):
                self.counts["advised"] += 1
                break
        self.stop()
        return [
            f"{job.id} has {job.points} points of a bridge that has stopped"
            for job in self.server.jobs.values()
            if job.points and job.points_of == "bridge" and job.state in WAITS
        ]

    def calm(self) -> list[str]:
        """End all faults. Return the errors after every job has had time to run."""
        self.server.down, self.commands.faults, self.commands.fuse.left = False, [], None
        for vnode in self.server.vnodes.values():
            vnode.offline = False
        for job in list(self.server.jobs.values()):
            self.server.release(job.id)
        self.close()
        for _ in range(CALM_CYCLES):
            self.cycle()
            if not self.server.jobs:
                break
        vnodes = {name: vnode.has for name, vnode in self.server.vnodes.items()}
        racks = {name: vnode.rack for name, vnode in self.server.vnodes.items()}
        judge = Judge(vnodes, racks).read(self.server.log)
        wanted = [id for id in {**self.server.jobs, **self.server.past} if id not in self.deleted and "[]" not in id]
        return [*self.server.wrongs, *judge.once(wanted)]

    # ------------------------------------------------------------------------------------------ the bridge

    def bridge(self) -> Bridge:
        """Return the bridge, or a new one if the last has died."""
        if self._bridge is None:
            backend = PbsBackend(self.commands, (QUEUE,), LEFT, reader=ServersClock(self.commands))
            self._bridge = a_bridge(
                self.state_dir, backend, self.dispatcher(), self.pace,
                mode=self.mode, advise={"every_s": 2, "max_boost": 500},
                start={"timeout_s": 8, "max_failures": 3, "adopt": True},
                circuit_breaker={"failing_users": 10**6},
            )  # fmt: skip
        return self._bridge

    def dispatcher(self) -> Dispatcher:
        """A dispatcher that plans no jobs after the first defines no order."""
        return ListDispatcher("sjf") if self.mode == "advise" else EasyDispatcher()

    def bury(self) -> None:
        """Drop the process."""
        self._bridge = None
        self.commands.fuse.left, self.commands.fuse.dead = None, False

    def cycle(self) -> CycleReport | None:
        """Advance a second and run a cycle; return None if the bridge dies in it."""
        self.server.tick()
        self.pace.at_s += 1
        try:
            with narrow_advice():
                report = self.bridge().cycle()
        except Death:
            self.counts["killed"] += 1
            self.bury()
            return None
        except sqlite3.Error:
            self.bury()
            return None
        self.counts[report.result] += 1
        told = any(each.kind == "still_held" for each in report.bridge_events)
        closed = not self.server.queues[QUEUE].started
        if report.role.mode == "advise" and report.result == "ok" and closed and not told:
            self.server.wrongs.append("a bridge that advises leaves its queue closed")
        return report

    def kill(self) -> None:
        """Kill at a future command."""
        self.commands.fuse.left = self.rng.randrange(12)

    def stop(self) -> None:
        """Stop the bridge as the service manager does."""
        if self._bridge is not None:
            try:
                self._bridge.stop()
                self.counts["stopped"] += 1
            except Death:
                self.counts["killed"] += 1
            self.bury()

    def fault(self) -> None:
        """Let a future command receive no response."""
        first = self.rng.choice(("qstat", "pbsnodes", "qrun", "qrun", "qrun", "qmgr", "qmove", "qalter"))
        kind = self.rng.choice(("unreached", "timeout", "late"))
        self.commands.faults.append(Fault(lambda argv: argv[0] == first, kind))
        self.counts["faults"] += 1

    # ------------------------------------------------------------------------------------------ people

    def submit(self) -> None:
        """Submit one of the kinds of jobs."""
        runs_s, user = self.rng.randrange(1, 20), self.rng.choice(("ada", "bob", "eve"))
        self.server.submit(runs_s=runs_s, user=user, queue=QUEUE, **self.rng.choice(self.kinds))  # type: ignore[arg-type]
        self.counts["submitted"] += 1

    def _on(self, fits: Callable[[Job], bool], act: Callable[[str], object]) -> None:
        found = [job.id for job in self.server.jobs.values() if fits(job)]
        if found and not self.server.down:
            act(self.rng.choice(found))

    def delete(self) -> None:
        """Delete a job or a subjob."""

        def gone(id: str) -> None:
            self.deleted.add(id)
            self.server.delete(id)

        self._on(lambda job: "[]" not in job.id, gone)

    def hold(self) -> None:
        """Hold by the owner."""
        self._on(lambda job: job.state == "Q" and "[" not in job.id, self.server.hold)

    def release(self) -> None:
        """Release by the owner."""
        self._on(lambda job: job.state == "H", self.server.release)

    def requeue(self) -> None:
        """Requeue by an operator."""
        self._on(lambda job: job.state in RUNS and job.substate == 42 and job.rerunable, self.server.requeue)

    def by_hand(self) -> None:
        """Start by an operator's own qrun, if it fits."""

        def run(id: str) -> None:
            placed = self.server.fitting(self.server.jobs[id])
            if placed:
                self.server.run(id, words_of(placed))
                self.counts["by hand"] += 1

        self._on(lambda job: job.state in WAITS - {"H"} and "[]" not in job.id and not self._array_held(job), run)

    def _array_held(self, job: Job) -> bool:
        return "[" in job.id and any(each.holds for each in self.server.jobs.values() if "[]" in each.id)

    def offline(self) -> None:
        """Take a vnode offline. One vnode remains online."""
        if sum(vnode.offline for vnode in self.server.vnodes.values()) < len(self.server.vnodes) - 1:
            self.rng.choice(list(self.server.vnodes.values())).offline = True

    def online(self) -> None:
        """Bring a vnode back."""
        self.rng.choice(list(self.server.vnodes.values())).offline = False

    def open(self) -> None:
        """Let PBS's own scheduler start the jobs of the queue."""
        self.server.queues[QUEUE].started = True

    def close(self) -> None:
        """Keep PBS's own scheduler from the queue."""
        self.server.queues[QUEUE].started = False

    def points(self) -> None:
        """Set or remove an administrator's points."""

        def put(id: str) -> None:
            self.server.advise(id, self.rng.choice((0, 7_000, 8_000)), "admin")

        self._on(lambda job: job.state in WAITS and ("[" not in job.id or "[]" in job.id), put)

    def change_mode(self) -> None:
        """Kill the bridge; the next one has the other mode."""
        self.mode = "control" if self.mode == "advise" else "advise"
        self.counts["modes"] += 1
        self.bury()

    def server_down(self) -> None:
        """Let the server be unreachable for some seconds."""
        self.server.down = True
        for _ in range(self.rng.randrange(1, 5)):
            self.cycle()
        self.server.down = False
