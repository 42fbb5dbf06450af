"""`lookahead`: plans every waiting job by a short search among orders of the queue.

- `objectives`: what a plan costs, one row per objective.
- `dispatcher`: the dispatcher; the search itself is compiled (`cpsched.kernels.order_search`).
"""
