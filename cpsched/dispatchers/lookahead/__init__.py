"""`lookahead`: plan all pending jobs with a short search over queue orders.

- `objectives`: the cost of a plan, one row per objective.
- `lookahead_dispatcher`: the dispatcher. Its search is compiled (`cpsched.kernels.order_search`).
"""
