"""Run Slurm's programs for all transports, and apply the rules for changing jobs.

- `job_command_rules`: decides from a newly read record whether a job may be changed.
- `job_commands`: executes orders with a transport's actions on single jobs, such as read, start, hold and release.
- `array_records`: finds the record of each array task.
- `scontrol_session`, `slurm_program_calls`, `lease_commands`: run scontrol and other programs.
- `rpc_rate_limit`: counts calls against slurmctld's limit.
- `layout_queries`, `slurm_privilege`, `topology_queries`, `unix_groups`: query facts that pyslurm does not provide.
"""
