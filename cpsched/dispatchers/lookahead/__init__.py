"""`lookahead`: plan every pending job by a short search over orders of the queue.

- `objectives`: the cost of a plan, one row per objective.
- `lookahead_dispatcher`: the dispatcher. The search is compiled (`cpsched.kernels.order_search`).
"""
