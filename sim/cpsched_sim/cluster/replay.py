"""Replay a trace in whole seconds, with at most one scheduling round per second.

Every decision is verified.

Within one second, all submissions are processed in trace order, then all ends, then one round. A job that ends at t
frees its resources before the round at t. A job started at t occupies [t, t + run).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from cpsched.dispatchers.list_dispatchers import ListSchedulerDispatcher
from cpsched.errors import PolicyError
from cpsched.feasibility import verify
from cpsched.formatting import abbreviated_repr, format_count
from cpsched.model import (
    EXCLUSIVE,
    NEVER,
    NO_STARTS,
    Cluster,
    Decision,
    Effort,
    EndedJob,
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
from cpsched_sim.cluster.replay_calendar import CalendarEvents, CalendarOutcome, ReplayCalendar
from cpsched_sim.cluster.simulated_accounting import (
    NO_LICENSES,
    LicenseRequestsAndTotals,
    LicenseUsage,
    SimulatedAccounting,
)
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from cpsched_sim.site.policy_file import SitePolicyFile
from cpsched_sim.traces.trace_jobs import TraceJob

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
    calendar: CalendarOutcome | None = None
    """The effects of the calendar, if the replay had one."""

    __repr__ = abbreviated_repr

    def placement_of(self, index: int) -> Placement:
        """Return the placement of the job at a trace index, or () if the job did not run."""
        part = slice(int(self.place_at[index]), int(self.place_at[index] + self.place_count[index]))
        return tuple(zip(self.place_node[part].tolist(), self.place_units[part].tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options of a replay.

    With a `charge`, a decision on the state at t takes effect at t + charge, rounded up to a whole second: a decision
    of 3 ms at t starts its jobs at t + 1. In the meantime, jobs may arrive and end, so resources can only become free.
    The next round sees these changes. Without a charge, the decision takes effect at t.

    With a `site`, jobs have the site's priorities, and no round starts more jobs than the site's limits allow. The
    accounts of the site must include the trace's users (`SitePolicyFile.with_users_of`).

    If the dispatcher or predictor fails or breaks a rule, a `strict` replay raises `PolicyError`. Otherwise, the round
    starts no job, and the fault is recorded.
    """

    charge: SchedulingOverhead = None
    progress: Progress | None = None
    site: SitePolicyFile | None = None
    strict: bool = False
    calendar: ReplayCalendar | None = None
    licenses: LicenseRequestsAndTotals = NO_LICENSES


def replay(
    trace: Sequence[TraceJob], cluster: Cluster, policy: Policy, options: ReplayOptions | None = None
) -> Schedule:
    """Run `trace` through `policy` on `cluster` and return the schedule.

    A long trace runs in a compiled loop if possible (`TraceReplay.is_compilable`), with the same starts.
    """
    replayed = TraceReplay(trace, cluster, policy, options)
    if len(trace) >= COMPILED_FROM_JOBS and replayed.is_compilable:
        return replayed.run_compiled()
    return replayed.run()


