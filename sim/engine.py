"""Replays a trace: events of whole seconds, one scheduling round each, every decision verified.

Of one second: all submissions in trace order, then all ends, then one round. A job that ends at t frees its resources
before the round at t; one started at t occupies [t, t + run).
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from cpsched.feasibility import verify
from cpsched.model import NEVER, Cluster, IntArray, Placement
from cpsched.policy import Policy
from sim.cluster import SimulatedCluster
from sim.events import (
    ARRIVED,
    ENDED,
    MAY_START,
    NO_ROUND,
    NOW,
    OVER_COUNT,
    PAUSE_ALWAYS,
    PAUSE_WHERE_NEEDED,
    POOL,
    ROUNDS,
    SKIPPED,
    next_round,
)
from sim.trace import TraceJob

Charge = float | Literal["measured"] | None
"""What a decision costs on the simulated clock: nothing, what it took, or so many milliseconds."""

Progress = Callable[[int, int], None]
"""Called now and then with (jobs ended, jobs in all)."""

PROGRESS_EVERY = 1000
"""Decided rounds between two calls of `Progress`."""

NOTHING_FITS = "nothing-fits"
"""Path of the rounds in which no queued job asks for as little as is free, or none is queued: nobody is asked."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """What became of a trace. Arrays of jobs are int64[J] in trace order.

    `start_s` and `end_s` are `NEVER` for jobs that did not start: those in `refused` (trace index -> why a job can
    never run on the cluster), and any that a dispatcher left waiting for ever. The placement of job i is
    `place_node[a:a+k]`, `place_units[a:a+k]` with a = `place_at[i]`, k = `place_count[i]`.
    `rounds` counts all rounds, `paths` them by the way the decision was reached. `dispatch_s` is float64, the wall
    seconds of each decision that a dispatcher was asked for (empty in the fast lane). `cpu_s` is the CPU time of the
    replay alone: columns built, kernels compiled and predictions known up front are not in it.
    """

    start_s: IntArray
    end_s: IntArray
    place_at: IntArray
    place_count: IntArray
    place_node: IntArray
    place_units: IntArray
    rounds: int
    paths: Mapping[str, int]
    dispatch_s: npt.NDArray[np.float64]
    cpu_s: float
    refused: Mapping[int, str] = field(default_factory=dict)
    violations: tuple[str, ...] = ()

    def placement_of(self, index: int) -> Placement:
        """Where job `index` of the trace ran; empty where it did not."""
        part = slice(int(self.place_at[index]), int(self.place_at[index] + self.place_count[index]))
        return tuple(zip(self.place_node[part].tolist(), self.place_units[part].tolist(), strict=True))


def replay(
    trace: Sequence[TraceJob],
    cluster: Cluster,
    policy: Policy,
    charge: Charge = None,
    progress: Progress | None = None,
) -> Schedule:
    """Run `trace` through `policy` on `cluster`.

    With a `charge`, a decision on the state at t takes effect at t + charge, rounded up to the next whole second (a
    decision of 3 ms at t starts its jobs at t + 1): meanwhile jobs arrive and end, resources only get freer, and the
    next round sees it all. Without one it takes effect at t.
    """
    return Replay(trace, cluster, policy, charge, progress).run()


class Replay:
    """One replay in the making."""

    def __init__(
        self,
        trace: Sequence[TraceJob],
        cluster: Cluster,
        policy: Policy,
        charge: Charge = None,
        progress: Progress | None = None,
    ) -> None:
        self.state = SimulatedCluster(cluster, policy.overrun)
        self.policy = policy
        self.charge = charge
        self.progress = progress
        self.total = len(trace)
        self.arrivals, self.refused = self.state.load(trace)
        self.paths: Counter[str] = Counter()
        self.dispatch_ns: list[int] = []
        self.violations: list[str] = []
        self.predicted = 0
        if not policy.predictor.learns:
            policy.predictor.fill(self.state.table, self.arrivals)

    def run(self) -> Schedule:
        """Every round until nothing is left to happen."""
        began = time.process_time()
        pause = PAUSE_ALWAYS if self.policy.predictor.learns else PAUSE_WHERE_NEEDED
        learns, decided = self.policy.predictor.learns or self.policy.dispatcher.learns, 0
        while found := self.pass_time(pause, NEVER - 1):
            if learns:
                self.learn()
            if found == MAY_START:
                self.decide()
                decided += 1
                if self.progress is not None and decided % PROGRESS_EVERY == 0:
                    self.progress(int(self.state.clock[OVER_COUNT]), self.total)
        return self.schedule(time.process_time() - began)

    def pass_time(self, pause: int, limit_s: int) -> int:
        """Let events happen until a round is due; see `sim.events.next_round`."""
        state, table = self.state, self.state.table
        return next_round(
            state.clock, pause, limit_s, self.arrivals, table.submit_s, state.queue, state.heap, state.running,
            state.phase, state.ended, state.end_at, table.end_s, table.start_s, table.estimate_s, table.walltime_s,
            state.total_free, state.free, state.cluster.capacity, table.place_at, table.place_count, table.place_node,
            table.place_units, table.units, table.per_unit, table.sharing, state.overrun_code,
        )  # fmt: skip

    def learn(self) -> None:
        """Tell the policy of ended jobs, then have it predict the jobs that arrived since."""
        state, policy = self.state, self.policy
        if state.clock[ENDED]:
            for ended in state.take_ended():
                policy.learn(ended)
        arrived = int(state.clock[ARRIVED])
        if policy.predictor.learns and arrived > self.predicted:
            policy.predictor.fill(state.table, self.arrivals[self.predicted : arrived])
            self.predicted = arrived

    def decide(self) -> None:
        """One round: ask the policy, verify, start."""
        snapshot = self.state.snapshot()
        began = time.perf_counter_ns()
        decision = self.policy.decide(snapshot, "starts")
        took = time.perf_counter_ns() - began
        self.dispatch_ns.append(took)
        self.paths[decision.effort.path] += 1
        if self.charge is not None:
            self.spend(took / 1e6 if self.charge == "measured" else self.charge)
        if len(decision.starts) and self.state.try_apply(decision.starts) >= 0:
            self.violations.extend(map(str, verify(decision, snapshot)))

    def spend(self, charge_ms: float) -> None:
        """Let the time of a decision pass on the simulated clock."""
        clock = self.state.clock
        until_s = int(clock[NOW]) + math.ceil(charge_ms / 1000)
        self.pass_time(NO_ROUND, until_s)
        clock[NOW] = until_s

    def schedule(self, cpu_s: float) -> Schedule:
        """What became of the trace."""
        state, table, n = self.state, self.state.table, self.total
        started = table.start_s[:n] != NEVER
        paths = dict(self.paths)
        if state.clock[SKIPPED]:
            paths[NOTHING_FITS] = int(state.clock[SKIPPED])
        return Schedule(
            start_s=table.start_s[:n].copy(),
            end_s=np.where(started, state.end_at[:n], NEVER),
            place_at=table.place_at[:n].copy(),
            place_count=table.place_count[:n].copy(),
            place_node=table.place_node[: state.clock[POOL]].copy(),
            place_units=table.place_units[: state.clock[POOL]].copy(),
            rounds=int(state.clock[ROUNDS]),
            paths=paths,
            dispatch_s=np.array(self.dispatch_ns, dtype=np.float64) / 1e9,
            cpu_s=cpu_s,
            refused=self.refused,
            violations=tuple(self.violations),
        )
