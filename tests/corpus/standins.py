"""Bridges with stand-in clusters in virtual time: the only module of the corpus that uses internals.

An adapter of the bridge's settings (`adapter: tests.corpus.standins`): a simulated site, a PBS server, or Slurm's
commands. `bridge` runs the program itself, `cpsched bridge`; one cycle takes one interval of virtual time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch

from cpsched_bridge.adapters.mock.mock_backend import MockBackend
from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.adapters.slurm.transport.cli import cli_reader
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.cycle.loop_clock import LoopClock
from cpsched_bridge.ports import Backend, Capabilities
from cpsched_bridge.program import bootstrap
from cpsched_bridge.settings import Section
from cpsched_bridge.telemetry.metric_families import METRICS
from cpsched_bridge.telemetry.prometheus_exporter import PrometheusExporter
from cpsched_bridge.telemetry.start_forecasts import StartForecaster
from cpsched_sim import load
from tests.pbs import world
from tests.pbs.commands import ServersClock, StandIn
from tests.pbs.server import POINTS, Server
from tests.unit.bridge.adapters.slurm.transport.cli.standin import NODE, Job, Programs

SLURM_T0 = 1_795_379_700


class Options(Section):
    """The stand-in and its workload."""

    site: Literal["mock", "pbs", "slurm"]
    trace: Path | None = None
    system: str = "pool"
    seed: int = 1


@dataclass
class VirtualTime:
    """The clock of the running bridge, and what it drives."""

    now_s: int = 0
    lasts_s: int = 0
    until_s: int | None = None
    tick: Callable[[int], None] = lambda now_s: None
    at_the_end: Callable[[], None] = lambda: None
    forecasters: list[StartForecaster] = field(default_factory=list)


TIME = VirtualTime()


class VirtualPace(LoopClock):
    """A pace without real waits. After the last cycle, `at_the_end` is called with the bridge still alive."""

    def monotonic_s(self) -> float:
        return float(TIME.now_s)

    def unix_s(self) -> float:
        return float(TIME.now_s)

    def wait(self, seconds: float) -> bool:
        if TIME.until_s is None:
            TIME.until_s = TIME.now_s + TIME.lasts_s
        if seconds > 0:
            TIME.now_s += max(1, round(seconds))
            if TIME.now_s >= TIME.until_s:
                for forecaster in TIME.forecasters:
                    forecaster.refresh()
                TIME.at_the_end()
                return False
            TIME.tick(TIME.now_s)
        return not self.is_stopped


@contextmanager
def virtual_time(lasts_s: int, at_the_end: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Run a `cpsched bridge` in this process for a duration of virtual time."""
    global TIME
    TIME = VirtualTime(lasts_s=lasts_s, at_the_end=at_the_end)
    with (
        patch.object(bootstrap, "LoopClock", VirtualPace),
        patch.object(bootstrap, "plan_startup_steps", lambda *_: nullcontext([])),
        patch.object(bootstrap, "FORECAST_EVERY_S", 1e6),  # a slow machine would refresh during the run
        patch.object(bootstrap, "load_forecast_state", lambda forecaster, path: TIME.forecasters.append(forecaster)),
        patch.object(cli_reader, "time", SimpleNamespace(time=lambda: float(TIME.now_s), monotonic=time.monotonic)),
    ):
        yield


def can(options: Options) -> Capabilities:
    return Capabilities(boosts=True)


def connect(options: Options) -> Backend:
    return {"mock": _mock, "pbs": _pbs, "slurm": _slurm}[options.site](options)


def metric_families() -> list[tuple[str, str, tuple[str, ...]]]:
    """Return exported name, type and labels of every metric."""
    served = {metric.name: metric.type for metric in PrometheusExporter().registry.collect()}
    own = {metric.name: metric.labels for metric in METRICS}
    return sorted((name, kind, own.get(name, own.get(f"{name}_total", ()))) for name, kind in served.items())


# ------------------------------------------------------------------------------------------------ a simulated site


def _mock(options: Options) -> Backend:
    from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher

    assert options.trace is not None
    workload = load(options.trace, options.system)
    TIME.now_s = min(job.job.submit_s for job in workload.jobs)
    site = MockCluster(workload.cluster, workload.jobs, plugin=True, scheduler=SlurmTwinDispatcher())
    return MockBackend(site, lambda: TIME.now_s)


# ------------------------------------------------------------------------------------------------ PBS


def _pbs(options: Options) -> Backend:
    server = Server.of(vnodes=4)
    server.formula = POINTS
    commands, rng = StandIn(server), random.Random(options.seed)
    TIME.now_s = server.now_s

    def tick(now_s: int) -> None:
        while server.now_s < now_s:
            server.tick()
        if rng.random() < 0.2:
            kind: dict[str, Any] = dict(rng.choice(world.GROUPED))
            walltime_s = rng.choice((120, 300, 600, 1800))
            runs_s, user = rng.randrange(20, walltime_s), rng.choice(("ada", "bob", "eve"))
            server.submit(runs_s=runs_s, user=user, queue=world.QUEUE, walltime_s=walltime_s, **kind)

    for _ in range(60):
        tick(TIME.now_s)
    TIME.tick = tick
    return PbsBackend(commands, (world.QUEUE,), world.LEFT, reader=ServersClock(commands))


