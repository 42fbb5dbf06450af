"""Read Slurm 22.05 and later with its own commands, without libslurm.

- `squeue_parsing`, `scontrol_job_parsing` and `job_records` read jobs, and `sacct_parsing` reads ended jobs.
- `cli_reader` combines these modules with `cpsched.slurm_text`, which parses the other objects of slurmctld.

Users' text (names, comments, paths) never ends a field or a record: `squeue` and `sacct` end each field with a random
word that is new in each answer. Facts that only `scontrol` shows are read only from lines that no user can write.
"""
