"""Read Slurm 22.05 and later with its own commands, without libslurm.

- `job_list_parsing`, `scontrol_job_parsing` and `job_records` read jobs.
- `cli_reader` combines these modules with `cpsched.slurm_text`, which parses the other objects of slurmctld.
- `scontrol_commands` changes single jobs, and `job_commands` executes orders for batches of jobs.
- `cli_transport` is the transport, and keeps the lease.

Users' text (names, comments, paths) never ends a field or a record: `squeue` and `sacct` end each field with a random
word that is new in each answer. Facts that only `scontrol` shows are read only from lines that no user can write.
"""
