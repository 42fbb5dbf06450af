"""Decision variables of PCP'20 over those of PCP'19, on recorded rounds: by the papers' formulas, and as built.

`cpsched instances record TRACE --out rounds.jsonl.gz --dispatcher pcp20 --contended`, then
`python -m tests.benchmarks.cp_variables rounds.jsonl.gz`. Four ratios, each over PCP'19's |Q| + sum of p[i,n]:

- formula: |Q| + sum of rn_i * |R| (pcp20 section 3);
- as built: a start for each job; a node for each unit, and a position in each resource where that can matter;
- nodes alone: a start for each job and a node for each unit, without which no unit has a place;
- starts alone: what is left where places are no variables at all.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from cpsched.dispatchers.cp import sizes, window
from cpsched.dispatchers.cp.variables import chosen, taken_by_all
from cpsched.kernels.cp.considered import startable
from cpsched.kernels.cp.state import Facts
from cpsched_sim.instances import read_instances

LINES = ("formula", "as built", "nodes alone", "starts alone")
TO_REACH = 0.1


def counted(facts: Facts) -> tuple[float, ...]:
    """The four ratios of one round."""
    slots, by_all, starts = facts.jobs.tolist(), taken_by_all(facts), len(facts.jobs)
    units = [int(facts.table.units[slot]) for slot in slots]
    built = starts + sum(n * (1 + len(chosen(facts, slot, by_all))) for n, slot in zip(units, slots, strict=True))
    of_19 = sizes.with_intervals(facts)
    return sizes.with_positions(facts) / of_19, built / of_19, (starts + sum(units)) / of_19, starts / of_19


def main(file: str) -> None:
    """One line for each ratio."""
    rows = []
    for instance in read_instances(Path(file)):
        facts = window.facts_of(instance.snapshot)
        slots = startable(facts, instance.snapshot.queue, 100)
        if len(slots):
            rows.append((*counted(facts.considering(slots)), len(slots)))
    table = np.array(rows)
    for at, line in enumerate(LINES):
        ratio = table[:, at]
        below = " ".join(
            f"{int((ratio[of] < TO_REACH).sum())}/{int(of.sum())} of {name}"
            for name, of in (("all", table[:, 4] > 0), ("rounds of 10 jobs and more", table[:, 4] >= 10))
        )
        print(f"{line:12} median {np.median(ratio):.3f}, max {ratio.max():.3f}; below {TO_REACH}: {below}")


if __name__ == "__main__":
    main(sys.argv[1])
