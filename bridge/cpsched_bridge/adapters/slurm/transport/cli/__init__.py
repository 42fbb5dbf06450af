"""Slurm's own commands as text, for releases from 22.05 on: nothing is compiled, and libslurm is not needed.

- `asking` runs programs with a deadline; `wording` reads single words of theirs.
- `squeue`, `details` and `jobs` read jobs, `cluster` everything else that slurmctld tells, `sacct` the past.
- `reading` puts that together.

What users write (names, comments, paths) is never believed to end a field or a record: `squeue` and `sacct` end each
field with a word that is drawn anew for each answer. What only `scontrol` tells is taken from lines that no user can
write, or not at all.
"""
