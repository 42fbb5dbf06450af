"""The site's own policy, as Slurm has it: priority and limits. Pure: figures in, figures out.

- `multifactor`: the priority of jobs from factors and weights (`priority/multifactor`), and in arrival order (`basic`).
- `accounts`: users, accounts, qualities of service (QOS), and the limits that each of them sets.
- `limits`: which limits a job counts against, in Slurm's order of precedence, with Slurm's names for the reasons.
- `admission`: which jobs may start in one round, so that no round starts more than the limits allow.
- `weighing`: what a job's priority is worth to an objective.

Held jobs have no priority in Slurm, so whoever starts them must compute it outside.
"""
