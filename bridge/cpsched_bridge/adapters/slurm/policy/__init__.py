"""Read the policy of a Slurm site: weights, fair share, QOS, limits and usage.

- `policy_parsing`: parses the output of Slurm's commands into a `SitePolicySnapshot`, with pure functions.
- `policy_queries`: runs the commands alongside the cycle, with a common deadline.
- `policy_cache`: decides when to query, and which data to keep if no answer arrives.
- `priority_ranking`: ranks pending jobs and applies limits, without I/O.
"""
