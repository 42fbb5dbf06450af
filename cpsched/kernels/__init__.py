"""Compiled loops over queue, nodes and running jobs.

`docs/kernels.md` explains them with one example. Modules:

- `scheduling_state`: the handles: machine, node classes, list scheduler, plan result, workspace, state.
- `fit_rules`: the one fit rule.
- `queue_orders`: the orders of the queue.
- `pool_scheduling`: list schedulers on a counted pool. `shadow_time_on_pool` computes EASY's shadow time.
- `pool_profile`: free amounts of a pool over time.
- `node_scheduling`: list schedulers on nodes. `earliest_reservation` computes EASY's shadow time.
- `node_classes`: nodes with the same availability profile.
- `availability`: a job's units and earliest start on the profiles of the classes.
- `node_selection`: the nodes of a job.
- `node_layout` and `class_ranges`: plans on ranges of nodes instead of single nodes.
- `order_search`: the search of `lookahead` among orders of the queue. `search_state` holds its state, `plan_costs` its
  costs, `order_moves` its random moves. `decode_pool` and `decode_nodes` turn an order into a plan.
- `virtual_easy`: a virtual schedule with the starts of EASY.
- `slurm_passes`: the main and backfill passes of Slurm's scheduler.
- `total_profile`: a lower bound on a job's start from the sum over all nodes.
- `cp`: the loops of the constraint-programming dispatchers.

Python calls the functions marked `@kernel`.

Columns are those of `cpsched.model.JobTable`, indexed by slot. Kernels decide by values alone (times, amounts, node
indices), never by storage order. So the same instant gives the same decision, whether its state was carried between
rounds or rebuilt.
"""
