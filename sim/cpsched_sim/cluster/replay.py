"""Replays a trace: events of whole seconds, one scheduling round each, every decision verified.

Of one second: all submissions in trace order, then all ends, then one round. A job that ends at t frees its resources
before the round at t; one started at t occupies [t, t + run).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from cpsched.dispatchers.list_scheduler import ListSchedulerDispatcher
from cpsched.errors import PolicyError
from cpsched.feasibility import verify
from cpsched.formatting import many
from cpsched.model import (
    EXCLUSIVE,
    NEVER,
    NO_STARTS,
    Cluster,
    Decision,
    Effort,
    IntArray,
    Need,
    Placement,
    Snapshot,
    Starts,
)
from cpsched.policy import Policy
from cpsched.site.admission import QueueLimits, decide_within
from cpsched_sim.cluster import replay_clock
from cpsched_sim.cluster.cluster_events import ASK_ALWAYS, FAULTY, MAY_START, PAUSE_ALWAYS, PAUSE_WHERE_NEEDED
from cpsched_sim.cluster.compiled_loop import run_rounds
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster, view_of
from cpsched_sim.cluster.site_accounting import SimulatedSitePolicy
from cpsched_sim.site.policy_file import SitePolicy
from cpsched_sim.traces.trace_job import TraceJob

SchedulingOverhead = float | Literal["measured"] | None
"""What a decision costs on the simulated clock: nothing, what it took, or so many milliseconds."""

Progress = Callable[[int, int], None]
"""Called now and then with (jobs ended, jobs in all)."""

PROGRESS_EVERY = 1000
"""Decided rounds between two calls of `Progress`."""

SLOW_ROUND_NS = 100_000_000
"""A decision that took longer is followed by a call of `Progress` at once."""

COMPILED_FROM_JOBS = 100_000
"""Length of a trace from which `replay` takes the compiled loop where it applies. Shorter ones end before it compiles,
and the time of each decision is measured."""

PREDICTION_BATCH = 10_000
"""Jobs predicted between two calls of `Progress`, where all can be predicted up front."""

NOTHING_FITS = "nothing-fits"
"""Path of the rounds in which no queued job asks for as little as is free, or none is queued: nobody is asked."""


FAILED = Decision(NO_STARTS, Effort("failed"))
"""What stands for the decision of a round in which the policy failed; see `Schedule.violations`."""

UNNAMED_FAULT = "the cluster refused the starts of a round, and no rule was named"


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """What became of a trace. Arrays of jobs are int64[J] in trace order.

    `start_s` and `end_s` are `NEVER` for jobs that did not start: those in `refused` (trace index -> why a job can
    never run on the cluster), and any that a dispatcher left waiting for ever. The placement of job i is
    `place_node[a:a+k]`, `place_units[a:a+k]` with a = `place_at[i]`, k = `place_count[i]`.
    `rounds` counts all rounds, `paths` them by the way the decision was reached. `dispatch_s` is float64, the wall
    seconds of each decision that a dispatcher was asked for (empty after the compiled loop). `cpu_s` is the CPU time of
    the replay alone: columns built, kernels compiled and predictions known up front are not in it.
    `violations` names every rule that a decision broke, and every fault of a dispatcher or predictor, a line each.
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
    processors: IntArray
    """What each job holds of the first resource: whole nodes count in full, also what a job does not use of them."""
    refused: Mapping[int, str] = field(default_factory=dict)
    violations: tuple[str, ...] = ()
    overran: int = 0
    """How many jobs ran longer than was predicted when they were first seen."""

    def placement_of(self, index: int) -> Placement:
        """Where job `index` of the trace ran; empty where it did not."""
        part = slice(int(self.place_at[index]), int(self.place_at[index] + self.place_count[index]))
        return tuple(zip(self.place_node[part].tolist(), self.place_units[part].tolist(), strict=True))


def replay(
    trace: Sequence[TraceJob],
    cluster: Cluster,
    policy: Policy,
    charge: SchedulingOverhead = None,
    progress: Progress | None = None,
    site: SitePolicy | None = None,
    strict: bool = False,
) -> Schedule:
    """Run `trace` through `policy` on `cluster`.

    A long trace runs in a compiled loop if it can (`Replay.compilable`). The starts are the same.

    With a `charge`, a decision on the state at t takes effect at t + charge, rounded up to the next whole second (a
    decision of 3 ms at t starts its jobs at t + 1): meanwhile jobs arrive and end, resources only get freer, and the
    next round sees it all. Without one it takes effect at t.

    With a `site`, jobs have the priorities that it gives them, and no round starts more than its limits allow; its
    accounts must hold the users of the trace (`SitePolicy.assigned`).

    Where dispatcher or predictor fails, or breaks a rule, a `strict` replay ends with a `PolicyError`; otherwise the
    round starts nothing and is counted.
    """
    replayed = Replay(trace, cluster, policy, charge, progress, site, strict)
    if len(trace) >= COMPILED_FROM_JOBS and replayed.compilable:
        return replayed.run_compiled()
    return replayed.run()


