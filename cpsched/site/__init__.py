"""The site's policy as configured in Slurm: functions for priorities and limits.

- `multifactor_priority`: priorities from factors and weights (`priority/multifactor`), or by arrival (`basic`).
- `accounts`: users, accounts and qualities of service (QOS), with their limits.
- `limit_checks`: which limits apply to a job, in Slurm's order of precedence, with Slurm's reason names.
- `admission`: which jobs may start in one round without exceeding the limits.
- `priority_multipliers`: the weight of a job's priority in an objective.

Held jobs have no priority in Slurm, so a program that releases them must compute it.
"""
