"""Certain answers: where no search can change the decision, no solver is called."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from cpsched.dispatchers.cp import objective, relaxation, window
from cpsched.dispatchers.cp import positions as kernels
from cpsched.dispatchers.cp.answer import Answer
from cpsched.dispatchers.cp.positions import Facts, Plan

_NODES = 1000
"""Nodes of the relaxed tree, about 10 ms. A larger number rarely proves more (measured in contended rounds of KIT)."""
_DIVES = 16
"""Plans made on the way, up to 2 ms each."""
_SHAKES = 16
"""Dives in shaken order where the tree proved nothing."""


def all_start(facts: Facts) -> Answer | None:
    """Every considered job starts now, if the dive places them all now; else None.

    That is optimal: each term of the objective grows with the job's start, and no start is before now.
    """
    plan = window.empty_plan(facts)
    if kernels.dive(facts, plan, np.arange(len(facts.jobs)), True) < len(facts.jobs):
        return None
    return Answer(plan, "single" if len(facts.jobs) == 1 else "all-fit", certain=True)


def bound_met(facts: Facts, weights: npt.NDArray[np.float64], seed: int) -> Answer:
    """The first leaf, improved by branch and bound on the problem without places; certain where that proves it.

    A plan whose weighted delay equals that of the best relaxed plan is optimal. If not certain, the answer holds the
    best plan found, also by dives in shaken order, to search on from.
    """
    plan = window.first_leaf(facts)
    relaxed = relaxation.relax(facts)
    _, _, bound = relaxation.branch(facts, relaxed, weights, plan, window.empty_plan(facts), _NODES, _DIVES)
    if not _meets(bound, facts, weights, plan):
        plan = shaken(facts, plan, weights, np.random.default_rng(seed))
    met = _meets(bound, facts, weights, plan)
    answer = Answer(plan, "bound-met", met, bound)
    return dataclasses.replace(answer, status="optimal") if met else answer


def _meets(bound: float, facts: Facts, weights: npt.NDArray[np.float64], plan: Plan) -> bool:
    """Whether no plan can be better, by more than counts as a difference."""
    return bound >= objective.delay(facts.now_s, weights, plan.start_s) * (1 - relaxation.CLOSE)


def shaken(facts: Facts, best: Plan, weights: npt.NDArray[np.float64], random: np.random.Generator) -> Plan:
    """The best of `best` and of dives that take the jobs in the order of its starts, shaken by a few places."""
    J, trial = len(weights), window.empty_plan(facts)
    least = objective.delay(facts.now_s, weights, best.start_s)
    for _ in range(_SHAKES):
        place = np.empty(J)
        place[np.argsort(best.start_s, kind="stable")] = np.arange(J)
        order = np.argsort(place + random.normal(0.0, max(1.0, J / 8), J), kind="stable")
        kernels.dive(facts, trial, order, False)
        found = objective.delay(facts.now_s, weights, trial.start_s)
        if found < least * (1 - relaxation.CLOSE):
            best, trial, least = trial, best, found
    return best
