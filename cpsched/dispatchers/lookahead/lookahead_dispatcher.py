"""Define the dispatcher `lookahead`, which plans all jobs with a short search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.lookahead.area_weight_control import AreaWeightControl
from cpsched.dispatchers.lookahead.objectives import OBJECTIVES, ObjectiveName
from cpsched.dispatchers.lookahead.run_times_and_easy_waits import RunTimesAndEasyWaits
from cpsched.errors import require
from cpsched.goal_presets import DEFAULT_GOAL
from cpsched.kernels.order_moves import ALL_MOVES
from cpsched.kernels.order_search import ALL_START, NONE_START, export_order, look_ahead, restore_order
from cpsched.kernels.order_search_state import (
    POOL_JOBS_PER_NODE_JOB,
    OrderSearchSettings,
    new_order_search_state,
)
from cpsched.kernels.scheduling_state import SchedulingState, copy_starts, get_planned_starts
from cpsched.model import NEVER, NO_STARTS, Decision, Effort, EndedJob, IntArray, JobTable, Need, Snapshot, Starts
from cpsched.model.job_table import COLUMNS
from cpsched.planning import ARRIVAL_ORDER, get_scheduling_state
from cpsched.registration import Registration
from cpsched.site.priority_multipliers import FloatArray, site_priority_multipliers
from cpsched.wait_reasons import explain_waits

NO_SITE_FACTORS: FloatArray = np.zeros(0)
"""Empty factors, which mean that the site weights all jobs equally."""

PATHS = {NONE_START: "none-can-start", ALL_START: "all-start"}

ALL_CANDIDATES = 127

MIN_WORK = 100
"""Lower bound on an adapted `work`, unless the setting `work` is lower."""

MIN_AGED_S = 60.0
"""Minimum age at which ageing doubles a job's cost, in seconds."""

MIN_TIMED_PLACEMENTS = 50
"""Minimum number of placed jobs needed to estimate the time per placement."""


