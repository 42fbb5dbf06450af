"""CP-SAT as improver and as judge of `lookahead`'s plans, on pools.

`python -m tests.benchmarks.lookahead_solver [rounds] [realised]`. The solver is given the first jobs of a plan by
their starts, these starts as a hint, and the prices and bound of the search. Its starts are an order, which is decoded,
and the cheaper plan is taken. Limits are the solver's own deterministic seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cpsched.dispatchers.cp import sat, window
from cpsched.dispatchers.lookahead.dispatcher import Lookahead
from cpsched.dispatchers.lookahead.objectives import OBJECTIVES as OBJECTIVE_ROWS
from cpsched.kernels.costs import BOUND_FROM
from cpsched.kernels.cp.relaxation import relax
from cpsched.kernels.search import ordered
from cpsched.model import NEVER, Decision, IntArray, Need, Snapshot
from cpsched_sim.experiment import simulate
from tests.benchmarks import run_parts
from tests.benchmarks.lookahead import FIRST_JOBS, SEEDS, workload, worth
from tests.searches import Ablated, weights

TRACES = ("KTH", "BLUE")
OBJECTIVES = ("default", "af")
EVERY = 300
"""One searched round of so many is looked at."""
EFFORTS = (0, 60, 300, 3000)
SOLVED = ((20, 0.1), (100, 0.1), (20, 1.0), (100, 1.0))
"""Jobs that the solver is given, and its limit."""
REALISED_JOBS = 1_000
WITHOUT_END = 10**9
NONE = 1e-9
"""A relative difference that counts as none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the solver makes of the first jobs of a plan: an order of job ids for the whole queue, and a bound.

    `bound` is a proved lower bound of what the jobs cost that the solver was given.
    """

    order: list[int]
    bound: float
    status: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan that a search has settled on: its searched jobs by planned start."""

    snapshot: Snapshot
    positions: IntArray
    """Queue positions."""
    start_s: IntArray
    weight: sat.FloatArray
    latest_s: IntArray
    """By when a job has to start, for the bound of the longest wait."""
    behind: IntArray
    """Queue positions of the jobs that were not searched."""

    @classmethod
    def of(cls, searched: Lookahead, snapshot: Snapshot, decision: Decision) -> Plan:
        """The plan of the round that was decided last, which was searched."""
        assert decision.plan_s is not None
        table, search = snapshot.table, searched._search
        at = {slot: position for position, slot in enumerate(snapshot.queue.tolist())}
        order = np.array([at[slot] for slot in ordered(search).tolist()], np.int64)
        head = order[: search.head]
        positions = head[np.argsort(decision.plan_s[head], kind="stable")]
        slots = snapshot.queue[positions]
        submit_s, weight = table.submit_s[slots], weights(search, len(snapshot.queue))[positions]
        is_old = snapshot.now_s - submit_s >= BOUND_FROM * search.bound_s
        latest_s = np.where(is_old, submit_s + search.bound_s * is_old, NEVER)
        return cls(snapshot, positions, decision.plan_s[positions], weight, latest_s, order[search.head :])

    def cost(self, start_s: IntArray | None = None) -> float:
        """What the plan costs, or another of the same jobs; infinite past the bound."""
        start_s = self.start_s if start_s is None else start_s
        late = (start_s > self.latest_s).any()
        return np.inf if late else float((self.weight * (start_s - self.snapshot.now_s)).sum())

    def cost_by(self, decision: Decision) -> float:
        """What the jobs cost by the plan of a decision."""
        assert decision.plan_s is not None
        return self.cost(decision.plan_s[self.positions])

    def solved(self, jobs: int, limit_s: float, seed: int = 0) -> Answer:
        """What the solver makes of its first `jobs`, as if no others were there."""
        began_s = time.process_time()
        snapshot, first, now_s = self.snapshot, self.positions[:jobs], self.snapshot.now_s
        facts = window.facts_of(snapshot).considering(snapshot.queue[first])
        free = relax(facts, False)
        pooled = sat.Pooled(
            now_s, np.zeros(len(first), np.int64), facts.table.estimate_s[facts.jobs], free.demand,
            free.moment_s - now_s, free.capacity,
        )  # fmt: skip
        built = sat.BuiltModel(pooled)
        for start, latest_s in zip(built.start, self.latest_s[:jobs].tolist(), strict=True):
            if latest_s < now_s + pooled.horizon_s:
                built.model.add(start <= latest_s - now_s)
        weight = self.weight[:jobs]
        factor = min(sat._LARGEST / (float(weight.sum()) * pooled.horizon_s), 1e6 / float(weight.min()))
        whole = np.maximum(1, np.rint(weight * factor)).astype(np.int64).tolist()
        built.model.minimize(sum(each * start for each, start in zip(whole, built.start, strict=True)))
        built.hint(self.start_s[:jobs])
        solver, status = sat._searched(built.model, sat.PoolBudget(0.0, round(1000 * limit_s), seed))
        after_s = self.start_s[:jobs] - now_s
        if status in ("optimal", "feasible"):
            after_s = np.array([solver.value(start) for start in built.start], np.int64)
        order = np.concatenate((first[np.argsort(after_s, kind="stable")], self.positions[jobs:], self.behind))
        ids = [snapshot.table.jobs[slot].id for slot in snapshot.queue[order].tolist()]
        return Answer(ids, solver.best_objective_bound / factor, status, time.process_time() - began_s)


