"""Replay a trace in whole seconds, with at most one scheduling round per second.

Every decision is verified.

Within one second, all submissions are processed in trace order, then all ends, then one round. A job that ends at t
frees its resources before the round at t. A job started at t occupies [t, t + run).
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
from cpsched.formatting import format_count
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
from cpsched.model.job_table import read_only_view
from cpsched.policy import Policy
from cpsched.site.admission import PendingJobLimitsAndUsage, decide_respecting_limits
from cpsched_sim.cluster import replay_clock
from cpsched_sim.cluster.compiled_replay_loop import run_all_rounds_compiled
from cpsched_sim.cluster.event_kernels import (
    ASK_ALWAYS,
    FAULTY,
    MAY_START,
    PAUSE_ALWAYS,
    PAUSE_WHERE_NEEDED,
)
from cpsched_sim.cluster.preemption import Preemption, SimulatedPreemption
from cpsched_sim.cluster.simulated_accounting import SimulatedAccounting
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from cpsched_sim.site.policy_file import SitePolicy
from cpsched_sim.traces.trace_job import TraceJob

SchedulingOverhead = float | Literal["measured"] | None
"""Duration of a decision on the simulated clock: zero (None), the measured time, or a fixed number of milliseconds."""

Progress = Callable[[int, int], None]
"""A callback that periodically receives the number of ended jobs and the number of all jobs."""

PROGRESS_INTERVAL_ROUNDS = 1000
"""Number of decided rounds between two calls of `Progress`."""

SLOW_ROUND_NS = 100_000_000
"""Duration in nanoseconds of a decision after which `Progress` is called immediately."""

COMPILED_FROM_JOBS = 100_000
"""Minimum number of jobs for the compiled loop. A shorter replay ends before the loop would be compiled."""

PREDICTION_BATCH = 10_000
"""Number of jobs to predict between two calls of `Progress` when all jobs are predicted in advance."""

NOTHING_FITS_PATH = "nothing-fits"
"""Path of rounds that do not call the dispatcher, because no queued job fits the free resources."""


EVERY_JOB_STARTED = Decision(NO_STARTS, Effort("empty-queue"))
"""The decision of a round in which preemption started the last queued jobs."""
FAILED_DECISION = Decision(NO_STARTS, Effort("failed"))
"""The decision of a round in which the policy failed (see `Schedule.violations`)."""

UNNAMED_FAULT = "the cluster rejected the starts of a round without stating a rule"


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The result of a replay. Arrays over jobs are int64[J] in trace order.

    `start_s` and `end_s` are `NEVER` for jobs that did not start: the jobs in `refused` (trace index -> reason why the
    job can never run), and jobs that the dispatcher never started. The placement of job i is `place_node[a:a+k]`,
    `place_units[a:a+k]` with a = `place_at[i]`, k = `place_count[i]`. `rounds` is the total number of rounds, and
    `paths` the number of rounds by decision path. `dispatch_s` contains the wall-clock seconds of each decision,
    float64 (empty after the compiled loop). `cpu_s` is the CPU time of the replay, without building columns, compiling
    kernels and predicting in advance. `violations` has one line for each rule broken by a decision, and for each fault
    of a dispatcher or predictor.
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
    """Each job's amount of the first resource. Whole nodes count in full, including unused parts."""
    refused: Mapping[int, str] = field(default_factory=dict)
    violations: tuple[str, ...] = ()
    overran: int = 0
    """Number of jobs that ran longer than predicted at their arrival."""
    preemptions: tuple[Preemption, ...] = ()
    """The preemptions, in order. The times of a requeued job are those of its last run."""

    def placement_of(self, index: int) -> Placement:
        """Return the placement of the job at a trace index, or () if the job did not run."""
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
    """Run `trace` through `policy` on `cluster` and return the schedule.

    A long trace runs in a compiled loop if possible (`TraceReplay.is_compilable`), with the same starts.

    With a `charge`, a decision on the state at t takes effect at t + charge, rounded up to a whole second: a decision
    of 3 ms at t starts its jobs at t + 1. In the meantime, jobs may arrive and end, so resources can only become free.
    The next round sees these changes. Without a charge, the decision takes effect at t.

    With a `site`, jobs have the site's priorities, and no round starts more jobs than the site's limits allow. The
    accounts of the site must include the trace's users (`SitePolicy.with_users_of`).

    If the dispatcher or predictor fails or breaks a rule, a `strict` replay raises `PolicyError`. Otherwise, the round
    starts no job, and the fault is recorded.
    """
    replayed = TraceReplay(trace, cluster, policy, charge, progress, site, strict)
    if len(trace) >= COMPILED_FROM_JOBS and replayed.is_compilable:
        return replayed.run_compiled()
    return replayed.run()


