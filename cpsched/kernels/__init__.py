"""The compiled loops over queue, nodes and running jobs.

`docs/kernels.md` explains them with one example. Where to look:

- `scheduling_state`: the handles: machine, node classes, list scheduler, plan result, workspace, state.
- `fit_rules`: the one fit rule.
- `queue_orders`: the orders of the queue.
- `pool_scheduling`: list schedulers on a counted pool. EASY's shadow time is `shadow_time_on_pool` there.
- `pool_profile`: free amounts of a pool over time.
- `node_scheduling`: list schedulers on nodes. EASY's shadow time is `earliest_reservation` there.
- `node_classes`: nodes with the same availability profile.
- `availability`: what a job finds on the profiles of the classes: units now, earliest start.
- `node_selection`: which nodes a job gets.
- `node_layout` and `class_ranges`: how a plan moves whole ranges of nodes instead of single ones.
- `order_search`: the search of `lookahead` among orders of the queue. Its state is in `search_state`, its costs in
  `plan_costs`, its random moves in `order_moves`. `decode_pool` and `decode_nodes` turn an order into a plan.
- `virtual_easy`: a virtual schedule: when EASY would have started each job.
- `slurm_passes`: the main and backfill passes of Slurm's own scheduler.
- `total_profile`: a bound on the start of a job that does not look at the nodes.
- `cp`: the loops of the constraint-programming dispatchers.

Python calls the functions marked `@kernel`.

Columns are those of `cpsched.model.JobTable`, indexed by slot. Kernels decide on values alone (times, amounts, node
indices), never on the order in which values happen to be stored. So the same instant gives the same decision, whether
its state was carried between rounds or built again.
"""
