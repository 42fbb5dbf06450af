"""The compiled floor: the loops over queue, nodes and running jobs.

- `state`: the handles, each field named once: machine, groups, method, draft, site.
- `fit`: the one fit rule. `orders`: orders of the queue.
- `pool`: list schedulers on a counted pool, EASY's shadow time among them; `profile`: what is free when.
- `nodes`: the same list schedulers on nodes. They stand on `groups` (nodes that are free alike), `lines` (what a job
  finds on them), `picking` (which nodes it gets), and `ranges` on a `layout` (what a plan does to the groups).
- `search`: the search of `lookahead` among orders of the queue, on `search_state`, with `costs`, `moves`, and an order
  decoded on a pool (`decode_pool`) or on nodes (`decode_nodes`).
- `cp`: the loops of the constraint-programming dispatchers.

The doors, which Python calls, are the functions marked `@kernel`: `pool.plan_counted`, `nodes.plan_placed`,
`search.look_ahead`, `search.ordered`, `search.go_on_from`,
`state.starts_of`, `state.planned`, `fit.first_fault`, `fit.units_by_node`.

Columns are those of `cpsched.model.JobTable`, indexed by slot. Kernels decide on values alone (times, amounts, node
indices), never on the order in which something happens to be stored: the same instant gives the same decision, whether
its state was carried along or built anew.
"""
