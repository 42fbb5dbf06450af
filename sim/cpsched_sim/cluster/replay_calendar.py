"""The calendar of a replay: fixed starts, departures, and arrivals that follow another job's end."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from cpsched.feasibility import choose_nodes, units_fitting_by_node
from cpsched.model import NEVER, IntArray, Starts
from cpsched.model.cluster import BoolArray
from cpsched.model.job_table import read_only_view
from cpsched_sim.cluster import event_kernels
from cpsched_sim.cluster.event_kernels import FAULTY, NOTHING_LEFT, PAUSE_ALWAYS, PAUSE_WHERE_NEEDED
from cpsched_sim.cluster.preemption import Preemption
from cpsched_sim.cluster.simulated_accounting import LicenseUsage, SimulatedAccounting
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from cpsched_sim.traces.trace_jobs import TraceJob

_GOLDEN_RATIO = 0.6180339887498949
"""The fractional parts of the first n multiples of this number are evenly spread for every n."""

_DEPARTURE, _FIXED_START, _ARRIVAL = range(3)
"""The kinds of events. Events of one second occur in this order."""

Followers = Mapping[int, Sequence[tuple[int, int]]]
"""The jobs that arrive after a job's end, by index. Each follower is (index, delay in seconds after the end)."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplayCalendar:
    """The events of a replay that the trace's submissions and run times do not cause.

    Arrays over jobs are in trace order, with `NEVER` for jobs without the event. A job with a fixed start starts then,
    before all others, or as soon as it fits. A job that leaves is removed from the queue at `leaves_s`; if it has
    started by then, it ends at that time. Decisions are at multiples of `interval_s`; 0 means in each second with an
    event. A job holds its nodes for a lag of `lag_s` seconds on average before its run begins.
    """

    from_s: int
    fixed_s: IntArray
    leaves_s: IntArray
    is_outage: BoolArray
    """Whether a job stands for nodes that are out of service. It uses no share, and no job preempts it."""
    followers: Followers = field(default_factory=dict)
    interval_s: int = 0
    lag_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class CalendarOutcome:
    """The effects of a calendar on the jobs of a schedule, int64[J] in trace order."""

    arrival_s: IntArray
    leaves_s: IntArray
    """The times at which jobs leave the queue. That of a follower has moved with its arrival."""
    lag_s: IntArray
    """Seconds from a job's start to the beginning of its run."""
    late_fixed: int
    """Number of jobs that started later than their fixed start."""


@dataclass(slots=True)
class StartLagSequence:
    """The delays of successive starts in whole seconds, with mean `lag_s`.

    The sequence is the same in every replay.
    """

    lag_s: float
    _turn: count[int] = field(default_factory=lambda: count(1))

    def next_delay_s(self) -> int:
        """Return the delay of the next start."""
        return int(self.lag_s + next(self._turn) * _GOLDEN_RATIO % 1.0)


