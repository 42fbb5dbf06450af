"""A site's policy for simulations: who has which share and which limits, read from a file, and what came of it.

- `policy_file`: the file, and what it says as values.
- `dumps`: what `sacctmgr` and `sshare` print, taken as it is.
- `fairness`: measures of who got what.
"""
