"""What the solver does in each contended round: whether a model is built, how long that takes, and how far it searches.

`cpsched instances record TRACE --out rounds.jsonl.gz --dispatcher pcp20 --contended`, then
`python -m tests.benchmarks.cp_rounds rounds.jsonl.gz [every=N] [quiet=yes] [NAME=VALUE ...]`. A line for each round
without a certain answer, or with `certain=no` for each: the considered jobs and their units, the model, CPU time of
building, of verifying and searching, branches, and what the best plan's delays cost over those of the plan at hand.
Then what all have in common. Settings go to `pcp20`; with `quiet=yes` the summary alone is printed.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.dispatchers.cp import engine
from cpsched.kernels.cp.delays import delay
from cpsched_sim.instances import read_instances
from tests.searches import studied

FEW = 20
"""So many branches count as a search."""


@dataclass(slots=True)
class Round:
    """What one call of the solver did; times in milliseconds of CPU."""

    jobs: int
    parts: int
    model: str = "-"
    built_ms: float = 0.0
    searched_ms: float = 0.0
    branches: int = 0
    share: float = 1.0
    """What the delays of the best plan cost, over those of the plan at hand."""
    status: str = ""


rounds: list[Round] = []
_improve, _restart = engine.improve, engine.Run.restart
_began_s = 0.0


def improve(problem: Any, answer: Any, *rest: Any) -> Any:
    """The engine's, watched."""
    global _began_s
    facts = problem.facts
    found = Round(len(facts.jobs), int(facts.table.units[facts.jobs].sum()))
    rounds.append(found)
    _began_s = time.process_time()
    better = _improve(problem, answer, *rest)
    found.branches, found.status = better.branches, better.status
    if better.plan is not None and answer.plan is not None:
        before, after = (delay(problem.objective, each.plan.start_s) for each in (answer, better))
        found.share = after / before if before > 0 else 1.0
    return better


def restart(run: engine.Run, *rest: Any) -> None:
    """The engine's, watched: building ends where it begins."""
    found = rounds[-1]
    found.model, found.built_ms = type(run._model).__name__, (time.process_time() - _began_s) * 1000
    before_s = time.process_time()
    _restart(run, *rest)
    found.searched_ms = (time.process_time() - before_s) * 1000


def main(file: str, words: list[str]) -> None:
    """All rounds of the file, or each `every`-th."""
    given = dict(word.split("=", 1) for word in words)
    every, quiet = int(given.pop("every", "1")), given.pop("quiet", "no") == "yes"
    engine.improve, engine.Run.restart = improve, restart  # type: ignore[method-assign]
    contended, paths = 0, Counter[str]()
    for at, instance in enumerate(read_instances(Path(file))):
        if at % every:
            continue
        contended += 1
        before = len(rounds)
        decision = studied("pcp20", given).decide(instance.snapshot, "starts")
        paths[decision.effort.path] += 1
        if len(rounds) > before and not quiet:
            found = rounds[-1]
            print(
                f"{instance.number}: {found.jobs} jobs, {found.parts} units, {found.model};"
                f" built in {found.built_ms:.0f} ms, searched for {found.searched_ms:.0f} ms,"
                f" {found.branches} branches, {found.share:.3f} of the plan at hand, {found.status}",
                flush=True,
            )
    print(f"{contended} contended rounds: {dict(paths)}")
    summary()


def summary() -> None:
    """What the rounds have in common that were given to the solver."""
    if not rounds:
        return
    built = [found for found in rounds if found.model != "-"]
    searched = [found for found in built if found.branches >= FEW or found.status == "optimal"]
    print(
        f"{len(rounds)} given to the solver: a model built in {len(built)} ({len(built) / len(rounds):.1%}), a proof or"
        f" {FEW} branches in {len(searched)} ({len(searched) / len(rounds):.1%}),"
        f" improved in {sum(found.share < 1 - 1e-9 for found in rounds)},"
        f" proved in {sum(found.status == 'optimal' for found in rounds)};"
        f" delays cost {np.mean([found.share for found in rounds]):.4f} of the plan at hand (mean);"
        f" {sum(found.built_ms + found.searched_ms for found in rounds) / 1000:.1f} s CPU"
    )
    for model in sorted({found.model for found in built}):
        of = [found for found in built if found.model == model]
        built_ms, searched_ms = ([getattr(found, name) for found in of] for name in ("built_ms", "searched_ms"))
        branches = [found.branches for found in of]
        print(
            f"  {model}: {len(of)} rounds; built in {np.median(built_ms):.0f} ms (median), {max(built_ms):.0f} (most);"
            f" branches {np.median(branches):.0f} (median), {min(branches)} (fewest);"
            f" {100 * sum(branches) / max(1.0, sum(searched_ms)):.0f} branches in 100 ms"
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
