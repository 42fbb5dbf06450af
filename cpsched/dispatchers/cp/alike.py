"""Jobs that are interchangeable in a round: which they are, and plans in which they start in order of arrival.

Two jobs of the same request, estimate and cost can be exchanged: the plan then takes and costs the same. A search that
knows this visits only one of the plans that differ by exchanges.
"""

from __future__ import annotations

import numpy as np

from cpsched.kernels.cp.state import Facts, Objective, Plan
from cpsched.model import IntArray


def groups(facts: Facts, objective: Objective) -> list[IntArray]:
    """The considered jobs of each kind of which there are several: positions among the considered jobs, ascending."""
    slots, table = facts.jobs, facts.table
    asked = (table.units, table.estimate_s, table.sharing, table.node_set, table.per_unit)
    rows = np.column_stack([*(column[slots] for column in asked), objective.weight, objective.since_s])
    _, kind_of, count = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return [np.flatnonzero(kind_of.reshape(-1) == kind) for kind in np.flatnonzero(count > 1)]


def in_order(plan: Plan, alike: list[IntArray]) -> Plan:
    """The same plan, in which the jobs of each group start in the order in which they are considered."""
    found = plan.copy()
    for group in alike:
        for j, other in zip(
            group.tolist(), group[np.argsort(plan.start_s[group], kind="stable")].tolist(), strict=True
        ):
            found.start_s[j], found.parts[j] = plan.start_s[other], plan.parts[other]
            to, of = slice(*plan.first[j : j + 2]), slice(*plan.first[other : other + 2])
            for name in ("node", "units", "y", "dy"):
                getattr(found, name)[to] = getattr(plan, name)[of]
    return found