def decoded(snapshot: Snapshot, order: list[int], objective: str) -> tuple[Lookahead, Decision]:
    """The plan of an order of job ids."""
    decoder = Ablated(objective, candidates=1, effort=0)
    decoder.recall({"order": order, "first_s": {}})
    return decoder, decoder.decide(snapshot)


class Watched(Lookahead):
    """`lookahead`, of whose searched rounds every `EVERY`th is shown to `look`, with the memory before it."""

    def __init__(self, objective: str, look: Callable[[Plan, Mapping[str, Any]], None]) -> None:
        super().__init__(objective)
        self._look, self._rounds = look, 0

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """See `Dispatcher.decide`."""
        shown = self._rounds % EVERY == EVERY - 1
        memory = self.memory() if shown else {}
        decision = super().decide(snapshot)
        if decision.effort.path == "searched":
            self._rounds += 1
            if shown:
                self._look(Plan.of(self, snapshot, decision), memory)
        return decision


def watch(name: str, objective: str, look: Callable[[Plan, Mapping[str, Any]], None]) -> None:
    """Replay the first jobs of a trace with requested times, and look at some of its searched rounds."""
    work = workload(name)
    outcome = simulate(replace(work, jobs=work.jobs[:FIRST_JOBS]), Watched(objective, look))
    assert not outcome.schedule.violations, outcome.schedule.violations[0]


@dataclass(slots=True)
class Round:
    """What became of one round: costs, proofs and CPU seconds by how the plan was made."""

    jobs: int
    by_effort: dict[int, float]
    """By the effort of the search."""
    solved: dict[tuple[int, float], tuple[float, bool, float]]
    """By jobs and limit of the solver, which goes on from the search: cost, whether proved optimal, CPU seconds."""
    bound: float
    """Proved: no plan costs less."""

    @property
    def least(self) -> float:
        """The best plan known."""
        return min(*self.by_effort.values(), *(cost for cost, _, _ in self.solved.values()))


def looked_at(plan: Plan, memory: Mapping[str, Any], objective: str) -> Round:
    """The round of a plan, searched by every effort and solved within every limit."""
    found = Round(len(plan.positions), {}, {}, 0.0)
    for effort in EFFORTS:
        other = Lookahead(objective, effort=effort, work=WITHOUT_END)
        other.recall(memory)
        found.by_effort[effort] = plan.cost_by(other.decide(plan.snapshot))
    asked: dict[tuple[int, float], tuple[float, bool, float]] = {}
    for jobs, limit_s in SOLVED:
        given = min(jobs, found.jobs), limit_s
        if given not in asked:
            answer = plan.solved(*given)
            cost = min(plan.cost(), plan.cost_by(decoded(plan.snapshot, answer.order, objective)[1]))
            asked[given] = cost, answer.status == "optimal", answer.cpu_s
            if given[0] == found.jobs:
                found.bound = max(found.bound, answer.bound)
        found.solved[jobs, limit_s] = asked[given]
    return found


