"""Read the policy of a Slurm site: weights, fair share, QOS, limits and usage.

- `policy_parsing`: parses the output of Slurm's commands into one `SitePolicySnapshot`; pure.
- `policy_commands`: runs the commands beside the cycle, each with a deadline.
- `policy_reader`: decides when to query, and what to keep without an answer.
- `priority_ranking`: ranks pending jobs and applies limits; pure.
"""