class TraceReplay:
    """A running replay: the policy, the cluster, and the results so far."""

    def __init__(
        self, trace: Sequence[TraceJob], cluster: Cluster, policy: Policy, options: ReplayOptions | None = None
    ) -> None:
        self._options = options = options or ReplayOptions()
        self._simulated = SimulatedCluster(cluster, policy.overrun)
        self._policy, self._total = policy, len(trace)
        arrivals, self._refused = self._simulated.load(trace)
        self._paths: dict[str, int] = {}
        self._dispatch_ns: list[int] = []
        self._violations: list[str] = []
        self._predicted = 0
        self._again_s: int | None = None
        self._cpu_s = 0.0
        self._decision, self._snapshot = EVERY_JOB_STARTED, self._simulated.snapshot()

        site, calendar = options.site, options.calendar
        self._licenses = LicenseUsage.of(options.licenses, self._total)
        self._accounting: SimulatedAccounting | None = None
        self._preemption: SimulatedPreemption | None = None
        self._preemptions: list[Preemption] = []
        if site is not None:
            self._accounting = SimulatedAccounting(site, self._simulated, options.licenses.asked)
        if site is not None and site.policy.preemption is not None:
            exempt = calendar.is_outage if calendar is not None else None
            self._preemption = SimulatedPreemption(site, self._simulated, exempt)

        self._predictor_learns = self._query_whether_part_learns(lambda: policy.predictor_learns)
        self._dispatcher_learns = self._query_whether_part_learns(lambda: policy.dispatcher_learns)
        if not self._predictor_learns:
            self._predict(arrivals)
        self._events: CalendarEvents | None = None
        if calendar is not None:
            predict = self._predict if self._predictor_learns else None
            self._events = CalendarEvents(calendar, self._simulated, trace, self._refused, predict)

    def build_jobs(self) -> None:
        """Build all job objects now. Otherwise, each access to one builds it again."""
        self._simulated.replace_jobs(list(self._simulated.jobs))

    def run(self) -> Schedule:
        """Run every round until no events remain."""
        began = replay_clock.cpu_s_without_compilation()
        for _ in self.rounds():
            pass
        self._cpu_s = replay_clock.cpu_s_without_compilation() - began
        return self.schedule

    def rounds(
        self,
        needs_plan: Callable[[Snapshot], bool] | None = None,
        on_ended: Callable[[EndedJob], None] | None = None,
    ) -> Iterator[tuple[Snapshot, Decision]]:
        """Run every round until no events remain. Yield each decision with its snapshot.

        The starts of a decision are applied when the next one is requested. `needs_plan` returns whether a round must
        have a plan. Such a round has a decision even if no job can start. `on_ended` is called with each ended job,
        before the policy learns from it.
        """
        pause, advance = self._pause_rule(), self._simulated.start_and_advance
        if self._events is not None:
            advance = self._events.start_and_advance
            self._events.begin()
        if needs_plan is not None and pause == PAUSE_WHERE_NEEDED:
            pause = PAUSE_ALWAYS

        starts = NO_STARTS
        need: Need = "starts"
        while found := advance(starts, pause) or self._skip_until_limit_usage_decays():
            starts = NO_STARTS
            if found == FAULTY:
                self._record_rejection()
                continue
            self._learn(on_ended)
            if self._events is not None:
                self._events.start_fixed_jobs(self._accounting, self._licenses)
            if needs_plan is not None:
                has_plan = self._simulated.queue_length > 0 and needs_plan(self._simulated.snapshot())
                need = "plan" if has_plan else "starts"
            if found == MAY_START or need == "plan":
                starts = self._decide(need)
                decided = len(self._dispatch_ns)
                if decided % PROGRESS_INTERVAL_ROUNDS == 0 or self._dispatch_ns[-1] > SLOW_ROUND_NS:
                    self._report_progress()
                yield self._snapshot, self._decision

    def _pause_rule(self) -> int:
        """Return which rounds stop the clock."""
        if self._decides_every_round:
            return ASK_ALWAYS
        calendar = self._options.calendar
        has_followers = calendar is not None and bool(calendar.followers)
        return PAUSE_ALWAYS if self._predictor_learns or has_followers else PAUSE_WHERE_NEEDED

    @property
    def _decides_every_round(self) -> bool:
        """Return whether the policy must decide even if no job fits.

        This is so if its dispatcher requests it, or if a job may start by preemption or on parts of GPUs.
        """
        asks = bool(getattr(self._policy.dispatcher, "every_round", False))
        return asks or self._preemption is not None or self._simulated.shares_gpus

    @property
    def is_compilable(self) -> bool:
        """Return whether the compiled loop applies.

        It requires a list scheduler, and no learning, charge, site, calendar, licenses or power cap.
        """
        dispatcher, options = self._policy.dispatcher, self._options
        return (
            isinstance(dispatcher, ListSchedulerDispatcher)
            and type(dispatcher).decide is ListSchedulerDispatcher.decide
            and dispatcher.scheme.has_kernel_order
            and not (self._predictor_learns or self._dispatcher_learns or dispatcher.every_round)
            and options == ReplayOptions(progress=options.progress, strict=options.strict)
            and self._simulated.cluster.power is None
            and not self._simulated.shares_gpus
        )

    def run_compiled(self) -> Schedule:
        """Run every round in the compiled loop, and return the schedule.

        See `cpsched_sim.cluster.compiled_replay_loop`.
        """
        began = replay_clock.cpu_s_without_compilation()
        dispatcher = cast(ListSchedulerDispatcher, self._policy.dispatcher)
        run_all_rounds_compiled(
            self._simulated, dispatcher.scheme, self._paths, self._violations, self._report_progress
        )
        if self._options.strict and self._violations:
            raise PolicyError("dispatcher", dispatcher, self._violations[0])
        self._cpu_s = replay_clock.cpu_s_without_compilation() - began
        return self.schedule

    def _skip_until_limit_usage_decays(self) -> int:
        """Let usage decay if jobs wait for a limit and no events remain.

        Return 0 if no job waits or if waiting does not help.
        """
        if self._accounting is None or not self._simulated.queue_length:
            return 0
        seconds = self._accounting.wait_s()
        if not seconds:
            return 0
        self._simulated.advance_without_round(self._simulated.now_s + seconds)
        return MAY_START

    def _query_whether_part_learns(self, learns: Callable[[], bool]) -> bool:
        """Return whether a part of the policy learns.

        If the query fails, record a violation and return False.
        """
        try:
            return learns()
        except PolicyError as fault:
            self._record_fault(fault)
            return False

    def _record_fault(self, fault: PolicyError) -> None:
        """Record a fault, or raise it in a strict replay."""
        if self._options.strict:
            raise fault
        self._violations.append(str(fault))

    def _record_rejection(self) -> None:
        """Record why the cluster rejected the starts of the last decision.

        In a strict replay, raise `PolicyError` with the reason.
        """
        snapshot = self._snapshot
        broken = [str(violation) for violation in verify(self._decision, snapshot)] or [UNNAMED_FAULT]
        if self._options.strict:
            raise PolicyError("dispatcher", self._policy.dispatcher, f"at {snapshot.now_s} s: {broken[0]}")
        self._violations.extend(broken)

    def _report_progress(self) -> None:
        """Pass the number of ended jobs to the progress callback."""
        if self._options.progress is not None:
            self._options.progress(self._simulated.state.over, self._total)

    def _learn(self, on_ended: Callable[[EndedJob], None] | None) -> None:
        """Pass ended jobs to the policy and the calendar. Then predict the jobs that have arrived."""
        simulated, learns = self._simulated, self._predictor_learns or self._dispatcher_learns
        if simulated.state.ended_count and (learns or self._accounting or self._events or on_ended):
            slots = simulated.take_ended_slots()
            if self._accounting is not None:
                self._accounting.on_ended(slots)
            for slot in slots if learns or self._events or on_ended else ():
                if on_ended is not None:
                    on_ended(simulated.ended_job(slot))
                if learns:
                    self._learn_from(slot)
                if self._events is not None:
                    self._events.on_ended(slot)
        arrived = simulated.state.arrived
        if self._predictor_learns and arrived > self._predicted:
            self._predict(simulated.state.arrivals[self._predicted : arrived])
            self._predicted = arrived

    def _learn_from(self, slot: int) -> None:
        """Pass an ended job to the policy. Its run began after the lag of its start."""
        ended = self._simulated.ended_job(slot)
        if self._events is not None and (lag_s := self._events.lag_s(slot)):
            ended = EndedJob(ended.job, ended.start_s + lag_s, ended.end_s)
        try:
            self._policy.learn(ended)
        except PolicyError as fault:
            self._record_fault(fault)

    def _predict(self, slots: IntArray) -> None:
        """Predict the run times of jobs. Use the walltime if this fails."""
        for begin in range(0, len(slots), PREDICTION_BATCH):
            try:
                self._policy.write_estimates(self._simulated.table, slots[begin : begin + PREDICTION_BATCH])
            except PolicyError as fault:
                self._record_fault(fault)
            if begin:
                self._report_progress()

    def _decide(self, need: Need) -> Starts:
        """Run one round and return the policy's starts.

        They are verified and applied when time advances.

        A failed round starts no jobs and counts as a violation.
        """
        began = replay_clock.wall_ns_without_compilation()
        try:
            decision = self._make_decision(need)
        except PolicyError as fault:
            self._record_fault(fault)
            decision = FAILED_DECISION
        self._record_decision(decision)
        took = replay_clock.wall_ns_without_compilation() - began
        self._dispatch_ns.append(took)
        path = decision.effort.path
        self._paths[path] = self._paths.get(path, 0) + 1
        if self._options.charge is not None:
            self._charge_decision_time(took / 1e6 if self._options.charge == "measured" else self._options.charge)
        if self._events is not None:
            self._events.on_decided(decision.starts)
        return decision.starts

    def _record_decision(self, decision: Decision) -> None:
        """Record a decision, and the next round requested by the dispatcher."""
        self._decision, again_s = decision, decision.again_s
        if self._preemption is not None:
            chance_s = self._preemption.find_next_preemption_chance_s(self._simulated.snapshot())
            again_s = min(filter(None, (again_s, chance_s)), default=None)
        if again_s != self._again_s:  # most decisions request no further round, so this skips a call in most rounds
            self._again_s = again_s
            self._simulated.state.again_s = NEVER if again_s is None else again_s

    def _make_decision(self, need: Need) -> Decision:
        """Return the policy's decision for the current time, within the site's limits."""
        limits = self._accounting.begin_round() if self._accounting is not None else None
        if self._preemption is not None and self._accounting is not None and limits is not None:
            for find in (self._preemption.finish_grace_times, self._preemption.plan):
                snapshot = self._simulated.snapshot()
                while found := find(snapshot, self._add_license_limits(limits, snapshot) or limits):
                    for preemption in found:
                        self._preempt(preemption)
                    limits, snapshot = self._accounting.begin_round(), self._simulated.snapshot()
            if not self._simulated.queue_length:
                return EVERY_JOB_STARTED
        decision = self._decide_within_limits(limits, self._simulated.snapshot(), need)
        if self._preemption is not None:
            decision = self._preemption.drop_reserved_starts(decision, self._simulated.snapshot())
        if self._accounting is not None:
            self._accounting.on_started(decision.starts.slots.tolist())
        return decision

    def _preempt(self, preemption: Preemption) -> None:
        """Stop the victims of a preemption, and start its job on their nodes.

        The job stays in the queue if a limit blocks it, or if its nodes failed during the victims' grace times.
        """
        simulated, accounting, events = self._simulated, self._accounting, self._events
        if events is not None:
            events.on_preempting(preemption)
        for run in preemption.victims:
            simulated.preempt(simulated.jobs[run.slot].id, run.requeued)
            simulated.take_ended_slots()  # the policy does not learn run times from victims
            simulated.state.run_s[run.slot] -= run.kept_s
            if accounting is not None:
                accounting.on_ended([run.slot])
        starts = Starts.of({preemption.slot: preemption.placement} if preemption.placement else {})
        if simulated.try_start_jobs(starts) < 0 and accounting is not None:
            accounting.on_started(starts.slots.tolist())
        if preemption.victims:
            self._preemptions.append(preemption)
        if events is not None:
            events.on_preempted(preemption)

    def _add_license_limits(
        self, limits: PendingJobLimitsAndUsage | None, snapshot: Snapshot
    ) -> PendingJobLimitsAndUsage | None:
        """Return the site's limits, plus those of licenses."""
        return limits if self._licenses is None else self._licenses.add_license_limits(limits, snapshot)

    def _decide_within_limits(
        self, limits: PendingJobLimitsAndUsage | None, snapshot: Snapshot, need: Need
    ) -> Decision:
        """Return the policy's decision within the limits and the power cap.

        The cluster itself checks neither.
        """
        limits = self._add_license_limits(limits, snapshot)
        if limits is None and snapshot.cluster.power is None:  # fast path for most rounds
            self._snapshot = snapshot
            return self._policy.decide(snapshot, need)
        found = decide_respecting_limits(snapshot, limits, lambda snapshot: self._policy.decide(snapshot, need))
        self._snapshot = found.snapshot
        if snapshot.cluster.power is not None and (broken := verify(found.decision, found.snapshot)):
            raise PolicyError("dispatcher", self._policy.dispatcher, f"at {snapshot.now_s} s: {broken[0]}")
        return found.decision

    def _charge_decision_time(self, charge_ms: float) -> None:
        """Advance the simulated clock by the duration of a decision."""
        self._simulated.advance_without_round(self._simulated.now_s + math.ceil(charge_ms / 1000))

    @property
    def schedule(self) -> Schedule:
        """Return the schedule so far."""
        state, table, n = self._simulated.state, self._simulated.table, self._total
        start_s, end_s = table.start_s[:n], state.end_at[:n]
        started = start_s != NEVER
        overran = int((started & (end_s - start_s > table.estimate_s[:n])).sum())
        paths = dict(self._paths)
        if state.skipped:
            paths[NOTHING_FITS_PATH] = state.skipped
        return Schedule(
            start_s=read_only_view(start_s),
            end_s=np.where(started, end_s, NEVER),
            place_at=read_only_view(table.place_at[:n]),
            place_count=read_only_view(table.place_count[:n]),
            place_node=read_only_view(table.place_node),
            place_units=read_only_view(table.place_units),
            rounds=state.rounds,
            paths=paths,
            dispatch_s=np.array(self._dispatch_ns, dtype=np.float64) / 1e9,
            cpu_s=self._cpu_s,
            processors=self._count_processors_by_job(),
            refused={**self._refused, **self._find_jobs_blocked_by_limits(started)},
            violations=tuple(self._violations),
            overran=overran,
            preemptions=tuple(self._preemptions),
            calendar=self._events.outcome if self._events is not None else None,
        )

    def _find_jobs_blocked_by_limits(self, started: npt.NDArray[np.bool_]) -> dict[int, str]:
        """Return the jobs that a site limit permanently blocks, each with the limit."""
        if self._accounting is None:
            return {}
        whys = ((slot, self._accounting.blocking_limit(slot)) for slot in np.flatnonzero(~started).tolist())
        return {slot: why for slot, why in whys if why is not None}

    def _count_processors_by_job(self) -> IntArray:
        """Return each job's amount of the first resource.

        A job that used whole nodes counts with their full capacity.
        """
        table, n = self._simulated.table, self._total
        held: IntArray = table.units[:n] * table.per_unit[:n, 0]
        whole = np.flatnonzero((table.sharing[:n] & EXCLUSIVE != 0) & (table.start_s[:n] != NEVER))
        if not len(whole):
            return held
        # Prefix sums over the placement pool: the difference of two sums is the sum over the entries between them.
        pool = self._simulated.cluster.capacity[table.place_node, 0]
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
