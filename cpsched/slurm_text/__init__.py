"""Parse the text of Slurm's configuration and commands with pure functions.

- `objects`: nodes, partitions and reservations as typed records.
- `option_lists`: slurm.conf's lists of options and of flags, such as `SchedulerParameters` and `PriorityFlags`.
- `task_ranges`: lists of array tasks, such as `1-500:2`.
"""
