"""Apply the policy of a Slurm site: weights, fair share, QOS, limits and usage.

- `priority_ranking`: ranks pending jobs and applies limits, without I/O. `sprio_comparison` checks the priorities.
- `preemptors`: jobs that are left to Slurm because they may preempt others.
"""
