"""Compiled loops over queue, nodes and running jobs.

`docs/kernels.md` explains them with an example. Modules:

- `scheduling_state`: the shared structs for machine, node classes, list scheduler, plan result, workspace and state.
- `fit_rules`: the fit rule, defined once.
- `queue_orders`: the orders of the queue.
- `pool_list_scheduling`: list schedulers on a counted pool. `shadow_time_on_pool` computes EASY's shadow time.
- `pool_profile`: the free amounts of a pool over time.
- `node_list_scheduling`: list schedulers on nodes. `earliest_reservation` computes EASY's shadow time.
- `node_classes`: nodes with the same availability profile.
- `node_class_availability`: the units and earliest start of a job, given the classes' profiles.
- `node_selection`: selection of a job's nodes. `block_selection`: the blocks of topology/block that it fills.
- `fragmentation`: the idle GPUs that typical requests cannot use. `device_placement`: the same for parts of GPUs.
- `node_layout` and `node_class_moves`: plans on ranges of nodes instead of single nodes.
- `order_search`: the search of `lookahead` over orders of the queue. `order_search_state` holds its state,
  `plan_costs` its costs, `order_moves` its random moves. `order_to_pool_plan` and
  `order_to_node_plan` turn an order into a plan.
- `virtual_easy`: a virtual schedule with the starts of EASY.
- `slurm_passes`: the main and backfill passes of Slurm's scheduler.
- `total_profile`: a lower bound on a job's start from the sum over all nodes.
- `cp`: the loops of the constraint-programming dispatchers.

Python code calls the functions marked `@kernel`.

Columns are those of `cpsched.model.JobTable`, indexed by slot. Kernels decide only by values (times, amounts, node
indices), never by storage order. Therefore, a state carried between rounds and a rebuilt state give the same decision.
"""
