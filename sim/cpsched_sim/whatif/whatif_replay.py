"""Replay a window, including jobs that run at its beginning or are cancelled.

A half-closed replay models users who wait for their jobs. Suppose a job was submitted within `MAX_THINK_TIME_S` of the
end of the user's previous job. In the replay, it arrives with the same delay after the previous job's replayed end. The
first job of a session arrives at its real time. The method is from Zakay and Feitelson, "Preserving user behavior
characteristics in trace-based simulation of parallel job scheduling", MASCOTS 2014.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cpsched.model import NEVER, Cluster, IntArray
from cpsched.policy import Policy
from cpsched_sim.cluster.preemption import summarize_preemptions
from cpsched_sim.cluster.replay import Progress, ReplayOptions, Schedule, replay
from cpsched_sim.cluster.replay_calendar import CalendarOutcome, ReplayCalendar
from cpsched_sim.experiments.bootstrap_statistics import FloatArray
from cpsched_sim.stranded_gpus import PlacedRun, mean_stranded_gpus
from cpsched_sim.systems.system_file import System
from cpsched_sim.whatif.unused_capacity_causes import PlacedSchedule, compute_stranded_capacity
from cpsched_sim.whatif.whatif_cases import DecisionTiming
from cpsched_sim.whatif.whatif_window import OUTAGE, WhatIfWindow

MAX_THINK_TIME_S = 1200
"""Longest pause within a session in seconds: 20 minutes. The distribution of think times in eleven traces has a
break there (Zilber, Amit, Talby, "What is worth learning from parallel workloads?", ICS 2005).
"""

EVENT_TIMING = DecisionTiming()
"""Default timing: a round in each second with an event. Starts take effect immediately."""


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
    stranded_gpus: float = math.nan
    """Share of the cluster's GPU-hours that were idle but useless for the typical requests, or NaN if unknown."""
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
    followers = session_followers(window) if half_closed else {}
    calendar = ReplayCalendar(
        from_s=window.from_s,
        fixed_s=window.fixed_s,
        leaves_s=window.leaves_s,
        is_outage=window.role == OUTAGE,
        followers=followers,
        interval_s=pace.interval_s,
        lag_s=pace.lag_s,
    )
    options = ReplayOptions(
        progress=progress, site=window.site, strict=True, calendar=calendar, licenses=window.licenses
    )
    cluster = System(window.system, window.header).cluster
    if window.least_stranded_gpus:
        cluster = replace(cluster, typical=window.typical)
    schedule = replay(window.jobs, cluster, policy, options)
    outcome = schedule.calendar
    assert outcome is not None
    start_s = np.where(schedule.start_s != NEVER, schedule.start_s + outcome.lag_s, NEVER)
    preempts = window.site is not None and window.site.policy.preemption is not None
    return WindowReplayResult(
        outcome.arrival_s, start_s, schedule.end_s, schedule.processors, schedule.rounds, schedule.cpu_s,
        outcome.late_fixed, _compute_stranded(window, outcome, schedule),
        _stranded_gpu_share(window, cluster, schedule),
        summarize_preemptions(schedule.preemptions, outcome.arrival_s, schedule.start_s) if preempts else {},
    )  # fmt: skip


def _stranded_gpu_share(window: WhatIfWindow, cluster: Cluster, schedule: Schedule) -> float:
    if window.typical is None:
        return math.nan
    runs = [
        PlacedRun(
            window.jobs[at].job.request, int(schedule.start_s[at]), int(schedule.end_s[at]), schedule.placement_of(at)
        )
        for at in np.flatnonzero(schedule.start_s != NEVER).tolist()
    ]
    use = mean_stranded_gpus(runs, cluster, window.typical, window.from_s, window.to_s)
    return use.stranded / use.total


def _compute_stranded(window: WhatIfWindow, outcome: CalendarOutcome, schedule: Schedule) -> FloatArray:
    """Return the capacity that a schedule left unused while jobs waited."""
    waited_s = np.where(outcome.leaves_s != NEVER, outcome.leaves_s, outcome.arrival_s)
    ran = PlacedSchedule(
        outcome.arrival_s, np.where(schedule.start_s != NEVER, schedule.start_s, waited_s), schedule.start_s,
        schedule.end_s, schedule.place_at, schedule.place_count, schedule.place_node, schedule.place_units,
        window.role == OUTAGE,
    )  # fmt: skip
    requests = [item.job.request for item in window.jobs]
    cluster = System(window.system, window.header).cluster
    return compute_stranded_capacity(cluster, requests, ran, window.from_s, window.to_s)
