"""A site's policy for simulations: who has which share and which limits, read from a file, and what came of it.

- `policy_file`: the file, and what it says as values.
- `dumps`: what `sacctmgr` and `sshare` print, taken as it is.
- `fair_share`: what past use is worth beside a share, as Slurm works it out.
- `fairness`: measures of who got what.
"""
