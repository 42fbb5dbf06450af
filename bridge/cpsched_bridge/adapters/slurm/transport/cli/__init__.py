"""Read Slurm 22.05 and later with its own commands, without compiling and without libslurm.

- `slurm_programs` runs programs with a deadline; `slurm_value_parsers` parses single values.
- `squeue`, `scontrol_job_parsing` and `job_records` read jobs, `scontrol_object_parsing` reads slurmctld's other
  objects, and `sacct` reads ended jobs.
- `cli_reader` combines these modules.

Users' text (names, comments, paths) never ends a field or a record: `squeue` and `sacct` end each field with a random
word that is new in each answer. Facts that only `scontrol` shows are read from lines that no user can write, or not at
all.
"""
