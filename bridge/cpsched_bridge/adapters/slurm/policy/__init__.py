"""The policy of a Slurm site, read at the pace at which it changes: weights, fair share, QOS, limits, what is spent.

- `answers`: what Slurm's commands print, as one `SitePolicySnapshot`; pure.
- `asking`: the commands, run beside the cycle, each with a deadline.
- `reader`: when to ask, what to keep when no answer comes.
- `ranking`: pending jobs with their priorities, and how they stand to the limits; pure.
"""
