"""Ways to shorten the longest wait under `lookahead`: by what ageing multiplies, how steep it is, and what L is.

`tests.benchmarks.tails:Tails` stands wherever a dispatcher may be named, as in `tests.benchmarks.tails:Tails:wide=1`.
Without settings it decides as `lookahead` does. `python -m tests.benchmarks.narrow --of tests.benchmarks.tails:Tails
wide=1` prints the tables of docs/studies/tails.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cpsched.dispatchers.lookahead.dispatcher import LEAST_AGED_S, Lookahead
from cpsched.dispatchers.lookahead.reserving import named_by
from cpsched.dispatchers.lookahead.virtual import History
from cpsched.errors import require
from cpsched.kernels.state import Site
from cpsched.model import Decision, IntArray, JobTable, Need, Snapshot
from cpsched.model.table import COLUMNS
from cpsched.site.weighing import FloatArray
from tests.benchmarks.narrow import FIRST, Late


def by_expected_ends(snapshot: Snapshot, history: History) -> tuple[Snapshot, IntArray]:
    """The snapshot with expected ends of running jobs, and its slots in the table of the given one."""
    table, queued, now_s = snapshot.table, len(snapshot.queue), snapshot.now_s
    slots = np.concatenate((snapshot.queue, snapshot.running))
    columns = {name: np.ascontiguousarray(getattr(table, name)[slots]) for name in COLUMNS}
    history._meet(snapshot)
    expected_s = columns["start_s"][queued:] + history.expected_s(snapshot, snapshot.running).astype(np.int64)
    end_s = columns["end_s"].copy()
    end_s[queued:] = np.where(expected_s > now_s, np.minimum(expected_s, end_s[queued:]), end_s[queued:])
    columns["end_s"] = end_s
    jobs = [table.jobs[slot] for slot in slots.tolist()]
    ids = np.fromiter((job.id for job in jobs[queued:]), np.int64, len(slots) - queued)
    running = np.arange(queued, len(slots))[np.lexsort((ids, end_s[queued:]))]
    columns_of = JobTable(jobs=jobs, places=table.places, **columns)
    found = Snapshot(now_s, snapshot.cluster, snapshot.free, columns_of, np.arange(queued), running, True)
    return found, slots


def gathered_s(snapshot: Snapshot, processors: IntArray, history: History) -> FloatArray:
    """By queue position, how long it takes until so many processors are free if nothing else starts, in seconds."""
    table, running, now_s = snapshot.table, snapshot.running, snapshot.now_s
    if not len(running):
        return np.zeros(len(processors))
    expected_s = table.start_s[running] + history.expected_s(snapshot, running)
    end_s = np.where(expected_s > now_s, np.minimum(expected_s, table.end_s[running]), table.end_s[running])
    order = np.argsort(end_s, kind="stable")
    amounts = (table.units[running] * table.per_unit[running, 0])[order]
    free = int(snapshot.free[:, 0].sum()) + np.concatenate(([0], np.cumsum(amounts)))
    until_s = np.concatenate(([0.0], np.maximum(0.0, end_s[order] - now_s)))
    found: FloatArray = until_s[np.minimum(np.searchsorted(free, processors), len(until_s) - 1)]
    return found


class Tails(Lookahead):
    """`lookahead` under its default objective, with other ageing. W, L, m, r and E: as in `docs/lookahead.md`.

    - `by`, `power`: ageing is (W / (`by` L))^`power`.
    - `wide`: to the price so many times m r E times this ageing is added. Ageing of the default multiplies a job's own
      price, so of jobs of the same age the large ones stay behind the small ones; by area they go by age.
    - `arrival`: a job that has waited for longer than this share of L is planned before all others, by arrival.
    - `come`: so much of what L is above the longest wait that has been under `easy`, for what is to come, counts.
    - `promise`: a job that would have started under `easy`, and has waited for longer than this share of the longest
      wait there, goes before all others. `of`: so much of what is to come counts in that longest wait.
    - `drain`: while a job has waited for longer than this share of L, plans are made with the running jobs' expected
      ends instead of those by walltime; that of a job which has outlived its expectation is by walltime. Free
      processors are then kept for a wide job that could start soon, where by walltimes they would be filled until its
      reservation.
    - `gather`: to W in ageing so many times the time is added that it takes until the job could start if it went before
      all others, by expected ends of running jobs and processors alone: wide jobs age early enough to gather theirs.
    - `first`: a job that takes at least this share of the machine goes before all others once its virtual start has
      passed by more than `late` L; of several such jobs the one that started there first, and only `count` of them.
      With `since`, only once it has waited for longer than this share of the longest wait that has been under `easy`.

    0 switches each of `wide`, `arrival`, `promise`, `drain`, `gather` and `first` off.
    """

    def __init__(
        self,
        by: float = 0.3,
        power: int = 4,
        wide: float = 0.0,
        arrival: float = 0.0,
        come: float = 1.0,
        promise: float = 0.0,
        of: float = 0.0,
        drain: float = 0.0,
        gather: float = 0.0,
        first: float = 0.0,
        late: float = 0.0,
        count: int = 1,
        since: float = 0.0,
        seed: int = 0,
    ) -> None:
        shares = {
            "wide": wide,
            "arrival": arrival,
            "come": come,
            "promise": promise,
            "of": of,
            "drain": drain,
            "gather": gather,
            "first": first,
            "late": late,
            "since": since,
        }
        for name, value in shares.items():
            require(value >= 0, name, value, "must not be negative")
        require(by > 0, "by", by, "must be positive")
        require(power > 0, "power", power, "must be positive")
        require(count > 0, "count", count, "must be positive")
        super().__init__("default", seed=seed)
        self._row = replace(self._row, aged_by=by, ageing_power=power)
        self._objective = self._row.compiled()
        self._overdue_s = self._search.settings.overdue_s
        self.wide, self.arrival, self.come, self.promise, self.of = wide, arrival, come, promise, of
        self.drain, self.gather = drain, gather
        self.first, self.late, self.count, self.since = first, late, count, since
        self._history = self.lateness = Late()
        self.longest_s = self.been_s = 0.0
        """The longest wait under `easy` with what is to come, and of those that have started there."""

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """See `Dispatcher.decide`."""
        queue = snapshot.queue
        if not self.drain or not len(queue) or not len(snapshot.running):
            return super().decide(snapshot, need)
        oldest_s = snapshot.now_s - int(snapshot.table.submit_s[queue].min())
        if oldest_s <= self.drain * max(LEAST_AGED_S, self.longest_s):
            return super().decide(snapshot, need)
        planned_on, slots = by_expected_ends(snapshot, self.lateness)
        made = super().decide(planned_on, need)
        return replace(made, starts=named_by(made.starts, slots))

    def _follow(self, history: History, snapshot: Snapshot, site: Site, estimate_s: FloatArray) -> FloatArray:
        """See `Lookahead._follow`."""
        expected_s = super()._follow(history, snapshot, site, estimate_s)
        self.longest_s, self.been_s = self.lateness.longest_s, history._virtual.longest_s
        longest_s = self.with_share_to_come(self.come)
        self._objective.aged_s = max(LEAST_AGED_S, self._row.aged_by * longest_s)
        if self.arrival:
            own_s = self.arrival * max(longest_s, LEAST_AGED_S)
            self._search.settings.overdue_s = int(min(self._overdue_s, own_s))
        return expected_s

    def with_share_to_come(self, share: float) -> float:
        """The longest wait under `easy`, of which so much of what is to come counts, in seconds."""
        return (1 - share) * min(self.been_s, self.longest_s) + share * self.longest_s

    def _site_factors(self, snapshot: Snapshot, expected_s: FloatArray) -> FloatArray:
        """By what the weight of each queued job is multiplied, float64[Q]."""
        table, queue, row = snapshot.table, snapshot.queue, self._row
        processors = np.maximum(1, table.units[queue] * table.per_unit[queue, 0])
        waited_s = (snapshot.now_s - table.submit_s[queue]).astype(np.float64)
        alone = replace(row, area=0.0).weights(processors, expected_s)
        area = processors * np.maximum(expected_s, row.least_s)
        by_area = area * alone.sum() / area.sum()
        age = (waited_s / self._objective.aged_s) ** row.ageing_power
        factors: FloatArray = 1 + self.wide * by_area * age / ((alone + row.area * by_area) * (1 + age))
        if self.gather:
            late_s = waited_s + self.gather * gathered_s(snapshot, processors, self.lateness)
            factors *= (1 + (late_s / self._objective.aged_s) ** row.ageing_power) / (1 + age)
        if self.promise:
            longest_s = max(LEAST_AGED_S, self.with_share_to_come(self.of))
            factors[(self.lateness.late_s > 0) & (waited_s > self.promise * longest_s)] *= FIRST
        if self.first:
            machine, late_s = int(snapshot.cluster.capacity[:, 0].sum()), self.lateness.late_s
            concerned = (processors >= self.first * machine) & (late_s > self.late * self.longest_s)
            concerned &= waited_s >= self.since * self.been_s
            by_virtual_start = np.argsort(-late_s[concerned], kind="stable")[: self.count]
            for rank, at in enumerate(np.flatnonzero(concerned)[by_virtual_start]):
                factors[at] *= FIRST * 2.0 ** (self.count - 1 - rank)
        return factors
