"""One replay from words to figures: names and settings in, a schedule and its measures out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any, get_args

import numpy as np

from cpsched import catalogue
from cpsched.catalogue import Entry, Parameter
from cpsched.errors import InvalidValue, UnknownName
from cpsched.model import NEVER, IntArray
from cpsched.overrun import Overrun
from cpsched.policy import Policy
from cpsched_sim.cluster.replay import Charge, Lane, Progress, Schedule, replay
from cpsched_sim.errors import Unusable
from cpsched_sim.files import write_table, write_whole
from cpsched_sim.metrics import Latencies, Measures
from cpsched_sim.oracle import OraclePredictor
from cpsched_sim.traces.job import TraceJob
from cpsched_sim.workloads.load import Workload

ORACLE = Entry(
    "oracle",
    "The real run time, which only a simulation can know; capped by the walltime.",
    "-R in cp19, pcp20, mod17; clairvoyant in debs24",
    "cpsched_sim.oracle:OraclePredictor",
)
PREDICTORS = (*catalogue.PREDICTORS, ORACLE)
_OVERRUN = "overrun"
"""The setting of the policy itself."""


def parameters(entry: Entry) -> tuple[Parameter, ...]:
    """What `--set` may give; the oracle's truth is not a setting."""
    return () if entry is ORACLE else entry.parameters()


@dataclass(frozen=True, slots=True)
class Setup:
    """What to replay a workload with, in words.

    `settings` go to whoever knows the name: the dispatcher, the predictor, or the policy (`overrun`). `options` are
    settings that only a dispatcher can have (limit_s, effort, seed).
    """

    dispatcher: str = "easy"
    predictor: str = "walltime"
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    charge: Charge = None
    lane: Lane = "ordinary"

    def policy(self, jobs: Iterable[TraceJob]) -> Policy:
        """The policy. Raises `UnknownName` for names that nobody knows, `InvalidValue` for values."""
        dispatcher, predictor = self._entries()
        known = self.known()
        for name in self.settings:
            if name not in known:
                raise UnknownName(f"parameter of {self.dispatcher}, {self.predictor} or the policy", name, known)
        for name, text in self.options.items():
            if name not in {p.name for p in parameters(dispatcher)}:
                raise InvalidValue(name, text, f"{self.dispatcher} has no such parameter: it does not search")
        return Policy(
            OraclePredictor(jobs) if predictor is ORACLE else catalogue.predictor(self.predictor, self._of(predictor)),
            catalogue.dispatcher(self.dispatcher, {**self._of(dispatcher), **self.options}),
            _overrun(self.settings.get(_OVERRUN)),
        )

    def known(self) -> set[str]:
        """Names of all parameters. Raises `UnknownName` where dispatcher or predictor is unknown."""
        return {parameter.name for entry in self._entries() for parameter in parameters(entry)} | {_OVERRUN}

    def _entries(self) -> tuple[Entry, Entry]:
        return (
            catalogue.find(catalogue.DISPATCHERS, "dispatcher", self.dispatcher),
            catalogue.find(PREDICTORS, "predictor", self.predictor),
        )

    def _of(self, entry: Entry) -> dict[str, str]:
        names = {parameter.name for parameter in parameters(entry)}
        return {name: text for name, text in self.settings.items() if name in names}