def rounds() -> None:
    """What the solver makes of the plans of searched rounds, and how far from the best known these are by effort."""
    for name in TRACES:
        for objective in OBJECTIVES:
            found: list[Round] = []

            def look(plan: Plan, memory: Mapping[str, Any], to: list[Round] = found, name: str = objective) -> None:
                if plan.cost() > 0 and len(plan.behind) == 0:
                    to.append(looked_at(plan, memory, name))

            watch(name, objective, look)
            for low, high in ((2, 10), (11, 20), (21, 50), (51, 100), (2, 100)):
                of = [each for each in found if low <= each.jobs <= high]
                if of:
                    print(f"  {name} {objective}, {low} to {high} jobs: {len(of)} rounds")
                    show(of, OBJECTIVE_ROWS[objective].effort)


def show(found: list[Round], usual: int) -> None:
    """Two tables of rounds; the solver went on from the search with the `usual` effort."""
    for effort in EFFORTS:
        over = np.array([each.by_effort[effort] / each.least - 1 for each in found])
        print(
            f"    effort={effort:<5} above the best known {over.mean():.2%} (most {over.max():.2%}),"
            f" at it in {(over < NONE).mean():.0%}"
        )
    for jobs, limit_s in SOLVED:
        rows = [each.solved[jobs, limit_s] for each in found]
        share = np.array([row[0] / each.by_effort[usual] for row, each in zip(rows, found, strict=True)])
        cpu_s = np.array([row[2] for row in rows])
        print(
            f"    solver, {jobs:3} jobs, {limit_s} s: cost {1 - share.mean():.2%} lower (most {1 - share.min():.2%}),"
            f" lower in {(share < 1 - NONE).mean():.0%}, proved in {np.mean([row[1] for row in rows]):.0%},"
            f" CPU {cpu_s.mean():.2f} s (most {cpu_s.max():.2f})",
            flush=True,
        )
    above = np.array([1 - each.bound / each.least for each in found])
    print(f"    best known above the proved bound: {above.mean():.1%} of it (mean), {np.median(above):.1%} (median)")


class Solved(Lookahead):
    """`lookahead`, whose plan the solver improves where it can; the next round goes on from that plan."""

    def __init__(self, objective: str, jobs: int, limit_s: float, seed: int) -> None:
        super().__init__(objective, seed=seed)
        self._name, self._first, self._solver_s, self._of = objective, jobs, limit_s, seed
        self.asked = self.improved = 0

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """See `Dispatcher.decide`."""
        decision = super().decide(snapshot)
        if decision.effort.path != "searched":
            return decision
        plan = Plan.of(self, snapshot, decision)
        if not plan.cost():
            return decision
        self.asked += 1
        decoder, other = decoded(snapshot, plan.solved(self._first, self._solver_s, self._of).order, self._name)
        if plan.cost_by(other) >= plan.cost() * (1 - 1e-9):
            return decision
        self.improved += 1
        self.recall(decoder.memory())
        return other


def realised() -> None:
    """Whether measures get better when the solver's starts are carried out: KTH-SP2's first jobs, requested times."""
    work = workload("KTH")
    work = replace(work, jobs=work.jobs[:REALISED_JOBS])
    base = worth(simulate(work, "list-reg"))
    for seed in SEEDS:
        for objective in OBJECTIVES:
            made: dict[str, Lookahead] = {
                f"effort={effort}": Lookahead(objective, seed=seed, effort=effort, work=WITHOUT_END)
                for effort in EFFORTS
            }
            made["with the solver"] = solved = Solved(objective, *SOLVED[1], seed)
            for label, dispatcher in made.items():
                began_s = time.process_time()
                outcome = simulate(work, dispatcher)
                found, took_s = worth(outcome), time.process_time() - began_s
                names = ("af", "awf", "bsld", "p2sf", "max_wait_s")
                row = "  ".join(f"{name} {100 * found[name] / base[name]:5.1f}" for name in names)
                print(
                    f"  {objective:8}seed {seed} {label:16} {row}  {took_s:.0f} s CPU,"
                    f" violations {len(outcome.schedule.violations)}",
                    flush=True,
                )
            print(f"    the solver was asked in {solved.asked} rounds, and lowered the cost in {solved.improved}")


PARTS = {"rounds": rounds, "realised": realised}


def main(words: list[str]) -> None:
    """Run the named parts; without names all, each in a process of its own."""
    run_parts("tests.benchmarks.lookahead_solver", PARTS, words)


if __name__ == "__main__":
    main(sys.argv[1:])