class TraceReplay:
    """A running replay: the policy, the cluster, and the results so far."""

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
        self.site = SimulatedAccounting(site, self.state) if site is not None else None
        preempts = site is not None and site.preemption is not None
        self.preemption = SimulatedPreemption(site, self.state) if site is not None and preempts else None
        self.preemptions: list[Preemption] = []
        self.paths: dict[str, int] = {}
        self.dispatch_ns: list[int] = []
        self.violations: list[str] = []
        self.predicted = 0
        self.again_s: int | None = None
        self.predictor_learns = self.query_whether_part_learns(lambda: policy.predictor_learns)
        self.dispatcher_learns = self.query_whether_part_learns(lambda: policy.dispatcher_learns)
        if not self.predictor_learns:
            self.predict(self.arrivals)

    def run(self) -> Schedule:
        """Run every round until no events remain."""
        began = replay_clock.cpu_s_without_compilation()
        pause = PAUSE_ALWAYS if self.predictor_learns else PAUSE_WHERE_NEEDED
        pause = ASK_ALWAYS if self.decides_every_round else pause
        learns, decided = self.predictor_learns or self.dispatcher_learns or self.site is not None, 0
        step, starts = self.state.start_and_advance, NO_STARTS
        while found := step(starts, pause) or self.skip_until_limit_usage_decays():
            if learns and found != FAULTY:
                self.learn()
            starts = NO_STARTS
            if found == FAULTY:
                self.record_rejection(self.decision, self.snapshot)
            elif found == MAY_START:
                starts = self.decide()
                decided += 1
                if decided % PROGRESS_INTERVAL_ROUNDS == 0 or self.dispatch_ns[-1] > SLOW_ROUND_NS:
                    self.report_progress()
        return self.build_schedule(replay_clock.cpu_s_without_compilation() - began)

    @property
    def decides_every_round(self) -> bool:
        """Return whether the policy must decide even if no job fits.

        This is so if its dispatcher requests it, or if a job may start by preemption.
        """
        return self.preemption is not None or bool(getattr(self.policy.dispatcher, "every_round", False))

    @property
    def is_compilable(self) -> bool:
        """Return whether the compiled loop applies.

        It requires a list scheduler, and no learning, charge, site or power cap.
        """
        dispatcher = self.policy.dispatcher
        return (
            isinstance(dispatcher, ListSchedulerDispatcher)
            and type(dispatcher).decide is ListSchedulerDispatcher.decide
            and dispatcher.scheme.has_kernel_order
            and not (self.predictor_learns or self.dispatcher_learns or dispatcher.every_round)
            and self.charge is None
            and self.site is None
            and self.state.cluster.power is None
        )

    def run_compiled(self) -> Schedule:
        """Run every round in the compiled loop, and return the schedule.

        See `cpsched_sim.cluster.compiled_replay_loop`.
        """
        began, dispatcher = (
            replay_clock.cpu_s_without_compilation(),
            cast(ListSchedulerDispatcher, self.policy.dispatcher),
        )
        run_all_rounds_compiled(self.state, dispatcher.scheme, self.paths, self.violations, self.report_progress)
        if self.strict and self.violations:
            raise PolicyError("dispatcher", dispatcher, self.violations[0])
        return self.build_schedule(replay_clock.cpu_s_without_compilation() - began)

    def skip_until_limit_usage_decays(self) -> int:
        """Let usage decay if jobs wait for a limit and no events remain.

        Return 0 if no job waits or if waiting does not help.
        """
        if self.site is None or not self.state.queue_length:
            return 0
        seconds = self.site.wait_s()
        if not seconds:
            return 0
        self.state.advance_without_round(self.state.now_s + seconds)
        return MAY_START

    def query_whether_part_learns(self, learns: Callable[[], bool]) -> bool:
        """Return whether a part of the policy learns.

        If the query fails, record a violation and return False.
        """
        try:
            return learns()
        except PolicyError as fault:
            self.record_fault(fault)
            return False

    def record_fault(self, fault: PolicyError) -> None:
        """Record a fault, or raise it in a strict replay."""
        if self.strict:
            raise fault
        self.violations.append(str(fault))

    def record_rejection(self, decision: Decision, snapshot: Snapshot) -> None:
        """Record why the cluster rejected the starts of a decision.

        In a strict replay, raise `PolicyError` with the reason.
        """
        broken = [str(violation) for violation in verify(decision, snapshot)] or [UNNAMED_FAULT]
        if self.strict:
            raise PolicyError("dispatcher", self.policy.dispatcher, f"at {snapshot.now_s} s: {broken[0]}")
        self.violations.extend(broken)

    def report_progress(self) -> None:
        """Pass the number of ended jobs to the progress callback."""
        if self.progress is not None:
            self.progress(self.state.state.over, self.total)

    def learn(self) -> None:
        """Pass ended jobs to the policy. Then predict the jobs that have arrived."""
        state, policy = self.state, self.policy
        if state.state.ended_count:
            slots = state.take_ended_slots()
            if self.site is not None:
                self.site.on_ended(slots)
            if not (self.predictor_learns or self.dispatcher_learns):
                return
            for ended in map(state.ended_job, slots):
                try:
                    policy.learn(ended)
                except PolicyError as fault:
                    self.record_fault(fault)
        arrived = state.state.arrived
        if self.predictor_learns and arrived > self.predicted:
            self.predict(self.arrivals[self.predicted : arrived])
            self.predicted = arrived

    def predict(self, slots: IntArray) -> None:
        """Predict the run times of jobs. Use the walltime if this fails."""
        for begin in range(0, len(slots), PREDICTION_BATCH):
            try:
                self.policy.write_estimates(self.state.table, slots[begin : begin + PREDICTION_BATCH])
            except PolicyError as fault:
                self.record_fault(fault)
            if begin:
                self.report_progress()

    def decide(self) -> Starts:
        """Run one round and return the policy's starts.

        They are verified and applied when time advances.

        A failed round starts no jobs and counts as a violation.
        """
        began = replay_clock.wall_ns_without_compilation()
        try:
            decision = self.make_decision()
        except PolicyError as fault:
            self.record_fault(fault)
            decision = FAILED_DECISION
        self.record_decision(decision)
        took = replay_clock.wall_ns_without_compilation() - began
        self.dispatch_ns.append(took)
        path = decision.effort.path
        self.paths[path] = self.paths.get(path, 0) + 1
        if self.charge is not None:
            self.charge_decision_time(took / 1e6 if self.charge == "measured" else self.charge)
        return decision.starts

    def record_decision(self, decision: Decision) -> None:
        """Record a decision, and the next round requested by the dispatcher."""
        self.decision, again_s = decision, decision.again_s
        if self.preemption is not None:
            chance_s = self.preemption.find_next_preemption_chance_s(self.state.snapshot())
            again_s = min(filter(None, (again_s, chance_s)), default=None)
        if again_s != self.again_s:  # most decisions request no further round, so this skips a call in most rounds
            self.again_s = again_s
            self.state.state.again_s = NEVER if self.again_s is None else self.again_s

    def make_decision(self) -> Decision:
        """Return the policy's decision for the current time, within the site's limits."""
        limits = self.site.begin_round() if self.site is not None else None
        if self.preemption is not None and self.site is not None and limits is not None:
            for find in (self.preemption.finish_grace_times, self.preemption.plan):
                snapshot = self.state.snapshot()
                if found := find(snapshot, self.get_round_limits(limits, snapshot) or limits):
                    for preemption in found:
                        self.preempt(preemption)
                    limits = self.site.begin_round()
            if not self.state.queue_length:
                return EVERY_JOB_STARTED
        decision = self.decide_within_limits(limits, self.state.snapshot(), "starts")
        if self.preemption is not None:
            decision = self.preemption.drop_reserved_starts(decision, self.state.snapshot())
        if self.site is not None:
            self.site.on_started(decision.starts.slots.tolist())
        return decision

    def preempt(self, preemption: Preemption) -> None:
        """Stop the victims of a preemption, and start its job on their nodes.

        The job stays in the queue if a limit blocks it, or if its nodes failed during the victims' grace times.
        """
        state, site = self.state, self.site
        for run in preemption.victims:
            state.preempt(state.jobs[run.slot].id, run.requeued)
            state.take_ended_slots()  # the policy does not learn run times from victims
            state.state.run_s[run.slot] -= run.kept_s
            if site is not None:
                site.on_ended([run.slot])
        starts = Starts.of({preemption.slot: preemption.placement} if preemption.placement else {})
        if state.try_start_jobs(starts) < 0 and site is not None:
            site.on_started(starts.slots.tolist())
        if preemption.victims:
            self.preemptions.append(preemption)

    def get_round_limits(
        self, limits: PendingJobLimitsAndUsage | None, snapshot: Snapshot
    ) -> PendingJobLimitsAndUsage | None:
        """Return the limits that a round must respect. A subclass may add limits."""
        return limits

    def decide_within_limits(self, limits: PendingJobLimitsAndUsage | None, snapshot: Snapshot, need: Need) -> Decision:
        """Return the policy's decision within the limits and the power cap.

        The cluster itself checks neither.
        """
        limits = self.get_round_limits(limits, snapshot)
        if limits is None and snapshot.cluster.power is None:  # fast path for most rounds
            self.snapshot = snapshot
            return self.policy.decide(snapshot, need)
        found = decide_respecting_limits(snapshot, limits, lambda snapshot: self.policy.decide(snapshot, need))
        self.snapshot = found.snapshot
        if snapshot.cluster.power is not None and (broken := verify(found.decision, found.snapshot)):
            raise PolicyError("dispatcher", self.policy.dispatcher, f"at {snapshot.now_s} s: {broken[0]}")
        return found.decision

    def charge_decision_time(self, charge_ms: float) -> None:
        """Advance the simulated clock by the duration of a decision."""
        self.state.advance_without_round(self.state.now_s + math.ceil(charge_ms / 1000))

    def build_schedule(self, cpu_s: float) -> Schedule:
        """Return the schedule so far."""
        state, table, n = self.state, self.state.table, self.total
        start_s, end_s = table.start_s[:n], state.state.end_at[:n]
        started = start_s != NEVER
        overran = int((started & (end_s - start_s > table.estimate_s[:n])).sum())
        paths = dict(self.paths)
        if state.state.skipped:
            paths[NOTHING_FITS_PATH] = state.state.skipped
        return Schedule(
            start_s=read_only_view(start_s),
            end_s=np.where(started, end_s, NEVER),
            place_at=read_only_view(table.place_at[:n]),
            place_count=read_only_view(table.place_count[:n]),
            place_node=read_only_view(table.place_node),
            place_units=read_only_view(table.place_units),
            rounds=state.state.rounds,
            paths=paths,
            dispatch_s=np.array(self.dispatch_ns, dtype=np.float64) / 1e9,
            cpu_s=cpu_s,
            processors=self.count_processors_by_job(),
            refused={**self.refused, **self.find_jobs_blocked_by_limits(started)},
            violations=tuple(self.violations),
            overran=overran,
            preemptions=tuple(self.preemptions),
        )

    def find_jobs_blocked_by_limits(self, started: npt.NDArray[np.bool_]) -> dict[int, str]:
        """Return the jobs that a site limit permanently blocks, each with the limit."""
        if self.site is None:
            return {}
        whys = ((slot, self.site.blocking_limit(slot)) for slot in np.flatnonzero(~started).tolist())
        return {slot: why for slot, why in whys if why is not None}

    def count_processors_by_job(self) -> IntArray:
        """Return each job's amount of the first resource.

        A job that used whole nodes counts with their full capacity.
        """
        table, n = self.state.table, self.total
        held: IntArray = table.units[:n] * table.per_unit[:n, 0]
        whole = np.flatnonzero((table.sharing[:n] & EXCLUSIVE != 0) & (table.start_s[:n] != NEVER))
        if not len(whole):
            return held
        # Prefix sums over the placement pool: the difference of two sums is the sum over the entries between them.
        pool = self.state.cluster.capacity[table.place_node, 0]
        upto = np.concatenate(([0], np.cumsum(pool)))
        at = table.place_at[whole]
        held[whole] = upto[at + table.place_count[whole]] - upto[at]
        return held


def check_all_started(trace: Sequence[TraceJob], start_s: IntArray, refused: Mapping[int, str], policy: Policy) -> None:
    """Raise `PolicyError` if a job that is not in `refused` never started."""
    left = [index for index in np.flatnonzero(start_s == NEVER).tolist() if index not in refused]
    if left:
        ids = ", ".join(str(trace[index].job.id) for index in left[:3]) + (", ..." if len(left) > 3 else "")
        jobs = f"{len(left):,} of {format_count(len(trace), 'job')} never started ({ids})"
        reason = "the dispatcher started no jobs even though none were running"
        raise PolicyError("dispatcher", policy.dispatcher, f"{jobs}: {reason}")
