"""Parsers for Slurm and PBS syntax: pure functions from text to values.

- `slurm_limits`: limits, amounts of resources, times, and the tables that Slurm's commands print.
- `gres`: generic resources, such as `gpu:a100:2(S:0-1)`.
- `hostlist`: node lists, such as `n[1-3,07],gpu1`.
- `pbs_select`: requests, sizes and durations of PBS.

The simulator uses them for site files and traces, the bridge's adapters for the output of cluster commands.
"""
