"""Parse Slurm and PBS syntax with pure functions from text to values.

- `slurm_limits`: limits, amounts of resources, times, and the tables that Slurm's commands print.
- `gres`: generic resources, such as `gpu:a100:2(S:0-1)`.
- `hostlist`: node lists, such as `n[1-3,07],gpu1`.
- `pbs_select`: PBS requests, sizes and durations.

The simulator uses these parsers for site files and traces, and the bridge's adapters for cluster commands' output.
"""