class Replay:
    """A replay while it runs: the policy, the cluster, and what has been counted so far."""

    def __init__(
        self,
        trace: Sequence[TraceJob],
        cluster: Cluster,
        policy: Policy,
        charge: SchedulingOverhead = None,
        progress: Progress | None = None,
        site: SitePolicy | None = None,
        strict: bool = False,
    ) -> None:
        self.strict = strict
        self.state = SimulatedCluster(cluster, policy.overrun)
        self.policy = policy
        self.charge = charge
        self.progress = progress
        self.total = len(trace)
        self.arrivals, self.refused = self.state.load(trace)
        self.site = SimulatedSitePolicy(site, self.state) if site is not None else None
        self.paths: dict[str, int] = {}
        self.dispatch_ns: list[int] = []
        self.violations: list[str] = []
        self.predicted = 0
        self.predictor_learns = self.told(lambda: policy.predictor_learns)
        self.dispatcher_learns = self.told(lambda: policy.dispatcher_learns)
        if not self.predictor_learns:
            self.predict(self.arrivals)

    def run(self) -> Schedule:
        """Every round until nothing is left to happen."""
        began = replay_clock.cpu_s()
        pause = PAUSE_ALWAYS if self.predictor_learns else PAUSE_WHERE_NEEDED
        pause = ASK_ALWAYS if getattr(self.policy.dispatcher, "every_round", False) else pause
        learns, decided = self.predictor_learns or self.dispatcher_learns or self.site is not None, 0
        step, starts = self.state.step, NO_STARTS
        while found := step(starts, pause) or self.wait_for_limits():
            if learns and found != FAULTY:
                self.learn()
            starts = NO_STARTS
            if found == FAULTY:
                self.refuse(self.decision, self.snapshot)
            elif found == MAY_START:
                starts = self.decide()
                decided += 1
                if decided % PROGRESS_EVERY == 0 or self.dispatch_ns[-1] > SLOW_ROUND_NS:
                    self.tell()
        return self.schedule(replay_clock.cpu_s() - began)

    @property
    def compilable(self) -> bool:
        """Whether the compiled loop applies: a list scheduler, nothing learned, no charge, no policy, no power cap."""
        dispatcher = self.policy.dispatcher
        return (
            isinstance(dispatcher, ListSchedulerDispatcher)
            and type(dispatcher).decide is ListSchedulerDispatcher.decide
            and dispatcher.scheme.compiled
            and not (self.predictor_learns or self.dispatcher_learns or dispatcher.every_round)
            and self.charge is None
            and self.site is None
            and self.state.cluster.power is None
        )

    def run_compiled(self) -> Schedule:
        """Do what `run` does in the compiled loop (`cpsched_sim.cluster.compiled_loop`)."""
        began, dispatcher = replay_clock.cpu_s(), cast(ListSchedulerDispatcher, self.policy.dispatcher)
        run_rounds(self.state, dispatcher.scheme, self.paths, self.violations, self.tell)
        if self.strict and self.violations:
            raise PolicyError("dispatcher", dispatcher, self.violations[0])
        return self.schedule(replay_clock.cpu_s() - began)

    def wait_for_limits(self) -> int:
        """Where nothing happens any more, let use fade that keeps jobs waiting at a limit; 0: they wait for good."""
        if self.site is None or not self.state.queue_length:
            return 0
        seconds = self.site.wait_s()
        if not seconds:
            return 0
        self.state.pass_until(self.state.now_s + seconds)
        return MAY_START

    def told(self, learns: Callable[[], bool]) -> bool:
        """Whether a part of the policy learns; one that cannot tell is a violation, and is taught nothing."""
        try:
            return learns()
        except PolicyError as fault:
            self.count(fault)
            return False

    def count(self, fault: PolicyError) -> None:
        """Note a fault; in a strict replay it is raised."""
        if self.strict:
            raise fault
        self.violations.append(str(fault))

    def refuse(self, decision: Decision, snapshot: Snapshot) -> None:
        """Note why the cluster refused the starts of a decision; in a strict replay that is raised."""
        broken = [str(violation) for violation in verify(decision, snapshot)] or [UNNAMED_FAULT]
        if self.strict:
            raise PolicyError("dispatcher", self.policy.dispatcher, f"second {snapshot.now_s}: {broken[0]}")
        self.violations.extend(broken)

    def tell(self) -> None:
        """Report progress to whoever wants to know."""
        if self.progress is not None:
            self.progress(self.state.state.over, self.total)

    def learn(self) -> None:
        """Tell the policy of ended jobs, then have it predict the jobs that arrived since."""
        state, policy = self.state, self.policy
        if state.state.ended_count:
            slots = state.take_ended_slots()
            if self.site is not None:
                self.site.ended(slots)
            if not (self.predictor_learns or self.dispatcher_learns):
                return
            for ended in map(state.ended_job, slots):
                try:
                    policy.learn(ended)
                except PolicyError as fault:
                    self.count(fault)
        arrived = state.state.arrived
        if self.predictor_learns and arrived > self.predicted:
            self.predict(self.arrivals[self.predicted : arrived])
            self.predicted = arrived

    def predict(self, slots: IntArray) -> None:
        """Have the policy predict jobs; those it cannot predict are expected to run their walltimes."""
        for begin in range(0, len(slots), PREDICTION_BATCH):
            try:
                self.policy.predict(self.state.table, slots[begin : begin + PREDICTION_BATCH])
            except PolicyError as fault:
                self.count(fault)
            if begin:
                self.tell()

    def decide(self) -> Starts:
        """One round: what the policy starts. It is verified, and starts, when time goes on.

        A round that fails starts nothing, and is counted as a violation.
        """
        began = replay_clock.wall_ns()
        try:
            decision = self.decided()
        except PolicyError as fault:
            self.count(fault)
            decision = FAILED
        self.note(decision)
        took = replay_clock.wall_ns() - began
        self.dispatch_ns.append(took)
        path = decision.effort.path
        self.paths[path] = self.paths.get(path, 0) + 1
        if self.charge is not None:
            self.spend(took / 1e6 if self.charge == "measured" else self.charge)
        return decision.starts

    def note(self, decision: Decision) -> None:
        """Keep a decision, and when its dispatcher wants to be asked again."""
        self.decision = decision
        self.state.state.again_s = NEVER if decision.again_s is None else decision.again_s

    def decided(self) -> Decision:
        """What the policy decides now, within the site's limits where there is a site."""
        limits = self.site.begin_round() if self.site is not None else None
        decision = self.within(limits, self.state.snapshot(), "starts")
        if self.site is not None:
            self.site.started(decision.starts.slots.tolist())
        return decision

    def within(self, limits: QueueLimits | None, snapshot: Snapshot, need: Need) -> Decision:
        """What the policy decides within limits and the cluster's cap of power, which the cluster does not judge."""
        if limits is None and snapshot.cluster.power is None:  # most rounds: every call counts
            self.snapshot = snapshot
            return self.policy.decide(snapshot, need)
        found = decide_within(snapshot, limits, lambda snapshot: self.policy.decide(snapshot, need))
        self.snapshot = found.snapshot
        if snapshot.cluster.power is not None and (broken := verify(found.decision, found.snapshot)):
            raise PolicyError("dispatcher", self.policy.dispatcher, f"second {snapshot.now_s}: {broken[0]}")
        return found.decision

    def spend(self, charge_ms: float) -> None:
        """Let the time of a decision pass on the simulated clock."""
        self.state.pass_until(self.state.now_s + math.ceil(charge_ms / 1000))

    def schedule(self, cpu_s: float) -> Schedule:
        """What became of the trace."""
        state, table, n = self.state, self.state.table, self.total
        started = table.start_s[:n] != NEVER
        paths = dict(self.paths)
        if state.state.skipped:
            paths[NOTHING_FITS] = state.state.skipped
        return Schedule(
            start_s=table.start_s[:n].copy(),
            end_s=np.where(started, state.state.end_at[:n], NEVER),
            place_at=table.place_at[:n].copy(),
            place_count=table.place_count[:n].copy(),
            place_node=view_of(table.place_node),
            place_units=view_of(table.place_units),
            rounds=state.state.rounds,
            paths=paths,
            dispatch_s=np.array(self.dispatch_ns, dtype=np.float64) / 1e9,
            cpu_s=cpu_s,
            processors=self.processors(),
            refused={**self.refused, **self.limited(started)},
            violations=tuple(self.violations),
            overran=int((started & (state.state.end_at[:n] - table.start_s[:n] > table.estimate_s[:n])).sum()),
        )

    def limited(self, started: npt.NDArray[np.bool_]) -> dict[int, str]:
        """The jobs that a limit of the site kept waiting for good, and which."""
        if self.site is None:
            return {}
        whys = ((slot, self.site.waits_for(slot)) for slot in np.flatnonzero(~started).tolist())
        return {slot: why for slot, why in whys if why is not None}

    def processors(self) -> IntArray:
        """Processors (first resource) that each job of the trace holds; of a job that never ran, those it asks for."""
        table, n = self.state.table, self.total
        held: IntArray = table.units[:n] * table.per_unit[:n, 0]
        whole = np.flatnonzero((table.sharing[:n] & EXCLUSIVE != 0) & (table.start_s[:n] != NEVER))
        # Sums over the placement pool: what lies between two entries is the sum of the nodes between them.
        pool = self.state.cluster.capacity[table.place_node, 0]
        upto = np.concatenate(([0], np.cumsum(pool)))
        at = table.place_at[whole]
        held[whole] = upto[at + table.place_count[whole]] - upto[at]
        return held


def check_all_started(trace: Sequence[TraceJob], start_s: IntArray, refused: Mapping[int, str], policy: Policy) -> None:
    """Raise `PolicyError` where jobs wait for ever that could have run: all but those `refused`."""
    left = [index for index in np.flatnonzero(start_s == NEVER).tolist() if index not in refused]
    if left:
        ids = ", ".join(str(trace[index].job.id) for index in left[:3]) + (", ..." if len(left) > 3 else "")
        jobs = f"{len(left):,} of {many(len(trace), 'job')} never started ({ids})"
        raise PolicyError("dispatcher", policy.dispatcher, f"{jobs}: with nothing running it still started none")
