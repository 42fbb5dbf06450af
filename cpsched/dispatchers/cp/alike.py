"""Jobs that are interchangeable in a round: which they are, and plans in which they start in order of arrival.

To exchange two jobs of the same request, estimate and cost changes neither what a plan takes nor what it costs. A
search that knows this visits one plan of each such family.
"""

from __future__ import annotations

import numpy as np

from cpsched.dispatchers.cp.objective import Objective
from cpsched.dispatchers.cp.positions import Facts, Plan
from cpsched.model import IntArray


def groups(facts: Facts, objective: Objective) -> list[IntArray]:
    """The considered jobs of each kind of which there are several: positions among the considered jobs, ascending."""
    slots = facts.jobs
    columns = (facts.units, facts.estimate_s, facts.sharing, facts.node_set)
    rows = np.column_stack([*(column[slots] for column in columns), facts.per_unit[slots], *objective[:2]])
    _, kind_of, count = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return [np.flatnonzero(kind_of.reshape(-1) == kind) for kind in np.flatnonzero(count > 1)]


def in_order(plan: Plan, alike: list[IntArray]) -> Plan:
    """The same plan, in which the jobs of each group start in the order in which they are considered."""
    found = Plan(*(column.copy() for column in plan))
    for group in alike:
        for j, other in zip(
            group.tolist(), group[np.argsort(plan.start_s[group], kind="stable")].tolist(), strict=True
        ):
            found.start_s[j], found.parts[j] = plan.start_s[other], plan.parts[other]
            to, of = slice(*plan.first[j : j + 2]), slice(*plan.first[other : other + 2])
            for mine, theirs in zip(found[3:], plan[3:], strict=True):
                mine[to] = theirs[of]
    return found