# ------------------------------------------------------------------------------------------------ Slurm


@dataclass
class _SlurmJob:
    """A job of the simulated Slurm; `nodes` are its nodes, `end_s` is its end."""

    record: Job
    cpus: int
    nodes: int
    runs_s: int
    on: tuple[int, ...] = ()
    end_s: int = 0


class SlurmSite(Programs):
    """Slurm's commands over four nodes with 16 CPUs and 2 GPUs; its own scheduler starts jobs in order of arrival.

    The bridge is passive: only time changes the output.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(release="24.11.5")
        self.rng, self.now_s, self.all = random.Random(seed), SLURM_T0, list[_SlurmJob]()
        self.free = [16] * 4
        for _ in range(20):
            self._submit()

    def tick(self, now_s: int) -> None:
        """End, submit and start jobs."""
        self.now_s = now_s
        for job in self.all:
            if job.on and job.end_s <= now_s:
                for node in job.on:
                    self.free[node] += job.cpus
                job.on, job.record = (), replace(job.record, columns={**job.record.columns, "State": "COMPLETED"})
        self.all = [job for job in self.all if job.record.column("State") != "COMPLETED"]
        if self.rng.random() < 0.2:
            self._submit()
        for job in self.all:
            if job.record.column("State") == "PENDING" and job.record.column("Reason") == "Priority":
                room = [node for node in range(4) if self.free[node] >= job.cpus][: job.nodes]
                if len(room) < job.nodes:
                    break
                self._start(job, tuple(room))
        self.jobs = [job.record for job in self.all]

    def _submit(self) -> None:
        number = 100 + self.rng.randrange(1, 4) + max((job.record.number - 100 for job in self.all), default=0)
        cpus, nodes = self.rng.choice((1, 2, 4, 8, 16)), self.rng.choice((1, 1, 1, 2, 3))
        limit = self.rng.choice(("0:10:00", "1:00:00", "4:00:00"))
        hours, minutes, _ = map(int, limit.split(":"))
        odd = self.rng.choice(({},) * 6 + ({"Reason": "JobHeldUser"}, {"Dependency": "afterok:5"}, {"Licenses": "a:1"}))
        gpus = {"tres-per-node": "gres/gpu:1"} if self.rng.random() < 0.2 else {}
        columns = {
            "Reason": "Priority", "PriorityLong": str(1000 - number), "NumNodes": str(nodes), "MaxNodes": str(nodes),
            "NumCPUs": str(cpus * nodes), "CPUsPerTask": str(cpus), "MinCPUs": str(cpus), "TimeLimit": limit,
            "SubmitTime": str(self.now_s), "EligibleTime": str(self.now_s), "UserID": str(self.rng.choice((0, 1, 2))),
            **gpus, **odd,
        }  # fmt: skip
        lines = {
            "nodes": f"{nodes}-{nodes}", "tasks": str(nodes), "limit": f"0{limit}",
            "requested": f"cpu={cpus * nodes},mem={1000 * cpus * nodes}M,node={nodes},billing={cpus * nodes}",
        }  # fmt: skip
        runs_s = self.rng.randrange(60, hours * 3600 + minutes * 60)
        self.all.append(_SlurmJob(Job(number, columns=columns, lines=lines), cpus, nodes, runs_s))

    def _start(self, job: _SlurmJob, on: tuple[int, ...]) -> None:
        job.on, job.end_s = on, self.now_s + job.runs_s
        for node in on:
            self.free[node] -= job.cpus
        amounts = job.record.lines["requested"]
        running = {
            "State": "RUNNING", "Reason": "None", "StartTime": str(self.now_s), "NodeList": _names(on),
            "EndTime": str(self.now_s + 3600), "tres-alloc": amounts,
        }  # fmt: skip
        job.record = replace(job.record, columns={**job.record.columns, **running})

    def _says(self, command: list[str], typed: str | None) -> str:
        if command[-1] == "nodes":
            return "".join(self._node(at) for at in range(4))
        return super()._says(command, typed).replace("22.05.8", self.release)

    def _node(self, at: int) -> str:
        used = 16 - self.free[at]
        text = NODE.format(name=f"n{at + 1}").replace("CPUAlloc=0", f"CPUAlloc={used}")
        text = text.replace("26.05.5", "24.11.5").replace("AllocMem=0", f"AllocMem={1000 * used}")
        if not used:
            return text
        text = text.replace("AllocTRES=", f"AllocTRES=cpu={used},mem={1000 * used}M")
        return text.replace("State=IDLE", f"State={'MIXED' if used < 16 else 'ALLOCATED'}")


def _names(nodes: tuple[int, ...]) -> str:
    return ",".join(f"n{at + 1}" for at in nodes)


def _slurm(options: Options) -> Backend:
    site = SlurmSite(options.seed)
    TIME.now_s, TIME.tick = SLURM_T0, site.tick
    site.tick(SLURM_T0)
    return SlurmBackend(SlurmCliTransport(reader=SlurmCliReader(programs=site)))
