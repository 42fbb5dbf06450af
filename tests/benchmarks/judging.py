"""A prototype: a few decisions that differ in what starts now, judged over drawn run times.

`tests.benchmarks.judging:Judged` stands wherever a dispatcher may be named. In a round in which its candidates do not
start the same, EASY goes on from each of them, over `samples` draws of all run times (`cpsched.run_times`); the start
with the least mean cost is made. EASY goes by arrival, or with `behind=plan` by the order of the plan. Candidates:
`easy`, `list-reg`, the plan of `lookahead`, that of its objective `slowdown`, and the plan's order with one
reservation. `AtRandom` is the control, which draws among the same candidates.

`python -m tests.benchmarks.judging [--traces NAME,...] [--jobs 600] [--half test] [--seeds 0] [SETTING]...` prints the
table of docs/studies/judging.md: percent of `easy` by trace, as `tests.benchmarks.unseen` does, of shorter windows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from cpsched.compile.handles import FixedColumn, FixedMatrix, Reals
from cpsched.compile.jit import kernel
from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.lookahead.dispatcher import Lookahead
from cpsched.model import Decision, EndedJob, Job, Need, Snapshot
from cpsched.planning import plan
from cpsched.run_times import LOOK_EVERY, RunTimes
from tests.benchmarks import unseen

QUEUED = 60
"""So many jobs of the queue are judged: those that a candidate starts, then by arrival."""
DRAWN = 64
"""So many running jobs, the largest, have drawn run times; others run as long as is expected."""

FloatArray = npt.NDArray[np.float64]


@kernel
def drained(
    free: int, amount: FixedColumn, walltime_s: FixedColumn, run_s: FixedMatrix, weight: Reals, first: FixedColumn,
    held: FixedColumn, ends: FixedMatrix, expected: FixedColumn,
) -> float:  # fmt: skip
    """The mean, over draws, of the weighed seconds that queued jobs wait, if those of `first` start now.

    EASY goes on from there.

    - by queued job, in the order in which they go: `amount`, `walltime_s`, `weight`, `first` (1 where it starts now);
      `run_s`: int64[draws, queued].
    - by running job: `held`, the `expected` seconds left; `ends`: int64[draws, running], those drawn.
    """
    queued, running, draws = len(amount), len(held), len(run_s)
    total = 0.0
    over, promised = np.empty(queued + running, np.int64), np.empty(queued + running, np.int64)
    takes, waits = np.empty(queued + running, np.int64), np.empty(queued, np.int64)
    for draw in range(draws):
        now_s, left, count = 0, free, running
        for i in range(running):
            over[i], promised[i], takes[i] = ends[draw, i], expected[i], held[i]
        behind = 0
        for i in range(queued):
            if first[i]:
                over[count], promised[count], takes[count] = run_s[draw, i], walltime_s[i], amount[i]
                count += 1
                left -= amount[i]
            else:
                waits[behind] = i
                behind += 1
        while behind:
            # The next end; all that is over gives back what it holds.
            next_s = over[0]
            for i in range(1, count):
                next_s = min(next_s, over[i])
            if count == 0:
                break
            now_s, kept = next_s, 0
            for i in range(count):
                if over[i] <= now_s:
                    left += takes[i]
                else:
                    over[kept], promised[kept], takes[kept] = over[i], promised[i], takes[i]
                    kept += 1
            count = kept
            # EASY: in that order, then whatever does not delay the first that waits.
            shadow_s, extra, blocked, kept = 1 << 60, 0, False, 0
            for k in range(behind):
                i = waits[k]
                fits = amount[i] <= left
                if blocked and fits:
                    fits = now_s + walltime_s[i] <= shadow_s or amount[i] <= extra
                if fits:
                    left -= amount[i]
                    if blocked and now_s + walltime_s[i] > shadow_s:
                        extra -= amount[i]
                    over[count], takes[count] = now_s + run_s[draw, i], amount[i]
                    promised[count] = now_s + walltime_s[i]
                    count += 1
                    total += weight[i] * now_s
                else:
                    if not blocked:
                        blocked, room = True, left
                        order = np.argsort(promised[:count])
                        for j in order:
                            room += takes[j]
                            if room >= amount[i]:
                                shadow_s, extra = max(promised[j], now_s + 1), room - amount[i]
                                break
                    waits[kept] = i
                    kept += 1
            behind = kept
    return total / max(1, draws)


Distribution = tuple[FloatArray, FloatArray]
Drawn = npt.NDArray[np.int64]


class Draws:
    """Run times of many jobs drawn at once, from what `RunTimes` knows of each."""

    def __init__(self) -> None:
        self.times = RunTimes()
        self._known: dict[str, dict[tuple[int, int, str], Distribution]] = {}
        """By user, then by what else tells jobs apart: their distributions, until something is learned of them."""

    def learn(self, ended: EndedJob) -> None:
        """Take note of a job that ended."""
        if self.times.ended % LOOK_EVERY == 0:
            self._known.clear()
        self._known.pop(ended.job.user, None)
        self.times.learn(ended)

    def distribution(self, job: Job) -> Distribution:
        """See `RunTimes.distribution`."""
        known, key = self._known.setdefault(job.user, {}), (job.walltime_s, job.request.units, job.name)
        if key not in known:
            known[key] = self.times.distribution(job)
        return known[key]

    def drawn(self, jobs: Sequence[Job], at: FloatArray, elapsed_s: Drawn) -> Drawn:
        """Run times in seconds, int64[draws, jobs], at the quantiles `at` of float64[jobs, draws].

        As `RunTimes.drawn` draws them job by job: each beyond the `elapsed_s` that its job has run, int64[jobs].
        """
        found = [self.distribution(job) for job in jobs]
        width = max(len(shares) for shares, _ in found)
        share, weight = np.zeros((len(jobs), width)), np.zeros((len(jobs), width))
        for k, (shares, weights) in enumerate(found):
            share[k, : len(shares)], weight[k, : len(shares)] = shares, weights
        walltime_s = np.array([job.walltime_s for job in jobs], np.int64)
        run_s = np.maximum(1, np.rint(share * walltime_s[:, None])).astype(np.int64)
        held = np.cumsum(np.where(run_s > elapsed_s[:, None], weight, 0.0), axis=1)
        most = held[:, -1:]
        index = (held[:, None, :] < (at * most)[:, :, None]).sum(axis=2)
        # Where nothing that is known outlasts the job, it runs to its walltime.
        other_s = np.maximum(walltime_s, elapsed_s + 1)[:, None]
        return np.ascontiguousarray(np.where(most > 0, np.take_along_axis(run_s, index, axis=1), other_s).T)


class Judged(Dispatcher):
    """See above. `price`: the objective by whose price waits are judged; `behind`: who goes first in what follows."""

    learns = True
    overrun = "walltime"

    def __init__(
        self, samples: int = 6, price: str = "default", behind: Literal["arrival", "plan"] = "arrival", seed: int = 0
    ) -> None:
        self.samples, self.seed, self.behind = samples, seed, behind
        self.draws = Draws()
        self.plans = [Lookahead(price, seed=seed), Lookahead("slowdown", seed=seed)]

    def learn(self, ended: EndedJob) -> None:
        """Take note of a job that ended."""
        self.draws.learn(ended)
        for each in self.plans:
            each.learn(ended)

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """What the best candidate starts."""
        found = {self.key(made): made for made in (each.decide(snapshot, need) for each in reversed(self.plans))}
        if len(snapshot.queue) and (len(found) > 1 or next(iter(found.values())).effort.path == "searched"):
            for made in (
                plan(snapshot, reservations=1, need=need),
                plan(snapshot, need=need),
                plan(snapshot, self.places(snapshot), reservations=1, need=need),
            ):
                found.setdefault(self.key(made), made)
        every = list(found.values())
        return every[0] if len(every) == 1 else self.chosen(snapshot, every)

    @staticmethod
    def key(made: Decision) -> tuple[int, ...]:
        """What it starts."""
        return tuple(sorted(made.starts.slots.tolist()))

    def places(self, snapshot: Snapshot) -> npt.NDArray[np.int64]:
        """By queue position: the place in the order of the plan; behind all others where it has none."""
        order = {id: place for place, id in enumerate(self.plans[0].memory()["order"])}
        return np.array([order.get(job.id, len(order)) for job in snapshot.queued_jobs()], np.int64)

    def chosen(self, snapshot: Snapshot, every: Sequence[Decision]) -> Decision:
        """The candidate with the least mean cost; the plan's own where costs are the same."""
        table, now_s = snapshot.table, snapshot.now_s
        draw = np.random.default_rng((self.seed, now_s))
        started = np.unique(np.concatenate([made.starts.slots for made in every]))
        queue = (
            snapshot.queue
            if self.behind == "arrival"
            else snapshot.queue[np.argsort(self.places(snapshot), kind="stable")]
        )
        first = np.argsort(~np.isin(queue, started), kind="stable")
        queue = queue[np.sort(first[: max(QUEUED, len(started))])]
        running = snapshot.running
        amounts = table.units * table.per_unit[:, 0]
        by_size = running[np.argsort(-amounts[running], kind="stable")]
        known, others = by_size[:DRAWN], by_size[DRAWN:]
        history = self.plans[0]._history
        assert history is not None
        expected_s = history.expected_s(snapshot, queue)
        elapsed_s = now_s - table.start_s[by_size]
        ends = np.empty((self.samples, len(by_size)), np.int64)
        ends[:, len(known) :] = np.maximum(1, history.expected_s(snapshot, others) - elapsed_s[len(known) :])
        ran_s = np.concatenate((elapsed_s[: len(known)], np.zeros(len(queue), np.int64)))
        run_s = self.drawn(draw, snapshot, np.concatenate((known, queue)), ran_s)
        ends[:, : len(known)] = run_s[:, : len(known)] - elapsed_s[: len(known)]
        waited_s = now_s - table.submit_s[queue]
        price = self.plans[0]._objective.aged_s
        weight = self.plans[0]._row.weights(amounts[queue], expected_s) * (1 + (waited_s / price) ** 4)
        costs = []
        for made in every:
            mine = np.isin(queue, made.starts.slots).astype(np.int64)
            costs.append(
                drained(
                    int(snapshot.free[:, 0].sum()), amounts[queue], table.walltime_s[queue].copy(),
                    np.ascontiguousarray(run_s[:, len(known) :]), weight, mine, amounts[by_size], ends,
                    np.maximum(1, table.start_s[by_size] + table.walltime_s[by_size] - now_s),
                )
            )  # fmt: skip
        least = min(costs)
        return every[max(at for at, cost in enumerate(costs) if cost <= least)]

    def drawn(self, draw: np.random.Generator, snapshot: Snapshot, slots: Drawn, elapsed_s: Drawn) -> Drawn:
        """Run times, int64[samples, jobs]: of each job one of every equal part of its distribution, in any order."""
        parts = draw.permuted(np.tile(np.arange(self.samples), (len(slots), 1)), axis=1)
        at = (parts + draw.random(parts.shape)) / self.samples
        jobs = [snapshot.table.jobs[slot] for slot in slots.tolist()]
        return np.maximum(elapsed_s + 1, self.draws.drawn(jobs, at, elapsed_s))


class AtRandom(Judged):
    """The control: any of the same candidates."""

    def chosen(self, snapshot: Snapshot, every: Sequence[Decision]) -> Decision:
        """One of them."""
        return every[int(np.random.default_rng((self.seed, snapshot.now_s)).integers(len(every)))]


SETTINGS = ("lookahead", "tests.benchmarks.judging:Judged", "tests.benchmarks.judging:AtRandom")


def main(arguments: Sequence[str]) -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="SETTING", default=SETTINGS)
    parser.add_argument("--half", choices=("training", "test", "both"), default="test")
    parser.add_argument("--traces", default=",".join(unseen.FILES))
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--seeds", default="0")
    given = parser.parse_args(arguments)
    for name, (file, system, _, upto) in unseen.FILES.items():
        unseen.FILES[name] = (file, system, given.jobs, upto)
    unseen.KEPT = unseen.KEPT / f"judging-{given.jobs}"
    words = [
        "--half",
        given.half,
        "--traces",
        given.traces,
        "--seeds",
        given.seeds,
        "--intervals",
        "--against",
        SETTINGS[0],
    ]
    unseen.main([*words, *dict.fromkeys((SETTINGS[0], *given.settings))])


if __name__ == "__main__":
    main(sys.argv[1:])
