"""The compiled loops of the constraint-programming dispatchers.

- `cp_state`: the handles: input of a round, plan with its parts, one moment of a plan, search step.
- `plan_moments`: the cluster at one moment of a plan; kinds of units.
- `startable_jobs`: which queued jobs could start at all.
- `dive`: the first leaf of the paper's search: a whole plan, without a solver.
- `next_decision`: the next step of the solver's search.
- `running_rectangles`: what running jobs hold, for the solver's models.
- `relaxation`: the problem without places. `branch_and_bound`: branch and bound on it.
- `delay_costs`: the cost of a plan.

Names: N nodes, R resources, J considered jobs in priority order, P *parts*. A part is one box of the position model:
one unit of a job or, for a job that wants whole nodes, one node with all of its units there. Positions are local to
their node: `y` = 0 is the node's first position of that resource.

Running jobs have no fixed positions. In each call they are stacked from position 0 of their node, the job that ends
last at the bottom. So what is free on a node is one contiguous piece at every moment, and a job whose amounts fit now
always finds positions. Only jobs that are planned in the same call can leave holes between them. Holes can delay
planned starts in the future, and no start of now.
"""

from cpsched.kernels.cp import (
    branch_and_bound,
    cp_state,
    delay_costs,
    dive,
    next_decision,
    plan_moments,
    relaxation,
    running_rectangles,
    startable_jobs,
)

__all__ = [
    "branch_and_bound",
    "cp_state",
    "delay_costs",
    "dive",
    "next_decision",
    "plan_moments",
    "relaxation",
    "running_rectangles",
    "startable_jobs",
]
"""All modules, so that ahead-of-time compilation before a dispatcher's first decision misses no kernel."""