class LookaheadDispatcher(Dispatcher):
    """Plans the whole queue with a local search over orders of the queue.

    An order is decoded into a plan, in which each job gets the earliest start that delays no job before it. The search
    starts from the best of several orders. The decision consists of the plan's starts at the current time.

    - `objective`: cost that the plan minimises (see `cpsched.dispatchers.lookahead.objectives`).
    - `effort`: number of orders that the search decodes per round, in addition to the candidates. None means the
      objective's default. No clock is read: the same snapshot, `seed` and history give the same decision.
    - `work`: limit on the number of jobs placed on nodes in a round, over all orders. When it is reached, no further
      order is tried. Therefore, a decision for a long queue takes little longer than one for a short queue. On a
      counted pool, which is faster, the limit is 20 times as high.
    - `limit_s`: target for the time of a decision, in seconds. It requires a caller that reports decision times
      (`took`), as the bridge does. `work` then adapts and is part of the memory, so that a recorded round can be
      replayed exactly. None means that `work` is fixed.
    - `horizon`, `covered`: numbers of jobs at the front of an order that are searched and that get a planned start.
      Later jobs have no planned start. They start only if they delay no covered job.
    - `overdue_h`: number of hours after which a waiting job is planned before all others, by arrival, so that no job
      starves.
    - `reserve_by`: with "walltime", plans use walltimes, and estimates affect only the weights. Then no planned start
      depends on a prediction.
    - `site_weight`: weight of the site's priority. With 0, it is ignored. With 1, it counts as much as the objective's
      own weights (see `cpsched.site.priority_multipliers`).
    """

    _look_ahead = staticmethod(look_ahead)
    """The compiled search, which studies replace."""

    def __init__(
        self,
        objective: ObjectiveName = DEFAULT_GOAL,
        effort: int | None = None,
        work: int = 1500,
        limit_s: float | None = None,
        horizon: int = 100,
        covered: int = 1000,
        overdue_h: float = 168.0,
        reserve_by: Literal["estimate", "walltime"] = "estimate",
        site_weight: float = 0.0,
        seed: int = 0,
    ) -> None:
        require(objective in OBJECTIVES, "objective", objective, f"must be one of {', '.join(OBJECTIVES)}")
        require(effort is None or effort >= 0, "effort", effort, "must not be negative")
        require(work > 0, "work", work, "must be positive")
        require(limit_s is None or limit_s > 0, "limit_s", limit_s, "must be positive")
        require(horizon > 0, "horizon", horizon, "must be positive")
        require(covered >= horizon, "covered", covered, f"must be at least horizon={horizon}")
        require(overdue_h > 0, "overdue_h", overdue_h, "must be positive")
        require(site_weight >= 0, "site_weight", site_weight, "must not be negative")
        overdue_s = int(min(overdue_h, 1e9) * 3600)
        row = OBJECTIVES[objective]
        self._row, self._site_weight = row, site_weight
        self._search = new_order_search_state(
            OrderSearchSettings(
                row.effort if effort is None else effort, work, horizon, covered, overdue_s, seed,
                candidates=ALL_CANDIDATES, moves=ALL_MOVES, reservations=NEVER,
            ),
            row.to_wait_cost_parameters(),
        )  # fmt: skip
        self._history = RunTimesAndEasyWaits() if row.aged_by else None
        targets = row.ratio_targets
        self._area = AreaWeightControl(row.area, targets) if targets else None
        self.learns = self._history is not None
        self._most_work, self._limit_s = work, limit_s
        self._jobs_per_work = 1
        self._by_walltime = reserve_by == "walltime"
        self._jobs: object = None
        """The jobs to which the slots in the search's order refer."""
        self._order: list[int] = []
        """The search's order as job ids, if it was exported."""
        self._first_s: dict[int, int] = {}
        """The first planned start of each pending job, by job id."""

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        whole, queue, table = need == "plan", snapshot.queue, snapshot.table
        if not len(queue):
            return Decision(
                NO_STARTS, Effort("empty-queue", ratios=self._ratios_to_easy()), ARRIVAL_ORDER if whole else None
            )
        planned_on, slots = with_walltime_estimates(snapshot) if self._by_walltime else (snapshot, None)
        site = get_scheduling_state(planned_on)
        self._map_order_to_slots(planned_on)
        self._jobs_per_work = POOL_JOBS_PER_NODE_JOB if snapshot.cluster.counted else 1
        expected = table.estimate_s[queue].astype(np.float64)
        if self._history is not None:
            expected = self._update_objective_from_history(self._history, planned_on, site, expected)
        inputs = expected, self._site_factors(snapshot, expected), bool(snapshot.cluster.counted), whole
        outcome = self._look_ahead(site, self._search, inputs)
        starts = Starts(*copy_starts(site.draft), True) if site.draft.started else NO_STARTS
        starts = starts if slots is None else map_start_slots(starts, slots)
        branches = int(self._search.counts.decoded)
        cost = Effort(PATHS.get(outcome, "searched"), len(queue), branches=branches, ratios=self._ratios_to_easy())
        if not whole:
            return Decision(starts, cost)
        plan_s = get_planned_starts(site.draft, len(queue))
        self._store_first_planned_starts(snapshot, plan_s)
        return Decision(starts, cost, plan_s, explain_waits(snapshot, starts, plan_s))

    def took(self, seconds: float) -> None:
        """Set `work` to the number of placements possible in `limit_s` at this speed.

        From one round to the next, `work` at most doubles, but may fall by any factor.
        """
        search = self._search
        if self._limit_s is None or seconds <= 0 or search.counts.placed < MIN_TIMED_PLACEMENTS:
            return
        fit = search.counts.placed / self._jobs_per_work * self._limit_s / seconds
        search.settings.work = min(max(MIN_WORK, min(int(fit), 2 * search.settings.work)), self._most_work)

    def memory(self) -> dict[str, Any]:
        """Return the state on which decisions depend, and the first planned starts.

        Decisions depend on the order, the history, the weight `area` and, with `limit_s`, on `work`. The planned starts
        are stored for display.
        """
        self._export_order_ids()
        state: dict[str, Any] = {
            "order": self._order, "first_s": {str(id): start_s for id, start_s in self._first_s.items()}
        }  # fmt: skip
        if self._history is not None:
            state["history"] = self._history.memory()
        if self._area is not None:
            state["area"] = self._area.memory()
        return state if self._limit_s is None else state | {"work": self._search.settings.work}

    @override
    def recall(self, memory: Mapping[str, Any]) -> None:
        self._order, self._jobs = list(memory["order"]), None
        self._first_s = {int(id): start_s for id, start_s in memory["first_s"].items()}
        self._search.settings.work = memory.get("work", self._most_work)
        if self._history is not None and "history" in memory:
            self._history.recall(memory["history"])
        if self._area is not None and "area" in memory:
            self._area.recall(memory["area"])

    @override
    def learn(self, ended: EndedJob) -> None:
        if self._history is not None:
            self._history.learn(ended)

    def _update_objective_from_history(
        self, history: RunTimesAndEasyWaits, snapshot: Snapshot, site: SchedulingState, estimate_s: FloatArray
    ) -> FloatArray:
        """Update the ageing scale and the weight `area`, and return expected run times.

        The scale follows the longest wait under `easy`, and the weight follows the ratios to `easy`. The run times of
        the queued jobs are in seconds, float64[Q]. An estimate below the walltime takes precedence over the user's
        history, because the predictor uses more information.
        """
        expected_s, longest_s = history.advance_virtual_schedule(snapshot, site)
        pairs = history.take_real_virtual_pairs()
        if self._area is not None:
            self._area.observe(pairs)
            self._search.objective.area = self._area.area
        self._search.objective.aged_s = max(MIN_AGED_S, self._row.aged_by * longest_s)
        walltime_s = snapshot.table.walltime_s[snapshot.queue]
        return np.where(estimate_s < walltime_s, estimate_s, expected_s)

    def _ratios_to_easy(self) -> Mapping[str, float]:
        """Return the ratios to `easy` and the weight `area`, or {} if it is constant."""
        return self._area.shown() if self._area is not None else {}

    def _site_factors(self, snapshot: Snapshot, expected_s: FloatArray) -> FloatArray:
        """Return the site's factors, float64[Q], or an empty array without a site weight."""
        if not self._site_weight:
            return NO_SITE_FACTORS
        table, queue = snapshot.table, snapshot.queue
        processors = table.units[queue] * table.per_unit[queue, 0]
        own = self._row.job_wait_weights(processors, expected_s, self._search.objective.area)
        return site_priority_multipliers(snapshot, self._site_weight, own)

    def _store_first_planned_starts(self, snapshot: Snapshot, plan_s: IntArray) -> None:
        """Store first planned starts, and drop jobs that start or have left the queue."""
        jobs, known, queue = snapshot.table.jobs, self._first_s, snapshot.queue
        has_plan = plan_s != NEVER
        pairs = zip(queue[has_plan].tolist(), plan_s[has_plan].tolist(), strict=True)
        plans = {jobs[slot].id: start_s for slot, start_s in pairs}
        self._first_s = {id: known.get(id, start_s) for id, start_s in plans.items() if start_s != snapshot.now_s}
        lost = known.keys() - plans.keys()
        if lost:  # each has left the queue or is pending without a planned start
            ids = (jobs[slot].id for slot in queue[~has_plan].tolist())
            self._first_s |= {id: known[id] for id in ids if id in lost}

    def _export_order_ids(self) -> list[int]:
        """Return the order of the last round as job ids."""
        if self._jobs is not None:
            jobs: Any = self._jobs
            self._order = [jobs[slot].id for slot in export_order(self._search).tolist()]
        return self._order

    def _map_order_to_slots(self, snapshot: Snapshot) -> None:
        """Map the last order to the slots of this snapshot if its table is new."""
        jobs = snapshot.table.jobs
        if jobs is self._jobs:
            return
        slots = {jobs[slot].id: slot for slot in snapshot.queue.tolist()}
        order = [slots[id] for id in self._export_order_ids() if id in slots]
        restore_order(self._search, np.array(order, np.int64))
        self._jobs = jobs


