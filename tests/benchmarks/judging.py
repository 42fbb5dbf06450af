"""A prototype: a few decisions that differ in what starts now, judged over drawn run times.

`tests.benchmarks.judging:Judged` stands wherever a dispatcher may be named. In a round in which its candidates do not
start the same, EASY goes on from each of them, over `samples` draws of all run times (`cpsched.run_times`); the start
with the least mean cost is made. Candidates: `easy`, `list-reg`, the plan of `lookahead`, that of its objective
`slowdown`, and the plan's order with one reservation. `AtRandom` is the control, which draws among the same candidates.

`python -m tests.benchmarks.judging [--traces NAME,...] [--jobs 600] [--half test] [--seeds 0]` prints the table of
docs/studies/judging.md: percent of `easy` by trace, as `tests.benchmarks.unseen` does, of shorter windows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cpsched.compile.handles import FixedColumn, FixedMatrix, Reals
from cpsched.compile.jit import kernel
from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.lookahead.dispatcher import Lookahead
from cpsched.model import Decision, EndedJob, Need, Snapshot
from cpsched.planning import plan
from cpsched.run_times import RunTimes
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

    - by queued job, in order of arrival: `amount`, `walltime_s`, `weight`, `first` (1 where it starts now);
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
            # EASY: by arrival, then whatever does not delay the first that waits.
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


class Judged(Dispatcher):
    """See above. `price`: the objective by whose price waits are judged."""

    learns = True
    overrun = "walltime"

    def __init__(self, samples: int = 6, price: str = "default", seed: int = 0) -> None:
        self.samples, self.seed = samples, seed
        self.times = RunTimes()
        self.plans = [Lookahead(price, seed=seed), Lookahead("slowdown", seed=seed)]

    def learn(self, ended: EndedJob) -> None:
        """Take note of a job that ended."""
        self.times.learn(ended)
        for each in self.plans:
            each.learn(ended)

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """What the best candidate starts."""
        found = {self.key(made): made for made in (each.decide(snapshot, need) for each in reversed(self.plans))}
        best = self.plans[0]
        if len(snapshot.queue) and (len(found) > 1 or next(iter(found.values())).effort.path == "searched"):
            order = {id: place for place, id in enumerate(best.memory()["order"])}
            places = [order.get(job.id, len(order)) for job in snapshot.queued_jobs()]
            for made in (
                plan(snapshot, reservations=1, need=need),
                plan(snapshot, need=need),
                plan(snapshot, np.array(places), reservations=1, need=need),
            ):
                found.setdefault(self.key(made), made)
        every = list(found.values())
        return every[0] if len(every) == 1 else self.chosen(snapshot, every)

    @staticmethod
    def key(made: Decision) -> tuple[int, ...]:
        """What it starts."""
        return tuple(sorted(made.starts.slots.tolist()))

    def chosen(self, snapshot: Snapshot, every: Sequence[Decision]) -> Decision:
        """The candidate with the least mean cost; the plan's own where costs are the same."""
        table, now_s = snapshot.table, snapshot.now_s
        draw = np.random.default_rng((self.seed, now_s))
        started = {slot for made in every for slot in made.starts.slots.tolist()}
        first = sorted(range(len(snapshot.queue)), key=lambda at: (int(snapshot.queue[at]) not in started, at))
        queue = snapshot.queue[np.array(sorted(first[: max(QUEUED, len(started))]), np.int64)]
        running = snapshot.running
        amounts = table.units * table.per_unit[:, 0]
        by_size = running[np.argsort(-amounts[running], kind="stable")]
        known, others = by_size[:DRAWN], by_size[DRAWN:]
        history = self.plans[0]._history
        assert history is not None
        expected_s = history.expected_s(snapshot, queue)
        elapsed_s = now_s - table.start_s[by_size]
        left_s = np.maximum(1, history.expected_s(snapshot, others) - elapsed_s[len(known) :]).astype(np.int64)
        ends = np.empty((self.samples, len(by_size)), np.int64)
        ends[:, len(known) :] = left_s
        for k, slot in enumerate(known.tolist()):
            ends[:, k] = self.drawn(draw, snapshot, slot, int(elapsed_s[k])) - elapsed_s[k]
        run_s = np.array([self.drawn(draw, snapshot, slot, 0) for slot in queue.tolist()]).T
        waited_s = now_s - table.submit_s[queue]
        price = self.plans[0]._objective.aged_s
        weight = self.plans[0]._row.weights(amounts[queue], expected_s) * (1 + (waited_s / price) ** 4)
        costs = []
        for made in every:
            mine = np.isin(queue, made.starts.slots).astype(np.int64)
            costs.append(
                drained(
                    int(snapshot.free[:, 0].sum()), amounts[queue], table.walltime_s[queue].copy(),
                    np.ascontiguousarray(run_s), weight, mine, amounts[by_size], ends,
                    np.maximum(1, table.start_s[by_size] + table.walltime_s[by_size] - now_s),
                )
            )  # fmt: skip
        least = min(costs)
        return every[max(at for at, cost in enumerate(costs) if cost <= least)]

    def drawn(self, draw: np.random.Generator, snapshot: Snapshot, slot: int, elapsed_s: int) -> npt.NDArray[np.int64]:
        """Run times of a job, one of each of `samples` equal parts of its distribution, in any order."""
        at = (draw.permutation(self.samples) + draw.random(self.samples)) / self.samples
        found: npt.NDArray[np.int64] = np.maximum(
            elapsed_s + 1, self.times.drawn(snapshot.table.jobs[slot], at, elapsed_s)
        )
        return found


class AtRandom(Judged):
    """The control: any of the same candidates."""

    def chosen(self, snapshot: Snapshot, every: Sequence[Decision]) -> Decision:
        """One of them."""
        return every[int(np.random.default_rng((self.seed, snapshot.now_s)).integers(len(every)))]


SETTINGS = ("lookahead", "tests.benchmarks.judging:Judged", "tests.benchmarks.judging:AtRandom")


def main(arguments: Sequence[str]) -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("training", "test", "both"), default="test")
    parser.add_argument("--traces", default=",".join(unseen.FILES))
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--seeds", default="0")
    given = parser.parse_args(arguments)
    for name, (file, system, _, upto) in unseen.FILES.items():
        unseen.FILES[name] = (file, system, given.jobs, upto)
    unseen.KEPT = unseen.KEPT / f"judging-{given.jobs}"
    words = ["--half", given.half, "--traces", given.traces, "--seeds", given.seeds, "--intervals"]
    unseen.main([*words, *SETTINGS])


if __name__ == "__main__":
    main(sys.argv[1:])
