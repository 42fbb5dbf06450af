"""Run Slurm's programs for all transports, and apply the rules for changing jobs.

- `job_command_rules`: decides whether a job may be changed, from a record just read.
- `job_commands`: a transport's commands, built on its actions for one job: read, start, hold, release.
- `array_records`: finds the record of each array task.
- `scontrol_session`, `slurm_program_calls`, `lease_commands`: changes made with scontrol.
- `slurm_environment`: the environment of all programs.
- `rpc_rate_limit`: counts calls against slurmctld's limit.
- `layout_queries`, `privilege`, `topology`, `unix_groups`: facts that only programs and the host provide.
"""
