"""How Slurm and PBS spell what the core knows as values. Text in, values out: no file is opened, no cluster asked.

- `amounts`: limits, amounts of resources, times, and the tables that Slurm's commands print.
- `gres`: generic resources, such as `gpu:a100:2(S:0-1)`.
- `node_lists`: lists of nodes, such as `n[1-3,07],gpu1`.
- `pbs`: requests, sizes and durations of PBS.

The simulator reads site files and traces by it, and the bridge's adapters what the cluster answers.
"""
