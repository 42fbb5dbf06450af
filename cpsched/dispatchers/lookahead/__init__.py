"""`lookahead`: plan every pending job with a short search over orders of the queue.

- `objectives`: the cost of a plan, one row per objective.
- `lookahead_dispatcher`: the dispatcher. Its search is compiled (`cpsched.kernels.order_search`).
"""
