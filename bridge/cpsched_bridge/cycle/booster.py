"""Set and remove priority boosts so that the cluster follows the plan's order.

The boost ledger records each boost before it is sent. After a crash at any time, the next bridge process can therefore
distinguish the bridge's boosts from other actors' boosts. `docs/cycle.md` lists the cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cpsched.model import Decision, Job, Snapshot
from cpsched_bridge.cycle.boost_planning import (
    PriorityBoostLimits,
    RankedPendingJob,
    compute_order_agreement,
    plan_boost_changes,
)
from cpsched_bridge.cycle.cluster_state import Observed
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle_report import Decided, Mode, PriorityBoostReport
from cpsched_bridge.errors import BackendError
from cpsched_bridge.ports import Backend, BoostCommand, Outcome, QueueRank, SupportsBoost
from cpsched_bridge.settings import AdviseModeSettings, Settings
from cpsched_bridge.store.state_file import StateFile
from cpsched_bridge.store.state_tables import BoostLedger

COMMAND_KIND = "boost"
"""Name of the command in the journal and the metrics."""
KEEP_UNPLANNED_S = 300.0
"""Seconds for which an unplanned job keeps its boost, because plans ignore nodes that are being freed."""
MAX_REMOVED_BOOSTS = 500
"""Maximum number of jobs whose boosts are removed in one cycle."""


@dataclass(slots=True)
class PriorityBooster:
    """A component that sets and removes priority boosts on one cluster."""

    backend: SupportsBoost
    book: BoostLedger
    settings: AdviseModeSettings
    keep_s: int = 30 * 86_400
    """Seconds for which an entry outlives its job, because a requeued job still has its boost."""
    last: PriorityBoostReport | None = None
    """Result of the last comparison of the plan's order with the cluster's order."""
    _due_s: float = float("-inf")
    """Monotonic time at which the next boosts are due."""
    _next_check_s: float = float("-inf")
    """Monotonic time of the next check for boosts on requeued jobs."""
    _clean: bool = False
    """Whether the last check found no pending job with a boost set by the bridge."""
    _unplanned: dict[int, float] = field(default_factory=dict)
    """Monotonic time since which each entry has been outside the plan, by id."""
    _zeroed: set[int] = field(default_factory=set)
    """Ids of jobs whose hidden boost was set to 0, which is done only once."""
    _planned: dict[int, int] = field(default_factory=dict)
    """Start times in the last plan, by job id."""

    @staticmethod
    def from_settings(backend: Backend, settings: Settings, file: StateFile) -> PriorityBooster | None:
        """Return a booster, or None in shadow mode or without support for boosts."""
        if settings.mode == "shadow" or not isinstance(backend, SupportsBoost):
            return None
        return PriorityBooster(
            backend, BoostLedger(file), settings.advise, int(settings.journal.keep_jobs_days * 86400)
        )

    def remember_plan(self, mode: Mode, decided: Decided) -> None:
        """Store an advise-mode decision until the next observation."""
        if mode == "advise" and decided.decision is not None and decided.snapshot is not None:
            self._planned = decided.decision.plan_by_job(decided.snapshot)

    def report_early_starts(self, mode: Mode, started: Iterable[tuple[Job, int]], recorder: CycleRecorder) -> None:
        """In advise mode, report jobs that the cluster started much earlier than planned."""
        planned, self._planned = self._planned, {}
        if mode != "advise":
            return
        spare_s = self.settings.every_s + self.backend.scheduler_interval_s
        for job, start_s in started:
            early_s = planned.get(job.id, start_s) - start_s
            if early_s > spare_s:
                text = f"the cluster's scheduler started it {early_s:,} s earlier than planned"
                recorder.add_event("started_early", text, job.id)

    def apply(
        self, observed: Observed, decided: Decided, monotonic_s: float, recorder: CycleRecorder
    ) -> PriorityBoostReport | None:
        """Send the plan's order in advise mode, and remove the boosts in all other modes.

        Return the last comparison of the orders in advise mode.
        """
        if observed.role.mode == "advise":
            return self.send_boosts_if_due(decided, monotonic_s, recorder)
        try:
            self.remove_boosts(observed.observation.now_s, monotonic_s, recorder)
        except BackendError as error:  # boosts that cannot be removed must not stop the rest of the cycle
            recorder.add_event(
                "boosts_remain", f"up to {self.count_boosted_jobs()} jobs may still have boosts: {error}"
            )
        return None

    def send_boosts_if_due(
        self, decided: Decided, monotonic_s: float, recorder: CycleRecorder
    ) -> PriorityBoostReport | None:
        """Boost jobs if the next boosts are due and there is a decision. Return the last comparison of the orders.

        Raise the backend's errors, and `sqlite3.Error` if the boost ledger cannot be written.
        """
        decision, snapshot = decided.decision, decided.snapshot
        if decision is None or snapshot is None or monotonic_s < self._due_s:
            return self.last
        self._due_s = monotonic_s + self.settings.every_s
        ranks = self._read_ranks_and_prune_ledger(snapshot.now_s)
        planned, others = split_ranks_by_plan(ranks, list_planned_jobs(decision, snapshot), self.book)
        others = self._select_long_unplanned(others, monotonic_s)
        bounds = PriorityBoostLimits(self.settings.max_boost)
        changes = plan_boost_changes(planned, others, bounds)
        front = planned[: bounds.depth]
        by_id = {rank.id: rank for rank in ranks}
        boosts = [self._make_boost(by_id[id], points) for id, points in changes]
        raised = {each.id: each.points for each in boosts if each.points}
        if raised:
            self._clean = False
            self._zeroed -= raised.keys()
            self.book.record_intended(raised, snapshot.now_s)
        self._send(boosts, recorder)
        self.last = PriorityBoostReport(len(front), compute_order_agreement(front))
        return self.last

    def _select_long_unplanned(self, others: Sequence[RankedPendingJob], monotonic_s: float) -> list[RankedPendingJob]:
        self._unplanned = {each.id: self._unplanned.get(each.id, monotonic_s) for each in others}
        return [each for each in others if monotonic_s - self._unplanned[each.id] >= KEEP_UNPLANNED_S]

    def remove_boosts(self, now_s: int, monotonic_s: float, recorder: CycleRecorder) -> None:
        """Remove the bridge's boosts until no job has a boost.

        Afterwards, check again every `every_s` seconds while the boost ledger has entries, because a requeued job
        regains its boost.
        """
        self.last = None
        self._due_s = float("-inf")
        if not self.book.by_id or (self._clean and monotonic_s < self._next_check_s):
            return
        self._next_check_s = monotonic_s + self.settings.every_s
        ranks = self._read_ranks_and_prune_ledger(now_s)
        wanted = [each for each in plan_boost_removal(ranks, self.book) if each.id not in self._zeroed]
        outcomes = self._send(wanted[:MAX_REMOVED_BOOSTS], recorder)
        unseen = {rank.id for rank in ranks if rank.hidden or rank.fixed}
        answered = {outcome.job_id for outcome in outcomes if outcome.is_answered}
        self._zeroed |= answered & unseen
        self._clean = all(each.id in self._zeroed for each in wanted)

    def count_boosted_jobs(self) -> int:
        """Return how many jobs may have the bridge's boosts, or 0 if a check found none."""
        return 0 if self._clean else sum(each.points[-1] != 0 for each in self.book.by_id.values())

    def _read_ranks_and_prune_ledger(self, now_s: int) -> Sequence[QueueRank]:
        ranks = self.backend.read_ranks()
        self.book.prune((rank.id for rank in ranks), now_s - self.keep_s)
        return ranks

    def _make_boost(self, rank: QueueRank, points: int) -> BoostCommand:
        return BoostCommand(rank.id, points, _list_possible_boosts(rank, self.book))

    def _send(self, boosts: Sequence[BoostCommand], recorder: CycleRecorder) -> Sequence[Outcome]:
        if not boosts:
            return ()
        return recorder.send(COMMAND_KIND, [each.id for each in boosts], lambda: self.backend.set_boosts(boosts))


