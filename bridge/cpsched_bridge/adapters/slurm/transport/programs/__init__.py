"""Run Slurm's programs for all transports, and apply the rules for changing jobs.

- `command_rules`: decides from a new record whether a job may be changed.
- `job_commands`: the commands of a transport, built on its actions for one job: look, start, hold, release.
- `array_records`: finds the record of each array task.
- `scontrol_session`, `scontrol_calls`, `lease_commands`: changes by scontrol. `slurm_environment`: the environment of
  all programs.
- `call_budget`: counts calls against slurmctld's limit.
- `layout_queries`, `privilege`, `topology`, `unix_groups`: facts that only programs and the host show.
"""
