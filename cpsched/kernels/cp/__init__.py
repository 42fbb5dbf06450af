"""The compiled loops of the constraint-programming dispatchers.

- `cp_state`: the shared structs for the input of a round, a plan with its parts, one instant of a plan, and a search
  step.
- `plan_instant`: the cluster at one instant of a plan; kinds of units.
- `startable_jobs`: the queued jobs that could start now, or ever.
- `dive`: the first leaf of the search in pcp20 section 3: a whole plan, without a solver.
- `next_decision`: the next step of the solver's search.
- `running_rectangles`: the resources that running jobs use, for the solver's models.
- `relaxation`: the problem without places. `branch_and_bound`: branch and bound on the relaxation.
- `delay_costs`: the cost of a plan.

Names: N nodes, R resources, J considered jobs in priority order, P *parts*. A part is one box of the position model:
one unit of a job or, for a job that requests whole nodes, one node with all of its units there. Positions are local
to their node: `y` = 0 is the node's first position of a resource.

Running jobs have no fixed positions. In each call they are stacked from position 0 of their node, with the job that
ends last at the bottom. Therefore, the free part of a node is always contiguous, and a job whose amounts fit now
always finds positions. Only jobs that are planned in the same call can leave holes between them. Holes can delay
planned starts in the future, but no start now.
"""

from cpsched.kernels.cp import (
    branch_and_bound,
    cp_state,
    delay_costs,
    dive,
    next_decision,
    plan_instant,
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
    "plan_instant",
    "relaxation",
    "running_rectangles",
    "startable_jobs",
]
"""All modules with kernels. They are imported so that all kernels are compiled before a dispatcher's first decision."""
