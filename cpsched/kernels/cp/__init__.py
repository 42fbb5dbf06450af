"""The compiled loops of the constraint-programming dispatchers.

- `state`: the handles: what a round is, a plan with its parts, one moment of a plan, a search's next step.
- `moments`: what the cluster looks like at a moment; kinds of units; `considered`: who could start at all.
- `dive`: the first leaf of the paper's search. `guide`: where the solver's search goes next.
- `boxes`: what running jobs hold, for the solver's models.
- `relaxation`: the problem without places. `tree`: its branch and bound. `delays`: what a plan costs.

Names: N nodes, R resources, J considered jobs in priority order, P *parts*. A part is one box of the position model:
one unit of a job or, for a job that wants whole nodes, one node with all of its units there. Positions are local to
their node: `y` = 0 is the node's first position of that resource.

Running jobs keep no positions of their own from call to call: at each call they are stacked from position 0, the
one that ends last at the bottom. What they leave free on a node is then one contiguous piece at every moment, so they
never refuse a unit whose amounts fit, and a job that fits now is never refused because of positions. Only jobs
planned in the same call can leave holes, and holes delay nothing but starts in the future.
"""

from cpsched.kernels.cp import boxes, considered, delays, dive, guide, moments, relaxation, state, tree

__all__ = ["boxes", "considered", "delays", "dive", "guide", "moments", "relaxation", "state", "tree"]
"""All of them, so that whoever compiles what a dispatcher needs ahead of its first decision misses none."""
