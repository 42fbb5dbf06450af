"""Parse the text of Slurm's configuration and commands with pure functions.

- `configuration`: the controller's configuration, and its rules for the selection of nodes.
- `object_parsing`: nodes, partitions, reservations and topologies, as `scontrol show` prints them, with `known_fields`.
- `jobs`: jobs, with their dependencies, their allocation on each node, and lists of array tasks, such as `1-500:2`.
- `objects`: nodes, partitions, reservations and topologies as typed records.
- `option_lists`: slurm.conf's lists of options and of flags, such as `PriorityFlags`, and which options are modelled.
- `preemption`: modes, times and the order of victims.
- `limits`: limits of associations and QOS, amounts of resources, and times.
- `output_values`: tables, NAME=VALUE lists and single values, such as times and lists of resources.
- `gres`: generic resources, such as `gpu:a100:2(S:0-1)`.
- `hostlist`: lists of nodes, such as `n[1-3,07],gpu1`.
"""
