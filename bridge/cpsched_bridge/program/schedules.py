"""Finished schedules as the status page shows them: from `schedule.csv.gz`, or from a trace that is replayed first."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from cpsched.model import NEVER, PendingCode, PendingReason, Placement
from cpsched_bridge.watch.page import schema
from cpsched_bridge.watch.page.pages import Slider
from cpsched_bridge.watch.web.page import Views
from cpsched_sim.errors import InvalidTrace, Unusable
from cpsched_sim.experiment import Simulation
from cpsched_sim.reading.lines import lines_of

HEADING = ("job", "submit_s", "start_s", "end_s", "units", "nodes")
"""The first line of a schedule that `cpsched simulate --out` wrote."""
PAST_S, AHEAD_S = 3600, 86400
_WAITS = PendingReason(PendingCode.OTHER, ("waits in this schedule",))
_NEVER_STARTS = PendingReason(PendingCode.NEVER, ("never starts in this schedule",))
_UNIX_S = 500_000_000
"""A trace whose seconds are beyond counts them since 1970."""


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """One job of a schedule; a job that never ran has no times."""

    id: int
    submit_s: int
    start_s: int | None
    end_s: int | None
    units: int
    nodes: Placement
    walltime_s: int = 0
    user: str = ""
    name: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Finished(Views):
    """A whole schedule, ready to be looked at from any instant; see `watch.web.page.Views`."""

    title: str
    node_names: Sequence[str]
    lines: Sequence[ScheduledJob]
    dispatcher: str = ""
    predictor: str = ""
    _starts: np.ndarray = field(init=False)
    _ends: np.ndarray = field(init=False)
    _submits: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        ran = sorted(
            (line for line in self.lines if line.start_s is not None), key=lambda line: (line.start_s, line.id)
        )
        rest = [line for line in self.lines if line.start_s is None]
        object.__setattr__(self, "lines", [*ran, *rest])
        for name, values in (
            ("_starts", [NEVER if line.start_s is None else line.start_s for line in self.lines]),
            ("_ends", [NEVER if line.end_s is None else line.end_s for line in self.lines]),
            ("_submits", [line.submit_s for line in self.lines]),
        ):
            object.__setattr__(self, name, np.array(values, dtype=np.int64))

    @property
    def slider(self) -> Slider:
        """From the first submission to the last end."""
        ends = self._ends[self._ends != NEVER]
        first = int(self._submits.min(initial=NEVER)) if len(self.lines) else 0
        return Slider(first, max(first + 1, int(ends.max()) if len(ends) else first))

    # ------------------------------------------------------------------------------------------------- one instant

    def chart(self, from_s: int, to_s: int, now_s: int) -> schema.Chart:
        """Everything that runs between two instants, seen from `now_s`."""
        shown = np.flatnonzero((self._starts < to_s) & (self._ends > from_s))
        bars = [self._bar(self.lines[i], now_s) for i in shown.tolist()]
        return schema.Chart(now_s=now_s, node_names=list(self.node_names), unavailable=[], outages=[], bars=bars)

    def _bar(self, line: ScheduledJob, now_s: int) -> schema.Bar:
        assert line.start_s is not None
        assert line.end_s is not None
        kind = "planned" if line.start_s > now_s else "past" if line.end_s <= now_s else "running"
        return schema.Bar.model_construct(
            id=line.id, label=str(line.id), user=line.user, kind=kind, begin_s=line.start_s, end_s=line.end_s,
            nodes=list(line.nodes),
        )  # fmt: skip

    @override
    def nothing_yet(self) -> Sequence[str]:
        """Return nothing: a schedule exists from the beginning."""
        return ()

    def at(self, at_s: int | None) -> schema.View:
        """The page at an instant; without one, at the instant in the middle."""
        slider = self.slider
        now_s = (slider.from_s + slider.to_s) // 2 if at_s is None else min(max(at_s, slider.from_s), slider.to_s)
        waiting = np.flatnonzero((self._submits <= now_s) & (self._starts > now_s)).tolist()
        waiting.sort(key=lambda i: (self.lines[i].submit_s, self.lines[i].id))
        running = np.flatnonzero((self._starts <= now_s) & (self._ends > now_s)).tolist()
        queue = [self._queued(self.lines[i], position) for position, i in enumerate(waiting, 1)]
        busy = {node for i in running for node, _ in self.lines[i].nodes}
        return schema.View(
            status=self._status(now_s, len(queue), len(running), len(busy)),
            queue=queue,
            running=[self._running(self.lines[i]) for i in running],
            aside=[],
            decisions=[],
            history=self._history(now_s),
            chart=self.chart(now_s - PAST_S, now_s + AHEAD_S, now_s),
            trend=[],
            machine=schema.Machine(capacity=[], free=[]),
        )

    def _facts(self, line: ScheduledJob) -> dict[str, Any]:
        return {
            "id": line.id, "label": str(line.id), "user": line.user, "account": "", "name": line.name,
            "partition": line.partition, "qos": "", "units": line.units, "per_unit": [], "distinct": False,
            "exclusive": False, "nodes_from": (), "submit_s": line.submit_s,
        }  # fmt: skip

    def _queued(self, line: ScheduledJob, position: int) -> schema.QueuedJob:
        run_s = line.end_s - line.start_s if line.start_s is not None and line.end_s is not None else 0
        return schema.QueuedJob.model_construct(
            **self._facts(line), walltime_s=line.walltime_s or run_s, position=position, priority=0, estimate_s=run_s,
            reason=_WAITS if line.start_s is not None else _NEVER_STARTS,
            behind=[], expected_s=line.start_s,
            first_expected_s=line.start_s,
        )  # fmt: skip

    def _running(self, line: ScheduledJob) -> schema.RunningJob:
        return schema.RunningJob.model_construct(
            **self._facts(line), start_s=line.start_s or 0, walltime_s=line.walltime_s,
            expected_end_s=line.end_s or 0, nodes=[(self.node_names[node], units) for node, units in line.nodes],
        )  # fmt: skip

    def _status(self, now_s: int, queued: int, running: int, busy: int) -> schema.Status:
        nodes, real_s = len(self.node_names), float(now_s) if now_s > _UNIX_S else 0.0
        use = schema.Resource(name="nodes", capacity=nodes, in_use=busy, unavailable=0, free=nodes - busy)
        return schema.Status(
            version=version("cpsched"), round=0, at_unix_s=real_s, now_s=now_s, mode="replay",
            dispatcher=self.dispatcher or self.title, predictor=self.predictor or "the schedule",
            interval_s=1.0, users_hidden=False, nodes=nodes, unavailable_nodes=0, queued=queued, running=running,
            aside=0, held=0, resources=[use], causes=[], alarms=[],
        )  # fmt: skip

    def _history(self, now_s: int) -> list[schema.UseAt]:
        """Nodes in use over the past hour, minute by minute."""
        recent = np.flatnonzero((self._starts <= now_s) & (self._ends > now_s - PAST_S)).tolist()
        found = []
        for at_s in range(now_s - PAST_S, now_s + 1, 60):
            on = [self.lines[i] for i in recent if self._starts[i] <= at_s < self._ends[i]]
            busy = {node for line in on for node, _ in line.nodes}
            share = len(busy) / max(1, len(self.node_names))
            found.append(schema.UseAt(now_s=at_s, in_use=[share]))
        return found


def of_simulation(simulation: Simulation) -> Finished:
    """The schedule of a replay."""
    schedule, workload, policy = simulation.schedule, simulation.workload, simulation.setup.policy
    lines = []
    for index, item in enumerate(workload.jobs):
        job, start_s = item.job, int(schedule.start_s[index])
        ran = start_s != NEVER
        lines.append(
            ScheduledJob(
                job.id,
                job.submit_s,
                start_s if ran else None,
                int(schedule.end_s[index]) if ran else None,
                job.request.units,
                schedule.placement_of(index) if ran else (),
                job.walltime_s,
                job.user,
                job.name,
                job.queue,
            )
        )
    return Finished(workload.name, workload.cluster.node_names, lines, policy.dispatcher, policy.predictor)


def is_schedule(path: Path) -> bool:
    """Whether a file is a schedule that was written, by its first line. Raises `Unusable` where it cannot be read."""
    first = next(lines_of(path), (1, ""))[1]
    return first.strip() == ",".join(HEADING)


def read(path: Path) -> Finished:
    """A schedule that `cpsched simulate --out` wrote. Raises `InvalidTrace` naming file and line, or `Unusable`."""
    index: dict[str, int] = {}
    rows = []
    for number, text in lines_of(path):
        if number == 1:
            continue
        cells = next(csv.reader([text]), [])
        if len(cells) != len(HEADING):
            raise InvalidTrace(path, number, "columns", str(len(cells)), f"must be {len(HEADING)}")
        rows.append(_line(path, number, cells, index))
    if not rows:
        raise Unusable(f"{path}: holds no jobs")
    return _in_order(Finished(path.name, list(index), rows), index)


def _line(path: Path, number: int, cells: Sequence[str], index: dict[str, int]) -> ScheduledJob:
    values = dict(zip(HEADING, cells, strict=True))

    def whole(name: str) -> int:
        if not re.fullmatch(r"-?\d{1,15}", values[name]):
            raise InvalidTrace(path, number, name, values[name], "must be a whole number")
        return int(values[name])

    ran = bool(values["start_s"])
    nodes = []
    for entry in values["nodes"].split():
        name, colon, units = entry.rpartition(":")
        if not (colon and units.isascii() and units.isdigit()):
            raise InvalidTrace(path, number, "nodes", entry, "must be NAME:UNITS")
        nodes.append((index.setdefault(name, len(index)), int(units)))
    start_s, end_s = (whole("start_s"), whole("end_s")) if ran else (None, None)
    return ScheduledJob(whole("job"), whole("submit_s"), start_s, end_s, whole("units"), tuple(nodes))


def _in_order(found: Finished, index: dict[str, int]) -> Finished:
    """The same with its nodes in the order of their names, numbers by value."""
    names = sorted(index, key=lambda name: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)])
    place = {index[name]: at for at, name in enumerate(names)}
    lines: Iterable[ScheduledJob] = (
        ScheduledJob(
            line.id, line.submit_s, line.start_s, line.end_s, line.units, tuple((place[n], u) for n, u in line.nodes)
        )
        for line in found.lines
    )
    return Finished(found.title, names, list(lines))
