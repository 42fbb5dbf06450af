"""Replay a window, including jobs that run at its beginning or are cancelled.

A half-closed replay models users who wait for their jobs. Suppose a job was submitted within `MAX_THINK_TIME_S` of the
end of the user's previous job. In the replay, it arrives with the same delay after the previous job's replayed end. The
first job of a session arrives at its real time. The method is from Zakay and Feitelson, "Preserving user behavior
characteristics in trace-based simulation of parallel job scheduling", MASCOTS 2014.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from cpsched.errors import PolicyError
from cpsched.feasibility import choose_nodes, units_fitting_by_node
from cpsched.model import NEVER, EndedJob, IntArray, Snapshot, Starts
from cpsched.model.job_table import read_only_view
from cpsched.policy import Policy
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched_sim.cluster import event_kernels, replay_clock
from cpsched_sim.cluster.event_kernels import ASK_ALWAYS, FAULTY, MAY_START, NOTHING_LEFT, PAUSE_ALWAYS
from cpsched_sim.cluster.preemption import Preemption, SimulatedPreemption, summarize_preemptions
from cpsched_sim.cluster.replay import Progress, Schedule, TraceReplay
from cpsched_sim.experiments.bootstrap_statistics import FloatArray
from cpsched_sim.systems.system_file import System
from cpsched_sim.whatif.decision_timing import DecisionTiming, StartLagSequence
from cpsched_sim.whatif.licence_limits import LicenceUsage, add_licences_to_tres
from cpsched_sim.whatif.unused_capacity_causes import PlacedSchedule, compute_stranded_capacity
from cpsched_sim.whatif.whatif_window import OUTAGE, WhatIfWindow

MAX_THINK_TIME_S = 1200
"""Longest pause within a session in seconds: 20 minutes. The distribution of think times in eleven traces has a
break there (Zilber, Amit, Talby, "What is worth learning from parallel workloads?", ICS 2005).
"""

EVENT_TIMING = DecisionTiming()
"""Default timing: a round in each second with an event. Starts take effect immediately."""

_EVENT_END, _EVENT_OUTAGE, _EVENT_ARRIVAL = range(3)


@dataclass(frozen=True, slots=True, eq=False)
class WindowReplayResult:
    """The replayed times of a window, int64[J] in the order of its jobs.

    A half-closed replay changes `arrival_s`. Jobs hold their nodes from the round that starts them; `start_s` is later
    by the lag. `late_fixed` is the number of jobs that started later than their fixed start. `stranded` is the capacity
    that was unused while jobs waited (see `cpsched_sim.whatif.unused_capacity_causes`).
    """

    arrival_s: IntArray
    start_s: IntArray
    end_s: IntArray
    processors: IntArray
    rounds: int
    cpu_s: float
    late_fixed: int
    stranded: FloatArray
    preemption: Mapping[str, float] = field(default_factory=dict)
    """The values of `summarize_preemptions`, or empty if the site does not preempt jobs."""


def session_followers(window: WhatIfWindow) -> dict[int, list[tuple[int, int]]]:
    """Return the jobs that depend on each job's end, by index.

    Each dependent job is (index, delay in seconds after the end).
    """
    ended: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, item in enumerate(window.jobs):
        real_s = int(window.real_start_s[at])
        if item.job.user and real_s != NEVER:
            begun_s = max(real_s, window.from_s) if window.fixed_s[at] != NEVER else real_s
            ended[item.job.user].append((begun_s + item.run_s, at))
    for ends in ended.values():
        ends.sort()
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for at, item in enumerate(window.jobs):
        if window.fixed_s[at] != NEVER or item.job.submit_s <= window.from_s:
            continue
        ends = ended.get(item.job.user, [])
        last = bisect_right(ends, (item.job.submit_s, NEVER)) - 1
        if (
            last >= 0
            and 0 <= (think_s := item.job.submit_s - ends[last][0]) <= MAX_THINK_TIME_S
            and ends[last][1] != at
        ):
            found[ends[last][1]].append((at, think_s))
    return dict(found)


def replay_window(
    window: WhatIfWindow,
    policy: Policy,
    half_closed: bool = False,
    progress: Progress | None = None,
    pace: DecisionTiming = EVENT_TIMING,
) -> WindowReplayResult:
    """Replay a window with the given decision timing. Raise `PolicyError`.

    The window's site policy applies, if it has one.
    """
    run = _WindowReplay(window, policy, session_followers(window) if half_closed else {}, progress, pace)
    schedule = run.run()
    arrival_s = run.state.table.submit_s[: run.total].copy()
    start_s = np.where(schedule.start_s != NEVER, schedule.start_s + run.lag_s, NEVER)
    return WindowReplayResult(
        arrival_s, start_s, schedule.end_s, schedule.processors, schedule.rounds, schedule.cpu_s,
        int(run.late_fixed), _compute_stranded(window, run, arrival_s, schedule),
        {} if run.preemption is None else summarize_preemptions(schedule.preemptions, arrival_s, schedule.start_s),
    )  # fmt: skip


def _compute_stranded(window: WhatIfWindow, run: _WindowReplay, arrival_s: IntArray, schedule: Schedule) -> FloatArray:
    """Return the capacity that a schedule left unused while jobs waited."""
    waited_s = np.where(run.leaves_s != NEVER, run.leaves_s, arrival_s)
    ran = PlacedSchedule(
        arrival_s, np.where(schedule.start_s != NEVER, schedule.start_s, waited_s), schedule.start_s, schedule.end_s,
        schedule.place_at, schedule.place_count, schedule.place_node, schedule.place_units,
    )  # fmt: skip
    requests = [item.job.request for item in window.jobs]
    return compute_stranded_capacity(
        run.state.cluster, requests, window.role == OUTAGE, ran, window.from_s, window.to_s
    )


class _WindowReplay(TraceReplay):
    """A replay with initially running jobs and a calendar of fixed events.

    Before each decision, jobs with a fixed start are placed in order of arrival, if they fit. The others are tried
    again before the next decision. A job holds its nodes for `lag_s` longer than its run time, because its run begins
    later by this lag.
    """

    def __init__(
        self, window: WhatIfWindow, policy: Policy, after: Mapping[int, list[tuple[int, int]]], progress: Progress | None,  # noqa: E501
        pace: DecisionTiming,
    ) -> None:  # fmt: skip
        cluster = System(window.system, window.header).cluster
        super().__init__(window.jobs, cluster, policy, None, progress, window.site, strict=True)
        self.licences = LicenceUsage.of(window.licences, self.total)
        if self.site is not None:
            for at, licences in window.licences.asked.items():
                self.site.claims[at] = add_licences_to_tres(self.site.claims[at], licences)
        if window.site is not None and window.site.preemption is not None:
            self.preemption = SimulatedPreemption(window.site, self.state, window.role == OUTAGE)
        self.window, self.after = window, after
        self.interval_s = pace.interval_s
        self.lags, self.lag_s = StartLagSequence(pace.lag_s), np.zeros(self.total, np.int64)
        self._kept_s = Counter[int]()
        self.calendar: list[tuple[int, int, int]] = []
        self.to_begin: list[int] = []
        self.late_fixed = 0
        self.leaves_s = window.leaves_s.copy()
        following = {at for jobs in after.values() for at, _ in jobs}
        never_runs = {at for at in after if at in self.refused}
        following -= {at for first in never_runs for at, _ in after[first]}
        apart = np.zeros(self.total, np.bool_)
        apart[list(following)] = True
        apart |= window.fixed_s != NEVER
        self.arrivals = self.arrivals[~apart[self.arrivals]]
        self.state.state.set_fields(arrivals=self.arrivals)
        for at in np.flatnonzero(window.fixed_s != NEVER).tolist():
            if at not in self.refused:
                self.calendar.append((int(window.fixed_s[at]), _EVENT_OUTAGE, at))
        for at in np.flatnonzero(self.leaves_s != NEVER).tolist():
            if at not in self.refused and at not in following:
                self.calendar.append((max(int(self.leaves_s[at]), window.from_s + 1), _EVENT_END, at))
        heapq.heapify(self.calendar)

    def run(self) -> Schedule:
        """Run every round from the window's first second until no events remain."""
        began, state = replay_clock.cpu_s_without_compilation(), self.state
        pause = PAUSE_ALWAYS if self.predictor_learns or self.after else event_kernels.PAUSE_WHERE_NEEDED
        pause = ASK_ALWAYS if self.decides_every_round else pause
        state.advance_without_round(self.window.from_s)
        self._apply_calendar_events(self.window.from_s)
        state.state.due = 1
        starts: Starts | None = None
        decided = 0
        while found := (self._start_and_advance(starts, pause) or self.skip_until_limit_usage_decays()):
            starts = None
            if found == FAULTY:
                self.record_rejection(self.decision, self.snapshot)
                continue
            self.learn()
            if self.to_begin:
                self._start_fixed_jobs()
            if found == MAY_START and state.queue_length:
                starts = self.decide()
                decided += 1
                if decided % 500 == 0:
                    self.report_progress()
        return self.build_schedule(replay_clock.cpu_s_without_compilation() - began)

    def _start_and_advance(self, starts: Starts | None, pause: int) -> int:
        """Start jobs, then advance to the next round, and apply earlier calendar events."""
        state = self.state
        if starts is not None and len(starts):
            state.state.fault = state.try_start_jobs(starts)
            if state.state.fault >= 0:
                return FAULTY
        return self._advance_to_decision(pause) if self.interval_s > 1 else self._advance_to_event(pause)

    def _advance_to_event(self, pause: int) -> int:
        """Advance to the next second with an event. Every such second has a round."""
        state = self.state
        while True:
            if self.to_begin and pause == event_kernels.PAUSE_WHERE_NEEDED:
                pause = PAUSE_ALWAYS
            limit_s = self.calendar[0][0] if self.calendar else NEVER - 1
            found = event_kernels.advance_to_next_round_from_python(state.state, pause, limit_s - 1)
            if found != NOTHING_LEFT or not self.calendar:
                return found
            state.advance_without_round(limit_s)
            self._apply_calendar_events(limit_s)

    def _advance_to_decision(self, pause: int) -> int:
        """Advance to the next round, which is at a multiple of the interval.

        The round covers all events since the last round.
        """
        state = self.state
        while (happens_s := self._next_event_s()) < NEVER:
            look_s = -(-happens_s // self.interval_s) * self.interval_s
            while self.calendar and (at_s := self.calendar[0][0]) <= look_s:
                state.advance_without_round(at_s)
                self._apply_calendar_events(at_s)
            state.advance_without_round(look_s)
            state.state.due = 1
            if state.state.again_s <= look_s:
                state.state.again_s = NEVER
            if self.to_begin and pause == event_kernels.PAUSE_WHERE_NEEDED:
                pause = PAUSE_ALWAYS
            found = event_kernels.advance_to_next_round_from_python(state.state, pause, look_s)
            if found != NOTHING_LEFT:
                return found
        return NOTHING_LEFT

    def _next_event_s(self) -> int:
        """Return the time of the next event, which may be now, or NEVER."""
        state = self.state
        if state.state.due:
            return state.now_s
        arrived, end_s = state.state.arrived, state.next_end_s()
        return min(
            int(state.table.submit_s[self.arrivals[arrived]]) if arrived < len(self.arrivals) else NEVER,
            NEVER if end_s is None else end_s,
            state.state.again_s,
            self.calendar[0][0] if self.calendar else NEVER,
        )

    def _apply_calendar_events(self, now_s: int) -> None:
        """Apply the calendar events that are due. Any event causes a round."""
        state, table = self.state, self.state.table
        if state.state.again_s <= now_s:
            state.state.due = 1
        while self.calendar and self.calendar[0][0] <= now_s:
            _, kind, at = heapq.heappop(self.calendar)
            if kind == _EVENT_OUTAGE:
                self.to_begin.append(at)
            elif kind == _EVENT_END:
                if state.state.phase[at] == event_kernels.WAITING:
                    event_kernels.cancel_queued_job(state.state, at)
            else:
                stall_limit_s = int(self.leaves_s[at]) - self.window.jobs[at].job.submit_s
                table.submit_s[at] = now_s
                if self.leaves_s[at] != NEVER:
                    self.leaves_s[at] = now_s + stall_limit_s
                    heapq.heappush(self.calendar, (now_s + stall_limit_s, _EVENT_END, at))
                state.site.queue[state.site.queued] = at
                state.state.phase[at] = event_kernels.WAITING
                state.site.queued += 1
                if self.predictor_learns:
                    self.predict(np.array([at], np.int64))
            state.state.due = 1

    def _start_fixed_jobs(self) -> None:
        """Start the jobs whose fixed start has come and that fit now."""
        state, left = self.state, list[int]()
        for at in self.to_begin:
            request, now_s = self.window.jobs[at].job.request, state.now_s
            room = units_fitting_by_node(request, state.cluster, state.state.free)
            if room.sum() < request.units or not self._has_enough_free_licences(at):
                left.append(at)
                continue
            end_s = int(self.window.fixed_s[at]) + self.window.jobs[at].run_s
            self.late_fixed += now_s > self.window.fixed_s[at]
            state.state.run_s[at] = max(1, end_s - now_s)
            state.state.phase[at] = event_kernels.WAITING
            state.apply(Starts.of({at: choose_nodes(room, request.units, state.cluster)}))
            if self.site is not None and self.window.role[at] != OUTAGE:
                self.site.on_started([at])
        self.to_begin = left

    def _schedule_followers(self, at: int) -> None:
        """Add the arrivals of the jobs that depend on an ended job to the calendar."""
        for later, think_s in self.after.get(at, ()):
            due_s = max(int(self.state.state.end_at[at]) + think_s, self.state.now_s + 1)
            heapq.heappush(self.calendar, (due_s, _EVENT_ARRIVAL, later))

    def _has_enough_free_licences(self, at: int) -> bool:
        site = self.state.site
        return self.licences is None or self.licences.has_free_licences(at, read_only_view(site.running)[: site.active])

    @override
    def get_round_limits(
        self, limits: PendingJobLimitsAndUsage | None, snapshot: Snapshot
    ) -> PendingJobLimitsAndUsage | None:
        """Return the limits, with licenses added."""
        return self.licences.add_licence_limits(limits, snapshot) if self.licences is not None else limits

    @override
    def decide(self) -> Starts:
        """Run one round, and delay each of its starts by a lag."""
        starts = super().decide()
        for at in starts.slots.tolist():
            self._set_holding_time(at, self.lags.next_delay_s())
        return starts

    def _set_holding_time(self, at: int, lag_s: int) -> None:
        """Set how long a job that starts now holds its nodes.

        A job that was really cancelled while waiting ends at its cancellation, or earlier at its time limit.
        """
        run_s = self.state.state.run_s
        if self.leaves_s[at] != NEVER:
            limit_s = self.window.jobs[at].job.walltime_s
            run_s[at] = max(1, min(limit_s, int(self.leaves_s[at]) - self.state.now_s - lag_s))
        run_s[at] += lag_s
        self.lag_s[at] = lag_s

    @override
    def preempt(self, preemption: Preemption) -> None:
        """Carry out a preemption.

        A requeued job runs as long as it really did, less the time kept by checkpoints.
        """
        self._set_holding_time(preemption.slot, 0)
        super().preempt(preemption)
        for run in preemption.victims:
            if run.requeued:
                self._kept_s[run.slot] += run.kept_s
                self.state.state.run_s[run.slot] = max(1, self.window.jobs[run.slot].run_s - self._kept_s[run.slot])
                self.lag_s[run.slot] = 0
            else:
                self._schedule_followers(run.slot)

    def ended_job(self, at: int) -> EndedJob:
        """Return the ended job in a slot with its actual start."""
        ended = self.state.ended_job(at)
        return EndedJob(ended.job, ended.start_s + int(self.lag_s[at]), ended.end_s) if self.lag_s[at] else ended

    def learn(self) -> None:
        """Report ended jobs to the predictor, and release the jobs that depend on them."""
        state, policy = self.state, self.policy
        if state.state.ended_count:
            slots = state.take_ended_slots()
            if self.site is not None:
                self.site.on_ended(slots)
            for at in slots:
                if self.predictor_learns or self.dispatcher_learns:
                    try:
                        policy.learn(self.ended_job(at))
                    except PolicyError as fault:
                        self.record_fault(fault)
                self._schedule_followers(at)
        arrived = state.state.arrived
        if self.predictor_learns and arrived > self.predicted:
            self.predict(self.arrivals[self.predicted : arrived])
            self.predicted = arrived