class CalendarEvents:
    """The pending events of a replay's calendar, and their effects on its cluster."""

    def __init__(
        self,
        calendar: ReplayCalendar,
        simulated: SimulatedCluster,
        trace: Sequence[TraceJob],
        refused: Mapping[int, str],
        predict: Callable[[IntArray], None] | None,
    ) -> None:
        self._calendar, self._simulated, self._trace, self._predict = calendar, simulated, trace, predict
        self._events: list[tuple[int, int, int]] = []
        self._due_starts: list[int] = []
        self._late_fixed = 0
        self._leaves_s = calendar.leaves_s.copy()
        self._lags, self._lag_s = StartLagSequence(calendar.lag_s), np.zeros(len(trace), np.int64)
        self._kept_s = Counter[int]()
        """Seconds of work that a requeued job has already done, by slot."""

        followers = {at for first, jobs in calendar.followers.items() if first not in refused for at, _ in jobs}
        is_separate = calendar.fixed_s != NEVER
        is_separate[list(followers)] = True
        arrivals = simulated.state.arrivals
        simulated.state.set_fields(arrivals=arrivals[~is_separate[arrivals]])

        for at in np.flatnonzero(calendar.fixed_s != NEVER).tolist():
            if at not in refused:
                self._events.append((int(calendar.fixed_s[at]), _FIXED_START, at))
        for at in np.flatnonzero(self._leaves_s != NEVER).tolist():
            if at not in refused and at not in followers:
                self._events.append((max(int(self._leaves_s[at]), calendar.from_s + 1), _DEPARTURE, at))
        heapq.heapify(self._events)

    @property
    def outcome(self) -> CalendarOutcome:
        """Return the effects so far."""
        arrival_s = self._simulated.table.submit_s[: len(self._trace)].copy()
        return CalendarOutcome(arrival_s, self._leaves_s, self._lag_s, self._late_fixed)

    # ------------------------------------------------------------------------------------------ time

    def begin(self) -> None:
        """Advance to the beginning of the calendar, where a round is due."""
        self._simulated.advance_without_round(self._calendar.from_s)
        self._apply_due_events(self._calendar.from_s)
        self._simulated.state.due = 1

    def start_and_advance(self, starts: Starts, pause: int) -> int:
        """Start jobs now, then advance to the next round (see `SimulatedCluster.start_and_advance`)."""
        state = self._simulated.state
        state.fault = self._simulated.try_start_jobs(starts)
        if state.fault >= 0:
            return FAULTY
        return self._advance_to_decision(pause) if self._calendar.interval_s > 1 else self._advance_to_event(pause)

    def _advance_to_event(self, pause: int) -> int:
        """Advance to the next second with an event. Every such second has a round."""
        while True:
            limit_s = self._events[0][0] if self._events else NEVER - 1
            found = self._advance(pause, limit_s - 1)
            if found != NOTHING_LEFT or not self._events:
                return found
            self._simulated.advance_without_round(limit_s)
            self._apply_due_events(limit_s)

    def _advance_to_decision(self, pause: int) -> int:
        """Advance to the next round, which is at a multiple of the interval.

        The round covers all events since the last round.
        """
        simulated, interval_s = self._simulated, self._calendar.interval_s
        while (event_s := self._next_event_s()) < NEVER:
            decision_s = -(-event_s // interval_s) * interval_s
            while self._events and (at_s := self._events[0][0]) <= decision_s:
                simulated.advance_without_round(at_s)
                self._apply_due_events(at_s)
            simulated.advance_without_round(decision_s)
            simulated.state.due = 1
            if simulated.state.again_s <= decision_s:
                simulated.state.again_s = NEVER
            found = self._advance(pause, decision_s)
            if found != NOTHING_LEFT:
                return found
        return NOTHING_LEFT

    def _advance(self, pause: int, limit_s: int) -> int:
        """Advance to the next round or `limit_s`. While fixed starts are due, each round pauses."""
        if self._due_starts and pause == PAUSE_WHERE_NEEDED:
            pause = PAUSE_ALWAYS
        return self._simulated.advance_to_next_round(pause, limit_s)

    def _next_event_s(self) -> int:
        """Return the time of the next event, which may be now, or NEVER."""
        state, end_s = self._simulated.state, self._simulated.next_end_s()
        if state.due:
            return self._simulated.now_s
        times_s = [state.again_s, *(event[0] for event in self._events[:1])]
        if state.arrived < len(state.arrivals):
            times_s.append(int(self._simulated.table.submit_s[state.arrivals[state.arrived]]))
        if end_s is not None:
            times_s.append(end_s)
        return min(times_s)

    def _apply_due_events(self, now_s: int) -> None:
        """Apply the events that are due. Any event causes a round."""
        state = self._simulated.state
        if state.again_s <= now_s:
            state.due = 1
        while self._events and self._events[0][0] <= now_s:
            _, kind, at = heapq.heappop(self._events)
            if kind == _FIXED_START:
                self._due_starts.append(at)
            elif kind == _ARRIVAL:
                self._submit_follower(at, now_s)
            elif state.phase[at] == event_kernels.WAITING:
                event_kernels.cancel_queued_job(state, at)
            state.due = 1

    def _submit_follower(self, at: int, now_s: int) -> None:
        """Queue a follower now. The time until it leaves the queue stays the same."""
        if self._leaves_s[at] != NEVER:
            self._leaves_s[at] += now_s - self._trace[at].job.submit_s
            heapq.heappush(self._events, (int(self._leaves_s[at]), _DEPARTURE, at))
        self._simulated.table.submit_s[at] = now_s
        self._simulated.append_to_queue(at)
        if self._predict is not None:
            self._predict(np.array([at], np.int64))

    # ------------------------------------------------------------------------------------------ jobs

    def start_fixed_jobs(self, accounting: SimulatedAccounting | None, licenses: LicenseUsage | None) -> None:
        """Start the jobs whose fixed start has come and that fit now. The others are tried again."""
        simulated, state, waiting = self._simulated, self._simulated.state, list[int]()
        for at in self._due_starts:
            request, now_s, fixed_s = self._trace[at].job.request, simulated.now_s, int(self._calendar.fixed_s[at])
            fitting = units_fitting_by_node(request, simulated.cluster, state.free)
            placement = choose_nodes(fitting, request.units, simulated.cluster, request.node_set)
            running = read_only_view(simulated.site.running)[: simulated.running_count]
            has_licenses = licenses is None or licenses.has_free_licenses(at, running)
            if not placement or not has_licenses:
                waiting.append(at)
                continue
            self._late_fixed += now_s > fixed_s
            state.run_s[at] = max(1, fixed_s + self._trace[at].run_s - now_s)
            state.phase[at] = event_kernels.WAITING
            simulated.apply(Starts.of({at: placement}))
            if accounting is not None and not self._calendar.is_outage[at]:
                accounting.on_started([at])
        self._due_starts = waiting

    def on_decided(self, starts: Starts) -> None:
        """Delay each of a decision's starts by a lag."""
        for at in starts.slots.tolist():
            self._set_holding_time(at, self._lags.next_delay_s())

    def on_preempting(self, preemption: Preemption) -> None:
        """Set the holding time of a job that starts by preemption. It has no lag."""
        self._set_holding_time(preemption.slot, 0)

    def on_preempted(self, preemption: Preemption) -> None:
        """Set the run times of requeued victims, and submit the followers of the others.

        A requeued job runs as long as it really did, less the time kept by checkpoints.
        """
        for run in preemption.victims:
            if run.requeued:
                self._kept_s[run.slot] += run.kept_s
                run_s = self._trace[run.slot].run_s - self._kept_s[run.slot]
                self._simulated.state.run_s[run.slot] = max(1, run_s)
                self._lag_s[run.slot] = 0
            else:
                self.on_ended(run.slot)

    def on_ended(self, slot: int) -> None:
        """Add the arrivals of an ended job's followers."""
        end_s = self._simulated.real_end_s(slot)
        for follower, delay_s in self._calendar.followers.get(slot, ()):
            heapq.heappush(self._events, (max(end_s + delay_s, self._simulated.now_s + 1), _ARRIVAL, follower))

    def lag_s(self, slot: int) -> int:
        """Return the seconds from a job's start to the beginning of its run."""
        return int(self._lag_s[slot])

    def _set_holding_time(self, at: int, lag_s: int) -> None:
        """Set how long a job that starts now holds its nodes.

        A job that was really cancelled while waiting ends at its cancellation, or earlier at its time limit.
        """
        run_s = self._simulated.state.run_s
        if self._leaves_s[at] != NEVER:
            until_s = int(self._leaves_s[at]) - self._simulated.now_s - lag_s
            run_s[at] = max(1, min(self._trace[at].job.walltime_s, until_s))
        run_s[at] += lag_s
        self._lag_s[at] = lag_s
