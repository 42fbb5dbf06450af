"""A site's policy for simulations: shares, limits, and measures of fairness.

- `policy_file`: the policy file and its values.
- `sacctmgr_dumps`: the output of `sacctmgr` and `sshare`.
- `fair_share`: fair-share factors as in Slurm.
- `fairness`: usage compared with shares.
"""