def list_planned_jobs(decision: Decision, snapshot: Snapshot) -> list[int]:
    """Return the ids of jobs with a planned start, by start and then queue position."""
    plan = decision.plan_by_job(snapshot) | dict.fromkeys(decision.starts_by_job(snapshot), snapshot.now_s)
    place = {job.id: at for at, job in enumerate(snapshot.queued_jobs())}
    return sorted(plan, key=lambda id: (plan[id], place.get(id, 0), id))


def split_ranks_by_plan(
    ranks: Sequence[QueueRank], order: Sequence[int], book: BoostLedger
) -> tuple[list[RankedPendingJob], list[RankedPendingJob]]:
    """Return the visible entries: those in the plan, in its order, and all others.

    Pending tasks of an array share one entry, which takes the position of the first planned task.
    """
    place = {job_id: at for at, job_id in enumerate(order)}
    planned: list[tuple[int, RankedPendingJob]] = []
    others = []
    for rank in ranks:
        if rank.hidden:
            continue
        movable = not rank.fixed and (rank.points == 0 or rank.points in _list_possible_boosts(rank, book))
        candidate = RankedPendingJob(rank.id, rank.own, rank.points, rank.tier, movable)
        places = [place[job_id] for job_id in rank.jobs if job_id in place]
        if places:
            planned.append((min(places), candidate))
        else:
            others.append(candidate)
    return [candidate for _, candidate in sorted(planned, key=lambda each: (each[0], each[1].id))], others


def plan_boost_removal(ranks: Sequence[QueueRank], book: BoostLedger) -> list[BoostCommand]:
    """Return removals of the bridge's boosts, including recorded hidden boosts."""
    found = []
    for rank in ranks:
        known = _list_possible_boosts(rank, book)
        if any(known) and (rank.hidden or rank.fixed or (rank.points and rank.points in known)):
            found.append(BoostCommand(rank.id, 0, known))
    return found


def remove_all_boosts(backend: SupportsBoost, book: BoostLedger, attempts: int = 3) -> list[str]:
    """Remove all of the bridge's boosts. Return one line per problem.

    The boost ledger is not written. The caller must read the cluster first.
    """
    problems: list[str] = []
    if not book.by_id:
        return problems
    for _ in range(attempts):
        try:
            ranks = backend.read_ranks()
            wanted = plan_boost_removal(ranks, book)
            outcomes = backend.set_boosts(wanted) if wanted else []
        except BackendError as error:
            problems = [f"jobs may still have boosts: {error}"]
            continue
        names = {rank.id: rank.label or str(rank.id) for rank in ranks}
        undone = [outcome for outcome in outcomes if outcome.result != "done"]
        problems = [f"job {names[o.job_id]} may still have a boost: {o.detail}" for o in undone]
        if not problems:
            break
    return problems


def _list_possible_boosts(rank: QueueRank, book: BoostLedger) -> tuple[int, ...]:
    return book.list_possible_boosts(rank.id, rank.array_id)
