"""Read Slurm 22.05 and later by its own commands, without compiling or libslurm.

- `slurm_programs` runs programs with a deadline; `word_parsers` parses single words.
- `squeue`, `scontrol_job` and `job_records` read jobs, `scontrol_objects` the other objects of slurmctld, `sacct` the
  past.
- `cli_reader` combines them.

Text of users (names, comments, paths) never ends a field or a record: `squeue` and `sacct` end each field with a new
random word for each answer. What only `scontrol` shows is read from lines that no user can write, or not at all.
"""