def _overrun(text: str | None) -> Overrun:
    for known in get_args(Overrun):
        if text in (known, None):
            chosen: Overrun = known
            return chosen
    raise InvalidValue(_OVERRUN, text, f"must be one of {', '.join(get_args(Overrun))}")


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A replayed workload: its schedule, and the measures of the jobs that ran."""

    workload: Workload
    setup: Setup
    schedule: Schedule
    measures: Measures

    @property
    def left_waiting(self) -> int:
        """Jobs that never started: refused, or never chosen by the dispatcher."""
        return len(self.workload.jobs) - len(self.measures.start_s)

    def summary(self) -> dict[str, Any]:
        """The figures that `cpsched simulate --json` prints; `jobs` are those that ran, `violations` a count."""
        measures, schedule = self.measures, self.schedule
        return {
            "jobs": len(measures.start_s),
            "bsld": measures.bsld,
            "af": measures.af,
            "awf": measures.awf,
            "p2sf": measures.p2sf,
            "mean_slowdown": float(measures.slowdown.mean()),
            "mean_wait_s": float(measures.wait_s.mean()),
            "utilization": measures.utilization(int(self.workload.cluster.capacity[:, 0].sum())),
            "makespan_s": measures.makespan_s,
            "rounds": schedule.rounds,
            "cpu_s": schedule.cpu_s,
            "violations": len(schedule.violations),
            "dispatch": asdict(Latencies.of(schedule.dispatch_s)),
            "paths": dict(schedule.paths),
        }


def run(workload: Workload, setup: Setup, progress: Progress | None = None) -> Outcome:
    """Replay. Raises `Unusable` where no job ran at all."""
    schedule = replay(workload.jobs, workload.cluster, setup.policy(workload.jobs), setup.charge, progress, setup.lane)
    ran = schedule.start_s != NEVER
    if not ran.any():
        first = next(iter(schedule.refused.values()), "the dispatcher started none")
        raise Unusable(f"{workload.name}: no job ran on {workload.system}: {first}")
    jobs = list(compress(workload.jobs, ran.tolist()))
    submit_s = np.fromiter((entry.job.submit_s for entry in jobs), np.int64, len(jobs))
    measures = Measures(submit_s, schedule.start_s[ran], schedule.end_s[ran], _processors(workload, schedule)[ran])
    return Outcome(workload, setup, schedule, measures)


def _processors(workload: Workload, schedule: Schedule) -> IntArray:
    """Processors (first resource) that each job of the trace holds; whole nodes count in full."""
    requests = (entry.job.request for entry in workload.jobs)
    held = np.fromiter((r.units * r.per_unit[0] for r in requests), np.int64, len(workload.jobs))
    for index, entry in enumerate(workload.jobs):
        if entry.job.request.exclusive:
            nodes = [node for node, _ in schedule.placement_of(index)]
            held[index] = workload.cluster.capacity[nodes, 0].sum()
    return held


def write_outcome(outcome: Outcome, folder: Path) -> None:
    """`schedule.csv.gz` and `summary.json` in `folder`, each of them whole or not at all. Raises `Unusable`.

    The schedule has one line per job in order of arrival: job, submit_s, start_s, end_s, units, nodes. Nodes are
    `name:units` joined by blanks; a job that never ran has no times and no nodes.
    """
    write_table(folder / "schedule.csv.gz", _schedule_rows(outcome))
    write_whole(folder / "summary.json", (json.dumps(_described(outcome), indent=2) + "\n").encode())


def _described(outcome: Outcome) -> dict[str, Any]:
    setup = outcome.setup
    return outcome.summary() | {
        "setup": {
            "trace": outcome.workload.name,
            "system": outcome.workload.system,
            "dispatcher": setup.dispatcher,
            "predictor": setup.predictor,
            "settings": {**setup.settings, **setup.options},
            "charge": "none" if setup.charge is None else setup.charge,
            "left_waiting": outcome.left_waiting,
            "notes": list(outcome.workload.notes),
        }
    }


def _schedule_rows(outcome: Outcome) -> Iterator[Sequence[object]]:
    yield "job", "submit_s", "start_s", "end_s", "units", "nodes"
    names, schedule = outcome.workload.cluster.node_names, outcome.schedule
    starts, ends = schedule.start_s.tolist(), schedule.end_s.tolist()
    for index, (entry, start_s, end_s) in enumerate(zip(outcome.workload.jobs, starts, ends, strict=True)):
        job = entry.job
        if start_s == NEVER:
            yield job.id, job.submit_s, "", "", job.request.units, ""
            continue
        nodes = " ".join(f"{names[node]}:{units}" for node, units in schedule.placement_of(index))
        yield job.id, job.submit_s, start_s, end_s, job.request.units, nodes
