"""The compiled floor: the loops over queue, nodes and running jobs.

`docs/kernels.md` explains this floor with one drawing. Where to look for what:

- `state`: the handles, each field named once: machine, groups, method, draft, trial, site.
- `fit`: the one fit rule.
- `orders`: the orders of the queue.
- `pool`: list schedulers on a counted pool. EASY's shadow time is `pool_scheduling.shadow_time_on_pool`.
- `profile`: free amounts of a pool over time.
- `nodes`: the same list schedulers on a cluster of nodes. EASY's shadow time is `node_states.reserve` there.
- `groups`: groups of nodes with the same line.
- `lines`: what a job finds on the lines of the groups: units now, earliest slot.
- `picking`: which nodes a job gets.
- `layout` and `ranges`: how a plan moves whole ranges of nodes instead of single ones.
- `search`: the search of `lookahead` among orders of the queue. Its state is in `search_state`, its prices in `costs`,
  its random changes in `moves`. `decode_pool` and `decode_nodes` turn an order into a plan.
- `baseline`: a virtual schedule: when EASY would have started every job.
- `slurm`: the main loop and the backfill of Slurm's own scheduler.
- `totals`: a bound on the start of a job that needs no look at the nodes.
- `cp`: the loops of the constraint-programming dispatchers.

The doors, which Python calls, are the functions marked `@kernel`: `pool_scheduling.plan_on_pool`,
`node_states.plan_placed`,
`node_states.try_job`, `slurm.plan_as_slurm`, `decision_builder.look_ahead`, `decision_builder.ordered`,
`decision_builder.go_on_from`, those of `baseline`,
`simulated_cluster.starts_of`, `simulated_cluster.planned`, `fit_rules.first_fault`, `fit_rules.units_by_node`.

Columns are those of `cpsched.model.JobTable`, indexed by slot. Kernels decide on values alone (times, amounts, node
indices), never on the order in which values happen to be stored. So the same instant gives the same decision, whether
its state was carried along or built anew.
"""
