"""Parsers for the syntax of Slurm and PBS. Text in, values out, without files or commands.

- `slurm_limits`: limits, amounts of resources, times, and the tables that Slurm's commands print.
- `gres`: generic resources, such as `gpu:a100:2(S:0-1)`.
- `hostlist`: node lists, such as `n[1-3,07],gpu1`.
- `pbs_select`: requests, sizes and durations of PBS.

The simulator reads site files and traces with it, the bridge's adapters the output of the cluster's commands.
"""
