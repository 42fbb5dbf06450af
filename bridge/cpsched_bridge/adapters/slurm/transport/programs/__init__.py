"""Run Slurm's programs for all transports, and apply the rules for changing jobs.

- `job_command_rules`: finds the record of each array task, and decides from a newly read record whether a job may be
  changed.
- `scontrol_session`, `slurm_programs`: run scontrol and other programs.
- `call_limits`: counts calls against slurmctld's limit, and limits how long slurmctld may be silent.
- `layout_queries`, `user_queries`: query facts that pyslurm does not provide.
"""