REGISTRATIONS = (
    Registration(
        "lookahead",
        "Plans every pending job by a short search over orders of the queue. No job starves.",
        "docs/lookahead.md",
        LookaheadDispatcher,
    ),
)


def with_walltime_estimates(snapshot: Snapshot) -> tuple[Snapshot, IntArray]:
    """Return the snapshot with walltimes as estimates, and its jobs' original slots.

    Running jobs are expected to end at their walltimes, or one second from now if the walltime has passed.
    """
    table, queued = snapshot.table, len(snapshot.queue)
    slots = np.concatenate((snapshot.queue, snapshot.running))
    columns = {name: np.ascontiguousarray(getattr(table, name)[slots]) for name in COLUMNS}
    columns["estimate_s"] = columns["walltime_s"].copy()
    end_s = np.maximum(columns["start_s"] + columns["walltime_s"], snapshot.now_s + 1)
    end_s[:queued] = 0
    columns["end_s"] = end_s
    jobs = [table.jobs[slot] for slot in slots.tolist()]
    running = np.arange(queued, len(slots))
    ids = np.fromiter((job.id for job in jobs[queued:]), np.int64, len(running))
    found = Snapshot(
        snapshot.now_s,
        snapshot.cluster,
        snapshot.free,
        JobTable(jobs=jobs, places=table.places, **columns),
        np.arange(queued),
        running[np.lexsort((ids, end_s[queued:]))],
        True,
    )
    return found, slots


def map_start_slots(starts: Starts, slots: IntArray) -> Starts:
    """Return the starts with each slot replaced by `slots[slot]`."""
    return Starts(slots[starts.slots], starts.offsets, starts.nodes, starts.units, True)
