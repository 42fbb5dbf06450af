"""Read the policy of a Slurm site: weights, fair share, QOS, limits and usage.

- `site_policy_commands`: runs the commands in the background, with a common deadline.
- `site_policy_reader`: decides when to query, and which data to keep if an answer is missing.
- `priority_ranking`: ranks pending jobs and applies limits, without I/O.
"""
