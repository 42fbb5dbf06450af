"""Parse the text of Slurm's configuration and commands with pure functions.

- `configuration`: the controller's configuration, and its rules for the selection of nodes.
- `objects`: nodes, partitions, reservations and topologies as typed records.
- `option_lists`: slurm.conf's lists of options and of flags, such as `SchedulerParameters` and `PriorityFlags`.
- `task_ranges`: lists of array tasks, such as `1-500:2`.
"""
